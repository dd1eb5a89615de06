"""The log on a real S3 server: answers that are lost, writers that are replaced."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from obstore.store import MemoryStore

from penstock.monitor.doctor.folder import check_folder
from penstock.settings import Settings
from penstock.wal import (
    CorruptRecordError,
    EncryptionKey,
    EncryptionMismatchError,
    LogFolderInUseError,
    LogLostError,
    LogOptions,
    LogReader,
    LogWriteError,
    LogWriter,
    ObjectFileSystem,
    StorageAwayError,
    UnwritableFolderError,
    check,
    locate,
    remove_log,
    repair,
    segment_path,
)
from penstock.wal._objects import filesystem
from penstock.wal._objects.client import ObjectsClient
from penstock.wal.cli import wal as wal_command
from tests.bounds import HANG_S
from tests.services.google_storage import GoogleServer
from tests.services.http_faults import FaultyHttp
from tests.services.object_stores import BUCKET, KINDS, MOSTLY_S3, ObjectServer, make_server
from tests.wal.faulty_filesystem import FaultyFileSystem, SimulatedCrashError
from tests.wal.faulty_objects import FaultyObjectFileSystem, FaultyObjects, another_host
from tests.wal.records import read_record
from tests.wal.test_model import QUICK, LogMachine

FOLDER = "/app/log"
SMALL = LogOptions(segment_size=1 << 14, alignment=64)


@pytest.fixture(scope="module")
def servers(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str], ObjectServer]]:
    """Give a server of a kind, started when it is asked for first."""
    made: dict[str, ObjectServer] = {}

    def get(kind: str) -> ObjectServer:
        if kind not in made:
            server = make_server(kind, tmp_path_factory.mktemp(kind))
            server.start()
            made[kind] = server
        return made[kind]

    yield get
    for server in made.values():
        server.stop()


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, servers: Callable[[str], ObjectServer]) -> ObjectServer:
    return servers(request.param)


@pytest.fixture
def faults(server: ObjectServer) -> Iterator[FaultyHttp]:
    made = FaultyHttp(server.client_port)
    yield made
    made.close()


def locating(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `locate` find a server, whichever it has found for tests before."""
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(filesystem._file_systems, "_made", {})


def files(server: ObjectServer, url: str = "", patience_s: float = 60) -> ObjectFileSystem:
    client = ObjectsClient(server.store(url), server.authority)
    return ObjectFileSystem(client, server.authority, patience_s=patience_s)


def in_memory() -> ObjectFileSystem:
    return ObjectFileSystem(ObjectsClient(MemoryStore(), "s3://bucket"), "s3://bucket")


def payloads(fs: ObjectFileSystem, folder: str) -> list[bytes]:
    with LogReader.open(folder, fs=fs) as reader:
        return [bytes(record.payload) for record in reader.records()]


def keys(fs: ObjectFileSystem, folder: str) -> list[str]:
    return [key.rpartition("/")[2] for key, _ in fs.client.keys(folder.lstrip("/"))]


def test_what_was_appended_is_read_while_it_is_written_and_after(server: ObjectServer) -> None:
    fs, folder = files(server), "/life/log"
    with LogWriter.create(folder, fs=fs, options=SMALL) as log:
        places = log.append_many([(1, b"%d" % number * 100) for number in range(10)])
        assert payloads(fs, folder) == [b"%d" % number * 100 for number in range(10)]
        path = segment_path(folder, places[7].segment)
        assert read_record(path, places[7].offset, fs=fs).payload == b"7" * 100
        for number in range(10, 300):
            log.append(1, b"%d" % number * 100)
        assert log.statistics().segments_created > 2
    with LogWriter.create(folder, fs=fs, options=SMALL) as log:
        log.append(2, b"last")
        assert log.first_segment > places[0].segment
    assert payloads(fs, folder) == [b"%d" % n * 100 for n in range(300)] + [b"last"]
    assert not check(folder, fs=fs).damages


def test_a_segment_that_is_released_is_gone(server: ObjectServer) -> None:
    fs, folder = files(server), "/released/log"
    with LogWriter.create(folder, fs=fs, options=SMALL) as log:
        first = log.append(1, b"a").segment
        log.roll()
        log.append(1, b"b")
        log.remove_segments([first])
        assert payloads(fs, folder) == [b"b"]
        assert fs.keys_of(segment_path(folder, first)) == []
    remove_log(folder, fs=fs)
    assert keys(fs, folder) == []
    with pytest.raises(FileNotFoundError):
        LogReader.open(folder, fs=fs)


