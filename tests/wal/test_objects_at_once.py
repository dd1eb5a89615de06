"""Several writes of one log under way on an object store that does them in any order, or never."""

from __future__ import annotations

import contextlib
import errno
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from obstore.store import MemoryStore

from penstock.wal import (
    Company,
    CorruptRecordError,
    EncryptionKey,
    LogCipher,
    LogOptions,
    LogReader,
    LogWriter,
    ObjectFileSystem,
    RecordPlace,
    StorageAwayError,
    WalError,
    check,
    repair,
    segment_path,
)
from penstock.wal._objects.client import ObjectsClient
from penstock.wal._owner import TakenOverError
from tests.bounds import HANG_S
from tests.services.versitygw import make_server
from tests.wal.faulty_objects import another_host

T = TypeVar("T")
FOLDER = "/app/log"
PART = 512
SMALL = LogOptions(segment_size=1 << 13, alignment=64, stall_timeout_s=HANG_S)


@dataclass(eq=False)
class Request:
    """A PUT that waits for what becomes of it."""

    key: str
    data: bytes
    answered: threading.Event = field(default_factory=threading.Event)
    error: OSError | None = None

    def answer(self, error: OSError | None = None) -> None:
        self.error = error
        self.answered.set()


class HeldObjects(ObjectsClient):
    """Holds each PUT of a segment's records until the test says what becomes of it.

    Attributes:
        held: The requests that wait.
        late: Those that were given up, and that may be done later.
        is_free: Hold no more.
    """

    def __init__(self, store: Any) -> None:
        super().__init__(store, "s3://bucket")
        self.came = threading.Condition()
        self.held: list[Request] = []
        self.late: list[Request] = []
        self.is_free = False

    def create(self, key: str, data: bytes | memoryview) -> None:
        if self.is_free or "segment" not in key or key.endswith("@" + "0" * 15) or not len(data):
            return super().create(key, data)
        request = Request(key, bytes(data))
        with self.came:
            self.held.append(request)
            self.came.notify_all()
        assert request.answered.wait(HANG_S)
        if request.error is not None:
            raise request.error
        return None

    def await_held(self, count: int, timeout_s: float = HANG_S) -> bool:
        with self.came:
            return self.came.wait_for(lambda: len(self.held) >= count, timeout_s)

    def do(self, request: Request) -> OSError | None:
        """Do a request, and return what it says."""
        with contextlib.suppress(ValueError):
            self.late.remove(request)
        try:
            super().create(request.key, request.data)
        except FileExistsError as error:
            return error
        return None

    def settle(self, request: Request, outcome: str) -> None:
        """Decide what becomes of a request that is held."""
        with self.came:
            self.held.remove(request)
        if outcome == "done":
            return request.answer(self.do(request))
        if outcome == "refused":
            return request.answer(PermissionError(errno.EACCES, "refused", request.key))
        if outcome == "lost":
            self.do(request)
        elif outcome == "late":
            self.late.append(request)
        return request.answer(StorageAwayError("no answer", request.key))

    def free(self) -> None:
        """Do all that is held, and all that comes."""
        with self.came:
            self.is_free = True
            held, self.held = self.held, []
        for request in held:
            request.answer(self.do(request))


class OverlappingLists(ObjectsClient):
    """Something may be made while a list is read.

    Attributes:
        share: How much of it is from before.
    """

    share = 0.5

    def __init__(self, store: Any) -> None:
        super().__init__(store, "s3://bucket")
        self.meanwhile: Callable[[], None] = lambda: None

    def keys(self, folder: str, after: str | None = None) -> Iterator[tuple[str, int]]:
        first = list(super().keys(folder, after))
        self.meanwhile()
        second = list(super().keys(folder, after))
        middle = second[int(len(second) * self.share)][0] if second else ""
        yield from [found for found in first if found[0] < middle]
        yield from [found for found in second if found[0] >= middle]


class Files(ObjectFileSystem):
    """Files of small parts; what has no answer is asked for three times."""

    part_bytes = PART
    reads_at_once = 1

    def __init__(self, client: ObjectsClient) -> None:
        super().__init__(client, "s3://bucket")

    def call(self, function: Callable[[], T]) -> T:
        for _ in range(2):
            with contextlib.suppress(StorageAwayError):
                return function()
        return function()


