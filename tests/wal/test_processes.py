"""Real processes: killed, locked out, without rights, on a full disk, at the command line."""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.__main__ import main
from penstock.wal import (
    CorruptRecordError,
    LocalFileSystem,
    LogFolderInUseError,
    LogFullError,
    LogOptions,
    LogReader,
    LogWriter,
    check,
    remove_log,
    repair,
    segment_path,
)
from tests.bounds import HANG_S

ROOT = Path(__file__).parents[2]
OPTIONS = LogOptions(segment_size=1 << 16, alignment=64)

APPEND_FOR_EVER = """
import sys, threading
from penstock.wal import LogOptions, LogWriter, SyncPolicy
folder, policy, alignment = sys.argv[1], SyncPolicy(sys.argv[2]), int(sys.argv[3])
options = LogOptions(segment_size=1 << 18, alignment=alignment, sync=policy)
writer = LogWriter.create(folder, options=options, application="the child")
def run(thread):
    number = 0
    while True:
        payload = b"%d-%d-" % (thread, number) + b"x" * (number % 3000)
        place = writer.append(1, payload)
        # One write, so that a kill leaves whole lines only.
        sys.stdout.write(f"{place.sequence} {thread} {number}\\n")
        sys.stdout.flush()
        number += 1
for thread in range(3):
    threading.Thread(target=run, args=(thread,)).start()
"""


@contextmanager
def child(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(HANG_S)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the child ended"
    return line


@pytest.mark.parametrize("alignment", ["64", "4096"])
@pytest.mark.parametrize("policy", ["none", "interval", "always"])
def test_what_a_killed_process_had_acknowledged_is_there(
    tmp_path: Path, policy: str, alignment: str
) -> None:
    folder = str(tmp_path / "log")
    acknowledged = {}
    with child(APPEND_FOR_EVER, folder, policy, alignment) as process:
        lines = [line_of(process) for _ in range(400)]
        process.send_signal(signal.SIGKILL)
        assert process.stdout is not None
        lines += process.stdout.readlines()
    for line in lines:
        if line.endswith("\n"):
            sequence, thread, number = map(int, line.split())
            acknowledged[sequence] = b"%d-%d-" % (thread, number) + b"x" * (number % 3000)
    found = {record.sequence: bytes(record.payload) for record in LogReader.open(folder).records()}
    assert acknowledged.items() <= found.items()
    assert list(found) == list(range(1, len(found) + 1))
    # At most the record that each thread had under way came on top.
    assert len(found) - len(acknowledged) <= 3
    with LogWriter.create(folder, options=OPTIONS) as writer:
        writer.append(1, b"next life")
    assert len(list(LogReader.open(folder).records())) == len(found) + 1


HOLD = """
import os, sys
from penstock.wal import LogOptions, LogWriter
writer = LogWriter.create(sys.argv[1], application="billing")
# With a second argument it is the forked child that says when all is ready.
forked = len(sys.argv) > 2 and os.fork()
if not forked:
    print("held", flush=True)
sys.stdin.read()
os._exit(0)
"""


def test_a_second_application_is_told_who_has_the_folder(tmp_path: Path) -> None:
    folder = str(tmp_path / "log")
    with child(HOLD, folder) as process:
        line_of(process)
        with pytest.raises(LogFolderInUseError) as error:
            LogWriter.create(folder)
        assert error.value.folder == folder
        assert f"process {process.pid} on host " in error.value.owner
        assert "application billing" in error.value.owner
        for call in (repair, remove_log):
            with pytest.raises(LogFolderInUseError):
                call(folder)
        assert main(["wal", "repair", folder]) == 2
        assert main(["wal", "check", folder]) == 0
    LogWriter.create(folder, options=OPTIONS).close()


def test_the_lock_ends_with_its_process_even_if_a_forked_child_lives_on(tmp_path: Path) -> None:
    folder = str(tmp_path / "log")
    with child(HOLD, folder, "fork") as process:
        line_of(process)
        os.kill(process.pid, signal.SIGKILL)
        os.waitpid(process.pid, 0)
        try:
            LogWriter.create(folder, options=OPTIONS).close()
        finally:
            os.killpg(process.pid, signal.SIGKILL)


LOCATE_IN_A_FORKED_CHILD = """
import os, threading
from penstock.wal._hdfs import filesystem as hdfs
from penstock.wal._objects import filesystem as objects
is_held, is_over = threading.Event(), threading.Event()
def hold():
    with hdfs._clients._lock, objects._file_systems._lock:
        is_held.set()
        is_over.wait()
thread = threading.Thread(target=hold)
thread.start()
is_held.wait()
child = os.fork()
if not child:
    # The thread that holds the locks is not in this process.
    hdfs.hdfs_file_system("hdfs://localhost:1")
    objects.object_file_system("s3://bucket")
    print("located", flush=True)
    os._exit(0)
is_over.set()
thread.join()
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_child_that_is_forked_while_a_client_is_made_makes_its_own() -> None:
    storage = {"AWS_REGION": "a", "AWS_ACCESS_KEY_ID": "b", "AWS_SECRET_ACCESS_KEY": "c"}
    process = subprocess.Popen(
        [sys.executable, "-c", LOCATE_IN_A_FORKED_CHILD],
        cwd=ROOT,
        env={**os.environ, **storage},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        told, wrong = process.communicate(timeout=HANG_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert told == "located\n", wrong


WITHOUT_RIGHTS = """
import os, sys
from penstock.wal import LogOptions, LogReader, LogWriter, UnwritableFolderError
import encodings.idna
if os.geteuid() == 0:
    os.setegid(65534)
    os.seteuid(65534)
for folder in sys.argv[1:]:
    try:
        LogWriter.create(folder)
    except UnwritableFolderError as error:
        assert error.folder == folder and folder in str(error), error
        print("refused")
"""


def test_a_folder_is_taken_where_the_disk_has_no_room_for_the_owners_name(tmp_path: Path) -> None:
    path = str(tmp_path / "LOCK")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        lock = LocalFileSystem().lock(path, "the first")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    with pytest.raises(BlockingIOError, match="has not said its name"):
        LocalFileSystem().lock(path, "the second")
    lock.release()


def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    outside = Path("/tmp") if os.geteuid() == 0 else tmp_path
    folder = outside / f"penstock-read-only-{os.getpid()}"
    folder.mkdir()
    try:
        folder.chmod(0o555)
        with child(WITHOUT_RIGHTS, str(folder), str(folder / "deep" / "log")) as process:
            output, _ = process.communicate(timeout=HANG_S)
        assert output.split() == ["refused", "refused"]
        assert list(folder.iterdir()) == []
    finally:
        folder.chmod(0o755)
        folder.rmdir()


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(Exception, match="file") as error:
        LogWriter.create(str(tmp_path / "file"))
    assert type(error.value).__name__ == "UnwritableFolderError"


class RationedFileSystem(LocalFileSystem):
    """The real file system with a ration of bytes for new files.

    A stand-in for a small disk, for machines where the test may not mount one.
    """

    def __init__(self, folder: Path, ration: int) -> None:
        self._folder = folder
        self._ration = ration

    def free_bytes(self, folder: str) -> int:
        used = sum(path.stat().st_size for path in self._folder.rglob("*") if path.is_file())
        return max(0, self._ration - used)

    def create(self, path: str, *, direct: bool) -> object:  # type: ignore[override]
        file = super().create(path, direct=direct)
        real = file.preallocate

        def preallocate(size: int) -> None:
            if size > self.free_bytes(""):
                raise OSError(errno.ENOSPC, "the ration is used up")
            real(size)

        file.preallocate = preallocate  # type: ignore[method-assign]
        return file


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[tuple[Path, LocalFileSystem]]:
    """A folder on a disk of 4 MiB: a real one where the test may mount it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)],
            capture_output=True,
            check=False,
            timeout=HANG_S,
        ).returncode
        == 0
    )
    try:
        yield disk, LocalFileSystem() if mounted else RationedFileSystem(disk, 4 << 20)
    finally:
        if mounted:
            subprocess.run(["umount", str(disk)], check=True, timeout=HANG_S)