def test_who_lives_on_this_host_keeps_its_log() -> None:
    fs = in_memory()
    with LogWriter.create(FOLDER, fs=fs), pytest.raises(LogFolderInUseError, match="process"):
        LogWriter.create(FOLDER, fs=fs)
    LogWriter.create(FOLDER, fs=fs).close()


def test_who_was_replaced_writes_no_more_and_loses_nothing(server: ObjectServer) -> None:
    fs, folder = files(server), "/replaced/log"
    first = LogWriter.create(folder, fs=fs, options=SMALL)
    first.append(1, b"of the first")
    with another_host():
        second = LogWriter.create(folder, fs=files(server), options=SMALL)
    with pytest.raises(LogWriteError, match="taken over"):
        first.append(1, b"too late")
    # Nor in another segment, and never again.
    with pytest.raises(LogLostError, match="taken over by"):
        first.append(1, b"too late")
    second.append(1, b"of the second")
    first.close()
    assert payloads(fs, folder) == [b"of the first", b"of the second"]
    second.append(1, b"and more")
    second.close()
    assert payloads(fs, folder) == [b"of the first", b"of the second", b"and more"]


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_write_that_was_held_up_is_refused_by_the_store(
    server: ObjectServer, faults: FaultyHttp, is_removed: bool
) -> None:
    """As of a driver that was paused in the middle of it, also when its segment is gone since."""
    folder = f"/paused/{is_removed}"
    paused = LogWriter.create(folder, fs=files(server, faults.url), options=SMALL)
    place = paused.append(1, b"acknowledged")
    faults.hold("segment")
    said: list[BaseException] = []

    def append() -> None:
        try:
            paused.append(1, b"held up")
        except LogWriteError as error:
            said.append(error)

    thread = threading.Thread(target=append)
    thread.start()
    assert faults.holds.wait(60)
    with another_host():
        second = LogWriter.create(folder, fs=files(server), options=SMALL)
    assert payloads(files(server), folder) == [b"acknowledged"]
    if is_removed:
        second.remove_segments([place.segment])
    faults.let_go()
    thread.join(60)
    assert "taken over" in str(said[0])
    second.append(1, b"second")
    second.close()
    assert payloads(files(server), folder) == [b"acknowledged"] * (not is_removed) + [b"second"]
    paused.close()


@pytest.mark.parametrize("server", MOSTLY_S3, indirect=True)
@pytest.mark.slow
def test_writers_that_replace_each_other_lose_and_double_nothing(server: ObjectServer) -> None:
    folder, fs = "/race/log", files(server)
    acknowledged: list[bytes] = []
    writers: list[LogWriter] = []
    threads = []

    def write(log: LogWriter, name: int) -> None:
        for number in range(10_000):
            payload = b"%d-%d" % (name, number)
            try:
                log.append(1, payload)
            except LogWriteError:
                return
            acknowledged.append(payload)
            threading.Event().wait(0.01)

    for name in range(6):
        with another_host():
            log = LogWriter.create(folder, fs=files(server), options=SMALL)
        # What it reads now is what it goes on from: nothing of others may come behind it.
        before = payloads_before(fs, folder, log.first_segment)
        writers.append(log)
        threads.append(threading.Thread(target=write, args=[log, name], daemon=True))
        threads[-1].start()
        while len(acknowledged) < 10 * (name + 1):
            assert threads[-1].is_alive()
            threading.Event().wait(0.005)
        assert payloads_before(fs, folder, log.first_segment) == before
    with another_host():
        last = LogWriter.create(folder, fs=files(server), options=SMALL)
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    found = payloads_before(fs, folder, last.first_segment)
    assert len(found) == len(set(found))
    assert set(acknowledged) <= set(found)
    # At most the one that each had under way.
    assert len(found) - len(acknowledged) <= len(writers)
    for log in [*writers, last]:
        log.close()


def payloads_before(fs: ObjectFileSystem, folder: str, before: int) -> list[bytes]:
    with LogReader.open(folder, fs=fs, before=before) as reader:
        return [bytes(record.payload) for record in reader.records()]


