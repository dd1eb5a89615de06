"""The segment log on a real HDFS of two DataNodes, whose nodes and writers are killed."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.__main__ import main
from penstock.wal import (
    LogFolderInUseError,
    LogFullError,
    LogLostError,
    LogOptions,
    LogReader,
    LogWriteError,
    LogWriter,
    check,
    locate,
    remove_log,
    segment_path,
    settled,
)
from penstock.wal._hdfs.filesystem import HdfsAppendFile, HdfsFileSystem
from tests.bounds import HANG_S
from tests.programs import run_to_end
from tests.services.hdfs import Hdfs, write_configuration
from tests.wal.records import read_record

pytestmark = pytest.mark.slow

OPTIONS = LogOptions(segment_size=256 << 10)
BOUND_S = HANG_S


def payloads(folder: str, before: int | None = None) -> list[bytes]:
    fs, path = locate(folder)
    return [
        bytes(record.payload) for record in LogReader.open(path, fs=fs, before=before).records()
    ]


def writer_on(folder: str, options: LogOptions = OPTIONS) -> LogWriter:
    fs, path = locate(folder)
    return LogWriter.create(path, options=options, fs=fs)


WRITER = """
import sys
from penstock.wal import LogOptions, LogWriter, locate

fs, path = locate(sys.argv[1])
log = LogWriter.create(path, fs=fs, options=LogOptions(segment_size=256 << 10))
number = 0
while True:
    payload = b"%d " % number * 2000
    log.append(1, payload)
    print(number, flush=True)
    number += 1
