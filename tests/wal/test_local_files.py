"""The files of this host on file systems that cannot do everything, and in unusual processes."""

from __future__ import annotations

import errno
import fcntl
import logging
import mmap
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.wal import (
    LOCK_NAME,
    LocalFileSystem,
    LogFolderInUseError,
    lock_folder,
    owner_of,
    settled,
)
from tests.bounds import HANG_S
from tests.wal.system_calls import SystemCalls

PAGE = 4096
REFUSALS = [errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS]


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> SystemCalls:
    return SystemCalls(monkeypatch)


@pytest.fixture
def fs() -> LocalFileSystem:
    return LocalFileSystem()


def page() -> memoryview:
    """Return a page of memory that direct I/O takes."""
    memory = memoryview(mmap.mmap(-1, PAGE))
    memory[:] = os.urandom(PAGE)
    return memory


def descriptors_of(path: Path) -> list[int]:
    """Return this process's descriptors of a file or folder."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}") == str(path):
                found.append(int(name))
        except FileNotFoundError:  # that of the listing itself
            continue
    return found


def has_direct_flag(path: Path) -> bool:
    [fd] = descriptors_of(path)
    return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT)


def takes_direct_io(folder: Path) -> bool:
    try:
        os.close(os.open(folder / "tried", os.O_CREAT | os.O_RDWR | os.O_DIRECT, 0o600))
    except OSError:
        return False
    return True


def refuse_flag(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Let the kernel refuse the flag of direct I/O."""
    real = fcntl.fcntl

    def call(fd: int, command: int, argument: int = 0) -> int:
        if command == fcntl.F_SETFL and argument & os.O_DIRECT:
            raise OSError(number, os.strerror(number))
        return real(fd, command, argument)

    monkeypatch.setattr(fcntl, "fcntl", call)


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if "direct I/O is refused" in text]


def test_a_file_passes_the_page_cache_where_that_is_asked_for(
    tmp_path: Path, fs: LocalFileSystem
) -> None:
    for direct in {False, takes_direct_io(tmp_path)}:
        path = tmp_path / str(direct)
        for open_file in (fs.create, fs.reopen):
            file = open_file(str(path), direct=direct)
            assert file.direct is direct
            assert has_direct_flag(path) is direct
            assert not file.forces_writes
            file.close()


@pytest.mark.parametrize("number", REFUSALS)
def test_a_file_system_that_refuses_the_flag_of_direct_io_is_written_without(
    tmp_path: Path,
    fs: LocalFileSystem,
    system: SystemCalls,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    number: int,
) -> None:
    refuse_flag(monkeypatch, number)
    caplog.set_level(logging.INFO, "penstock.wal")
    for name in ("a", "b"):
        file = fs.create(str(tmp_path / name), direct=True)
        assert not file.direct
        file.write(0, [b"not a page"], sync=True)
        file.close()
        assert (tmp_path / name).read_bytes() == b"not a page"
        assert system.unforced_writes(str(tmp_path / name)) == []
    [said] = refusals(caplog)
    assert str(tmp_path) in said


@pytest.mark.parametrize("number", REFUSALS)
def test_a_file_system_that_refuses_direct_writes_only_is_written_without(
    tmp_path: Path,
    fs: LocalFileSystem,
    system: SystemCalls,
    caplog: pytest.LogCaptureFixture,
    number: int,
) -> None:
    """As overlay does: it takes the flag, and then no write."""
    caplog.set_level(logging.INFO, "penstock.wal")
    data = page()
    for name in ("a", "b"):
        path = tmp_path / name
        file = fs.create(str(path), direct=True)
        system.refuse = lambda call, flags, path=path: (
            number if call == "pwritev" and has_direct_flag(path) else 0
        )
        file.write(0, [data], sync=True)
        assert not file.direct
        file.write(PAGE, [b"not a page"], sync=True)
        file.close()
        assert path.read_bytes() == bytes(data) + b"not a page"
        assert system.unforced_writes(str(path)) == []
    [said] = refusals(caplog)
    assert str(tmp_path) in said