@pytest.mark.parametrize("server", MOSTLY_S3, indirect=True)
@pytest.mark.slow
def test_lost_answers_and_repeated_requests_double_nothing(
    server: ObjectServer, faults: FaultyHttp
) -> None:
    folder, fs = "/faults/log", files(server, faults.url)
    faults.faults = {"lost": 0.1, "busy": 0.1, "twice": 0.1, "cut": 0.05}
    expected = []
    for turn in range(4):
        with LogWriter.create(folder, fs=fs, options=SMALL) as log:
            for number in range(100):
                expected.append(b"%d-%d" % (turn, number))
                log.append(1, expected[-1])
    faults.faults = {}
    assert payloads(fs, folder) == expected
    assert sum(faults.done.values()) > 100
    assert all(faults.done[fault] for fault in ("lost", "busy", "twice", "cut"))


@pytest.mark.parametrize("server", ["s3"], indirect=True)
@pytest.mark.parametrize("wanted", [100, pytest.param(1000, marks=pytest.mark.exhaustive)])
@pytest.mark.slow
@pytest.mark.long
def test_many_who_append_while_requests_go_wrong_lose_and_double_nothing(
    server: ObjectServer, faults: FaultyHttp, wanted: int
) -> None:
    """Some give up before the store has answered, and append the same again."""
    folder, fs = f"/wrong-{wanted}/log", files(server, faults.url, patience_s=1.0)
    faults.faults = {"lost": 0.1, "busy": 0.05, "twice": 0.1, "cut": 0.1, "short": 0.1, "slow": 0.1}
    appenders, given_up = 8, 0
    written = [0] * appenders

    def wrong() -> int:
        return sum(faults.done.values()) - faults.done["busy"]

    def append(log: LogWriter, number: int) -> None:
        nonlocal given_up
        is_acknowledged = True
        while not is_acknowledged or wrong() < wanted * turn // 3:
            try:
                log.append(1, b"%d %d" % (number, written[number]))
            except LogWriteError:
                given_up += 1
                is_acknowledged = False
                threading.Event().wait(0.05)
            else:
                written[number] += 1
                is_acknowledged = True

    for turn in (1, 2, 3):
        while True:
            # A start is not made again by itself.
            with contextlib.suppress(LogWriteError):
                log = LogWriter.create(folder, fs=fs, options=SMALL)
                break
        with log, ThreadPoolExecutor(appenders) as threads:
            ended = [threads.submit(append, log, number) for number in range(appenders)]
            threading.Event().wait(0.3)
            faults.be_busy(2.0)
            for each in ended:
                each.result(HANG_S)
            assert wrong() >= wanted * turn // 3
    faults.faults = {}
    found: list[list[int]] = [[] for _ in range(appenders)]
    for payload in payloads(files(server), folder):
        number, at = map(int, payload.split())
        found[number].append(at)
    assert found == [list(range(count)) for count in written]
    assert given_up
    assert all(faults.done[fault] for fault in ("lost", "busy", "twice", "cut", "short", "slow"))
    assert not check(folder, fs=files(server)).damages
    print(f"{wrong()} faults {dict(faults.done)}, {sum(written)} records")


@pytest.mark.parametrize("server", MOSTLY_S3, indirect=True)
@pytest.mark.slow
@pytest.mark.long
def test_the_log_on_a_server_against_the_model(server: ObjectServer) -> None:
    """As `test_model` does it in memory: answers are lost, requests come late, processes die."""

    class OnServer(LogMachine):
        def file_system(
            self, storage: str, seed: int, *, direct: bool
        ) -> FaultyFileSystem | FaultyObjectFileSystem:
            store = server.store(prefix=uuid.uuid4().hex)
            return FaultyObjectFileSystem(seed, store, server.authority)

    run_state_machine_as_test(
        OnServer, settings=settings(QUICK, max_examples=6, stateful_step_count=25)
    )


