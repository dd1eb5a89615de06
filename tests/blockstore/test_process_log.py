"""Receivers of one process that share a log on an object store."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import pytest

from penstock.blockstore import (
    BlockAccess,
    BlockKind,
    BlockNotFoundError,
    BlockStore,
    read_block,
)
from penstock.blockstore.building.builder import join_binary
from penstock.blockstore.copies import BlockCopies
from penstock.blockstore.process_log import ProcessLog, ProcessLogs, log_of, moved
from penstock.blockstore.reading._readahead import Readahead
from penstock.blockstore.reading.dataframe import _blocks
from penstock.blockstore.reading.reader import read_segment
from penstock.blockstore.server._files import ApplicationFiles
from penstock.blockstore.store import BlockStoreOptions
from penstock.runtime.clock import ManualClock
from penstock.wal import (
    EncryptionKey,
    LogOptions,
    LogReader,
    LogWriteError,
    ObjectFileSystem,
    RecordPlace,
    SyncPolicy,
    check,
    locate,
    lock_folder,
    segment_path,
)
from penstock.wire.messages import ReceivedBlockInfo
from tests.bounds import HANG_S
from tests.wal.faulty_objects import FaultyObjects
from tests.wal.test_objects import another_host

ROOT = "s3://bucket/app/receivedData"
KEY = EncryptionKey(bytes(range(32)))
OPTIONS = BlockStoreOptions(
    memory_bytes=4 << 20,
    block_max_bytes=64 << 10,
    log=LogOptions(segment_size=1 << 16, alignment=64),
)
LARGE = LogOptions(segment_size=1 << 22, alignment=64)
INTERVAL_S = 1.0


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> FaultyObjects:
    found = FaultyObjects()
    fs = ObjectFileSystem(found, "s3://bucket", patience_s=1)
    monkeypatch.setattr("penstock.wal._folder.object_file_system", lambda authority: fs)
    return found


@pytest.fixture
def log(objects: FaultyObjects) -> Iterator[ProcessLog]:
    with ProcessLogs().use(ROOT, INTERVAL_S) as found:
        yield found


def store_in(
    log: ProcessLog,
    folder: Path,
    stream: int,
    encryption: EncryptionKey | None = None,
    options: LogOptions = OPTIONS.log,
) -> BlockStore:
    attempt = uuid.uuid4().hex
    return BlockStore(
        stream_id=stream,
        attempt=attempt,
        host="here",
        log_folder=f"{log.folder}/{stream}-{attempt}",
        host_folder=str(folder / f"{stream}-{attempt}"),
        options=replace(
            OPTIONS,
            memory_dir="/dev/shm" if encryption else str(folder),
            log=options,
            encryption=encryption,
        ),
        process_log=log,
    )


def put(store: BlockStore, number: int, size: int = 0) -> ReceivedBlockInfo:
    builder = store.open_block(BlockKind.BINARY)
    builder.append(*join_binary([record(store.stream_id, number) + b"." * size]))
    return store.put(builder.seal(f"input-{store.stream_id}-{number}", 0.0))


def record(stream: int, number: int) -> bytes:
    return b"%d of %d" % (number, stream)


def stored(info: ReceivedBlockInfo, encryption: EncryptionKey | None = None) -> bytes:
    """Return the record of a block, as the object store has it."""
    access = BlockAccess(encryption=encryption)
    with read_block(msgspec.structs.replace(info, memory=None), access) as block:
        (found,) = block.records()
    assert isinstance(found, bytes)
    return found.rstrip(b".")


def fill(store: BlockStore, number: int) -> ReceivedBlockInfo:
    """Put blocks until another segment is begun; return the last, which is in that one."""
    first = info = put(store, number)
    while info.segment == first.segment or segment_of(info) == segment_of(first):
        number += 1
        info = put(store, number, 20_000)
    return info


def segment_of(info: ReceivedBlockInfo) -> int:
    assert info.segment is not None
    return info.segment.segment


def place_of(info: ReceivedBlockInfo) -> tuple[str, int]:
    assert info.segment is not None
    return info.segment.folder, info.segment.segment


def segments_there(log: ProcessLog) -> list[int]:
    fs, path = locate(log.folder)
    return [info.number for info in LogReader.open(path, fs=fs).segments]


@pytest.mark.parametrize("receivers", [1, 10, 100])
def test_as_many_objects_are_written_for_one_receiver_as_for_a_hundred(
    objects: FaultyObjects, tmp_path: Path, receivers: int
) -> None:
    rounds, clock = 5, ManualClock()
    log = ProcessLog(f"{ROOT}/process-1", INTERVAL_S, clock)
    stores = [store_in(log, tmp_path, n, options=LARGE) for n in range(receivers)]
    with each_in_a_thread(receivers) as put_all:
        put_all(stores, 0)
        before = objects.calls["create"]
        for number in range(1, rounds + 1):
            clock.advance(1000)
            found = put_all(stores, number)
            assert [stored(info) for info in found] == [record(n, number) for n in range(receivers)]
        assert objects.calls["create"] - before == rounds
    for store in stores:
        store.close()
    log.close()


@contextlib.contextmanager
def each_in_a_thread(
    receivers: int,
) -> Iterator[Callable[[list[BlockStore], int], list[ReceivedBlockInfo]]]:
    """Give what puts a block of each receiver, each in the receiver's own thread."""
    with contextlib.ExitStack() as stack:
        threads = [stack.enter_context(ThreadPoolExecutor(1)) for _ in range(receivers)]

        def put_all(stores: list[BlockStore], number: int) -> list[ReceivedBlockInfo]:
            told = [
                one.submit(put, store, number) for one, store in zip(threads, stores, strict=True)
            ]
            return [each.result(HANG_S) for each in told]

        yield put_all


