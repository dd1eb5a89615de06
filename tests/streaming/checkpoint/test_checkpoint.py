"""Checkpoint files: whole or not there, the newest ten, an older one when the newest is damaged."""

from __future__ import annotations

import errno
import logging
import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.__main__ import main
from penstock.clock import ManualClock, SystemClock
from penstock.streaming import (
    CheckpointFolderInUseError,
    CheckpointReadError,
    CheckpointVersionError,
    CheckpointWriteError,
)
from penstock.streaming.checkpoint.folder import Checkpoint, CheckpointFolder, CheckpointHeader
from penstock.streaming.checkpoint.writer import CheckpointRequest, CheckpointWriter
from penstock.streaming.dstream.rdd_files import RDDFiles
from tests.bounds import HANG_S
from tests.wal.faulty_filesystem import FaultyFileSystem, SimulatedCrashError

WAIT_S = HANG_S


def checkpoint(time_ms: int, body: bytes = b"graph", **facts: Any) -> Checkpoint:
    known = {"program": "one", "batch_ms": 1000, "zero_ms": 0, **facts}
    return Checkpoint(CheckpointHeader(last_batch_ms=time_ms, **known), body)


class TestFolder:
    def test_what_is_written_is_read(self, tmp_path: Path) -> None:
        folder = CheckpointFolder(str(tmp_path / "not" / "there"))
        assert folder.read_newest() is None
        facts = {"pending_ms": (1, 2), "conf": (("spark.x", "y"),), "rdd_files": ("file:/a",)}
        wanted = checkpoint(3000, b"body", **facts)
        assert folder.write(wanted) == "checkpoint-3000"
        assert folder.read_newest() == wanted
        assert (tmp_path / "not" / "there" / "checkpoint-3000").stat().st_mode & 0o777 == 0o600

    def test_the_command_says_what_is_there_and_errors_name_it(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        folder = CheckpointFolder(str(tmp_path))
        assert main(["checkpoint", str(tmp_path)]) == 1
        assert f"{tmp_path}: 0 whole, 0 damaged" in capsys.readouterr().out
        folder.write(checkpoint(2000, version="2", state_names=("totals",)))
        assert main(["checkpoint", str(tmp_path)]) == 0
        told = capsys.readouterr().out
        assert "checkpoint-2000: whole, last batch 1970-01-01" in told
        assert "program version '2'; states totals" in told
        (tmp_path / "checkpoint-2000").write_bytes(b"torn")
        with pytest.raises(CheckpointReadError) as raised:
            folder.read_newest()
        assert f"`penstock checkpoint {tmp_path}`" in str(raised.value)
        assert "another checkpoint directory" in str(raised.value)
        assert main(["checkpoint", str(tmp_path)]) == 1
        assert "checkpoint-2000: DAMAGED: it has 4 bytes" in capsys.readouterr().out
        # As if the program had removed it since it was listed; and one that no user can read.
        (tmp_path / "checkpoint-3000").symlink_to(tmp_path / "gone")
        assert main(["checkpoint", str(tmp_path)]) == 1
        assert "checkpoint-3000" not in capsys.readouterr().out
        (tmp_path / "checkpoint-4000").symlink_to(tmp_path / "checkpoint-4000")
        assert main(["checkpoint", str(tmp_path)]) == 2
        told = capsys.readouterr().out
        assert "checkpoint-4000: cannot be read: [Errno 40]" in told
        assert told.endswith("0 whole, 1 damaged, 1 not read\n")
        assert main(["checkpoint", str(tmp_path / "missing")]) == 2
        assert "no such folder" in capsys.readouterr().err

    def test_one_process_at_a_time_has_it(self, tmp_path: Path) -> None:
        first, second = (CheckpointFolder(str(tmp_path / "cp")) for _ in range(2))
        first.claim("orders")
        with pytest.raises(CheckpointFolderInUseError) as raised:
            second.claim()
        told = str(raised.value)
        assert f"{tmp_path}/cp is in use by process {os.getpid()} " in told
        assert "application orders; end that program first" in told
        first.write(checkpoint(1))
        first.release()
        second.claim()
        second.release()

    def test_names_that_are_none_are_left_alone(self, tmp_path: Path) -> None:
        """Spark: SPARK-28912."""
        folder = CheckpointFolder(str(tmp_path))
        for name in ("checkpoint-", "checkpoint-1.bk", "checkpoint-x", "a-checkpoint-9", "other"):
            (tmp_path / name).write_text("")
        (tmp_path / "checkpoint-5.new").write_text("")
        for time_ms in (999, 1000):
            folder.write(checkpoint(time_ms))
        assert folder.names() == ["checkpoint-1000", "checkpoint-999"]
        folder.remove_unfinished()
        assert not (tmp_path / "checkpoint-5.new").exists()
        assert (tmp_path / "checkpoint-1.bk").exists()

    def test_a_write_that_fails_leaves_no_file(self, tmp_path: Path) -> None:
        folder = CheckpointFolder(str(tmp_path))
        folder.write(checkpoint(999))
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (16, before[1]))
            for time_ms in (1000, 2000):
                with pytest.raises(OSError, match="File too large"):
                    folder.write(checkpoint(time_ms))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert os.listdir(tmp_path) == ["checkpoint-999"]

    def test_folders_named_like_checkpoints_are_passed_over(self, tmp_path: Path) -> None:
        for name in ("checkpoint-5", "checkpoint-9999", "checkpoint-7.new"):
            (tmp_path / name).mkdir()
        folder = CheckpointFolder(str(tmp_path))
        assert folder.read_newest() is None
        folder.check_encryption()
        folder.write(checkpoint(1000))
        folder.remove_unfinished()
        assert folder.names() == ["checkpoint-1000"]
        assert folder.read_newest() == checkpoint(1000)

    @pytest.mark.parametrize("length", [0, 10, 27, 40, -1])
    def test_a_torn_file_gives_way_to_an_older_one(
        self, tmp_path: Path, caplog: Any, length: int
    ) -> None:
        folder = CheckpointFolder(str(tmp_path))
        folder.write(checkpoint(1))
        folder.write(checkpoint(2))
        newest = tmp_path / "checkpoint-2"
        newest.write_bytes(newest.read_bytes()[:length])
        with caplog.at_level(logging.WARNING, "penstock.streaming.checkpoint"):
            found = folder.read_newest()
        assert found is not None
        assert found.header.last_batch_ms == 1
        assert ["checkpoint-2" in r.getMessage() for r in caplog.records] == [True]

    def test_every_changed_byte_is_found(self, tmp_path: Path) -> None:
        folder = CheckpointFolder(str(tmp_path))
        folder.write(checkpoint(1))
        path = tmp_path / "checkpoint-1"
        whole = path.read_bytes()
        for place in range(len(whole)):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            with pytest.raises(CheckpointReadError) as raised:
                folder.read_newest()
            assert str(raised.value).startswith("Failed to read checkpoint from directory")
            assert "checkpoint-1" in str(raised.value)

    @pytest.mark.parametrize(
        ("name", "what"), [("python", "Python"), ("pyspark", "PySpark"), ("penstock", "Penstock")]
    )
    def test_another_version_is_refused_with_both(
        self, tmp_path: Path, name: str, what: str
    ) -> None:
        folder = CheckpointFolder(str(tmp_path))
        folder.write(checkpoint(1))
        folder.write(checkpoint(2, **{name: "0.7"}))
        with pytest.raises(CheckpointVersionError, match=f"written with {what} 0.7") as raised:
            folder.read_newest()
        running = getattr(checkpoint(1).header, name)
        assert (raised.value.what, raised.value.written) == (what, "0.7")
        assert raised.value.running == running
        assert f"this is {what} {running}" in str(raised.value)

    @pytest.mark.parametrize("power_loss", [False, True])
    def test_after_a_crash_at_any_call_the_newest_is_whole(self, power_loss: bool) -> None:
        calls = 0
        while True:
            fs = FaultyFileSystem(seed=calls)
            folder = CheckpointFolder("/cp", fs)
            fs.crash_after(calls)
            written = 0
            try:
                for number in (1, 2, 3):
                    folder.write(checkpoint(number, b"x" * 5000))
                    written = number
            except SimulatedCrashError:
                pass
            if written == 3:
                assert calls > 10
                return
            fs.restart(power_loss=power_loss)
            folder.remove_unfinished()
            found = folder.read_newest()
            newest = 0 if found is None else found.header.last_batch_ms
            assert newest in (written, written + 1)
            folder.write(checkpoint(newest + 1))
            calls += 1