"""


@pytest.fixture
def killed_writer(hdfs: Hdfs) -> tuple[str, int]:
    """A folder whose writer was killed while it appended, and the last number that it was told."""
    folder = hdfs.new_folder()
    command = [sys.executable, "-c", WRITER, folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        last = -1
        for line in process.stdout:
            last = int(line)
            if last == 60:
                process.send_signal(signal.SIGKILL)
    return folder, last


def test_records_come_back_over_many_segments_and_blocks_of_hdfs(hdfs: Hdfs) -> None:
    folder = hdfs.new_folder()
    written = [os.urandom(90_000) for _ in range(9)] + [os.urandom(3_000_000)]
    with writer_on(folder) as log:
        places = [log.append(7, payload) for payload in written]
        log.remove_segments([places[0].segment])
    kept = [p for p, place in zip(written, places, strict=True) if place.segment > 1]
    assert payloads(folder) == kept
    fs, path = locate(folder)
    assert check(path, fs=fs).damages == ()
    place = places[-1]
    found = read_record(
        segment_path(path, place.segment),
        place.offset,
        expected_sequence=place.sequence,
        fs=fs,
    )
    assert bytes(found.payload) == written[-1]
    remove_log(path, fs=fs)
    assert not fs.is_folder(path)


def test_a_killed_writers_acknowledged_records_are_all_there(
    killed_writer: tuple[str, int],
) -> None:
    folder, last = killed_writer
    with writer_on(folder) as log:
        log.append(1, b"after")
    found = payloads(folder)
    numbers = [int(payload.split()[0]) for payload in found[:-1]]
    assert numbers[: last + 1] == list(range(last + 1))
    assert numbers == list(range(len(numbers)))
    assert found[-1] == b"after"


def test_what_failed_does_not_come_back_when_the_next_writer_removes_segments(
    hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = hdfs.new_folder()
    force = HdfsAppendFile._force

    def lose_the_answer(file: HdfsAppendFile, size: int) -> None:
        force(file, size)
        raise OSError(errno.EIO, "the answer was lost")

    with writer_on(folder) as log:
        log.append(1, b"before")
        with monkeypatch.context() as patch:
            patch.setattr(HdfsAppendFile, "_force", lose_the_answer)
            with pytest.raises(LogWriteError, match="the answer was lost"):
                log.append(1, b"failed")
        behind = log.append(1, b"after").segment
        log.roll()
        log.append(1, b"last")
    with writer_on(folder) as log:
        log.remove_segments([behind])
    assert payloads(folder) == [b"before", b"after", b"last"]


def test_a_segment_that_is_being_written_is_not_read_as_empty(hdfs: Hdfs) -> None:
    folder = hdfs.new_folder()
    with writer_on(folder) as log:
        log.append(1, b"first")
        with pytest.raises(OSError, match="being written"):
            payloads(folder)
        assert payloads(folder, before=log.first_segment) == []
    assert payloads(folder) == [b"first"]


def test_a_folder_is_not_read_as_a_file(hdfs: Hdfs) -> None:
    fs, path = locate(hdfs.new_folder())
    fs.make_folder(path)
    with pytest.raises(IsADirectoryError, match=path):
        fs.open(path)


def test_a_file_takes_bytes_at_its_end_only_and_none_when_it_is_closed(hdfs: Hdfs) -> None:
    fs, folder = locate(hdfs.new_folder())
    fs.make_folder(folder)
    path = f"{folder}/a file"
    file = fs.create(path, direct=False)
    file.write(0, [b"first, "], sync=True)
    for elsewhere in (0, 6, 8):
        with pytest.raises(OSError, match=f"HDFS writes at the end, not at {elsewhere}"):
            file.write(elsewhere, [b"elsewhere"], sync=True)
    file.write(7, [b"and ", b"second"], sync=True)
    file.close()
    with pytest.raises(OSError, match="HDFS writes at the end"):
        file.write(17, [b"third"], sync=True)
    assert fs.open(path).read(0, 100) == b"first, and second"


def test_a_living_writer_of_this_host_keeps_its_folder(hdfs: Hdfs) -> None:
    folder = hdfs.new_folder()
    with writer_on(folder) as log:
        with pytest.raises(LogFolderInUseError, match=f"process {os.getpid()}"):
            writer_on(folder)
        log.append(1, b"still mine")
    assert payloads(folder) == [b"still mine"]


def test_a_lock_that_could_not_be_removed_is_in_nobodys_way(
    hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = hdfs.new_folder()
    with monkeypatch.context() as patched:
        patched.setattr(HdfsFileSystem, "answers", lambda self: False)
        writer_on(folder).close()
    fs, path = locate(folder)
    assert "LOCK" in fs.list_folder(path)
    writer_on(folder).close()
    assert "LOCK" not in fs.list_folder(path)


def test_a_writer_that_was_replaced_writes_no_more(
    hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = hdfs.new_folder()
    old = writer_on(folder)
    old.append(1, b"old")
    # As if on another host, where nobody can tell whether the owner lives.
    monkeypatch.setattr("penstock.runtime.processes.host_id", lambda: "another host")
    with writer_on(folder) as new:
        assert payloads(folder, before=new.first_segment) == [b"old"]
        for _ in range(3):
            with pytest.raises(LogWriteError):
                old.append(1, b"too late")
        new.append(1, b"new")
    old.close()
    assert payloads(folder) == [b"old", b"new"]


def test_a_writer_that_is_replaced_while_it_begins_a_segment_takes_nothing_into_it(
    hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = hdfs.new_folder()
    old = writer_on(folder)
    old.append(1, b"old")
    # As after segments that DataNodes did not take: their numbers are spent, their names are gone.
    old._chain._next_number += 5
    begin = old._chain.begin
    takers: list[LogWriter] = []

    def begin_after_a_take_over(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(old._chain, "begin", begin)
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr("penstock.runtime.processes.host_id", lambda: "another host")
            takers.append(writer_on(folder))
        return begin(*arguments, **named)

    monkeypatch.setattr(old._chain, "begin", begin_after_a_take_over)
    with pytest.raises(LogWriteError, match="taken over"):
        old.roll()
    with pytest.raises(LogLostError, match="taken over by"):
        old.append(1, b"too late")
    (new,) = takers
    new.append(1, b"new")
    new.close()
    old.close()
    assert payloads(folder) == [b"old", b"new"]


def test_a_file_that_was_not_closed_counts_as_longer_than_it_should_be(hdfs: Hdfs) -> None:
    fs, path = locate(hdfs.new_folder())
    fs.make_folder(path)
    file = fs.create(f"{path}/file", direct=False)
    file.write(0, [bytes(1000)], sync=True)
    # Nobody knows its length before its writer's lease was recovered.
    with pytest.raises(OSError, match="not cut"):
        fs.truncate(f"{path}/file", 500)
    fs.settle([f"{path}/file"])
    with pytest.raises(OSError, match="not cut"):
        fs.truncate(f"{path}/file", 999)
    fs.truncate(f"{path}/file", 1000)
    file.close()


@pytest.mark.long
def test_appends_wait_for_a_name_node_that_is_started_again(hdfs: Hdfs) -> None:
    folder = hdfs.new_folder()
    appended: list[bytes] = []
    enough = threading.Event()
    stop = threading.Event()
    with writer_on(folder) as log:

        def append() -> None:
            while not stop.is_set():
                payload = b"%d" % len(appended)
                log.append(1, payload)
                appended.append(payload)
                if len(appended) >= 20:
                    enough.set()

        thread = threading.Thread(target=append)
        thread.start()
        try:
            assert enough.wait(BOUND_S)
            hdfs.kill_name_node()
            hdfs.start_name_node()
            hdfs.wait_until_writable()
            until = len(appended) + 20
            end = time.monotonic() + BOUND_S
            while len(appended) < until and thread.is_alive() and time.monotonic() < end:
                time.sleep(0.01)
            assert len(appended) >= until
        finally:
            stop.set()
            thread.join(BOUND_S)
    assert payloads(folder) == appended


def test_appends_go_on_when_a_data_node_is_killed(hdfs: Hdfs) -> None:
    folder = hdfs.new_folder()
    written = [b"%d " % number * 3000 for number in range(20)]
    with writer_on(folder) as log:
        for payload in written[:10]:
            log.append(1, payload)
        hdfs.kill_data_node(0)
        for payload in written[10:]:
            _append_until_taken(log, payload)
    hdfs.mend()
    # HDFS itself ends a segment that took no more, in its own time.
    with settled(*locate(folder)):
        assert payloads(folder) == written


def _append_until_taken(log: LogWriter, payload: bytes) -> None:
    # As the block generator does; a write that fails takes its whole append with it.
    end = time.monotonic() + BOUND_S
    while True:
        try:
            log.append(1, payload)
        except LogWriteError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return


@pytest.mark.long
def test_a_quota_is_a_full_disk_that_can_get_room_again(hdfs: Hdfs) -> None:
    folder = hdfs.new_folder()
    fs, path = locate(folder)
    fs.make_folder(path)
    # Two copies of two blocks of 1 MiB.
    hdfs.set_space_quota(path, 4 << 20)
    kept: list[bytes] = []
    with writer_on(folder, LogOptions(segment_size=16 << 20)) as log:

        def fill() -> None:
            for number in range(40):
                payload = b"%d " % number * 40_000
                log.append(1, payload)
                kept.append(payload)

        with pytest.raises(LogFullError, match="no space left"):
            fill()
        assert kept
        hdfs.set_space_quota(path, -1)
        log.append(1, b"room")
    assert payloads(folder) == [*kept, b"room"]


@pytest.mark.long
def test_safe_mode_ends_a_call_only_after_the_patience(hdfs: Hdfs) -> None:
    impatient = HdfsFileSystem(hdfs.address, patience_s=0.5)
    hdfs.set_safe_mode(True)
    try:
        with pytest.raises(OSError, match="safe mode"):
            impatient.make_folder("/not-now")
        leaves = threading.Timer(1.0, hdfs.set_safe_mode, [False])
        leaves.start()
        HdfsFileSystem(hdfs.address).make_folder("/later")
        leaves.join()
    finally:
        hdfs.set_safe_mode(False)
    assert impatient.is_folder("/later")


def test_new_files_are_as_the_clients_configuration_says(
    hdfs: Hdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = hdfs.new_folder()
    folder = hdfs.path(address)
    hdfs.write(f"{address}/theirs", b"")

    def kind(name: str) -> tuple[int | None, int | None]:
        found = hdfs.client().get_file_info(f"{folder}/{name}")
        return found.blocksize, found.replication

    def made(name: str) -> tuple[int | None, int | None]:
        HdfsFileSystem(hdfs.address).create(f"{folder}/{name}", direct=False).close()
        return kind(name)

    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert made("by-default") == kind("theirs")
    site = tmp_path / "hdfs-site.xml"
    write_configuration(site, {"dfs.blocksize": "3m", "dfs.replication": "1"})
    assert made("configured") == (3 << 20, 1)


def test_when_new_files_fail_in_a_row_one_begins_with_fewer_copies(hdfs: Hdfs) -> None:
    folder = hdfs.path(hdfs.new_folder())
    fs = HdfsFileSystem(hdfs.address)
    fs.make_folder(folder)
    for _ in range(2):
        fs.new_files.failed()
    path = f"{folder}/file"
    file = fs.create(path, direct=False)
    assert hdfs.client().get_file_info(path).replication == 1
    file.write(0, [b"bytes"], sync=True)
    assert hdfs.client().get_file_info(path).replication == 2
    file.close()
    assert fs.open(path).read(0, 5) == b"bytes"


def test_new_files_that_no_data_node_takes_are_counted(hdfs: Hdfs) -> None:
    folder = hdfs.path(hdfs.new_folder())
    fs = HdfsFileSystem(hdfs.address)
    fs.make_folder(folder)
    for number in (0, 1):
        hdfs.kill_data_node(number)
    for number in (1, 2):
        assert fs.new_files.copies_left_out == 0
        file = fs.create(f"{folder}/file-{number}", direct=False)
        with pytest.raises(OSError, match="HDFS"):
            file.write(0, [b"bytes"], sync=True)
        file.close()
    assert fs.new_files.copies_left_out == 1


FORKING = """
import os, sys
from penstock.wal import locate