def test_nobody_waits_long_for_who_does_not_come_or_has_just_been_there(
    objects: FaultyObjects, tmp_path: Path
) -> None:
    """Of a wait for ever this would be a hang."""
    with ProcessLogs().use(ROOT, 0.2) as log:
        one, other = (store_in(log, tmp_path, stream) for stream in (1, 2))
        with ThreadPoolExecutor(1) as threads:
            for number in range(3):
                put(one, number)
                threads.submit(put, other, number).result(HANG_S)
        for number in range(3, 8):
            assert stored(put(one, number)) == record(1, number)
            threading.Event().wait(0.1)
        for store in (one, other):
            store.close()


@pytest.mark.parametrize("encryption", [None, KEY], ids=["clear", "encrypted"])
def test_each_receivers_blocks_are_read_from_the_log_of_all(
    log: ProcessLog, tmp_path: Path, encryption: EncryptionKey | None
) -> None:
    stores = [store_in(log, tmp_path, stream, encryption) for stream in range(3)]
    infos = [put(store, number) for number in range(4) for store in stores]
    for info in infos:
        number = int(info.block_id.rpartition("-")[2])
        assert stored(info, encryption) == record(info.stream_id, number)
    mine = [info for info in infos if info.stream_id == 1]
    folder, segment = place_of(mine[0])
    runs = [(info.sequence, info.sequence) for info in mine]
    attempt = stores[1].attempt
    found = [
        bytes(next(iter(block.records())))
        for _, block in read_segment(folder, segment, runs, attempt=attempt, encryption=encryption)
    ]
    assert found == [record(1, number) for number in range(4)]
    for store in stores:
        store.close()
    fs, path = locate(log_of(folder))
    report = check(path, fs=fs)
    assert (report.records, report.damages) == (12, ())


def test_a_segment_goes_with_the_last_receivers_claim(log: ProcessLog, tmp_path: Path) -> None:
    one, other = (store_in(log, tmp_path, stream) for stream in (1, 2))
    theirs = put(other, 0)
    first = put(one, 0)
    last = fill(one, 1)
    assert segment_of(theirs) == segment_of(first) < segment_of(last)
    one.release((), [place_of(first)])
    assert stored(theirs) == record(2, 0)
    # One who has a claim in no segment changes nothing.
    one.release((), [place_of(first)])
    assert segment_of(first) in segments_there(log)
    other.release((), [place_of(theirs)])
    assert segments_there(log)[0] > segment_of(first)
    assert stored(last).endswith(b"of 1")
    # What is open stays.
    one.release((), [place_of(last)])
    assert segment_of(last) in segments_there(log)
    for store in (one, other):
        store.close()


