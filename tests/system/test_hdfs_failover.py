"""Logs and whole programs on a highly available HDFS, whose active NameNode dies or hangs."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from penstock.wal import LogReader, LogWriteError, LogWriter, locate
from penstock.wal._hdfs.filesystem import HdfsFileSystem
from tests.services.hdfs import Hdfs
from tests.streaming.checkpoint.stored import stored_header
from tests.system.soak import Soak
from tests.wal.test_hdfs import BOUND_S, OPTIONS, WRITER

pytestmark = [pytest.mark.slow, pytest.mark.timeout(450)]


@pytest.fixture(scope="module")
def running(
    start_hdfs: Callable[..., AbstractContextManager[Hdfs]],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Hdfs]:
    folder = tmp_path_factory.mktemp("hdfs-failover")
    with start_hdfs(folder, data_nodes=2, replication=2, name_nodes=2) as made:
        yield made


@pytest.fixture
def service(running: Hdfs, monkeypatch: pytest.MonkeyPatch) -> Hdfs:
    """An HDFS of two NameNodes that this process, and those that it starts, know by its name."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(running.conf_dir))
    running.mend()
    return running


def killed_writer(folder: str) -> int:
    """Let a process append until it is killed; return the last number that it was told."""
    last = -1
    command = [sys.executable, "-c", WRITER, folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last = int(line)
            if last == 60:
                process.send_signal(signal.SIGKILL)
    return last


@pytest.mark.exhaustive  # The other test goes this way, too.
def test_a_log_goes_on_and_is_recovered_at_the_other_name_node(service: Hdfs) -> None:
    left = service.new_folder()
    last = killed_writer(left)
    folder = service.new_folder()
    fs, path = locate(folder)
    appended: list[bytes] = []
    stop = threading.Event()
    with LogWriter.create(path, options=OPTIONS, fs=fs) as log:

        def append() -> None:
            while not stop.is_set():
                payload = b"%d" % len(appended)
                log.append(1, payload)
                appended.append(payload)

        def await_more(count: int) -> None:
            goal, end = len(appended) + count, time.monotonic() + BOUND_S
            while len(appended) < goal and thread.is_alive() and time.monotonic() < end:
                time.sleep(0.01)
            assert len(appended) >= goal

        thread = threading.Thread(target=append)
        thread.start()
        try:
            await_more(20)
            service.fail_over()
            await_more(20)
        finally:
            stop.set()
            thread.join(BOUND_S)
        log.roll()
        log.append(1, b"in a new segment")
        appended.append(b"in a new segment")
    records = LogReader.open(path, fs=fs).records()
    assert [bytes(record.payload) for record in records] == appended
    # Its lease was given by the NameNode that is dead.
    fs, path = locate(left)
    LogWriter.create(path, options=OPTIONS, fs=fs).close()
    payloads = [bytes(record.payload) for record in LogReader.open(path, fs=fs).records()]
    numbers = [int(payload.split()[0]) for payload in payloads]
    assert numbers[: last + 1] == list(range(last + 1))
    assert numbers == list(range(len(numbers)))


# `tests/wal/test_hdfs_away.py` has a name node that hangs, the last test here one that fails over.
@pytest.mark.exhaustive
def test_a_log_and_a_new_client_go_on_at_the_other_name_node_when_the_active_one_hangs(
    service: Hdfs,
) -> None:
    folder = service.path(service.new_folder())
    fs = HdfsFileSystem(service.address)
    with LogWriter.create(folder, options=OPTIONS, fs=fs) as log:
        log.append(1, b"before")
        with service.hung_name_node():
            service.activate_standby()
            new = HdfsFileSystem(service.address)
            assert new.is_folder(folder)
            # The write that was under way may fail, as with any outage; the next ones go on.
            taken = append_until_taken(log, b"while it hangs")
            log.roll()
            log.append(1, b"in a new segment")
            assert taken
    LogWriter.create(folder, options=OPTIONS, fs=new).close()
    records = LogReader.open(folder, fs=new).records()
    wanted = [b"before", b"while it hangs", b"in a new segment"]
    assert [bytes(record.payload) for record in records] == wanted


def append_until_taken(log: LogWriter, payload: bytes) -> bool:
    end = time.monotonic() + BOUND_S
    while time.monotonic() < end:
        try:
            log.append(1, payload)
        except LogWriteError:
            time.sleep(0.1)
        else:
            return True
    return False


# `test_hdfs.py` starts a name node again, `tests/wal/test_hdfs.py` under a log.
@pytest.mark.exhaustive
def test_results_are_exact_when_driver_name_node_and_data_node_are_killed(
    service: Hdfs, tmp_path: Path
) -> None:
    def kill() -> None:
        service.fail_over()
        service.kill_data_node(1)

    # Spark's client and this package's read the same folder, `HADOOP_CONF_DIR`.
    soak = Soak(tmp_path, seed=2, latest_occasion=4, checkpoint=service.new_folder())
    soak.run(1, ("between log and jobs",), meanwhile=kill)
    header = stored_header(soak.checkpoint)
    assert header.rdd_folder.startswith(soak.checkpoint)
    # Nothing of it lies on this host.
    folders = sorted(each.name for each in tmp_path.iterdir() if each.is_dir())
    assert folders == ["batches", "states"]