def test_errors_name_a_segment_by_its_address() -> None:
    fs = in_memory()
    with LogWriter.create(FOLDER, fs=fs) as log:
        place = log.append(1, b"in clear")
    address = "s3://bucket/app/log/segment-000000000001.log"
    cipher = EncryptionKey(bytes(32)).cipher("log")
    with (
        LogReader.open(FOLDER, fs=fs, cipher=cipher) as reader,
        pytest.raises(EncryptionMismatchError, match=f"^{address} was written without"),
    ):
        list(reader.records())
    fs.remove_tree(segment_path(FOLDER, place.segment))
    with (
        LogReader.open(FOLDER, fs=fs) as reader,
        pytest.raises(FileNotFoundError, match=f"no segment at {address}"),
    ):
        list(reader.segment_records(place.segment))


def test_a_bucket_itself_can_hold_a_log_also_when_it_is_empty() -> None:
    fs = in_memory()
    assert fs.is_folder("/")
    assert fs.list_folder("/") == []
    with LogWriter.create("/log", fs=fs) as log:
        log.append(1, b"a")
    assert fs.list_folder("/") == ["log"]
    with pytest.raises(FileNotFoundError):
        fs.list_folder("/other")


class OfAPrefix(ObjectsClient):
    """A user who may do nothing but below a folder: a policy of the bucket says so."""

    def keys(self, folder: str, after: str | None = None) -> Iterator[tuple[str, int]]:
        self._check(folder)
        return super().keys(folder, after)

    def create(self, key: str, data: bytes | memoryview) -> None:
        self._check(key)
        super().create(key, data)

    def _check(self, key: str) -> None:
        if not key.startswith("team/app"):
            raise PermissionError(errno.EACCES, "AccessDenied", key)


def test_a_user_who_may_do_nothing_but_below_a_folder_keeps_a_log_there() -> None:
    fs = ObjectFileSystem(OfAPrefix(MemoryStore(), "s3://bucket"), "s3://bucket")
    with LogWriter.create("/team/app/data/log", fs=fs) as log:
        log.append(1, b"a")
    assert payloads(fs, "/team/app/data/log") == [b"a"]


def test_the_doctor_tries_the_folder_itself_on_an_object_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fs = ObjectFileSystem(OfAPrefix(MemoryStore(), "s3://bucket"), "s3://bucket")
    monkeypatch.setattr("penstock.monitor.doctor.folder.locate", lambda _: (fs, "/team/app"))
    found = check_folder("s3://bucket/team/app", Settings(), HANG_S)
    assert found[0].found == "s3://bucket/team/app can be written to"
    assert keys(fs, "/team/app") == []


def test_a_store_that_ignores_conditions_is_refused() -> None:
    class Careless(ObjectsClient):
        def create(self, key: str, data: bytes) -> None:
            self.replace(key, data)

    fs = ObjectFileSystem(Careless(MemoryStore(), "s3://bucket"), "s3://bucket")
    with pytest.raises(LogWriteError, match=r"ignores conditions .* no log is kept there"):
        LogWriter.create(FOLDER, fs=fs)
    assert keys(fs, FOLDER) == []


def test_what_a_removal_left_that_was_broken_off_is_removed_by_the_next_writer() -> None:
    fs = in_memory()
    with LogWriter.create(FOLDER, fs=fs, options=SMALL) as log:
        path = segment_path(FOLDER, log.append(1, b"a").segment)
        log.roll()
        log.append(1, b"b")
    fs.client.delete([fs.part_key(path, 0)])
    assert fs.keys_of(path)
    LogWriter.create(FOLDER, fs=fs, options=SMALL).close()
    assert fs.keys_of(path) == []
    assert payloads(fs, FOLDER) == [b"b"]


def test_what_failed_does_not_come_back_by_a_late_request() -> None:
    """Also when the segment is gone whose header says that it is void."""
    objects = FaultyObjects()
    fs = ObjectFileSystem(objects, "s3://bucket", patience_s=0)
    with LogWriter.create(FOLDER, fs=fs, options=SMALL) as log:
        place = log.append(1, b"a")
        objects.not_done = 1.0
        while not objects.late:
            with pytest.raises(LogWriteError):
                log.append(1, b"failed")
        objects.heal()
        next_segment = log.append(1, b"b").segment
        log.roll()
        log.append(1, b"c")
        log.remove_segments([next_segment])
        objects.land()
        assert payloads(ObjectFileSystem(objects, "s3://bucket"), FOLDER) == [b"a", b"c"]
        assert fs.parts(segment_path(FOLDER, place.segment)).is_fenced


