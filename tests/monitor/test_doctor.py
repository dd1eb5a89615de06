"""``penstock doctor``, as a shell runs it, on what is right and on what is really wrong."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.host.spark.executor_python import ExecutorAnswer
from penstock.monitor.doctor.cluster import of_clocks
from penstock.monitor.doctor.driver import Level
from tests.bounds import HANG_S
from tests.services.hdfs import Hdfs, write_configuration
from tests.services.ports import free_ports
from tests.services.standalone import StandaloneCluster

Found = dict[str, dict[str, str]]


def run(*arguments: str, shell: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it in a process of its own, after what `shell` says."""
    command = [sys.executable, "-m", "penstock", "doctor", *arguments]
    return subprocess.run(
        ["/bin/sh", "-c", f'{shell}\nexec "$@"', "sh", *command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


def doctor(*arguments: str, shell: str = "", **environment: str) -> tuple[int, Found]:
    """Return its exit code and what it found, by check; of several findings the worst."""
    ended = run(*arguments, "--json", shell=shell, **environment)
    levels = [level.value for level in Level]
    told: Found = {}
    for found in json.loads(ended.stdout):
        known = told.get(found["check"])
        if known is None or levels.index(found["level"]) > levels.index(known["level"]):
            told[found["check"]] = found
    for found in told.values():
        assert (found["level"] == "ok") == (not found["change"]), found
    return ended.returncode, told


def problems(told: Found) -> list[str]:
    return [check for check, found in told.items() if found["level"] == "problem"]


def test_a_machine_on_which_programs_run_has_no_problem(tmp_path: Path) -> None:
    code, told = doctor("--folder", str(tmp_path))
    assert (code, problems(told)) == (0, [])
    assert sys.executable in told["Python"]["found"]
    assert told["Java"]["level"] == told["imports"]["level"] == "ok"
    assert "direct I/O" in told["log sync"]["found"]
    assert "free in /dev/shm" in told["shared memory"]["found"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_people_read_a_table_with_what_to_change_below_each_line(tmp_path: Path) -> None:
    budget = "spark.penstock.deadLetters.budget=1%"
    ended = run("--folder", "/proc/nowhere", "--conf", budget)
    assert ended.returncode == 1
    head, *lines = ended.stdout.splitlines()
    assert head.split() == ["CHECK", "FOUND"]
    wrong, at = [at for at, line in enumerate(lines) if line.startswith("problem")]
    # However long it is.
    assert lines[wrong].endswith("the time is at least a second")
    assert lines[at].split()[:3] == ["problem", "log", "folder"]
    assert lines[at + 1].startswith("         -> let spark.penstock.wal.dir name a folder")
    assert lines[-1].startswith("2 problem(s), ")


@pytest.mark.slow
def test_a_folder_that_is_not_there_is_tried_above_and_not_made(tmp_path: Path) -> None:
    code, told = doctor("--conf", f"spark.penstock.wal.dir={tmp_path}/a/b")
    assert code == 0
    assert f"tried in {tmp_path}" in told["log folder"]["found"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@pytest.mark.slow
def test_a_folder_that_cannot_be_written_to_is_a_problem(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for folder in (file, file / "logs", Path("/proc/nowhere")):
        code, told = doctor("--folder", str(folder))
        assert (code, problems(told)) == (1, ["log folder"])
        assert "spark.penstock.wal.dir" in told["log folder"]["change"]


@pytest.mark.long
@pytest.mark.slow
def test_an_hdfs_that_does_not_answer_is_a_problem_within_the_time() -> None:
    (port,) = free_ports(1)
    begun_s = time.monotonic()
    code, told = doctor("--folder", f"hdfs://127.0.0.1:{port}/logs", "--timeout", "1")
    assert (code, problems(told)) == (1, ["log folder"])
    assert f"127.0.0.1:{port}" in told["log folder"]["found"]
    assert "start HDFS" in told["log folder"]["change"]
    assert time.monotonic() - begun_s < 60
    code, told = doctor("--folder", "s3a://bucket/logs")
    assert (code, problems(told)) == (1, ["log folder"])


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_hdfs_that_answers_is_written_to_and_left_as_it_was(hdfs: Hdfs) -> None:
    folder = hdfs.new_folder()
    code, told = doctor("--folder", folder)
    assert (code, problems(told)) == (0, [])
    assert "can be written to" in told["log folder"]["found"]
    assert "ms in the median" in told["log sync"]["found"]
    assert "it is not there" in told["log folder"]["found"]
    left = [found.path for found in hdfs.client().list_status("/")]
    assert hdfs.path(folder) not in left
    assert not [path for path in left if "penstock-doctor" in path]


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "level", "code"), [(100, "problem", 1), (600, "warning", 0)])
def test_too_few_open_files_are_told(limit: int, level: str, code: int, tmp_path: Path) -> None:
    ended, told = doctor("--folder", str(tmp_path), shell=f"ulimit -n {limit}")
    assert (ended, told["open files"]["level"]) == (code, level)
    assert told["open files"]["found"] == str(limit)
    assert "ulimit -n" in told["open files"]["change"]


@pytest.mark.long
@pytest.mark.slow
def test_no_java_and_one_that_is_too_old_are_problems(tmp_path: Path) -> None:
    code, told = doctor("--folder", str(tmp_path), "--master", "local[1]", JAVA_HOME="/nowhere")
    assert (code, problems(told)) == (1, ["Java", "cluster"])
    assert "JAVA_HOME is /nowhere" in told["Java"]["found"]
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    code, told = doctor("--folder", str(tmp_path), JAVA_HOME=str(tmp_path))
    assert (code, told["Java"]["found"]) == (1, f"11 at {java}")
    assert "Java 17 or later" in told["Java"]["change"]


@pytest.mark.slow
def test_ports_that_are_taken_are_told(tmp_path: Path) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        common = ("--folder", str(tmp_path), "--conf", f"spark.penstock.tracker.port={port}")
        code, told = doctor(*common, "--conf", "spark.port.maxRetries=0")
        assert (code, problems(told)) == (1, ["tracker port"])
        assert f"{port} to {port} are taken" in told["tracker port"]["found"]


@pytest.mark.slow
def test_less_shared_memory_than_receivers_may_take_is_a_warning(tmp_path: Path) -> None:
    code, told = doctor("--folder", str(tmp_path), "--conf", "spark.penstock.memory.size=900g")
    assert (code, told["shared memory"]["level"]) == (0, "warning")
    assert "spark.penstock.memory.size" in told["shared memory"]["change"]


@pytest.mark.long
@pytest.mark.slow
def test_settings_that_a_program_would_not_start_with_are_problems(tmp_path: Path) -> None:
    for pair in (
        "spark.penstock.nonsense=1",
        "spark.penstock.memory.dir=/nowhere",
        "spark.executor.pyspark.memory=1g",
    ):
        code, told = doctor("--folder", str(tmp_path), "--conf", pair)
        assert (code, problems(told)) == (1, ["settings"])
        assert pair.partition("=")[0] in told["settings"]["found"]


@pytest.mark.slow
def test_the_way_out_of_a_setting_names_no_key_that_there_is_not(tmp_path: Path) -> None:
    for pair, way in (
        ("spark.penstock.nonsense=1", "mend it"),
        (
            "spark.streaming.blockInterval=soon",
            "mend it; penstock settings spark.streaming.blockInterval says what it means",
        ),
    ):
        code, told = doctor("--folder", str(tmp_path), "--conf", pair)
        assert (code, told["settings"]["change"]) == (1, way)


@pytest.mark.slow
def test_a_module_that_cannot_be_imported_is_a_problem(tmp_path: Path) -> None:
    code, told = doctor("--folder", str(tmp_path), "--module", "no_such_module")
    assert (code, problems(told)) == (1, ["imports"])
    assert "no_such_module (ModuleNotFoundError" in told["imports"]["found"]


@pytest.mark.long
@pytest.mark.slow
def test_where_hadoop_asks_for_kerberos_a_ticket_or_keytab_is_looked_for(tmp_path: Path) -> None:
    write_configuration(tmp_path / "core-site.xml", {"hadoop.security.authentication": "kerberos"})
    place = {"HADOOP_CONF_DIR": str(tmp_path), "KRB5CCNAME": f"FILE:{tmp_path}/none"}
    common = ("--folder", str(tmp_path))
    code, told = doctor(*common, **place)
    assert (code, problems(told)) == (1, ["Kerberos"])
    assert told["Kerberos"]["change"].startswith("kinit")
    code, told = doctor(*common, **place, KRB5_CLIENT_KTNAME=f"{tmp_path}/no.keytab")
    assert (code, problems(told)) == (1, ["Kerberos"])
    keytab = tmp_path / "a.keytab"
    keytab.touch()
    code, told = doctor(*common, **place, KRB5_CLIENT_KTNAME=f"FILE:{keytab}")
    assert (code, told["Kerberos"]["level"]) == (0, "ok")
    assert "Kerberos" not in doctor(*common, HADOOP_CONF_DIR="/nowhere")[1]


@pytest.mark.long
@pytest.mark.slow
def test_wrong_usage_is_told_as_such() -> None:
    for arguments in (("--nonsense",), ("--conf", "nonsense"), ("--timeout", "nan")):
        ended = run(*arguments)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert "penstock doctor" in ended.stderr


@pytest.mark.slow
def test_clocks_are_far_apart_when_no_time_of_the_answer_explains_it() -> None:
    def answer(host: str, time_s: float) -> ExecutorAnswer:
        return ExecutorAnswer(host, "python3", "3.11.7", "4.0.0", (), time_s, 1024)

    answers = [answer("a", 1000.4), answer("b", 990.0), answer("c", 1007.5)]
    a, b, c = of_clocks(answers, before_s=1000.0, after_s=1000.5)
    assert (a.level, b.level, c.level) == (Level.OK, Level.WARNING, Level.WARNING)
    assert b.found == "that of b is 10.0 s behind"
    assert c.found == "that of c is 7.0 s ahead"


@pytest.mark.exhaustive  # CI has a cluster without workers.
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_executors_are_asked_for_their_python_clocks_and_files(tmp_path: Path) -> None:
    common = ("--folder", str(tmp_path), "--master", "local[1]")
    code, told = doctor(*common, PYSPARK_PYTHON=sys.executable)
    assert (code, problems(told)) == (0, [])
    assert sys.executable in told["executors' Python"]["found"]
    assert {"cluster", "clocks", "executors' files"} <= set(told)
    code, told = doctor(*common, PYSPARK_PYTHON="/nowhere/python3")
    assert (code, problems(told)) == (1, ["executors' Python"])
    assert "/nowhere/python3: not found" in told["executors' Python"]["found"]
    assert "unset PYSPARK_PYTHON" in told["executors' Python"]["change"]
    python = tmp_path / "python"
    # Neither site-packages nor PYTHONPATH nor this folder.
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    python.chmod(0o755)
    code, told = doctor(*common, PYSPARK_PYTHON=str(python))
    assert (code, problems(told)) == (1, ["executors' Python"])
    assert "pyarrow" in told["executors' Python"]["found"]
    code, told = doctor("--folder", str(tmp_path), "--master", "nonsense")
    assert (code, problems(told)) == (1, ["cluster"])
    assert "nonsense" in told["cluster"]["found"]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_cluster_without_workers_is_a_problem_within_the_time(tmp_path: Path) -> None:
    cluster = StandaloneCluster(tmp_path)
    try:
        cluster.start(workers=0, cores=1)
        common = ("--folder", str(tmp_path), "--master", cluster.address, "--timeout", "3")
        code, told = doctor(*common, SPARK_LOCAL_IP="127.0.0.1")
    finally:
        cluster.stop()
    assert (code, problems(told)) == (1, ["cluster"])
    assert told["cluster"]["found"] == f"{cluster.address} gave no executor within 3 s"


def test_a_master_that_is_not_there_is_said_without_starting_spark(tmp_path: Path) -> None:
    with socket.socket() as taken:
        # Nobody listens there, and nobody else gets it.
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        master = f"spark://{address},{address}"
        code, told = doctor("--folder", str(tmp_path), "--master", master, "--timeout", "5")
    assert (code, problems(told)) == (1, ["cluster"])
    reason = f"no master answers there: {address} (Connection refused)"
    assert reason in told["cluster"]["found"]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_what_listens_and_is_no_master_is_said_before_spark_gives_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        master = f"spark://127.0.0.1:{other.getsockname()[1]}"
        asked = ("--folder", str(tmp_path), "--master", master, "--timeout", "5")
        code, told = doctor(*asked, SPARK_LOCAL_IP="127.0.0.1")
    assert (code, problems(told)) == (1, ["cluster"])
    assert told["cluster"]["found"] == f"{master}: Spark had no answer from it within 15 s"
