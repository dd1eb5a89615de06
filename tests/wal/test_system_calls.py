"""What the local file system asks of the kernel: that is all that a power loss respects."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from penstock.wal import (
    LocalFileSystem,
    LogFullError,
    LogOptions,
    LogReader,
    LogWriteError,
    LogWriter,
    SyncPolicy,
    repair,
    segment_path,
)
from tests.wal.system_calls import SystemCalls

SIZES = [10, 5000, 100_000]


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> SystemCalls:
    return SystemCalls(monkeypatch)


def options(alignment: int, policy: SyncPolicy = SyncPolicy.ALWAYS) -> LogOptions:
    return LogOptions(segment_size=1 << 20, alignment=alignment, sync=policy, sync_interval_s=3600)


@pytest.mark.parametrize("alignment", [64, 4096])
@pytest.mark.parametrize("per_write", [True, False], ids=["RWF_DSYNC", "fdatasync"])
def test_every_write_is_forced_when_an_append_returns(
    tmp_path: Path, system: SystemCalls, alignment: int, per_write: bool
) -> None:
    if not per_write:
        # As a file system answers that has no sync of a single write.
        system.refuse = lambda name, flags: errno.EOPNOTSUPP if flags & os.RWF_DSYNC else 0
    folder = str(tmp_path / "log")
    with LogWriter.create(folder, options=options(alignment)) as writer:
        for size in SIZES:
            place = writer.append(1, bytes(size))
            path = segment_path(folder, place.segment)
            assert ("pwritev", os.path.basename(path)) in system.names("pwritev")
            assert system.unforced_writes(path) == []
        places = writer.append_many([(1, bytes(size)) for size in SIZES])
        assert system.unforced_writes(segment_path(folder, places[-1].segment)) == []
    assert system.unforced_writes(path) == [], "the end is forced, too"


@pytest.mark.parametrize("policy", [SyncPolicy.NONE, SyncPolicy.INTERVAL])
def test_without_always_appends_force_nothing_and_a_sync_forces_all(
    tmp_path: Path, system: SystemCalls, policy: SyncPolicy
) -> None:
    folder = str(tmp_path / "log")
    with LogWriter.create(folder, options=options(4096, policy)) as writer:
        for _ in range(3):
            place = writer.append(1, b"x")
        path = segment_path(folder, place.segment)
        assert len(system.unforced_writes(path)) == 3
        writer.sync()
        assert system.unforced_writes(path) == []
        writer.append(1, b"x")
        writer.roll()
        assert bool(system.unforced_writes(path)) is (policy is SyncPolicy.NONE)
        writer.sync()
        assert system.unforced_writes(path) == []


def test_a_name_is_forced_before_anything_is_written_under_it(
    tmp_path: Path, system: SystemCalls
) -> None:
    folder = str(tmp_path / "logs" / "billing")
    with LogWriter.create(folder, options=options(4096)) as writer:
        writer.append(1, b"x")
        writer.roll()
        writer.append(1, b"x")
        # The first one becomes a spare, and then the third.
        writer.remove_segments([1])
        writer.roll()
        writer.append(1, b"x")
    calls = [(call.name, call.path) for call in system.calls]
    assert calls.index(("mkdir", str(tmp_path / "logs"))) < calls.index(("fsync", str(tmp_path)))
    assert calls.index(("mkdir", folder)) < calls.index(("fsync", str(tmp_path / "logs")))
    for number in (1, 2, 3):
        path = segment_path(folder, number)
        named = calls.index(("rename", path))
        written = calls.index(("pwritev", path))
        assert ("fsync", folder) in calls[named:written], "the name may go with the power"
        # And the header before the name: no name leads to a segment without one.
        header = calls.index(("pwritev", path + ".new"))
        assert any(
            call in calls[header:named]
            for call in (("fdatasync", path + ".new"), ("fsync", path + ".new"))
        )


def test_a_cut_is_forced(tmp_path: Path, system: SystemCalls) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(10_000))
    LocalFileSystem().truncate(str(path), 100)
    assert [call.name for call in system.calls] == ["ftruncate", "fsync"]
    assert system.calls[0].fd == system.calls[1].fd
    assert path.stat().st_size == 100


def test_a_file_and_a_folder_are_forced_when_asked_for(tmp_path: Path, system: SystemCalls) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    fs = LocalFileSystem()
    fs.sync_file(str(path))
    fs.sync_folder(str(tmp_path))
    assert [(call.name, call.path) for call in system.calls] == [
        ("fsync", str(path)),
        ("fsync", str(tmp_path)),
    ]


def test_a_repair_is_forced(tmp_path: Path, system: SystemCalls) -> None:
    folder = str(tmp_path / "log")
    writer = LogWriter.create(folder, options=options(4096))
    writer.append(1, b"x")
    writer._lock.release()  # as the death of its process does
    system.calls.clear()
    repair(folder)
    assert system.names("ftruncate", "fsync") == [
        ("ftruncate", "LOCK"),
        ("ftruncate", "segment-000000000001.log"),
        ("fsync", "segment-000000000001.log"),
        ("fsync", "log"),
    ]


def test_what_is_written_again_after_a_failed_sync_is_forced(
    tmp_path: Path, system: SystemCalls
) -> None:
    path = tmp_path / "file"
    data = os.urandom(9 << 20)
    path.write_bytes(data)
    LocalFileSystem().write_again(str(path), 100, len(data) - 100)
    assert path.read_bytes() == data
    assert system.unforced_writes(str(path)) == []
    assert len(system.names("pwritev")) == 3
    # Nothing is left out, so that what the system dropped of it is there again.
    assert system.names("fdatasync") == [("fdatasync", "file")]


@pytest.mark.parametrize("alignment", [64, 4096])
@pytest.mark.parametrize("policy", [SyncPolicy.NONE, SyncPolicy.ALWAYS])
def test_a_write_that_the_kernel_takes_in_part_is_completed(
    tmp_path: Path, system: SystemCalls, alignment: int, policy: SyncPolicy
) -> None:
    folder = str(tmp_path / "log")
    payloads = [os.urandom(size) for size in SIZES]
    with LogWriter.create(folder, options=options(alignment, policy)) as writer:
        # Of direct I/O whole pages.
        system.take = lambda size: max(size // 3 & -alignment, min(size, alignment))
        for payload in payloads:
            place = writer.append(1, payload)
            if policy is SyncPolicy.ALWAYS:
                assert system.unforced_writes(segment_path(folder, place.segment)) == []
        writer.append_many([(1, payload) for payload in payloads])
    found = [bytes(record.payload) for record in LogReader.open(folder).records()]
    assert found == payloads * 2


def test_a_write_that_the_kernel_does_not_take_is_an_error(
    tmp_path: Path, system: SystemCalls
) -> None:
    folder = str(tmp_path / "log")
    with LogWriter.create(folder, options=options(4096)) as writer:
        writer.append(1, b"before")
        system.take = lambda size: 0
        with pytest.raises(LogWriteError, match="wrote nothing"):
            writer.append(1, b"failed")
        system.take = lambda size: size
        writer.append(1, b"after")
    found = [bytes(record.payload) for record in LogReader.open(folder).records()]
    assert found == [b"before", b"after"]


def test_a_disk_that_is_full_in_the_middle_of_a_write_is_told(
    tmp_path: Path, system: SystemCalls
) -> None:
    folder = str(tmp_path / "log")
    with LogWriter.create(folder, options=options(64)) as writer:
        writer.append(1, b"before")
        pieces = iter([0, errno.ENOSPC])
        system.take = lambda size: max(1, size // 2)
        system.refuse = lambda name, flags: next(pieces, 0) if name == "pwritev" else 0
        with pytest.raises(LogFullError):
            writer.append(1, bytes(5000))
        system.take = lambda size: size
        writer.append(1, b"after")
    found = [bytes(record.payload) for record in LogReader.open(folder).records()]
    assert found == [b"before", b"after"]


@pytest.mark.parametrize("call", ["fdatasync", "pwritev"])
def test_a_sync_that_fails_fails_the_append(tmp_path: Path, system: SystemCalls, call: str) -> None:
    folder = str(tmp_path / "log")
    with LogWriter.create(folder, options=options(64)) as writer:
        writer.append(1, b"before")
        # Either the write that is to be forced fails, or it is not known and then its sync does.
        answers = {"pwritev": errno.EIO if call == "pwritev" else errno.EOPNOTSUPP}
        answers["fdatasync"] = errno.EIO
        system.refuse = lambda name, flags: (
            answers.get(name, 0) if name == "fdatasync" or flags & os.RWF_DSYNC else 0
        )
        with pytest.raises(LogWriteError):
            writer.append(1, b"failed")
        system.refuse = lambda name, flags: 0
        writer.append(1, b"after")
    found = [bytes(record.payload) for record in LogReader.open(folder).records()]
    assert found == [b"before", b"after"]


@pytest.mark.parametrize("alignment", [64, 4096])
def test_what_says_that_a_failed_append_is_void_stays_while_that_cannot_be_cut(
    tmp_path: Path, system: SystemCalls, alignment: int
) -> None:
    folder = str(tmp_path / "log")
    refused: dict[str, int] = {}

    def refuse(name: str, flags: int) -> int:
        return errno.EOPNOTSUPP if flags & os.RWF_DSYNC else refused.get(name, 0)

    system.refuse = refuse
    with LogWriter.create(folder, options=options(alignment)) as writer:
        writer.append(1, b"before")
        refused.update(fdatasync=errno.EIO, ftruncate=errno.EIO)
        with pytest.raises(LogWriteError):
            writer.append(1, b"failed")
        del refused["fdatasync"]
        assert writer.append(1, b"released").segment == 2
        for _ in range(2):
            writer.roll()
            writer.append(1, b"after")
        assert b"failed" in Path(segment_path(folder, 1)).read_bytes()
        writer.remove_segments([2, 3])
        found = [bytes(record.payload) for record in LogReader.open(folder).records()]
        assert found == [b"before", b"released", b"after", b"after"]
        del refused["ftruncate"]
        writer.remove_segments([2, 3])
        found = [bytes(record.payload) for record in LogReader.open(folder).records()]
        assert found == [b"before", b"after"]


def test_a_lock_is_on_the_file_that_others_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever removes a log may unlink its lock just when another one has opened it."""
    path = str(tmp_path / "LOCK")
    real = fcntl.flock
    removals = iter([True, True])

    def flock(fd: int, operation: int) -> Any:
        if next(removals, False):
            os.unlink(path)
        return real(fd, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    lock = LocalFileSystem().lock(path, "the first")
    with pytest.raises(BlockingIOError, match="the first"):
        LocalFileSystem().lock(path, "the second")
    lock.release()


def test_a_lock_that_somebody_else_made_anew_is_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "LOCK")
    real = fcntl.flock
    others: list[Any] = []

    def flock(fd: int, operation: int) -> Any:
        if not others:
            monkeypatch.setattr(fcntl, "flock", real)
            os.unlink(path)
            others.append(LocalFileSystem().lock(path, "the other"))
        return real(fd, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(BlockingIOError, match="the other"):
        LocalFileSystem().lock(path, "this one")
    others[0].release()