def test_where_only_the_forced_write_is_refused_nothing_is_said_of_direct_io(
    tmp_path: Path, fs: LocalFileSystem, system: SystemCalls, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.wal")
    asked: list[int] = []

    def refuse(call: str, flags: int) -> int:
        if call == "pwritev":
            asked.append(flags)
        return errno.EOPNOTSUPP if flags else 0

    system.refuse = refuse
    file = fs.create(str(tmp_path / "file"), direct=False)
    file.write(0, [b"one"], sync=True)
    file.write(3, [b"two"], sync=True)
    file.close()
    assert asked == [os.RWF_DSYNC, 0, 0], "it is asked for once"
    assert system.unforced_writes(str(tmp_path / "file")) == []
    assert refusals(caplog) == []


@pytest.mark.parametrize("direct", [False, True])
def test_any_other_failure_of_a_write_is_no_refusal(
    tmp_path: Path, fs: LocalFileSystem, system: SystemCalls, direct: bool
) -> None:
    file = fs.create(str(tmp_path / "file"), direct=direct)
    asked: list[int] = []

    def refuse(call: str, flags: int) -> int:
        asked.append(flags)
        return errno.EIO

    system.refuse = refuse
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        file.write(0, [page()], sync=True)
    assert len(asked) == 1, "it is not tried again"
    assert file.direct is (direct and takes_direct_io(tmp_path))
    file.close()


def test_a_write_that_is_refused_without_a_flag_is_an_error(
    tmp_path: Path, fs: LocalFileSystem, system: SystemCalls
) -> None:
    file = fs.create(str(tmp_path / "file"), direct=False)
    asked: list[int] = []

    def refuse(call: str, flags: int) -> int:
        asked.append(flags)
        return errno.EINVAL

    system.refuse = refuse
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        file.write(0, [b"data"], sync=False)
    assert asked == [0], "there is nothing to do without"
    file.close()


def test_any_other_failure_to_set_the_flag_is_an_error(
    tmp_path: Path, fs: LocalFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_flag(monkeypatch, errno.EPERM)
    with pytest.raises(PermissionError):
        fs.create(str(tmp_path / "file"), direct=True)


def test_a_write_of_more_buffers_than_one_call_takes(
    tmp_path: Path, fs: LocalFileSystem, system: SystemCalls
) -> None:
    file = fs.create(str(tmp_path / "file"), direct=False)
    buffers = [b"%d," % number for number in range(1500)]
    file.write(7, buffers, sync=True)
    file.close()
    assert (tmp_path / "file").read_bytes() == bytes(7) + b"".join(buffers)
    assert len(system.names("pwritev")) == 3


@pytest.mark.parametrize("number", REFUSALS)
def test_space_is_reserved_or_the_file_reads_as_zeros_all_the_same(
    tmp_path: Path, fs: LocalFileSystem, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    reserved = fs.create(str(tmp_path / "reserved"), direct=False)
    reserved.preallocate(100_000)
    facts = os.stat(tmp_path / "reserved")
    assert facts.st_size == 100_000
    assert facts.st_blocks * 512 >= 100_000
    reserved.close()

    def refuse(fd: int, offset: int, size: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    bare = fs.create(str(tmp_path / "bare"), direct=False)
    bare.preallocate(100_000)
    bare.close()
    assert (tmp_path / "bare").read_bytes() == bytes(100_000)


def test_a_full_disk_is_told_when_space_is_reserved(
    tmp_path: Path, fs: LocalFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    file = fs.create(str(tmp_path / "file"), direct=False)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        file.preallocate(100_000)
    file.close()


@pytest.mark.parametrize("number", REFUSALS)
def test_a_folder_that_cannot_be_synced_is_no_error_unless_its_disk_fails(
    tmp_path: Path, fs: LocalFileSystem, system: SystemCalls, number: int
) -> None:
    system.refuse = lambda name, flags: number
    fs.sync_folder(str(tmp_path))
    system.refuse = lambda name, flags: errno.EIO
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        fs.sync_folder(str(tmp_path))


@pytest.mark.parametrize("at_once", [1, 3, 1 << 20])
def test_a_read_of_which_the_kernel_gives_a_part_is_completed(
    tmp_path: Path, fs: LocalFileSystem, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    real = os.pread
    asked: list[tuple[int, int]] = []

    def pread(fd: int, size: int, offset: int) -> bytes:
        asked.append((offset, offset + size))
        return real(fd, min(size, at_once), offset)

    monkeypatch.setattr(os, "pread", pread)
    file = fs.open(str(tmp_path / "file"))
    assert file.size == 10
    assert file.read(2, 5) == b"23456"
    assert {end for _, end in asked} == {7}, "nothing behind it is asked for"
    assert all(begin < end for begin, end in asked), "nor nothing at all"
    assert file.read(7, 100) == b"789"
    assert file.read(10, 5) == b""
    file.close()


def test_no_operation_leaves_a_descriptor_behind(
    tmp_path: Path, fs: LocalFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")

    def lock_twice() -> None:
        lock = fs.lock(str(path), "the first")
        with pytest.raises(BlockingIOError):
            fs.lock(str(path), "the second")
        lock.release()
        lock.release()

    def close_twice(open_file: Callable[..., Any], **options: bool) -> None:
        file = open_file(str(path), **options)
        assert len(descriptors_of(path)) == 1
        file.close()
        file.close()

    operations: list[Callable[[], object]] = [
        lambda: fs.truncate(str(path), 9),
        lambda: fs.sync_file(str(path)),
        lambda: fs.sync_folder(str(tmp_path)),
        lambda: fs.write_again(str(path), 0, 9),
        lambda: close_twice(fs.open),
        lambda: close_twice(fs.reopen, direct=False),
        lock_twice,
    ]
    for operation in operations:
        operation()
        assert descriptors_of(path) == descriptors_of(tmp_path) == []


def test_files_and_folders_are_their_owners_only(tmp_path: Path, fs: LocalFileSystem) -> None:
    fs.make_folder(str(tmp_path / "folder"))
    fs.create(str(tmp_path / "file"), direct=False).close()
    fs.lock(str(tmp_path / "lock"), "owner").release()
    modes = {name: stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in os.listdir(tmp_path)}
    assert modes == {"folder": 0o700, "file": 0o600, "lock": 0o600}


def test_a_new_file_replaces_none_and_an_old_one_is_not_made_anew(
    tmp_path: Path, fs: LocalFileSystem
) -> None:
    with pytest.raises(FileNotFoundError):
        fs.reopen(str(tmp_path / "file"), direct=False)
    (tmp_path / "file").write_bytes(b"kept")
    with pytest.raises(FileExistsError):
        fs.create(str(tmp_path / "file"), direct=False)
    fs.reopen(str(tmp_path / "file"), direct=False).close()
    assert (tmp_path / "file").read_bytes() == b"kept"


def test_free_bytes_are_those_of_the_file_system_or_not_known(
    tmp_path: Path, fs: LocalFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda folder: facts)
    assert fs.free_bytes(str(tmp_path)) == facts.f_bavail * facts.f_frsize
    monkeypatch.undo()
    assert fs.free_bytes(str(tmp_path / "missing")) == -1


def test_the_name_in_a_lock_is_that_of_its_last_owner(tmp_path: Path, fs: LocalFileSystem) -> None:
    path = str(tmp_path / "LOCK")
    fs.lock(path, "an owner with a long name").release()
    assert Path(path).read_text() == "an owner with a long name\n"
    lock = fs.lock(path, "short")
    assert Path(path).read_text() == "short\n"
    lock.release()


def test_a_locked_file_without_a_name_is_said_to_be_so(tmp_path: Path, fs: LocalFileSystem) -> None:
    path = tmp_path / "LOCK"
    lock = fs.lock(str(path), "")
    with pytest.raises(BlockingIOError, match="has not said its name") as refused:
        fs.lock(str(path), "another")
    assert refused.value.filename == str(path)
    lock.release()


WITHOUT_INPUT = """
import os, sys
from penstock.wal import LocalFileSystem
os.close(0)
fs, path = LocalFileSystem(), sys.argv[1]

lock = fs.lock(path + ".lock", "owner")
assert lock._fd == 0
lock.release()
fs.lock(path + ".lock", "owner").release()
for open_file in (lambda: fs.create(path, direct=False), lambda: fs.open(path)):
    file = open_file()
    assert file._fd == 0
    file.close()
    try:
        os.fstat(0)
    except OSError:
        continue
    raise AssertionError("not closed")
"""


def test_descriptor_zero_is_a_descriptor_in_a_process_without_standard_input(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_INPUT, str(tmp_path / "file")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_file_system_that_counts_no_names_is_written(
    tmp_path: Path, fs: LocalFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fstat

    def fstat(fd: int) -> os.stat_result:
        found = list(real(fd))
        found[stat.ST_NLINK] = 0
        return os.stat_result(found)

    monkeypatch.setattr(os, "fstat", fstat)
    file = fs.create(str(tmp_path / "a"), direct=False)
    file.write(0, [b"taken"], sync=True)
    file.sync()
    file.close()
    assert (tmp_path / "a").read_bytes() == b"taken"


def test_who_only_looks_whether_a_folder_is_taken_keeps_nobody_from_taking_it(
    fs: LocalFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert owner_of(str(tmp_path)) is None
    lock_folder(fs, str(tmp_path)).release()
    assert owner_of(str(tmp_path)) is None
    looking = os.open(tmp_path / LOCK_NAME, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    monkeypatch.setattr("penstock.wal._filesystem.time.sleep", lambda pause_s: os.close(looking))
    lock = lock_folder(fs, str(tmp_path), "app-1")
    assert str(owner_of(str(tmp_path))).endswith(", application app-1")
    lock.release()


def test_a_log_of_this_host_is_read_without_a_file_being_written_in_its_folder(
    fs: LocalFileSystem, tmp_path: Path
) -> None:
    with settled(fs, str(tmp_path)):
        assert list(tmp_path.iterdir()) == []
    lock = lock_folder(fs, str(tmp_path), "app-1")
    with pytest.raises(LogFolderInUseError) as caught, settled(fs, str(tmp_path)):
        pass
    assert caught.value.folder == str(tmp_path)
    lock.release()
    said = (tmp_path / LOCK_NAME).read_bytes()
    with settled(fs, str(tmp_path)):
        assert (tmp_path / LOCK_NAME).read_bytes() == said