fs, path = locate(sys.argv[1])
fs.make_folder(path)
child = os.fork()
if not child:
    # The client's threads are not in this process: it makes a client of its own.
    fs, path = locate(sys.argv[1])
    fs.make_folder(path + "/child")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(*fs.list_folder(path))
"""


@pytest.mark.long
def test_a_forked_process_has_its_own_client_and_the_default_comes_from_the_configuration(
    hdfs: Hdfs,
) -> None:
    # Without a NameNode in the address it is that of HADOOP_CONF_DIR.
    address = "hdfs://" + hdfs.path(hdfs.new_folder())
    told = run_to_end("-c", FORKING, address, HADOOP_CONF_DIR=str(hdfs.conf_dir))
    assert told.stdout == "child\n", told.stderr


@pytest.mark.long
def test_the_command_line_looks_into_logs_on_hdfs(
    killed_writer: tuple[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, last = killed_writer
    assert main(["wal", "check", folder]) == 2
    assert "being written, or its writer died" in capsys.readouterr().err
    assert main(["wal", "repair", folder]) == 0
    assert main(["wal", "check", folder]) == 0
    assert "0 damaged places" in capsys.readouterr().out
    assert main(["wal", "dump", folder]) == 0
    assert len(capsys.readouterr().out.splitlines()) >= last + 1
    assert main(["wal", "check", f"{folder}/none"]) == 2
