"""Calls to an HDFS that hangs, refuses or loses its answers: each ends in time, and says which.

Its nodes are real, and stopped by SIGSTOP. What hangs for ever meets the bound of the test.
"""

from __future__ import annotations

import gc
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from penstock.blockstore import (
    BlockAccess,
    BlockKind,
    BlockNotFoundError,
    BlockUnavailableError,
    read_block,
)
from penstock.monitor.doctor.folder import check_folder
from penstock.settings import Settings
from penstock.wal import (
    Answer,
    LogReader,
    LogWriteError,
    LogWriter,
    StorageAwayError,
    UnwritableFolderError,
    answer_of,
)
from penstock.wal._hdfs.filesystem import HdfsFileSystem, _clients
from tests.blockstore.test_on_hdfs import put, store, without_memory
from tests.programs import run_to_end
from tests.services.hdfs import Hdfs
from tests.wal.test_hdfs import OPTIONS

__all__ = ["store"]

pytestmark = pytest.mark.slow

IMPATIENT_S = 1.5
PATIENT_S = 10_000.0
"""Who waits so long for what can never pass meets the bound of the test."""


@contextmanager
def impatient(fs: HdfsFileSystem) -> Iterator[None]:
    """Let a client wait less while its HDFS hangs; before and after, it may just be busy."""
    before_s = fs.patience_s
    fs.patience_s = fs._outage._patience_s = IMPATIENT_S
    try:
        yield
    finally:
        fs.patience_s = fs._outage._patience_s = before_s


class Place:
    """A folder of an HDFS with a file in it, and a client."""

    def __init__(self, hdfs: Hdfs) -> None:
        self.folder = hdfs.path(hdfs.new_folder())
        self.file = f"{self.folder}/file"
        self.fs = HdfsFileSystem(hdfs.address)
        self.fs.make_folder(self.folder)
        file = self.fs.create(self.file, direct=False)
        file.write(0, [b"bytes"], sync=True)
        file.close()


NAME_NODE_CALLS: dict[str, Callable[[HdfsFileSystem, Place], object]] = {
    "is_folder": lambda fs, at: fs.is_folder(at.folder),
    "list_folder": lambda fs, at: fs.list_folder(at.folder),
    "files": lambda fs, at: list(fs.files(at.folder)),
    "folders": lambda fs, at: fs.folders(f"{at.folder}*"),
    "open": lambda fs, at: fs.open(at.file),
    "create": lambda fs, at: fs.create(f"{at.folder}/new", direct=False),
    "make_folder": lambda fs, at: fs.make_folder(f"{at.folder}/folder"),
    "rename": lambda fs, at: fs.rename(at.file, f"{at.folder}/other"),
    "remove": lambda fs, at: fs.remove(f"{at.folder}/none"),
    "remove_folder": lambda fs, at: fs.remove_folder(f"{at.folder}/none"),
    "remove_tree": lambda fs, at: fs.remove_tree(f"{at.folder}/none"),
    "truncate": lambda fs, at: fs.truncate(at.file, 5),
    "settle": lambda fs, at: fs.settle([at.file]),
    "set_copies": lambda fs, at: fs.set_copies(at.file, 1),
    "lock": lambda fs, at: fs.lock(f"{at.folder}/LOCK", "a test"),
    "wait_until_it_answers": lambda fs, at: fs.wait_until_it_answers(),
}


@pytest.mark.long
def test_each_kind_of_call_ends_while_the_name_node_hangs_and_works_when_it_goes_on(
    hdfs: Hdfs,
) -> None:
    place = Place(hdfs)
    file = place.fs.create(f"{place.folder}/open", direct=False)
    file.write(0, [b"bytes"], sync=True)
    lock = place.fs.lock(f"{place.folder}/MINE", "a test")
    found = {}
    with hdfs.paused_name_node(), impatient(place.fs):
        for name, call in NAME_NODE_CALLS.items():
            with pytest.raises(StorageAwayError) as caught:
                # Each as the first that finds it out; what is known to be away ends at once.
                call(HdfsFileSystem(hdfs.address, patience_s=IMPATIENT_S), place)
            found[name] = answer_of(caught.value)
        assert not place.fs.answers()
        with pytest.raises(StorageAwayError):
            lock.check()
        with pytest.raises(StorageAwayError):
            file.close()
        lock.release()
        place.fs.begin_recovery(place.file)
    assert found == dict.fromkeys(NAME_NODE_CALLS, Answer.AWAY)
    patient = HdfsFileSystem(hdfs.address)
    for call in (NAME_NODE_CALLS[name] for name in ("open", "settle", "list_folder", "lock")):
        call(patient, place)
    patient.settle([f"{place.folder}/open"])
    assert patient.open(f"{place.folder}/open").read(0, 100) == b"bytes"


