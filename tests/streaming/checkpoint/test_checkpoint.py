"""Checkpoints as bytes, and the thread that has them written."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.__main__ import main
from penstock.host.durability import LEDGER
from penstock.runtime.clock import ManualClock, SystemClock
from penstock.streaming import (
    CheckpointReadError,
    CheckpointVersionError,
    CheckpointWriteError,
)
from penstock.streaming.checkpoint.checkpointer import CheckpointRequest, CheckpointWriter
from penstock.streaming.checkpoint.record import Checkpoint, CheckpointHeader, read_checkpoint
from penstock.streaming.dstream.states.rdd_files import RDDFiles
from penstock.tracker import LedgerLostError, LedgerWriteError, ReceivedBlockTracker
from tests.bounds import HANG_S
from tests.streaming.checkpoint.stored import store

WAIT_S = HANG_S


def checkpoint(time_ms: int, body: bytes = b"graph", **facts: Any) -> Checkpoint:
    known = {"program": "one", "batch_ms": 1000, "zero_ms": 0, **facts}
    return Checkpoint(CheckpointHeader(last_batch_ms=time_ms, **known), body)


def test_what_is_stored_is_read_and_the_command_says_what_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["checkpoint", str(tmp_path)]) == 1
    assert f"{tmp_path}: no checkpoint" in capsys.readouterr().out
    store(tmp_path, checkpoint(1000))
    facts = {"pending_ms": (1, 2), "conf": (("spark.x", "y"),), "rdd_files": ("file:/a",)}
    wanted = checkpoint(2000, b"body", version="2", state_names=("totals",), **facts)
    store(tmp_path, wanted)
    assert read_checkpoint(str(tmp_path)) == wanted
    assert main(["checkpoint", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert f"{tmp_path}: last batch 1970-01-01" in told
    assert "2 batches not complete" in told
    assert "program version '2'; states totals" in told
    segments = sorted((tmp_path / LEDGER).glob("segment-*.log"))
    (last,) = (path for path in segments if b"body" in path.read_bytes())
    last.write_bytes(last.read_bytes().replace(b"body", b"Body"))
    assert main(["checkpoint", str(tmp_path)]) == 2
    assert "corrupt record" in capsys.readouterr().err
    assert main(["checkpoint", str(tmp_path / "missing")]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_files_of_an_earlier_release_are_refused_with_the_way_out(tmp_path: Path) -> None:
    for name in ("checkpoint-", "checkpoint-1.bk", "checkpoint-x", "a-checkpoint-9", "other"):
        (tmp_path / name).write_text("")
    assert read_checkpoint(str(tmp_path)) is None
    (tmp_path / "checkpoint-1000").write_bytes(b"PENSTKCP")
    with pytest.raises(CheckpointReadError, match=r"version that wrote them, by stop\("):
        read_checkpoint(str(tmp_path))
    # They count no more once there is a record.
    store(tmp_path, checkpoint(2000))
    assert read_checkpoint(str(tmp_path)) == checkpoint(2000)


@pytest.mark.parametrize(
    ("name", "what"), [("python", "Python"), ("pyspark", "PySpark"), ("penstock", "Penstock")]
)
def test_another_version_is_refused_with_both(name: str, what: str) -> None:
    with pytest.raises(CheckpointVersionError, match=f"written with {what} 0.7") as raised:
        checkpoint(2, **{name: "0.7"}).check_versions("/cp")
    running = getattr(checkpoint(1).header, name)
    assert (raised.value.what, raised.value.written) == (what, "0.7")
    assert raised.value.running == running
    assert f"this is {what} {running}" in str(raised.value)


class Files(RDDFiles):
    def __init__(self) -> None:
        self.synced: list[str] = []
        self.removed: list[str] = []

    def sync(self, path: str) -> None:
        self.synced.append(path)

    def remove(self, path: str) -> None:
        self.removed.append(path)


class GatedLedger(ReceivedBlockTracker):
    """Waits before it writes, or fails."""

    def __init__(self) -> None:
        super().__init__(())
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.failures = 0
        self.error: BaseException = LedgerWriteError("a checkpoint", "no space left on device")
        self.written: list[int] = []

    def write_checkpoint(self, checkpoint: bytes) -> None:
        self.entered.release()
        assert self.gate.wait(WAIT_S)
        if self.failures:
            self.failures -= 1
            raise self.error
        super().write_checkpoint(checkpoint)
        self.written.append(Checkpoint.decode(checkpoint, "cp").header.last_batch_ms)


class Writing:
    def __init__(self) -> None:
        self.ledger = GatedLedger()
        self.files = Files()
        self.errors: list[BaseException] = []
        self.clock = ManualClock()
        self.durable: list[int] = []
        self.writer = self.make()

    def make(self) -> CheckpointWriter:
        return CheckpointWriter(
            self.ledger,
            "cp",
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
def writing() -> Iterator[Writing]:
    made = Writing()
    yield made
    made.ledger.gate.set()
    made.ledger.failures = 0
    made.writer.stop(WAIT_S)


class TestWriter:
    def test_only_the_newest_waits_and_what_follows_is_done_for_all(self, writing: Writing) -> None:
        """Spark: SPARK-11267, checkpoints that overtake each other."""
        writing.writer.start()
        writing.ledger.gate.clear()
        writing.submit(1)
        assert writing.ledger.entered.acquire(timeout=WAIT_S)
        for time_ms in (2, 3, 4):
            writing.submit(time_ms)
        assert writing.durable == []
        writing.ledger.gate.set()
        assert writing.writer.flush(WAIT_S)
        assert writing.ledger.written == [1, 4]
        assert writing.durable == [1, 2, 3, 4]

    def test_the_rdds_that_the_newest_two_need_are_kept(self, writing: Writing) -> None:
        writing.writer.start()
        for number in range(7):
            writing.write(number, rdd_files=(f"file:/r/{number // 2}",), rdd_folder="file:/r")
        assert writing.files.removed == ["file:/r/0", "file:/r/1"]
        writing.write(7, rdd_files=("file:/r/3",), rdd_folder="file:/r")
        assert writing.files.removed == ["file:/r/0", "file:/r/1", "file:/r/2"]
        assert writing.files.synced == [f"file:/r/{number}" for number in range(4)]

    def test_a_later_run_removes_what_an_earlier_one_left(self, writing: Writing) -> None:
        writing.writer.start()
        writing.write(1, rdd_files=("file:/r/1",), rdd_folder="file:/r")
        writing.writer.stop(WAIT_S)
        writing.writer = writing.make()
        writing.writer.start()
        for number in range(2, 11):
            writing.write(number, rdd_files=("file:/r/1",), rdd_folder="file:/s")
        assert writing.files.removed == []
        writing.write(12, rdd_files=("file:/s/1",), rdd_folder="file:/s")
        assert writing.files.removed == []
        writing.write(13, rdd_files=("file:/s/1",), rdd_folder="file:/s")
        assert writing.files.removed == ["file:/r/1", "file:/r"]

    def test_what_another_program_saved_goes_and_one_of_another_format_is_no_hindrance(
        self, writing: Writing
    ) -> None:
        before = checkpoint(9, program="before", rdd_files=("file:/b/1",), rdd_folder="file:/b")
        writing.ledger.write_checkpoint(before.encode())
        writing.writer.start()
        for number in (1, 2):
            writing.write(number, rdd_folder="file:/r")
        assert writing.files.removed == ["file:/b/1", "file:/b"]
        writing.writer.stop(WAIT_S)
        ReceivedBlockTracker.write_checkpoint(writing.ledger, b"of another format")
        writing.writer = writing.make()
        writing.writer.start()
        writing.write(3)
        assert writing.errors == []

    def test_a_failure_is_tried_again_and_told_when_it_lasts(
        self, writing: Writing, monkeypatch: Any
    ) -> None:
        monkeypatch.setattr("penstock.streaming.checkpoint.checkpointer._RETRY_S", 0.001)
        writing.ledger.failures = 3
        writing.writer.start()
        writing.write(1)
        for _ in range(4):
            assert writing.ledger.entered.acquire(timeout=0)
        assert writing.errors == []
        assert writing.durable == [1]
        writing.ledger.failures = 1_000_000
        writing.submit(2)
        for _ in range(3):
            assert writing.ledger.entered.acquire(timeout=WAIT_S)
        writing.clock.advance(5000)
        for _ in range(4):
            assert writing.ledger.entered.acquire(timeout=WAIT_S)
        writing.ledger.failures = 0
        assert writing.writer.flush(WAIT_S)
        assert writing.durable == [1, 2]
        [error] = writing.errors
        assert isinstance(error, CheckpointWriteError)
        assert "no space left on device" in str(error)
        # The next time counts anew, and is told again.
        for told, passed_ms in ((1, 4000), (2, 1000)):
            writing.ledger.failures = 1_000_000
            writing.submit(3)
            while writing.ledger.entered.acquire(timeout=0):
                pass
            for _ in range(3):
                assert writing.ledger.entered.acquire(timeout=WAIT_S)
            writing.clock.advance(passed_ms)
            for _ in range(3):
                assert writing.ledger.entered.acquire(timeout=WAIT_S)
            assert len(writing.errors) == told

    def test_what_waits_for_one_that_failed_is_done_after_the_newer_one(
        self, writing: Writing
    ) -> None:
        writing.ledger.gate.clear()
        writing.ledger.failures = 1
        writing.writer.start()
        writing.submit(1)
        assert writing.ledger.entered.acquire(timeout=WAIT_S)
        writing.submit(2)
        writing.ledger.gate.set()
        assert writing.writer.flush(WAIT_S)
        assert writing.ledger.written == [2]
        assert writing.durable == [1, 2]

    def test_what_waits_and_fails_is_told_and_keeps_nothing_else_from_being_done(
        self, writing: Writing
    ) -> None:
        def fails() -> None:
            raise OSError("no more")

        writing.writer.start()
        done = (fails, lambda: writing.durable.append(1))
        writing.writer.submit(CheckpointRequest(checkpoint(1), done))
        assert writing.writer.flush(WAIT_S)
        assert writing.durable == [1]
        assert [str(error) for error in writing.errors] == ["no more"]
        assert writing.ledger.written == [1]

    def test_a_checkpoint_is_tried_again_whatever_was_raised(
        self, writing: Writing, monkeypatch: Any
    ) -> None:
        """As when a client of HDFS panics, which is no `Exception`."""
        monkeypatch.setattr("penstock.streaming.checkpoint.checkpointer._RETRY_S", 0.001)
        writing.ledger.failures = 1
        writing.ledger.error = SystemExit("a panic")
        writing.writer.start()
        writing.write(1)
        assert writing.durable == [1]
        assert writing.errors == []

    def test_a_stop_writes_what_waits(self, writing: Writing) -> None:
        writing.writer.start()
        writing.ledger.gate.clear()
        writing.submit(1)
        assert writing.ledger.entered.acquire(timeout=WAIT_S)
        writing.submit(2)
        assert not writing.writer.stop(0.01)
        writing.ledger.gate.set()
        assert writing.writer.stop(WAIT_S)
        assert writing.ledger.written == [1, 2]

    def test_a_log_that_was_removed_is_told_at_once_and_not_waited_for(
        self, writing: Writing
    ) -> None:
        writing.ledger.failures = 1_000_000
        writing.ledger.error = LedgerLostError("a checkpoint", "the folder is gone")
        writing.writer.start()
        writing.submit(1)
        assert not writing.writer.flush(WAIT_S)
        (error,) = writing.errors
        assert isinstance(error, CheckpointWriteError)
        assert "the folder is gone" in str(error)
        assert "a restart would not go on from any" in str(error)
        # It can never pass: nothing is tried again, and nothing is kept for it.
        writing.writer._thread.join(WAIT_S)
        assert not writing.writer._thread.is_alive()
        for time_ms in (2, 3):
            writing.submit(time_ms)
        assert writing.ledger.failures == 999_999
        assert not writing.writer.flush(WAIT_S)
        assert not writing.writer.stop(WAIT_S)
        assert writing.durable == []

    def test_a_log_that_was_taken_over_is_told_at_once(self, writing: Writing) -> None:
        writing.ledger.failures = 1_000_000
        writing.ledger.error = LedgerLostError("a checkpoint", "by another", is_taken_over=True)
        writing.writer.start()
        writing.submit(1)
        assert not writing.writer.flush(WAIT_S)
        (error,) = writing.errors
        assert "can be written" in str(error)
        assert "another driver goes on" in str(error)
        assert "a restart" not in str(error)

    def test_a_stop_does_not_wait_for_a_disk_that_stays_full(self, writing: Writing) -> None:
        writing.ledger.failures = 1_000_000
        writing.writer.start()
        writing.submit(1)
        # It has ended, and says that the checkpoint is not written.
        assert not writing.writer.stop(WAIT_S)
        assert not writing.writer._thread.is_alive()


def test_an_unknown_format_is_refused(monkeypatch: Any) -> None:
    monkeypatch.setattr("penstock.streaming.checkpoint.record._FORMAT", 3)
    later = checkpoint(1).encode()
    monkeypatch.undo()
    with pytest.raises(CheckpointVersionError, match="checkpoint format 3"):
        Checkpoint.decode(later, "cp")
    with pytest.raises(CheckpointReadError, match="cannot be decoded"):
        Checkpoint.decode(b"something else", "cp")


def test_the_header_tells_which_versions_wrote_it() -> None:
    header = checkpoint(SystemClock().time_ms()).header
    assert all((header.python, header.pyspark, header.penstock))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(header), type=CheckpointHeader) == header