@pytest.mark.parametrize("alignment", [64, 4096])
def test_disk_full_while_appending_and_afterwards_space_again(
    small_disk: tuple[Path, LocalFileSystem], alignment: int
) -> None:
    disk, fs = small_disk
    folder = str(disk / "log")
    filler = disk / "filler"
    filler.write_bytes(bytes(1 << 20))
    options = LogOptions(segment_size=1 << 19, alignment=alignment)
    acknowledged = []
    with LogWriter.create(folder, options=options, fs=fs) as writer:

        def append_until_full() -> LogFullError:
            for _ in range(10_000):
                payload = b"%d-" % len(acknowledged) + bytes(9000)
                try:
                    writer.append(1, payload)
                except LogFullError as error:
                    return error
                acknowledged.append(payload)
            raise AssertionError("the disk is never full")

        error = append_until_full()
        assert error.folder == folder
        assert 0 <= error.free_bytes < 4 << 20
        assert folder in str(error)
        first = len(acknowledged)
        assert first > 100
        append_until_full()
        filler.unlink()
        append_until_full()
        assert len(acknowledged) > first + 50
        writer.remove_segments([1, 2])
        append_until_full()
        released = {1, 2}
    found = [
        bytes(record.payload)
        for record in LogReader.open(folder).records()
        if record.place.segment not in released
    ]
    assert found == acknowledged[-len(found) :]
    assert len(found) > first


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "log")
    writer = LogWriter.create(folder, options=OPTIONS)
    places = [writer.append(7, b"payload %d" % number) for number in range(3)]
    writer.roll()
    torn = writer.append(8, b"torn")
    writer._lock.release()  # what the death of the process does

    assert main(["wal", "check", folder]) == 0
    assert "4 records, 0 damaged places" in capsys.readouterr().out
    assert main(["wal", "dump", "--payload", folder]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[1] == (
        f"segment 1 offset {places[1].offset} sequence 2 kind 7 length 9 b'payload 1'"
    )
    assert main(["wal", "dump", "--segment", "2", folder]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1

    with open(segment_path(folder, 1), "r+b") as file:
        file.seek(places[1].offset + 64)
        file.write(b"?")
    with open(segment_path(folder, 2), "r+b") as file:
        file.seek(torn.offset + 64)
        file.write(b"?")
    assert main(["wal", "check", folder]) == 1
    out = capsys.readouterr().out
    assert f"damage at offset {places[1].offset}" in out
    assert f"torn tail at {torn.offset}" in out
    assert main(["wal", "dump", folder]) == 1
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 2
    assert f"segment 1 at offset {places[1].offset}" in captured.err
    assert main(["wal", "repair", folder]) == 1
    out = capsys.readouterr().out
    assert out.count("repaired: ") == 2
    assert main(["wal", "check", folder]) == 0
    assert main(["wal", "repair", folder]) == 0
    assert "nothing to repair" in capsys.readouterr().out


def test_what_a_repair_put_aside_is_told_by_every_later_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "log")
    with LogWriter.create(folder, options=OPTIONS) as writer:
        place = writer.append(7, b"payload")
        writer.append(7, b"committed says that the first one was")
    with open(segment_path(folder, 1), "r+b") as file:
        file.seek(place.offset + 64)
        file.write(b"?")
    assert main(["wal", "repair", folder]) == 1
    capsys.readouterr()
    assert main(["wal", "check", folder]) == 0
    assert "segment-000000000001.log.damaged: put aside" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["check", "dump", "repair"])