def test_a_file_that_is_let_go_unclosed_holds_nobody_up_while_the_name_node_hangs(
    hdfs: Hdfs,
) -> None:
    place = Place(hdfs)
    file = place.fs.create(f"{place.folder}/open", direct=False)
    file.write(0, [b"bytes"], sync=True)
    with hdfs.paused_name_node():
        del file
        gc.collect()
    HdfsFileSystem(hdfs.address).settle([f"{place.folder}/open"])
    assert HdfsFileSystem(hdfs.address).open(f"{place.folder}/open").read(0, 100) == b"bytes"


def test_reads_and_writes_end_while_the_data_nodes_hang(hdfs: Hdfs) -> None:
    place = Place(hdfs)
    shown = place.fs.open(place.file)
    file = place.fs.create(f"{place.folder}/new", direct=False)
    with hdfs.paused_data_node(0), hdfs.paused_data_node(1), impatient(place.fs):
        with pytest.raises(StorageAwayError):
            shown.read(0, 5)
        with pytest.raises(OSError, match="HDFS") as caught:
            file.write(0, [b"bytes"], sync=True)
        assert answer_of(caught.value) is Answer.AWAY
        file.close()
    assert HdfsFileSystem(hdfs.address).open(place.file).read(0, 5) == b"bytes"


@pytest.mark.long
def test_a_log_says_that_the_name_node_hangs_and_goes_on_when_it_does(hdfs: Hdfs) -> None:
    folder = hdfs.path(hdfs.new_folder())
    fs = HdfsFileSystem(hdfs.address)
    with LogWriter.create(folder, options=OPTIONS, fs=fs) as log:
        log.append(1, b"before")
        with hdfs.paused_name_node(), impatient(fs):
            for _ in range(2):
                with pytest.raises(LogWriteError, match=r"HDFS has (not answered|been away)"):
                    log.roll()
                with pytest.raises(LogWriteError, match=r"HDFS has (not answered|been away)"):
                    log.append(1, b"not now")
        HdfsFileSystem(hdfs.address).wait_until_it_answers()
        log.append(1, b"after")
    patient = HdfsFileSystem(hdfs.address)
    # The next writer has the lease recovered of the segment that could not be closed.
    LogWriter.create(folder, options=OPTIONS, fs=patient).close()
    records = LogReader.open(folder, fs=patient).records()
    assert [bytes(record.payload) for record in records] == [b"before", b"after"]


def test_the_doctor_says_within_its_time_that_the_name_node_hangs(hdfs: Hdfs) -> None:
    with hdfs.paused_name_node():
        [finding] = check_folder(hdfs.new_folder(), Settings(), 0.5)
    assert "HDFS has not answered for 0.5 s" in finding.found


NEXT = """
import sys
from penstock.wal import LogWriter, LogReader, locate

fs, path = locate(sys.argv[1])
with LogWriter.create(path, fs=fs) as log:
    log.append(1, b"second")
print([bytes(record.payload).decode() for record in LogReader.open(path, fs=fs).records()])
"""


@pytest.mark.long
def test_a_log_that_was_stopped_while_the_name_node_was_away_is_free_for_another_process(
    hdfs: Hdfs,
) -> None:
    address = hdfs.new_folder()
    fs = HdfsFileSystem(hdfs.address)
    log = LogWriter.create(hdfs.path(address), options=OPTIONS, fs=fs)
    log.append(1, b"first")

    def start_another() -> subprocess.CompletedProcess[str]:
        return run_to_end("-c", NEXT, address, code=None)

    assert f"in use by process {os.getpid()}" in start_another().stderr
    with hdfs.paused_name_node(), impatient(fs):
        log.close()
    HdfsFileSystem(hdfs.address).wait_until_it_answers()
    assert "LOCK" in HdfsFileSystem(hdfs.address).list_folder(hdfs.path(address))
    told = start_another()
    assert told.stdout == "['first', 'second']\n", told.stderr