def test_what_an_ended_receiver_had_is_let_go_by_another(log: ProcessLog, tmp_path: Path) -> None:
    ended, living = (store_in(log, tmp_path, stream) for stream in (1, 2))
    theirs = put(ended, 0)
    never_reported = fill(ended, 1)
    ended.close()
    own = put(living, 0)
    last = fill(living, 1)
    assert segment_of(own) == segment_of(never_reported) < segment_of(last)
    living.release((), [place_of(theirs), place_of(own)])
    assert segment_of(theirs) not in segments_there(log)
    assert segment_of(never_reported) in segments_there(log)
    living.release((), [(place_of(theirs)[0], -1)])
    assert segments_there(log) == [segment_of(last)]
    living.close()


def test_a_segment_that_may_get_an_append_under_way_stays(log: ProcessLog, tmp_path: Path) -> None:
    store = store_in(log, tmp_path, 1)
    first = put(store, 0)
    entered, leave = threading.Event(), threading.Event()

    def slow() -> None:
        def append():  # type: ignore[no-untyped-def]
            entered.set()
            assert leave.wait(HANG_S)
            raise LogWriteError("log", "refused")

        with pytest.raises(LogWriteError):
            log.append("another", append)

    with ThreadPoolExecutor(1) as threads:
        append = threads.submit(slow)
        assert entered.wait(HANG_S)
        last = fill(store, 1)
        store.release((), [place_of(first)])
        assert segment_of(first) in segments_there(log)
        leave.set()
        append.result(HANG_S)
    # The next release finds it.
    store.release((), ())
    assert segment_of(first) not in segments_there(log)
    assert stored(last).endswith(b"of 1")
    store.close()