@pytest.fixture(autouse=True)
def small_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.wal._writer._RUN_BYTES", 300)


def read(
    client: ObjectsClient, cipher: LogCipher | None = None, before: int | None = None
) -> list[bytes]:
    with LogReader.open(FOLDER, fs=Files(client), cipher=cipher, before=before) as reader:
        return [bytes(record.payload) for record in reader.records()]


@dataclass
class Append:
    """One call, by the numbers of events before and after it."""

    payload: bytes
    begun: int
    ended: int = 0
    place: RecordPlace | None = None


class Program:
    """Threads that append to one log, and what they were told."""

    def __init__(self, log: LogWriter, chance: random.Random, name: str) -> None:
        self.log = log
        self.calls: list[Append] = []
        self.released: set[int] = set()
        self._lock = threading.Lock()
        self._events = 0
        seeds = [chance.randrange(1 << 30) for _ in range(chance.choice((1, 2, 4)))]
        self._threads = [
            threading.Thread(target=self._run, args=(f"{name}-{at}", seed), daemon=True)
            for at, seed in enumerate(seeds)
        ]
        for thread in self._threads:
            thread.start()

    def _event(self) -> int:
        with self._lock:
            self._events += 1
            return self._events

    def _run(self, name: str, seed: int) -> None:
        chance = random.Random(seed)
        for number in range(chance.randint(1, 6)):
            if chance.random() < 0.1:
                self._release(chance)
            size = chance.choice((10, 100, 200, 700, 1800))
            call = Append(f"{name}-{number}-".encode().ljust(size, b"."), self._event())
            with contextlib.suppress(WalError):
                call.place = self.log.append(1, call.payload)
            call.ended = self._event()
            with self._lock:
                self.calls.append(call)

    def _release(self, chance: random.Random) -> None:
        """Remove a segment, as if its blocks were let go."""
        with self._lock:
            numbers = {call.place.segment for call in self.calls if call.place is not None}
            free = sorted(numbers - {max(numbers, default=0)})
            if not free:
                return
            number = chance.choice(free)
            self.released.add(number)
        with contextlib.suppress(WalError):
            self.log.remove_segments([number])

    def acknowledged(self) -> list[Append]:
        with self._lock:
            return [call for call in self.calls if call.place is not None]

    def kept(self) -> set[bytes]:
        acknowledged = self.acknowledged()
        with self._lock:
            released = set(self.released)
        return {
            call.payload
            for call in acknowledged
            if call.place is not None and call.place.segment not in released
        }

    def is_over(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(HANG_S)
        assert self.is_over()

    def void(self) -> set[bytes]:
        """Return what failed before a later append began that was acknowledged."""
        latest = max((call.begun for call in self.acknowledged()), default=0)
        return {call.payload for call in self.calls if call.place is None and call.ended < latest}


OUTCOMES = ("done",) * 8 + ("lost", "lost", "late", "not done", "refused")


def run(seed: int) -> None:
    """Run a program, let another one take its log over in the midst, or not; look at all of it."""
    chance = random.Random(seed)
    store = MemoryStore()
    held, lists = HeldObjects(store), OverlappingLists(store)
    cipher = EncryptionKey(bytes(32)).cipher("log") if chance.random() < 0.1 else None
    company = Company(0.002) if chance.random() < 0.3 else None
    log = LogWriter.create(FOLDER, fs=Files(held), options=SMALL, cipher=cipher, company=company)
    program = Program(log, chance, "first")
    outcomes = OUTCOMES if chance.random() < 0.7 else ("done",)
    takes_over_at = chance.randint(0, 30) if chance.random() < 0.7 else None

    def step() -> None:
        if not held.await_held(chance.choice((1, 1, 2, 3)), 0.002):
            if held.late and chance.random() < 0.3:
                held.do(chance.choice(held.late))
            if not held.held:
                return
        with held.came:
            request = chance.choice(held.held)
        held.settle(request, chance.choice(outcomes))

    def meanwhile() -> None:
        while held.held and chance.random() < 0.6:
            step()
        while held.late and chance.random() < 0.3:
            held.do(chance.choice(held.late))

    lists.meanwhile = meanwhile
    steps = 0
    while not program.is_over():
        if steps == takes_over_at:
            break
        if chance.random() < 0.1:
            kept, found = program.kept(), read(lists, cipher)
            assert kept - set(found) <= {
                call.payload
                for call in program.acknowledged()
                if call.place is not None and call.place.segment in program.released
            }
        step()
        steps += 1
    if takes_over_at is None:
        program.join()
        held.free()
        with contextlib.suppress(WalError):
            log.close()
        for request in list(held.late):
            held.do(request)
        found = read(held, cipher)
        assert len(found) == len(set(found))
        assert program.kept() <= set(found)
        assert not program.void() & set(found)
        assert not check(FOLDER, fs=Files(held)).damages
        in_order(found)
        return
    with another_host():
        second = LogWriter.create(FOLDER, fs=Files(lists), options=SMALL, cipher=cipher)
    lists.meanwhile = lambda: None
    # By now the first one may be told anything, and no more becomes of it.
    before = read(lists, cipher, second.first_segment)
    while not program.is_over():
        step()
    while held.late:
        held.do(held.late[0])
    assert len(before) == len(set(before))
    assert program.kept() <= set(before)
    in_order(before)
    after = read(lists, cipher, second.first_segment)
    lost = {
        call.payload
        for call in program.acknowledged()
        if call.place is not None and call.place.segment in program.released
    }
    assert set(after) - set(before) == set()
    assert set(before) - set(after) <= lost
    second.append(1, b"second")
    second.close()
    held.free()
    with contextlib.suppress(WalError):
        log.close()
    assert read(held, cipher) == [*after, b"second"]
    assert not check(FOLDER, fs=Files(held)).damages
    repair(FOLDER, fs=Files(held))
    assert read(held, cipher) == [*after, b"second"]


def in_order(found: list[bytes]) -> None:
    """Assert that records of one thread are in their order."""
    newest: dict[bytes, int] = {}
    for payload in found:
        name, number, _ = payload.rsplit(b"-", 2)
        assert newest.get(name, -1) < int(number)
        newest[name] = int(number)


class Calls:
    """Appends, each in a thread of its own, in the order in which they are asked for."""

    def __init__(self, held: HeldObjects, log: LogWriter) -> None:
        self._held = held
        self._log = log
        self.said: dict[bytes, RecordPlace | WalError] = {}
        self.threads: list[threading.Thread] = []

    def begin(self, payload: bytes, requests: int | None = None) -> None:
        """Begin one, and wait until so many requests are held."""
        thread = threading.Thread(target=self._append, args=[payload], daemon=True)
        self.threads.append(thread)
        thread.start()
        if requests is not None:
            assert self._held.await_held(requests)

    def _append(self, payload: bytes) -> None:
        try:
            self.said[payload] = self._log.append(1, payload)
        except WalError as error:
            self.said[payload] = error

    def join(self) -> None:
        for thread in self.threads:
            thread.join(HANG_S)
            assert not thread.is_alive()


A, B, C = (letter * 250 for letter in (b"a", b"b", b"c"))


@pytest.fixture
def held() -> Iterator[HeldObjects]:
    found = HeldObjects(MemoryStore())
    yield found
    found.free()


def opened(held: HeldObjects, company: Company | None = None) -> tuple[LogWriter, Calls]:
    log = LogWriter.create(FOLDER, fs=Files(held), options=SMALL, company=company)
    return log, Calls(held, log)


def begin_three(calls: Calls) -> None:
    for at, payload in enumerate((A, B, C), 1):
        calls.begin(payload, at)


def test_a_write_is_acknowledged_when_all_before_it_are_there(held: HeldObjects) -> None:
    log, calls = opened(held)
    begin_three(calls)
    first, second, third = held.held
    held.settle(third, "done")
    held.settle(second, "done")
    calls.threads[1].join(0.05)
    assert not calls.said
    assert log.statistics().records == 0
    assert read(held) == []
    held.settle(first, "done")
    calls.join()
    assert read(held) == [A, B, C]
    places = [calls.said[payload] for payload in (A, B, C)]
    assert [place.sequence for place in places if isinstance(place, RecordPlace)] == [1, 2, 3]
    held.free()
    log.close()


def test_what_was_begun_behind_a_write_that_fails_fails_too_and_does_not_come_back(
    held: HeldObjects,
) -> None:
    log, calls = opened(held)
    begin_three(calls)
    first, second, third = held.held
    held.settle(third, "done")
    held.settle(first, "refused")
    # Its bytes may be read until it is over.
    calls.threads[1].join(0.05)
    assert set(calls.said) == {A}
    calls.begin(b"next")
    held.settle(second, "done")
    for thread in calls.threads[:3]:
        thread.join(HANG_S)
    assert all(isinstance(calls.said[payload], WalError) for payload in (A, B, C))
    assert held.await_held(1)
    held.free()
    calls.join()
    assert log.statistics().segments_abandoned == 1
    assert read(held) == [b"next"]
    # Also when the segment is gone that says so.
    place = calls.said[b"next"]
    assert isinstance(place, RecordPlace)
    log.roll()
    log.append(1, b"last")
    log.remove_segments([place.segment])
    held.do(first)
    assert read(held) == [b"last"]
    log.close()
    assert not check(FOLDER, fs=Files(held)).damages


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_paused_writer_cannot_fill_the_gap_that_its_successor_has_read(
    held: HeldObjects, is_removed: bool
) -> None:
    calls = opened(held)[1]
    begin_three(calls)
    first, second, third = held.held
    held.settle(first, "done")
    calls.threads[0].join(HANG_S)
    held.settle(third, "done")
    store = ObjectsClient(held._store, "s3://bucket")
    with another_host():
        successor = LogWriter.create(FOLDER, fs=Files(store), options=SMALL)
    assert read(store) == [A]
    if is_removed:
        successor.remove_segments([1])
    held.settle(second, "done")
    calls.join()
    for payload in (B, C):
        assert "taken over" in str(calls.said[payload]) or "before it" in str(calls.said[payload])
    # A part that is made later yet.
    held.do(Request("app/log/segment-000000000001.log@000000000005120", C))
    successor.append(1, b"mine")
    successor.close()
    expected = [A] * (not is_removed) + [b"mine"]
    assert read(store) == expected
    # It is settled again, and put in order, and nothing comes of it.
    LogWriter.create(FOLDER, fs=Files(store), options=SMALL).close()
    assert not check(FOLDER, fs=Files(store)).damages
    repair(FOLDER, fs=Files(store))
    assert read(store) == expected
    second.data = B
    assert isinstance(held.do(second), FileExistsError)
    assert read(store) == expected
    held.free()


def test_a_part_that_was_lost_is_damage_and_what_is_behind_it_is_read(held: HeldObjects) -> None:
    held.is_free = True
    log, _ = opened(held)
    places = [log.append(1, payload) for payload in (A, B, C, b"d")]
    held.delete([Files(held).part_key(segment_path(FOLDER, 1), places[1].offset)])
    with another_host():
        LogWriter.create(FOLDER, fs=Files(held), options=SMALL).close()
    found: list[bytes] = []
    with LogReader.open(FOLDER, fs=Files(held)) as reader:
        damages: list[CorruptRecordError] = []
        for record in reader.records(on_damage=damages.append):
            found.append(bytes(record.payload))
    assert found == [A, C, b"d"]
    assert [damage.offset for damage in damages] == [places[1].offset]


def test_small_appends_share_a_write_while_one_is_under_way(held: HeldObjects) -> None:
    log, calls = opened(held)
    calls.begin(A, 1)
    calls.begin(b"b")
    calls.begin(b"c")
    assert not held.await_held(2, 0.05)
    held.settle(held.held[0], "done")
    assert held.await_held(1)
    held.settle(held.held[0], "done")
    calls.join()
    assert log.statistics().writes == 2
    held.free()
    log.close()


def test_no_more_writes_are_under_way_than_a_file_takes(held: HeldObjects) -> None:
    fs = Files(held)
    fs.writes_at_once = 2
    log = LogWriter.create(FOLDER, fs=fs, options=SMALL)
    calls = Calls(held, log)
    calls.begin(A, 1)
    calls.begin(B, 2)
    calls.begin(C)
    assert not held.await_held(3, 0.05)
    held.settle(held.held[0], "done")
    assert held.await_held(2)
    held.free()
    calls.join()
    assert read(held) == [A, B, C]
    log.close()


def test_a_flush_waits_for_its_time_and_not_for_the_answer_to_the_one_before(
    held: HeldObjects,
) -> None:
    calls = opened(held, Company(0.2))[1]
    calls.begin(b"a", 1)
    calls.begin(b"b")
    assert not held.await_held(2, 0.05)
    assert held.await_held(2)
    calls = opened_again(held, Company(10_000))
    calls.begin(b"a", 1)
    calls.begin(b"b")
    assert not held.await_held(2, 0.2)


def opened_again(held: HeldObjects, company: Company) -> Calls:
    held.free()
    with another_host():
        found = opened(held, company)[1]
    held.is_free = False
    return found


def test_what_is_large_is_made_in_parts_at_once(held: HeldObjects) -> None:
    large = b"".join(b"%07d\n" % number for number in range(400))
    log, calls = opened(held)
    calls.begin(large, 6)
    sizes = sorted(len(request.data) for request in held.held)
    assert sizes == [544] * 6
    for request in reversed(held.held[1:]):
        held.settle(request, "done")
    calls.threads[0].join(0.05)
    assert not calls.said
    held.settle(held.held[0], "done")
    calls.join()
    assert read(held) == [large]
    # And fails as a whole.
    calls.begin(large + b"b", 6)
    for request in reversed(held.held[1:]):
        held.settle(request, "done")
    held.settle(held.held[0], "refused")
    calls.join()
    assert isinstance(calls.said[large + b"b"], WalError)
    held.free()
    log.append(1, b"c")
    assert read(held) == [large, b"c"]
    log.close()


@pytest.mark.parametrize("ends", ["roll", "close"])
def test_a_segment_ends_behind_what_is_under_way(held: HeldObjects, ends: str) -> None:
    log, calls = opened(held)
    calls.begin(A, 1)
    calls.begin(B, 2)
    ending = threading.Thread(target=getattr(log, ends), daemon=True)
    ending.start()
    ending.join(0.05)
    assert ending.is_alive()
    held.settle(held.held[1], "done")
    held.free()
    ending.join(HANG_S)
    calls.join()
    assert read(held) == [A, B]
    with LogReader.open(FOLDER, fs=Files(held)) as reader:
        first = reader.segments[0]
        assert (first.closed, first.record_count) == (True, 2)
    log.close()


def test_a_list_in_which_something_is_missing_is_no_gap() -> None:
    """What was made while it was read may be in it without what was made before."""
    store = MemoryStore()
    lists = OverlappingLists(store)
    fs = Files(lists)
    made = iter(range(1, 9))

    def meanwhile() -> None:
        for number in (next(made), next(made)):
            lists.create(fs.part_key("/file", 100 * number), bytes(100))

    lists.create(fs.part_key("/file", 0), bytes(100))
    lists.meanwhile, lists.share = meanwhile, 0.9
    parts = fs.parts("/file")
    assert parts.gaps == []
    assert parts.size == sum(parts.sizes) == 300


def test_what_is_new_in_a_list_behind_a_gap_is_left_out() -> None:
    """It may know as committed what was made in the gap while the list was read."""
    lists = OverlappingLists(MemoryStore())
    fs = Files(lists)
    for begin in (0, 200):
        lists.create(fs.part_key("/file", begin), bytes(100))
    turns = iter(range(9))

    def meanwhile() -> None:
        if next(turns) == 1:
            for begin in (100, 300):
                lists.create(fs.part_key("/file", begin), bytes(100))

    lists.meanwhile, lists.share = meanwhile, 0.9
    parts = fs.parts("/file")
    assert (parts.begins, parts.gaps, parts.size) == ([0, 200], [100], 300)
    assert fs.parts("/file").begins == [0, 100, 200, 300]


class CountingObjects(ObjectsClient):
    lists = 0

    def keys(self, folder: str, after: str | None = None) -> Iterator[tuple[str, int]]:
        self.lists += 1
        return super().keys(folder, after)


def test_who_reads_records_one_after_the_other_lists_once(held: HeldObjects) -> None:
    client = CountingObjects(held._store, "s3://bucket")
    fs, path = Files(client), segment_path(FOLDER, 1)
    held.is_free = True
    log, calls = opened(held)
    first = log.append(1, A)
    for _ in range(3):
        assert A in bytes(fs.read_range(path, first.offset, first.length))
    assert client.lists == 1
    # What was not there is looked for, also behind what was made out of turn.
    held.is_free = False
    calls.begin(B, 1)
    calls.begin(C, 2)
    held.settle(held.held[1], "done")
    assert A in bytes(fs.read_range(path, first.offset, first.length))
    assert fs.read_range(path, first.offset + first.length + 64, 999_999)
    held.free()
    calls.join()
    for payload in (B, C):
        place = calls.said[payload]
        assert isinstance(place, RecordPlace)
        assert payload in bytes(fs.read_range(path, place.offset, place.length))
    # And what is gone is told, and not taken for there.
    log.roll()
    log.append(1, b"d")
    log.remove_segments([1])
    with pytest.raises(FileNotFoundError):
        fs.read_range(path, first.offset, first.length)
    log.close()


def test_who_was_replaced_cuts_off_nothing_that_its_successor_has_read(held: HeldObjects) -> None:
    """It may take for failed what was done, and what its successor has read since."""
    held.is_free = True
    fs = Files(held)
    file = fs.create("/file", direct=False)
    for number in range(3):
        file.write(100 * number, [b"%d" % number * 100], sync=True)
    fs.settle(["/file"])
    with pytest.raises(OSError, match="not cut"):
        fs.truncate("/file", 100)
    assert fs.parts("/file").size == 300
    fs.truncate("/file", 100, is_settled=True)
    parts = fs.parts("/file")
    assert (parts.begins, parts.size, parts.is_fenced) == ([0], 100, True)


class Interrupted(ObjectsClient):
    """Lets something happen right before a request, once."""

    def __init__(self, store: Any) -> None:
        super().__init__(store, "s3://bucket")
        self.before: dict[str, Callable[[], object]] = {}

    def get(self, key: str) -> bytes:
        self.before.pop("get", lambda: None)()
        return super().get(key)

    def create(self, key: str, data: bytes | memoryview) -> None:
        self.before.pop("create", lambda: None)()
        super().create(key, data)


@pytest.mark.parametrize("request_kind", ["get", "create"])
def test_who_is_overtaken_while_it_takes_a_log_looks_again(request_kind: str) -> None:
    store = MemoryStore()
    client = Interrupted(store)
    fs, other = Files(client), Files(ObjectsClient(store, "s3://bucket"))
    first = other.lock("/lock", "first")

    def overtake() -> None:
        with another_host():
            other.lock("/lock", "second")

    client.before[request_kind] = overtake
    with another_host():
        last = fs.lock("/lock", "last")
    assert not client.before
    last.check()
    with pytest.raises(TakenOverError, match="last"):
        first.check()


def test_nothing_is_uploaded_in_pieces_that_could_be_left_unfinished(tmp_path: Path) -> None:
    server = make_server(tmp_path)
    log = tmp_path / "access.log"
    server.command = [server.command[0], "--access-log", str(log), *server.command[1:]]
    server.start()
    try:
        fs = ObjectFileSystem(ObjectsClient(server.store(), server.authority), server.authority)
        with LogWriter.create(FOLDER, fs=fs) as writer:
            place = writer.append(1, bytes(40 << 20))
        path = segment_path(FOLDER, place.segment)
        fs.client.replace("app/one", bytes(20 << 20))
        fs.rename(path, "/app/other")
        assert len(fs.parts("/app/other").begins) == 7
    finally:
        server.stop()
    said = log.read_text()
    assert "s3_PutObject" in said
    assert "Multipart" not in said
    assert "UploadPart" not in said


MORE = (pytest.param(begin, marks=pytest.mark.exhaustive) for begin in range(200, 6000, 200))


@pytest.mark.slow
@pytest.mark.parametrize("begin", [0, *MORE])
def test_writes_that_are_done_in_any_order_lose_and_double_nothing(begin: int) -> None:
    for seed in range(begin, begin + 200):
        try:
            run(seed)
        except BaseException:
            print(f"seed {seed}")
            raise