def test_a_damaged_segment_is_put_aside() -> None:
    fs = in_memory()
    with LogWriter.create(FOLDER, fs=fs, options=SMALL) as log:
        places = [log.append(1, b"%d" % number) for number in range(3)]
        log.roll()
        log.append(1, b"3")
    path = segment_path(FOLDER, places[0].segment)
    fs.client.replace(fs.part_key(path, places[1].offset), b"x" * 128)
    assert len(check(FOLDER, fs=fs).damages) == 1
    assert check(FOLDER, fs=fs).folder == "s3://bucket/app/log"
    assert "put aside" in repair(FOLDER, fs=fs).actions[-1]
    assert payloads(fs, FOLDER) == [b"3"]


def test_an_address_leads_to_it(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    locating(server, monkeypatch)
    fs, path = locate(f"{server.authority}/by/address/")
    assert (fs.address(path), path) == (f"{server.authority}/by/address", "/by/address")
    with LogWriter.create(path, fs=fs) as log:
        log.append(1, b"here")
    assert isinstance(fs, ObjectFileSystem)
    assert payloads(fs, path) == [b"here"]
    for command in ("check", "dump", "repair"):
        said = CliRunner().invoke(wal_command, [command, f"{server.authority}/by/address"])
        assert said.exit_code == 0, said.output
    said = CliRunner().invoke(wal_command, ["check", f"{server.authority}/by"])
    assert f"below it are {server.authority}/by/address" in str(said.exception)


def test_of_many_that_are_removed_some_may_be_gone(server: ObjectServer) -> None:
    """As where the answer to a removal was lost. Google stops at the first that is gone."""
    client = files(server).client
    keys = [f"many/{number:02d}" for number in range(60)]
    for key in keys[::2]:
        client.create(key, b"a")
    client.delete(keys)
    assert list(client.keys("many")) == []
    client.delete(keys)


def test_a_removal_that_finds_nothing_again_and_again_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that says "gone" of what it lists: it is asked later, and not for ever."""
    client = ObjectsClient(MemoryStore(), "gs://bucket")
    for key in ("a", "b"):
        client.create(key, b"a")
    refused = 0

    def delete(store: object, keys: list[str]) -> None:
        nonlocal refused
        refused += 1
        raise FileNotFoundError(keys[0])

    monkeypatch.setattr("obstore.delete", delete)
    with pytest.raises(StorageAwayError, match="nothing where there is something"):
        client.delete(["a", "b"])
    with pytest.raises(StorageAwayError, match="nothing where there is something"):
        client.delete(["a", "b", "gone"])
    assert refused == 3


def test_a_list_is_whole_where_a_store_gives_it_in_pages(server: ObjectServer) -> None:
    """A service gives 1,000 or 5,000 at once; what a file has may begin in any of them."""
    fs = files(server)
    with ThreadPoolExecutor(16) as threads:
        names = [f"pages/{letter}@{n:015d}" for letter in "ab" for n in range(600)]
        list(threads.map(lambda name: fs.client.create(name, b"a"), names))
    fs.client.create("pages/c@000000000000000", b"a")
    assert [key for key, _ in fs.client.keys("pages")] == [*names, "pages/c@000000000000000"]
    assert fs.keys_of("/pages/b") == names[600:]
    assert len(fs.keys_of("/pages/c")) == 1
    assert fs.keys_of("/pages/bb") == []
    assert fs.list_folder("/pages") == ["a", "b", "c"]
    fs.remove_tree("/pages")
    assert not fs.is_folder("/pages")


def test_who_is_not_known_and_a_bucket_that_is_not_there_are_told_at_once(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    locating(server, monkeypatch)
    none = server.authority.replace(BUCKET, "no-such-bucket")
    with pytest.raises(LogWriteError, match=r"NoSuchBucket|ContainerNotFound"):
        LogWriter.create("/log", fs=ObjectFileSystem(ObjectsClient.of_bucket(none), none))
    for name, value in server.of_a_stranger().items():
        monkeypatch.setenv(name, value)
    client = ObjectsClient.of_bucket(server.authority)
    with pytest.raises(UnwritableFolderError, match="give this program credentials"):
        LogWriter.create("/log", fs=ObjectFileSystem(client, server.authority))
    for ask in (
        lambda: client.get("a"),
        lambda: client.delete(["a", "b"]),
        lambda: client.level(""),
    ):
        with pytest.raises(PermissionError):
            ask()


def test_a_token_that_ends_is_told_at_once_and_a_new_one_goes_on(
    servers: Callable[[str], ObjectServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = servers("gs")
    assert isinstance(server, GoogleServer)
    monkeypatch.setenv("GOOGLE_BASE_URL", server.url)
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "token")
    server.front.tokens = {"token"}
    fs = ObjectFileSystem(ObjectsClient.of_bucket(server.authority), server.authority)
    with LogWriter.create("/token/log", fs=fs, options=SMALL) as log:
        log.append(1, b"before")
        server.front.tokens = set()
        with pytest.raises(UnwritableFolderError, match="AuthenticationRequired"):
            log.append(1, b"refused")
        server.front.tokens = {"token"}
        log.append(1, b"after")
    assert payloads(fs, "/token/log") == [b"before", b"after"]


def test_a_forked_process_is_told_instead_of_waiting(
    server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    locating(server, monkeypatch)
    fs, path = locate(f"{server.authority}/forked/log")
    LogWriter.create(path, fs=fs).close()

    def raised(function: Callable[[], object]) -> bool:
        try:
            function()
        except (OSError, LogWriteError) as error:
            return "forked" in str(error)
        return False

    pid = os.fork()
    if not pid:
        try:
            both = raised(lambda: locate(f"{server.authority}/x")), raised(lambda: fs.open(path))
            os._exit(0 if all(both) else 1)
        finally:
            os._exit(2)
    end_s = time.monotonic() + HANG_S
    while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
        if time.monotonic() > end_s:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(ended[1]) == 0


@pytest.mark.long
@pytest.mark.parametrize("kind", MOSTLY_S3)
def test_a_killed_server_is_waited_for(tmp_path: Path, kind: str) -> None:
    server = make_server(kind, tmp_path)
    server.start()
    try:
        fs = files(server)
        with LogWriter.create(FOLDER, fs=fs, options=SMALL) as log:
            log.append(1, b"a")
            server.kill()
            done = threading.Thread(target=log.append, args=[1, b"b"])
            done.start()
            server.start()
            done.join(60)
        assert payloads(fs, FOLDER) == [b"a", b"b"]
    finally:
        server.stop()


@pytest.mark.parametrize("is_fenced", [False, True])
def test_a_part_that_somebody_removed_is_damage_and_no_end_of_the_log(is_fenced: bool) -> None:
    fs = in_memory()
    with LogWriter.create(FOLDER, fs=fs, options=SMALL) as log:
        places = [log.append(1, b"%d" % number) for number in range(3)]
        path = segment_path(FOLDER, places[0].segment)
        if is_fenced:
            fs.settle([path])
        fs.client.delete([fs.part_key(path, places[1].offset)])
        with LogReader.open(FOLDER, fs=fs) as reader, pytest.raises(CorruptRecordError) as caught:
            list(reader.records())
        assert caught.value.offset == places[1].offset
        assert [damage.segment for damage in check(FOLDER, fs=fs).damages] == [places[0].segment]
        assert read_record(path, places[2].offset, fs=fs).payload == b"2"
        with pytest.raises(CorruptRecordError):
            read_record(path, places[1].offset, fs=fs)


def test_a_file_ends_at_its_fence_also_when_its_last_part_is_lost() -> None:
    fs = in_memory()
    with LogWriter.create(FOLDER, fs=fs, options=SMALL) as log:
        places = [log.append(1, b"%d" % number) for number in range(3)]
        path = segment_path(FOLDER, places[0].segment)
        size = fs.parts(path).size
        fs.settle([path])
        fs.client.delete([fs.part_key(path, places[2].offset)])
        assert (fs.parts(path).size, fs.parts(path).is_fenced) == (size, True)
        assert payloads(fs, FOLDER) == [b"0", b"1"]
        with another_host():
            assert "cut unused space" in repair(FOLDER, fs=fs).actions[0]
        assert fs.parts(path).size == places[2].offset


def test_the_parts_of_a_file_are_found_in_either_order_of_a_list() -> None:
    """Azure with a hierarchical namespace lists folder by folder, and not by the whole key."""

    class FolderByFolder(ObjectsClient):
        def keys(self, folder: str, after: str | None = None) -> Iterator[tuple[str, int]]:
            yield from sorted(super().keys(folder), key=lambda found: found[0].split("/"))

    for kind in (ObjectsClient, FolderByFolder):
        client = kind(MemoryStore(), "abfss://c@a.dfs.core.windows.net")
        fs = ObjectFileSystem(client, "abfss://c@a.dfs.core.windows.net")
        # As a whole key "a-b" is before "a/b", and a folder "a" is before "a-b".
        for name in ("/a/x/y", "/a/x", "/a/x-1", "/a/x-1/y", "/a/w/y", "/a/y"):
            fs.create(name, direct=False).write(0, [name.encode()], sync=True)
        for name in ("/a/x/y", "/a/x", "/a/x-1", "/a/x-1/y", "/a/w/y", "/a/y"):
            assert fs.open(name).read(0, 99) == name.encode()
        assert fs.keys_of("/a/z") == []


class Overtaken(ObjectsClient):
    """A client one of whose lists of a folder has not an object that was made before others in it.

    Attributes:
        hidden: That object; empty for none.
        of_all: Whether in a list of the whole folder, and not of one file.
    """

    hidden = ""
    of_all = False

    def keys(self, folder: str, after: str | None = None) -> Iterator[tuple[str, int]]:
        hidden = self.hidden if self.of_all == (after is None) else ""
        for found in super().keys(folder, after):
            if found[0] == hidden:
                self.hidden = ""
            else:
                yield found


def test_what_is_made_while_a_list_is_read_is_no_damage() -> None:
    """A list may have an object without the one before it, which was made before it."""
    client = Overtaken(MemoryStore(), "s3://bucket")
    fs = ObjectFileSystem(client, "s3://bucket")
    with LogWriter.create(FOLDER, fs=fs, options=SMALL) as log:
        places = [log.append(1, b"%d" % number) for number in range(3)]
        path = segment_path(FOLDER, places[0].segment)
        client.hidden = fs.part_key(path, places[1].offset)
        assert fs.parts(path).gaps == []
        assert len(fs.parts(path).begins) == 4


def test_a_segment_that_is_made_while_the_log_is_taken_over_is_not_removed() -> None:
    client = Overtaken(MemoryStore(), "s3://bucket")
    fs = ObjectFileSystem(client, "s3://bucket")
    with LogWriter.create(FOLDER, fs=fs, options=SMALL) as log:
        place = log.append(1, b"acknowledged")
        client.hidden = fs.part_key(segment_path(FOLDER, place.segment), 0)
        client.of_all = True
        with another_host():
            LogWriter.create(FOLDER, fs=fs, options=SMALL).close()
        assert not client.hidden
    assert payloads(fs, FOLDER) == [b"acknowledged"]


class TakenOver(ObjectsClient):
    """A client that calls `before` or `after` a PUT of a key that ends so, and answers nothing."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(), "s3://bucket")
        self.key = ""
        self.before = self.after = lambda: None
        self.others = ObjectFileSystem(self, "s3://bucket")
        self.successor: LogWriter | None = None
        self.read: list[bytes] = []

    def create(self, key: str, data: bytes) -> None:
        if not self.key or not key.endswith(self.key):
            return super().create(key, data)
        self.key = ""
        self.before()
        super().create(key, data)
        self.after()
        raise StorageAwayError("no answer", key)

    def take_over(self) -> None:
        """Write the log from another host, and read what it has."""
        with another_host():
            self.successor = LogWriter.create(FOLDER, fs=self.others, options=SMALL)
        self.read = payloads(self.others, FOLDER)


def test_who_was_replaced_removes_nothing_that_its_successor_has_read() -> None:
    """Its write was done, and it gives up without an answer."""
    client = TakenOver()
    fs = ObjectFileSystem(client, "s3://bucket", patience_s=0)
    replaced = LogWriter.create(FOLDER, fs=fs, options=SMALL)
    place = replaced.append(1, b"acknowledged")
    client.key, client.after = f"@{place.offset + 128:015d}", client.take_over
    with pytest.raises(LogWriteError, match="no answer"):
        replaced.append(1, b"done, and not acknowledged")
    assert client.read == [b"acknowledged", b"done, and not acknowledged"]
    with pytest.raises(LogWriteError, match="taken over"):
        replaced.append(1, b"too late")
    assert payloads(client.others, FOLDER) == client.read
    replaced.close()
    assert client.successor is not None
    client.successor.close()
    assert payloads(client.others, FOLDER) == client.read


def test_a_segment_that_is_begun_too_late_makes_nothing_void() -> None:
    """Its writer was paused between asking whether it has the log and beginning the segment."""
    client = TakenOver()
    fs = ObjectFileSystem(client, "s3://bucket", patience_s=0)
    replaced = LogWriter.create(FOLDER, fs=fs, options=SMALL)
    place = replaced.append(1, b"acknowledged")
    client.key = f"@{place.offset + 128:015d}"
    with pytest.raises(LogWriteError, match="no answer"):
        replaced.append(1, b"done, and not acknowledged")
    # One number is spent without a segment.
    client.key, client.before = "2.log@000000000000000", lambda: raise_away()
    with pytest.raises(LogWriteError, match="not done"):
        replaced.append(1, b"no segment")
    client.key, client.before = "3.log@000000000000000", client.take_over
    with pytest.raises(LogWriteError):
        replaced.append(1, b"too late")
    assert client.read == [b"acknowledged", b"done, and not acknowledged"]
    assert payloads(client.others, FOLDER) == client.read
    assert client.successor is not None
    client.successor.append(1, b"of the successor")
    assert payloads(client.others, FOLDER) == [*client.read, b"of the successor"]


def raise_away() -> None:
    raise StorageAwayError("not done", "s3://bucket")


def test_a_fence_stays_where_its_file_was_removed_and_a_file_without_its_first_part_is_none() -> (
    None
):
    fs = in_memory()
    with LogWriter.create(FOLDER, fs=fs, options=SMALL) as log:
        path = segment_path(FOLDER, log.append(1, b"a").segment)
        fs.settle([path])
        with pytest.raises(LogWriteError, match="taken over"):
            log.append(1, b"refused")
        log.append(1, b"in the next segment")
    fence = fs.keys_of(path)[-1]
    fs.client.delete([fs.part_key(path, 0)])
    assert fs.parts(path).begins == []
    with pytest.raises(FileNotFoundError):
        fs.open(path)
    LogWriter.create(FOLDER, fs=fs, options=SMALL).close()
    assert fs.keys_of(path) == [fence]


def test_a_folder_has_one_epoch_and_the_newest() -> None:
    fs = in_memory()
    for number in (1, 2, 3):
        LogWriter.create(FOLDER, fs=fs, options=SMALL).close()
        assert fs.keys_of(f"{FOLDER}/LOCK") == [f"app/log/LOCK@{number:015d}"]


def test_a_log_that_was_let_go_while_the_store_was_away_can_be_taken_by_its_process() -> None:
    fs = in_memory()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fs, "answers", lambda path: False)
        LogWriter.create(FOLDER, fs=fs).close()
    LogWriter.create(FOLDER, fs=fs).close()