def test_a_segment_in_which_nobody_has_a_block_goes_too(
    log: ProcessLog, objects: FaultyObjects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was begun and got nothing, as each write to it failed."""
    store = store_in(log, tmp_path, 1)
    infos = [put(store, 0)]
    create = objects.create

    def begin_only(key: str, data: bytes) -> None:
        if not key.endswith("@000000000000000"):
            raise OSError(5, "made to fail", key)
        create(key, data)

    with monkeypatch.context() as patch:
        patch.setattr(objects, "create", begin_only)
        for _ in range(2):
            with pytest.raises(LogWriteError):
                put(store, 1)
    infos.append(put(store, 1))
    newest = segment_of(infos[-1])
    assert newest > segment_of(infos[0]) + 1
    store.release((), [place_of(info) for info in infos])
    assert segments_there(log) == [newest]
    store.close()


def test_an_append_that_returns_late_does_not_make_an_older_segment_the_newest(
    log: ProcessLog, tmp_path: Path
) -> None:
    store = store_in(log, tmp_path, 1)
    first = put(store, 0)
    fill(store, 1)
    assert first.segment is not None
    place = RecordPlace(segment_of(first), first.segment.offset, first.segment.length, 1)
    log.append("late", lambda: place)
    log.append("late", lambda: place)
    store.release((), [place_of(first), ("late", -1)])
    assert segment_of(first) not in segments_there(log)
    store.close()


def test_a_release_that_frees_nothing_asks_the_store_nothing(
    log: ProcessLog, objects: FaultyObjects, tmp_path: Path
) -> None:
    store = store_in(log, tmp_path, 1)
    first = put(store, 0)
    before = objects.calls.copy()
    store.release((), [place_of(first)])
    assert objects.calls == before
    store.close()


def test_each_receiver_is_told_its_own_part(log: ProcessLog, tmp_path: Path) -> None:
    one, other, idle = (log.join(f"{log.folder}/{n}-a", LARGE, None) for n in range(3))
    places = [member.append(1, b"." * size) for member, size in ((one, 10), (one, 20), (other, 30))]
    one.roll()
    places.append(one.append(1, b"in the next segment"))
    mine = one.statistics()
    assert (mine.records, mine.bytes_appended) == (3, sum(places[n].length for n in (0, 1, 3)))
    assert (mine.segments_created, mine.segments_removed) == (2, 0)
    theirs = other.statistics()
    assert (theirs.records, theirs.bytes_appended) == (1, places[2].length)
    assert theirs.segments_created == 1
    assert idle.statistics().segments_created == 0


def test_a_log_that_cannot_be_closed_is_left_with_a_warning(
    objects: FaultyObjects, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def close(log: ProcessLog) -> None:
        raise LogWriteError(log.folder, "refused")

    monkeypatch.setattr(ProcessLog, "close", close)
    with ProcessLogs().use(ROOT, INTERVAL_S) as log:
        pass
    assert f"{log.folder} was not closed: " in caplog.text


def test_a_removal_that_failed_is_made_up_for(
    log: ProcessLog, objects: FaultyObjects, tmp_path: Path
) -> None:
    store = store_in(log, tmp_path, 1)
    first = put(store, 0)
    fill(store, 1)
    objects.not_done = 1.0
    with pytest.raises(LogWriteError):
        store.release((), [place_of(first)])
    objects.heal()
    store.release((), ())
    assert segment_of(first) not in segments_there(log)
    store.close()


def test_a_write_that_fails_fails_for_all_in_it_and_can_be_made_again(
    objects: FaultyObjects, tmp_path: Path
) -> None:
    clock = ManualClock()
    log = ProcessLog(f"{ROOT}/process-1", INTERVAL_S, clock)
    stores = [store_in(log, tmp_path, stream) for stream in range(3)]
    with each_in_a_thread(3) as put_all:
        infos = put_all(stores, 0)
        clock.advance(1000)
        objects.failures = [5]
        with pytest.raises(LogWriteError):
            put_all(stores, 1)
        infos += put_all(stores, 2)
        objects.heal()
        objects.land()
        assert sorted(map(stored, infos)) == sorted(record(s, n) for s in range(3) for n in (0, 2))
        for store in stores:
            store.close()
        fs, path = locate(log.folder)
        assert check(path, fs=fs).records == 6


def test_a_paused_process_whose_log_was_taken_over_is_refused_by_the_store(
    log: ProcessLog, tmp_path: Path
) -> None:
    store = store_in(log, tmp_path, 1)
    before = put(store, 0)
    fs, path = locate(log.folder)
    with another_host():
        lock = lock_folder(fs, path)
        fs.settle([segment_path(path, segment_of(before))])
    for _ in range(2):
        with pytest.raises(LogWriteError, match="taken over"):
            put(store, 1)
    assert stored(before) == record(1, 0)
    store.close()
    lock.release()


def test_who_begins_after_a_failed_write_gets_another_log(
    objects: FaultyObjects, tmp_path: Path
) -> None:
    logs = ProcessLogs()
    with contextlib.ExitStack() as uses, contextlib.ExitStack() as first:
        log = first.enter_context(logs.use(ROOT, INTERVAL_S))
        stays = store_in(log, tmp_path, 1)
        put(stays, 0)
        fs, path = locate(log.folder)
        with another_host():
            lock = lock_folder(fs, path)
        fs.settle([segment_path(path, 1)])
        with pytest.raises(LogWriteError, match="taken over"):
            put(stays, 1)
        # While the other one has not left yet.
        next_one = uses.enter_context(logs.use(ROOT, INTERVAL_S))
        assert next_one.folder != log.folder
        begins = store_in(next_one, tmp_path, 2)
        assert stored(put(begins, 0)) == record(2, 0)
        stays.close()
        first.close()
        with logs.use(ROOT, INTERVAL_S) as same:
            assert same is next_one
        begins.close()
    lock.release()


def test_a_log_is_given_again_once_a_write_has_succeeded(
    objects: FaultyObjects, tmp_path: Path
) -> None:
    logs = ProcessLogs()
    with logs.use(ROOT, INTERVAL_S) as log:
        store = store_in(log, tmp_path, 1)
        put(store, 0)
        objects.failures = [5]
        with pytest.raises(LogWriteError):
            put(store, 1)
        assert log.has_failed
        objects.heal()
        put(store, 2)
        with logs.use(ROOT, INTERVAL_S) as same:
            assert same is log
        store.close()


def test_a_name_is_used_from_the_first_attempt_to_the_last(
    objects: FaultyObjects, tmp_path: Path
) -> None:
    logs = ProcessLogs()
    with logs.use(ROOT, INTERVAL_S) as log:
        store = store_in(log, tmp_path, 1)
        with logs.use(ROOT, INTERVAL_S) as same:
            assert same is log
        # It is open for who is left, also when the attempt that opened it has ended.
        info = put(store, 0)
        store.close()
    with logs.use(ROOT, INTERVAL_S) as next_one:
        assert next_one.folder != log.folder
        assert stored(info) == record(1, 0)
    fs, path = locate(log.folder)
    assert [segment.closed for segment in LogReader.open(path, fs=fs).segments] == [True]


def test_a_copied_folder_is_read_where_it_lies() -> None:
    names = {"process-1", "1-a"}
    assert moved("s3://b/x/process-1/2-b", "s3://c", names) == "s3://c/process-1/2-b"
    assert moved("s3://b/x/1-a", "/d", names) == "/d/1-a"
    assert moved("s3://b/x/process-2/2-b", "/d", names) == "s3://b/x/process-2/2-b"


def encoded(infos: list[ReceivedBlockInfo], *, is_in_memory: bool = False) -> bytes:
    """Return blocks as a task gets them."""
    gone = [info if is_in_memory else msgspec.structs.replace(info, memory=None) for info in infos]
    return msgspec.msgpack.encode([(info, 0, 1) for info in gone])


def records_of(data: bytes) -> list[bytes]:
    blocks = _blocks(BlockAccess(), data)
    return [bytes(found).rstrip(b".") for block in blocks for found in block.records()]


def test_a_task_asks_for_its_small_blocks_together(
    log: ProcessLog, tmp_path: Path, objects: FaultyObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = [store_in(log, tmp_path, stream, options=LARGE) for stream in range(3)]
    create = objects.create

    def slow(key: str, data: bytes | memoryview) -> None:
        time.sleep(0.02)  # So that others come meanwhile.
        create(key, data)

    with contextlib.ExitStack() as stack:
        for store in stores:
            stack.callback(store.close)
        monkeypatch.setattr(objects, "create", slow)
        threads = stack.enter_context(ThreadPoolExecutor(3))
        infos = [
            info
            for number in range(20)
            for info in threads.map(partial(put, number=number, size=300), stores)
        ]
        assert infos[0].segment is not None
        fs, folder = locate(log_of(infos[0].segment.folder))
        assert isinstance(fs, ObjectFileSystem)
        written = len(fs.parts(segment_path(folder, infos[0].segment.segment)).begins) - 1
        assert written < 50
        infos.sort(key=lambda info: info.stream_id)
        expected = [record(info.stream_id, int(info.block_id.split("-")[2])) for info in infos]
        objects.calls.clear()
        assert records_of(encoded(infos, is_in_memory=True)) == expected
        assert not objects.calls
        assert records_of(encoded(infos)) == expected
        # A list of what there is, and one request for each object: each was one write.
        assert objects.calls["list"] == 1
        assert objects.calls["get"] == written
        one = [infos[0], infos[0]]
        assert records_of(encoded(one)) == expected[:1] * 2
        # What is in memory is not asked for.
        objects.calls.clear()
        some = [msgspec.structs.replace(infos[0], memory=None), *infos[1:]]
        assert records_of(msgspec.msgpack.encode([(info, 0, 1) for info in some])) == expected
        assert objects.calls["get"] == 1
        # Ranges and what is read at once are bounded.
        monkeypatch.setattr("penstock.blockstore.reading._readahead._RANGE_BYTES", 1)
        objects.calls.clear()
        assert records_of(encoded(infos)) == expected
        assert objects.calls["get"] == 60
        place = infos[0].segment
        monkeypatch.setattr(
            "penstock.blockstore.reading._readahead._WINDOW_BYTES", 3 * place.length
        )
        ahead = Readahead([msgspec.structs.replace(info, memory=None) for info in infos])
        objects.calls.clear()
        assert ahead.take(place) is not None
        assert objects.calls["get"] == 3


def test_what_lies_far_apart_is_not_read_with_what_is_between(
    log: ProcessLog, tmp_path: Path, objects: FaultyObjects
) -> None:
    store = store_in(log, tmp_path, 1, options=LARGE)
    try:
        near = [put(store, number) for number in range(2)]
        between = [put(store, number, 60_000) for number in range(2, 4)]
        far = put(store, 4)
        objects.calls.clear()
        assert records_of(encoded([near[0], near[1], far])) == [record(1, n) for n in (0, 1, 4)]
        assert objects.calls["get"] == 3
        assert len(between) == 2
    finally:
        store.close()


def test_blocks_of_two_segments_are_two_ranges_wherever_they_are_in_them(
    log: ProcessLog, tmp_path: Path, objects: FaultyObjects
) -> None:
    store = store_in(log, tmp_path, 1)
    try:
        infos = [put(store, 0), fill(store, 1)]
    finally:
        store.close()
    assert segment_of(infos[0]) < segment_of(infos[1])
    ahead = Readahead([msgspec.structs.replace(info, memory=None) for info in infos])
    for info in infos:
        assert info.segment is not None
        fs, folder = locate(log_of(info.segment.folder))
        path = segment_path(folder, info.segment.segment)
        expected = fs.read_range(path, info.segment.offset, info.segment.length)
        assert ahead.take(info.segment) == expected


def test_a_block_that_is_lost_takes_none_with_it_that_is_read_with_it(
    log: ProcessLog, tmp_path: Path, objects: FaultyObjects
) -> None:
    store = store_in(log, tmp_path, 1, options=LARGE)
    try:
        infos = [put(store, number) for number in range(5)]
    finally:
        store.close()
    lost = infos[2].segment
    assert lost is not None
    fs, folder = locate(log_of(lost.folder))
    assert isinstance(fs, ObjectFileSystem)
    objects.delete([fs.part_key(segment_path(folder, lost.segment), lost.offset)])
    with pytest.raises(BlockNotFoundError, match=infos[2].block_id):
        records_of(encoded(infos))
    found = records_of(encoded(infos[:2] + infos[3:]))
    assert found == [record(1, number) for number in (0, 1, 3, 4)]


def test_a_segment_that_is_gone_is_asked_for_by_itself(
    log: ProcessLog, tmp_path: Path, objects: FaultyObjects
) -> None:
    store = store_in(log, tmp_path, 1)
    try:
        gone = put(store, 0)
        first = fill(store, 1)
        second = put(store, 100)
    finally:
        store.close()
    assert gone.segment is not None
    fs, folder = locate(log_of(gone.segment.folder))
    assert isinstance(fs, ObjectFileSystem)
    objects.delete(fs.keys_of(segment_path(folder, gone.segment.segment)))
    objects.calls.clear()
    with pytest.raises(BlockNotFoundError, match=gone.block_id):
        records_of(encoded([first, second, gone]))
    assert objects.calls["get"] == 2
    assert objects.calls["list"] <= 4


@pytest.mark.parametrize("encryption", [None, KEY])
def test_a_log_on_a_disk_is_read_served_and_removed_whole(
    tmp_path: Path, encryption: EncryptionKey | None
) -> None:
    root = tmp_path / "receivedData"
    always = LogOptions(segment_size=1 << 16, alignment=64, sync=SyncPolicy.ALWAYS)
    files = ApplicationFiles("app-1", str(tmp_path), str(root))
    with ProcessLogs().use(str(root), 0.05) as log:
        stores = [store_in(log, tmp_path, stream, encryption, always) for stream in range(3)]
        infos = [put(store, n) for n in range(4) for store in stores]
        assert [stored(info, encryption) for info in infos] == [
            record(stream, n) for n in range(4) for stream in range(3)
        ]
        # All of them are in one folder, with one segment that was allocated in advance.
        assert [path.name for path in root.iterdir()] == [os.path.basename(log.folder)]
        assert len(list(Path(log.folder).glob("segment-*"))) == 1
        for info in infos:
            assert info.segment is not None
            os.close(files.open_segment(info.segment))
        place = infos[0].segment
        assert place is not None
        for folder in (
            f"{root}/process-1/0-{'a' * 32}",
            f"{root}/../receivedData/{os.path.basename(log.folder)}/0-{'a' * 32}",
            "/etc/process-" + "a" * 32,
        ):
            with pytest.raises(PermissionError):
                files.open_segment(msgspec.structs.replace(place, folder=folder))
        copies = BlockCopies(str(tmp_path / "copies"), "c" * 32, "here", encryption)
        copied = copies.copy(infos[5], "input-7-1")
        copies.close()
        assert stored(copied, encryption) == stored(infos[5], encryption)
        for store in stores:
            store.close()
    # One of an attempt, or of others, is not taken for it.
    files.remove_segments(((f"{root}/0-{'a' * 32}", -1), ("/etc/process-" + "a" * 32, -1)))
    assert Path(log.folder).is_dir()
    files.remove_segments(((log.folder, -1),))
    assert list(root.iterdir()) == []


def test_all_logs_of_processes_go_with_their_application(tmp_path: Path) -> None:
    root = tmp_path / "receivedData"
    with ProcessLogs().use(str(root), 0.05) as log:
        store = store_in(log, tmp_path, 1)
        put(store, 0)
        store.close()
    ApplicationFiles("app-1", str(tmp_path), str(root)).remove_all()
    assert not root.exists()