class Files(RDDFiles):
    def __init__(self) -> None:
        self.synced: list[str] = []
        self.removed: list[str] = []

    def sync(self, path: str) -> None:
        self.synced.append(path)

    def remove(self, path: str) -> None:
        self.removed.append(path)


class GatedFolder(CheckpointFolder):
    """Waits before it writes, or fails."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.failures = 0

    def write(self, checkpoint: Checkpoint) -> str:
        self.entered.release()
        assert self.gate.wait(WAIT_S)
        if self.failures:
            self.failures -= 1
            raise OSError(errno.ENOSPC, "no space left on device")
        return super().write(checkpoint)


class Writing:
    def __init__(self, path: Path) -> None:
        self.folder = GatedFolder(path)
        self.files = Files()
        self.errors: list[BaseException] = []
        self.clock = ManualClock()
        self.durable: list[int] = []
        self.writer = self.make()

    def make(self) -> CheckpointWriter:
        return CheckpointWriter(
            self.folder,
            self.files,
            on_error=self.errors.append,
            patience_s=5,
            clock=self.clock,
        )

    def submit(self, time_ms: int, **facts: Any) -> None:
        def done() -> None:
            self.durable.append(time_ms)

        self.writer.submit(CheckpointRequest(checkpoint(time_ms, **facts), (done,)))

    def write(self, time_ms: int, **facts: Any) -> None:
        self.submit(time_ms, **facts)
        assert self.writer.flush(WAIT_S)


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[Writing]:
    made = Writing(tmp_path / "cp")
    yield made
    made.folder.gate.set()
    made.folder.failures = 0
    made.writer.stop(WAIT_S)


class TestWriter:
    def test_only_the_newest_waits_and_what_follows_is_done_for_all(self, writing: Writing) -> None:
        """Spark: SPARK-11267, checkpoints that overtake each other."""
        writing.writer.start()
        writing.folder.gate.clear()
        writing.submit(1)
        assert writing.folder.entered.acquire(timeout=WAIT_S)
        for time_ms in (2, 3, 4):
            writing.submit(time_ms)
        assert writing.durable == []
        writing.folder.gate.set()
        assert writing.writer.flush(WAIT_S)
        assert writing.folder.names() == ["checkpoint-4", "checkpoint-1"]
        assert writing.durable == [1, 2, 3, 4]

    def test_the_newest_ten_are_kept_and_the_rdds_that_they_need(self, writing: Writing) -> None:
        writing.writer.start()
        for number in range(15):
            writing.write(number, rdd_files=(f"file:/r/{number // 2}",), rdd_folder="file:/r")
        assert writing.folder.names() == [f"checkpoint-{number}" for number in range(14, 4, -1)]
        assert writing.files.removed == ["file:/r/0", "file:/r/1"]
        assert writing.files.synced == [f"file:/r/{number}" for number in range(8)]

    def test_a_later_run_removes_what_an_earlier_one_left(self, writing: Writing) -> None:
        writing.writer.start()
        writing.write(1, rdd_files=("file:/r/1",), rdd_folder="file:/r")
        writing.writer.stop(WAIT_S)
        writing.writer = writing.make()
        writing.writer.start()
        for number in range(2, 11):
            writing.write(number, rdd_files=("file:/r/1",), rdd_folder="file:/s")
        assert writing.files.removed == []
        writing.write(11, rdd_files=("file:/r/1",), rdd_folder="file:/s")
        assert writing.files.removed == []
        for number in range(12, 22):
            writing.write(number, rdd_files=("file:/s/1",), rdd_folder="file:/s")
        assert writing.files.removed == ["file:/r/1", "file:/r"]

    def test_another_program_takes_the_folder_over(self, writing: Writing) -> None:
        for number in (1, 2):
            writing.folder.write(checkpoint(number, program="before"))
        writing.writer.start()
        writing.write(1)
        assert writing.folder.names() == ["checkpoint-1"]
        assert writing.folder.headers()["checkpoint-1"].program == "one"

    def test_a_failure_is_tried_again_and_told_when_it_lasts(
        self, writing: Writing, monkeypatch: Any
    ) -> None:
        monkeypatch.setattr("penstock.streaming.checkpoint.writer._RETRY_S", 0.001)
        writing.folder.failures = 3
        writing.writer.start()
        writing.write(1)
        for _ in range(4):
            assert writing.folder.entered.acquire(timeout=0)
        assert writing.errors == []
        assert writing.durable == [1]
        writing.folder.failures = 1_000_000
        writing.submit(2)
        for _ in range(3):
            assert writing.folder.entered.acquire(timeout=WAIT_S)
        writing.clock.advance(5000)
        for _ in range(4):
            assert writing.folder.entered.acquire(timeout=WAIT_S)
        writing.folder.failures = 0
        assert writing.writer.flush(WAIT_S)
        assert writing.durable == [1, 2]
        [error] = writing.errors
        assert isinstance(error, CheckpointWriteError)
        assert "no space left on device" in str(error)

    def test_a_stop_writes_what_waits_before_it_releases_the_folder(self, writing: Writing) -> None:
        writing.folder.claim()
        writing.writer.start()
        writing.folder.gate.clear()
        writing.submit(1)
        assert writing.folder.entered.acquire(timeout=WAIT_S)
        writing.submit(2)
        assert not writing.writer.stop(0.01)
        other = CheckpointFolder(writing.folder.path)
        with pytest.raises(CheckpointFolderInUseError):
            other.claim()
        writing.folder.gate.set()
        # Whoever stops it need not wait for that.
        writing.writer._thread.join(WAIT_S)
        other.claim()
        other.release()
        assert writing.folder.names() == ["checkpoint-2", "checkpoint-1"]

    def test_a_stop_does_not_wait_for_a_disk_that_stays_full(self, writing: Writing) -> None:
        writing.folder.failures = 1_000_000
        writing.writer.start()
        writing.submit(1)
        assert not writing.writer.stop(WAIT_S)
        # It has ended, and says that the checkpoint is not written.
        other = CheckpointFolder(writing.folder.path)
        other.claim()
        other.release()


def test_an_unknown_format_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    folder = CheckpointFolder(str(tmp_path))
    monkeypatch.setattr("penstock.streaming.checkpoint.folder._FORMAT", 2)
    folder.write(checkpoint(1))
    monkeypatch.undo()
    with pytest.raises(CheckpointVersionError, match="checkpoint format 2"):
        folder.read_newest()
    assert folder.headers() == {}


def test_the_header_tells_which_versions_wrote_it() -> None:
    header = checkpoint(SystemClock().time_ms()).header
    assert all((header.python, header.pyspark, header.penstock))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(header), type=CheckpointHeader) == header