class Forgetful:
    """A client whose answers are lost, so that it asks a second time, as the real one does."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def delete(self, *arguments: Any) -> Any:
        self._client.delete(*arguments)
        return self._client.delete(*arguments)

    def rename(self, *arguments: Any) -> Any:
        self._client.rename(*arguments)
        return self._client.rename(*arguments)


def test_a_lost_answer_to_a_delete_or_a_rename_is_not_taken_for_a_log_that_is_gone(
    hdfs: Hdfs,
) -> None:
    folder = hdfs.path(hdfs.new_folder())
    fs = HdfsFileSystem(hdfs.address)
    with LogWriter.create(folder, options=OPTIONS, fs=fs) as log:
        first = log.append(1, b"first")
    # What a writer leaves that is killed while it begins a segment.
    fs.create(f"{folder}/segment-{first.segment + 1:012d}.log.new", direct=False).close()
    fs._client = Forgetful(fs._client)
    with LogWriter.create(folder, options=OPTIONS, fs=fs) as log:
        log.append(1, b"second")
        log.roll()
        log.append(1, b"third")
        log.remove_segments([first.segment])
    records = LogReader.open(folder, fs=HdfsFileSystem(hdfs.address)).records()
    assert [bytes(record.payload) for record in records] == [b"second", b"third"]


def test_a_rename_of_what_is_not_there_is_an_error_though_there_is_one_of_the_other_name(
    hdfs: Hdfs,
) -> None:
    place = Place(hdfs)
    for replace in (False, True):
        with pytest.raises(FileNotFoundError, match="none"):
            HdfsFileSystem(hdfs.address).rename(f"{place.folder}/none", place.file, replace=replace)


@pytest.fixture
def stranger(hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch) -> HdfsFileSystem:
    """An HDFS as a user knows it who may not read or write what the tests leave there."""
    with monkeypatch.context() as patched:
        patched.setenv("HADOOP_USER_NAME", "stranger")
        made = HdfsFileSystem(hdfs.address, patience_s=PATIENT_S)
        # The client asks for the user's name when it connects.
        made.is_folder("/")
    return made


def test_a_refusal_is_not_asked_again(hdfs: Hdfs, stranger: HdfsFileSystem) -> None:
    place = Place(hdfs)
    refused: dict[str, Callable[[], object]] = {
        "settle": lambda: stranger.settle([place.file]),
        "truncate": lambda: stranger.truncate(place.file, 5),
        "open": lambda: stranger.open(place.file),
        "remove": lambda: stranger.remove(place.file),
        "make_folder": lambda: stranger.make_folder(f"{place.folder}/folder"),
    }
    for name, call in refused.items():
        with pytest.raises(PermissionError, match="Permission denied") as caught:
            call()
        assert answer_of(caught.value) is Answer.REFUSED, name


def test_a_log_whose_leases_may_not_be_recovered_says_that_at_once(
    hdfs: Hdfs, stranger: HdfsFileSystem
) -> None:
    folder = hdfs.path(hdfs.new_folder())
    fs = HdfsFileSystem(hdfs.address)
    other = LogWriter.create(folder, options=OPTIONS, fs=fs)
    other.append(1, b"of another user")
    # Whoever comes may take the folder, but not write to the segment that is open there.
    fs.remove(f"{folder}/LOCK")
    hdfs.client().set_permission(folder, 0o777)
    with pytest.raises(UnwritableFolderError, match=r"Permission denied.*segment-"):
        LogWriter.create(folder, options=OPTIONS, fs=stranger)
    other.close()


def found_by(info: Any, monkeypatch: pytest.MonkeyPatch, fs: HdfsFileSystem) -> list[bytes]:
    """Read a block as a task does whose file system is this one."""
    with monkeypatch.context() as patched:
        patched.setitem(_clients._made, (os.getpid(), fs.authority), fs)
        with read_block(without_memory(info), BlockAccess()) as block:
            return list(block.records())


@pytest.mark.long
def test_a_block_on_hdfs_is_lost_only_when_hdfs_says_that_it_is_not_there(
    store: Any, hdfs: Hdfs, stranger: HdfsFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = put(store, BlockKind.BINARY, [b"one"])
    hurried = HdfsFileSystem(hdfs.address, patience_s=IMPATIENT_S)
    store.close()
    with hdfs.paused_name_node(), pytest.raises(BlockUnavailableError, match="may be whole"):
        found_by(info, monkeypatch, hurried)
    with pytest.raises(BlockUnavailableError, match="Permission denied"):
        found_by(info, monkeypatch, stranger)
    with (
        hdfs.paused_data_node(0),
        hdfs.paused_data_node(1),
        pytest.raises(BlockUnavailableError, match="may be whole"),
    ):
        found_by(info, monkeypatch, hurried)
    patient = HdfsFileSystem(hdfs.address)
    assert found_by(info, monkeypatch, patient) == [b"one"]
    segment = msgspec.structs.replace(info.segment, segment=info.segment.segment + 7)
    elsewhere = msgspec.structs.replace(info, segment=segment)
    with pytest.raises(BlockNotFoundError, match="No such file"):
        found_by(elsewhere, monkeypatch, patient)