def test_a_file_takes_no_more_after_a_write_that_failed() -> None:
    objects = FaultyObjects()
    fs = ObjectFileSystem(objects, "s3://bucket", patience_s=0)
    file = fs.create("/file", direct=False)
    objects.failures.append(5)
    with pytest.raises(OSError, match="made to fail"):
        file.write(0, [b"a"], sync=True)
    with pytest.raises(OSError, match="an earlier write failed"):
        file.write(0, [b"a"], sync=True)
    with pytest.raises(OSError, match="an earlier write failed"):
        file.sync()


def test_a_rename_gives_the_name_last_and_replaces_no_file_of_several_objects() -> None:
    objects = FaultyObjects()
    fs = ObjectFileSystem(objects, "s3://bucket", patience_s=HANG_S)
    file = fs.create("/from", direct=False)
    file.write(0, [b"a"], sync=True)
    file.write(1, [b"b"], sync=True)
    with pytest.raises(OSError, match="not replaced at once"):
        fs.rename("/from", "/from", replace=True)
    objects.crash_after = 3  # The list, and both requests of the last part.
    with pytest.raises(SimulatedCrashError):
        fs.rename("/from", "/to")
    objects.restart()
    assert fs.parts("/to").begins == []
    fs.rename("/from", "/to")
    assert fs.open("/to").read(0, 9) == b"ab"
    assert fs.parts("/from").begins == []
