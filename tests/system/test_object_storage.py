"""A program whose logs and checkpoints are on an object store; its host dies with all it has."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest

from penstock.streaming import DStream, StreamGraphError, StreamingContext
from tests.programs import run_to_end
from tests.services.http_faults import FaultyHttp
from tests.services.object_stores import MOSTLY_S3, ObjectServer, make_server
from tests.system.driver_process import DriverProcess
from tests.system.feeder import Feeder
from tests.system.leftovers import await_that, memory_files
from tests.system.recoverable import word_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

RUNS = 2


@pytest.fixture(params=MOSTLY_S3)
def server(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ObjectServer]:
    made = make_server(request.param, tmp_path / "store")
    made.start()
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    yield made
    made.stop()


def results(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in folder.iterdir() if path.suffix == ""]


def logs(server: ObjectServer) -> set[str]:
    """Return the names of the receivers' logs of which something is there."""
    found = obstore.list(server.store(), prefix="app/receivedData").collect()
    return {entry["path"].split("/")[2] for entry in found}


def processed(folder: Path) -> int:
    return sum(sum(result["counts"].values()) for result in results(folder))


# CI has `test_process_log`, where more dies, and `test_kubernetes`.
@pytest.mark.exhaustive
@pytest.mark.long
def test_a_driver_goes_on_on_another_host_with_an_empty_disk(
    tmp_path: Path, server: ObjectServer
) -> None:
    batches, states = tmp_path / "batches", tmp_path / "states"
    batches.mkdir()
    states.mkdir()
    with Feeder() as feeder:
        for number in range(RUNS + 1):
            local = tmp_path / f"local-{number}"
            config = {
                "master": "local[3]",
                "batch_s": 1,
                "checkpoint": f"{server.authority}/app",
                "batches": str(batches),
                "states": str(states),
                "state_s": 2,
                "trigger": str(tmp_path / "trigger"),
                # Spark saves states by itself, where all hosts see it.
                "rdd_folder": str(tmp_path / "shared"),
                "feeder": feeder.address,
                "settings": {"spark.local.dir": str(local), "spark.driver.host": "127.0.0.1"},
            }
            with DriverProcess(tmp_path, config, module="tests.system.recoverable") as driver:
                conf = driver.wait_until_started()["conf"]
                feeder.await_acknowledged(feeder.acknowledged + 3000)
                if number == 1:
                    server.kill()
                    server.start()
                    feeder.await_acknowledged(feeder.acknowledged + 3000)
                if number == RUNS:
                    sent = feeder.finish()
                    await_that("all is processed", lambda sent=sent: processed(batches) == sent)
                    await_that("the logs of killed receivers go", lambda: len(logs(server)) == 1)
                    driver.stop()
                # Else all its processes are killed by SIGKILL, and so is what the host has.
            shutil.rmtree(local, ignore_errors=True)
            for name in memory_files(conf["spark.app.id"]):
                os.unlink(f"/dev/shm/{name}")
    assert not [path for path in batches.iterdir() if path.suffix == ".other"]
    counts: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    for result in results(batches):
        counts.update(result["counts"])
        sums.update(result["sums"])
    assert counts == Counter(word_of(number) for number in range(sent))
    expected: Counter[str] = Counter()
    for number in range(sent):
        expected[word_of(number)] += number
    assert sums == expected
    newest = max(path for path in states.iterdir() if path.suffix == "")
    assert json.loads(newest.read_text()) == {"counts": counts, "sums": sums}
    assert len(feeder.pids) == RUNS + 1


@pytest.mark.long
def test_settings_of_spark_submit_reach_all_processes_and_may_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server("s3", tmp_path / "store")
    server.start()
    batches = tmp_path / "batches"
    batches.mkdir()
    (tmp_path / "run.py").write_text(
        "import runpy, sys\nmodule = sys.argv[2]\ndel sys.argv[1:3]\n"
        "runpy.run_module(module, run_name='__main__', alter_sys=True)\n"
    )
    for name, value in server.environment().items():
        if name in ("AWS_ENDPOINT_URL", "AWS_REGION"):
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    proxy = FaultyHttp(server.client_port)
    submit = [str(Path(sys.executable).with_name("spark-submit")), "--conf"]
    checkpoint = f"{server.authority}/app"
    try:
        with Feeder() as feeder:
            for number, url in enumerate((proxy.url, server.url)):
                local = tmp_path / f"local-{number}"
                config = {
                    "master": "local[3]",
                    "batch_s": 1,
                    "checkpoint": checkpoint,
                    "batches": str(batches),
                    "states": None,
                    "feeder": feeder.address,
                }
                command = [*submit, f"spark.local.dir={local}", "--conf"]
                command += [f"spark.penstock.storage.s3.endpoint={url}", str(tmp_path / "run.py")]
                module = "tests.system.recoverable"
                with DriverProcess(tmp_path, config, command, module) as driver:
                    conf = driver.wait_until_started()["conf"]
                    assert conf["spark.penstock.storage.s3.endpoint"] == url
                    feeder.await_acknowledged(feeder.acknowledged + 3000)
                    if number:
                        sent = feeder.finish()
                        await_that("all is processed", lambda sent=sent: processed(batches) == sent)
                proxy.close()
                shutil.rmtree(local, ignore_errors=True)
                for name in memory_files(conf["spark.app.id"]):
                    os.unlink(f"/dev/shm/{name}")
        assert not [path for path in batches.iterdir() if path.suffix == ".other"]
        # Commands have it from the environment.
        monkeypatch.setenv("PENSTOCK_STORAGE_S3_ENDPOINT", server.url)
        told = run_to_end("-m", "penstock", "checkpoint", checkpoint)
        assert "0 batches not complete" in told.stdout, told
    finally:
        proxy.close()
        server.stop()


def test_states_need_a_folder_that_spark_can_write_to(
    sc: Any, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sc, "getCheckpointDir", lambda: None)
    ssc = StreamingContext(sc, 1)
    ssc.checkpoint(f"{server.authority}/states")
    pairs: DStream[Any] = ssc.queueStream([[("a", 1)]])
    pairs.updateStateByKey(lambda new, old: sum(new) + (old or 0)).foreachRDD(lambda rdd: None)
    with pytest.raises(StreamGraphError, match=r"call sc.setCheckpointDir\(...\) with a folder"):
        ssc.start()
    assert not obstore.list(server.store()).collect()
    ssc.stop(stopSparkContext=False)