def test_a_folder_that_is_no_log_is_not_called_whole(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["wal", command, str(tmp_path)]) == 2
    assert f"no log in {tmp_path}\n" in capsys.readouterr().err
    for folder in ("receivedBlockMetadata", "receivedData/0-1"):
        LogWriter.create(str(tmp_path / folder), options=OPTIONS).close()
    # As in a checkpoint directory.
    (tmp_path / "LOCK").touch()
    before = sorted(tmp_path.rglob("*"))
    assert main(["wal", command, str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert f"{tmp_path}/receivedBlockMetadata, {tmp_path}/receivedData/0-1\n" in error
    assert sorted(tmp_path.rglob("*")) == before


def test_of_many_logs_below_a_folder_the_first_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(12):
        LogWriter.create(str(tmp_path / f"log-{number:02}"), options=OPTIONS).close()
    assert main(["wal", "check", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert f"{tmp_path}/log-09 and 2 more\n" in error
    assert "log-10" not in error


def test_a_segment_that_is_gone_from_the_middle_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "log")
    with LogWriter.create(folder, options=OPTIONS) as writer:
        for number in range(5):
            writer.append_many([(1, b"%d" % number)] * 10)
            writer.roll()
        writer.remove_segments([1])
        # The oldest may go, and so may one without records.
        assert main(["wal", "check", folder]) == 0
    assert main(["wal", "check", folder]) == 0
    os.unlink(segment_path(folder, 3))
    os.unlink(segment_path(folder, 4))
    capsys.readouterr()
    assert main(["wal", "check", folder]) == 1
    out = capsys.readouterr().out
    assert "MISSING between segments 2 and 5: sequences 21 to 40" in out
    assert ", 1 gaps" in out
    # That of another life of the log is none.
    LogWriter.create(folder, options=OPTIONS).close()
    assert len(check(folder).gaps) == 1


def test_an_error_of_damage_says_where_and_what_to_do(tmp_path: Path) -> None:
    folder = str(tmp_path / "log")
    with LogWriter.create(folder, options=OPTIONS) as writer:
        place = writer.append(1, b"damaged")
        writer.append(1, b"behind")
    path = segment_path(folder, place.segment)
    with open(path, "r+b") as file:
        file.seek(place.offset + 64)
        file.write(b"?")
    with pytest.raises(CorruptRecordError) as reading:
        list(LogReader.open(folder).records())
    with open(path, "r+b") as file:
        file.write(b"?")
    with pytest.raises(CorruptRecordError) as header:
        list(LogReader.open(folder).records())
    for caught in (reading, header):
        error = pickle.loads(pickle.dumps(caught.value))
        assert (error.folder, error.segment) == (folder, 1)
        assert f"of {folder}: " in str(error)
        assert f"`penstock wal check {folder}`" in str(error)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 2),
        (["--help"], 0),
        (["nonsense"], 2),
        (["wal"], 2),
        (["wal", "--help"], 0),
        (["wal", "nonsense", "/"], 2),
        (["wal", "check"], 2),
        (["wal", "check", "/no/such/folder"], 2),
        (["wal", "dump", "--segment", "9", "."], 2),
    ],
)
def test_wrong_usage_is_answered_with_help(
    arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == code
    captured = capsys.readouterr()
    assert captured.out + captured.err
    assert "Traceback" not in captured.err


def test_dump_into_a_closed_pipe_ends_quietly(tmp_path: Path) -> None:
    folder = str(tmp_path / "log")
    with LogWriter.create(folder, options=OPTIONS) as writer:
        writer.append_many([(1, b"")] * 20_000)
    command = f"{sys.executable} -m penstock wal dump {folder} | head -n 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=HANG_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
