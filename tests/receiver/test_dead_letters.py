"""What a receiver discards is kept, before anything behind it is acknowledged."""

from __future__ import annotations

import io
import itertools
import json
import os
import pickle
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from penstock.dead_letters import (
    BudgetMeter,
    DeadLetterBudgetError,
    DeadLetterPlace,
    DeadLetterWriter,
    StoredLetter,
    letter_key,
    letters,
)
from penstock.receiver import BlockLogs, ReceiverLaunch
from penstock.receiver.blocks.discards import Discards
from penstock.receiver.door import ReceiverStoppedError
from penstock.settings import Settings
from penstock.settings.values import record_budget
from penstock.wal import LogWriter, SyncPolicy
from penstock.wire.messages import (
    AddBlock,
    LettersSent,
    Message,
    ReportError,
    SendLetters,
    StopReceiver,
    UpdateRateLimit,
)
from tests.receiver.conftest import SETTINGS
from tests.receiver.dead_letter_process import EverySecondFits
from tests.receiver.running import WAIT_S, Receiver, Running, Shared, Tracker, make_launch
from tests.system.mounts import in_own_mounts

Run = Callable[..., Running]

BLOCKS = "blocks"
LETTERS = "deadLetters"


class Stores(Receiver):
    """Stores what it was given, then waits."""

    def __init__(self, shared: Shared, store: Callable[[Any], None], schema: Any = None) -> None:
        super().__init__()
        self.shared = shared
        self.to_store = store
        self.schema = schema

    def onStart(self) -> None:
        self.to_store(self)
        self.shared.say("stored")

    def onStop(self) -> None:
        pass


def end(running: Running, tracker: Tracker) -> None:
    tracker.send(StopReceiver())
    assert running.join() is None


def kept(folder: Path) -> list[StoredLetter]:
    return list(letters(str(folder)))


def test_what_is_discarded_is_kept_as_it_was_with_all_that_is_known_of_it(
    run: Run, tracker: Tracker, shared: Shared, tmp_path: Path
) -> None:
    big = b"\x00\xff" * (1 << 20)

    def store(receiver: Receiver) -> None:
        receiver.store(b"before")
        receiver.store(big, position={"offset": 7})
        receiver.store(big[:1].decode("latin-1") * (2 << 20))
        receiver.store({"big": "x" * (2 << 20)})
        receiver.store({1: "y" * (2 << 20)})
        receiver.store(b"after")

    run(Stores(shared, store))
    tracker.wait_for_records(2)
    shared.wait_for("stored")
    found = [stored.letter for stored in kept(tmp_path)]
    assert [letter.form for letter in found] == ["bytes", "text", "json", "pickle"]
    first = found[0]
    assert first.data == big
    assert first.size == len(big)
    assert not first.is_cut
    assert first.position_text == '{"offset":7}'
    assert first.stream == 3
    assert first.receiver == "Stores"
    assert first.error == "RecordTooLargeError"
    assert "spark.penstock.block.maxSize" in first.reason
    assert found[1].data.decode() == "\x00" * (2 << 20)
    assert json.loads(found[2].data) == {"big": "x" * (2 << 20)}
    assert pickle.loads(found[3].data) == {1: "y" * (2 << 20)}
    assert tracker.records() == [b"before", b"after"]


def test_what_is_discarded_alone_is_kept_without_waiting_for_another_record(
    run: Run, tracker: Tracker, shared: Shared, tmp_path: Path
) -> None:
    schema = pa.schema([("number", pa.int64())])
    run(Stores(shared, lambda receiver: receiver.store({"number": "one"}), schema))
    tracker.wait_for_count(AddBlock, 1)
    (stored,) = kept(tmp_path)
    assert stored.letter.form == "json"
    assert json.loads(stored.letter.data) == {"number": "one"}
    assert tracker.records() == []


@pytest.mark.parametrize("sync", ["always", "interval", "none"])
def test_dead_letters_are_forced_to_the_disk_as_the_blocks_are(
    run: Run,
    tracker: Tracker,
    shared: Shared,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    sync: str,
) -> None:
    chosen: dict[str, SyncPolicy] = {}
    create = LogWriter.create

    def created(folder: str, **arguments: Any) -> LogWriter:
        chosen[Path(folder).parent.name] = arguments["options"].sync
        return create(folder, **arguments)

    monkeypatch.setattr(LogWriter, "create", created)
    logs = BlockLogs(str(tmp_path / BLOCKS), sync)
    run(Stores(shared, lambda receiver: receiver.store(bytes(2 << 20))), logs=logs)
    tracker.wait_for_count(AddBlock, 1)
    assert chosen == {BLOCKS: SyncPolicy(sync), LETTERS: SyncPolicy(sync)}


def test_nothing_is_kept_and_no_log_made_by_a_receiver_that_discards_nothing_or_is_told_so(
    run: Run, tracker: Tracker, shared: Shared, tmp_path: Path
) -> None:
    first = run(Stores(shared, lambda receiver: receiver.store(b"fits")))
    tracker.wait_for_records(1)
    end(first, tracker)
    off = replace(SETTINGS, dead_letters_enabled=False)
    run(Stores(shared, lambda receiver: receiver.store([bytes(2 << 20), b"too"])), off)
    tracker.wait_for_records(2)
    assert not (tmp_path / LETTERS).exists()


def test_of_a_record_above_the_limit_the_beginning_and_the_size_are_kept(
    run: Run, tracker: Tracker, shared: Shared, tmp_path: Path
) -> None:
    few = replace(SETTINGS, dead_letters_max_record_bytes=1000)

    def store(receiver: Receiver) -> None:
        receiver.store(b"x" * (2 << 20))
        receiver.store(b"1\n" + b"y" * (2 << 20) + b"\n2\n", framing="newline")

    run(Stores(shared, store), few)
    tracker.wait_for_records(2)
    found = [stored.letter for stored in kept(tmp_path)]
    assert [letter.data for letter in found] == [b"x" * 1000, b"y" * 1000]
    assert found[0].size == 2 << 20
    assert all(letter.is_cut for letter in found)


class Unreadable(dict[str, Any]):
    """A row whose pickle raises what cannot even be shown."""

    def __reduce__(self) -> Any:
        return _raise, (b"what the source sent",)


def _raise(sent: bytes) -> None:
    raise MuteError(sent)


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_of_an_object_that_cannot_be_made_again_its_pickle_is_kept(
    run: Run, tracker: Tracker, shared: Shared, tmp_path: Path
) -> None:
    schema = pa.schema([("number", pa.int64())])

    def store(receiver: Receiver) -> None:
        receiver.store(Unreadable())
        receiver.store({"number": 1})

    run(Stores(shared, store, schema))
    tracker.wait_for_records(1)
    (stored,) = kept(tmp_path)
    assert stored.letter.form == "pickle"
    assert b"what the source sent" in stored.letter.data
    assert "RuntimeError in __str__" in stored.letter.reason
    assert stored.letter.shown == "an object that cannot be unpickled (MuteError)"


def test_what_only_the_program_defines_is_kept_with_its_definition(
    run: Run, tracker: Tracker, shared: Shared, tmp_path: Path
) -> None:
    def store(receiver: Receiver) -> None:
        kind = type("Reading", (), {"__module__": "__main__"})
        reading = kind()
        reading.text = "x" * (2 << 20)
        receiver.store(reading)

    run(Stores(shared, store))
    tracker.wait_for_count(AddBlock, 1)
    (stored,) = kept(tmp_path)
    assert stored.letter.form == "pickle"
    reading = "import sys, pickle; print(len(pickle.load(sys.stdin.buffer).text))"
    shown = subprocess.run(
        [sys.executable, "-c", reading], input=stored.letter.data, capture_output=True, check=True
    )
    assert int(shown.stdout) == 2 << 20


def test_an_arrow_row_that_python_has_no_value_for_is_kept_as_arrow(
    run: Run, tracker: Tracker, shared: Shared, tmp_path: Path
) -> None:
    schema = pa.schema([("number", pa.list_(pa.int64()))])
    far = pa.record_batch([pa.array([0, 10**18], pa.timestamp("us"))], ["number"])
    run(Stores(shared, lambda receiver: receiver.store(far.slice(1)), schema))
    tracker.wait_for_count(AddBlock, 1)
    (stored,) = kept(tmp_path)
    assert stored.letter.form == "pickle"
    assert pickle.loads(stored.letter.data).equals(far.slice(1))


def test_a_frame_that_is_too_large_is_kept_with_the_position_of_its_call(
    run: Run, tracker: Tracker, shared: Shared, tmp_path: Path
) -> None:
    lines = b"1\n" + b"y" * (2 << 20) + b"\n2\n"

    def store(receiver: Receiver) -> None:
        receiver.store(lines, position=[7], framing="newline")
        receiver.store(lines, framing="newline")

    run(Stores(shared, store))
    tracker.wait_for_records(4)
    found = [stored.letter for stored in kept(tmp_path)]
    assert [letter.position_text for letter in found] == ["[7]", None]
    # Only its first bytes were at hand, so it is no record to be sent.
    assert [(set(letter.data), letter.is_cut) for letter in found] == [({ord("y")}, True)] * 2
    assert "stored with [7]" in tracker.of(ReportError)[0].message


def test_a_record_is_not_kept_with_the_position_of_the_one_before_it(
    run: Run, tracker: Tracker, shared: Shared, tmp_path: Path
) -> None:
    def store(receiver: Receiver) -> None:
        receiver.store({"number": "one"}, position=7)
        receiver.store({"number": "two"})

    run(Stores(shared, store, pa.schema([("number", pa.int64())])))
    tracker.wait_for(lambda: len(tracker.of(ReportError)) == 2)
    tracker.wait_for_count(AddBlock, 1)
    tracker.wait_for(lambda: len(kept(tmp_path)) == 2)
    assert [stored.letter.position_text for stored in kept(tmp_path)] == ["7", None]


def frames(count: int, size: int) -> bytes:
    return (size.to_bytes(4, "big") + bytes(size)) * count


@pytest.mark.slow
def test_a_frame_that_is_too_large_is_kept_before_what_follows_it_is_acknowledged_I1(
    run: Run, tracker: Tracker, shared: Shared, tmp_path: Path
) -> None:
    source = io.BytesIO(frames(1, 1 << 20) + frames(3, 1))
    slow = replace(SETTINGS, receiver_max_rate=1)
    run(Stores(shared, lambda r: r.storeFrom(source.readinto, framing="length-prefix")), slow)
    tracker.wait_for_records(1)
    # The others wait for their permits.
    assert len(kept(tmp_path)) == 1


def _frames_of_a_source(receiver: Receiver) -> None:
    source = io.BytesIO(frames(100, 70 << 10))
    receiver.storeFrom(source.readinto, framing="length-prefix")


def _frames_of_calls(receiver: Receiver) -> None:
    for place in range(10):
        receiver.store(frames(10, 70 << 10), ack=int, position=place, framing="length-prefix")


def _rows(receiver: Receiver) -> None:
    for place in range(100):
        rows = [{"number": f"{place}" * 6000} for _ in range(10)]
        receiver.store(rows, position=place, ack=int)


def _single_rows(receiver: Receiver) -> None:
    for place in range(1000):
        receiver.store({"number": f"{place}" * 2000})


@pytest.mark.parametrize(
    ("store", "count"),
    [(_frames_of_a_source, 100), (_frames_of_calls, 100), (_rows, 1000), (_single_rows, 1000)],
)
def test_who_discards_waits_while_what_was_discarded_cannot_be_written_I7(
    run: Run,
    tracker: Tracker,
    shared: Shared,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    store: Callable[[Receiver], None],
    count: int,
) -> None:
    waits = threading.Event()
    wait_for_room = DeadLetterWriter.wait_for_room

    def wait(writer: DeadLetterWriter, give_up: Callable[[], bool]) -> None:
        waits.set()
        wait_for_room(writer, give_up)

    monkeypatch.setattr(DeadLetterWriter, "wait_for_room", wait)
    monkeypatch.setattr("penstock.dead_letters._writer._WAITING_BYTES", 1 << 20)
    in_the_way = tmp_path / "elsewhere"
    in_the_way.touch()
    settings = replace(
        SETTINGS,
        dead_letters_dir=str(in_the_way / "letters"),
        block_max_bytes=64 << 10,
        memory_bytes=1 << 20,
        block_interval_ms=60_000,
    )
    schema = pa.schema([("number", pa.int64())]) if "rows" in store.__name__ else None
    running = run(Stores(shared, store, schema), settings)
    assert waits.wait(WAIT_S)
    assert "stored" not in shared.events
    in_the_way.unlink()
    shared.wait_for("stored")
    end(running, tracker)
    assert len(kept(in_the_way / "letters")) == count


@pytest.mark.long
@pytest.mark.slow
def test_a_source_of_which_nothing_fits_is_told_of_the_end(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    left = itertools.cycle([b"x" * (64 << 10)] * 40 + [b"\n"])

    def readinto(target: memoryview) -> int:
        part = next(left)[: len(target)]
        target[: len(part)] = part
        if part == b"\n":
            shared.say("read")
        return len(part)

    def store(receiver: Receiver) -> None:
        try:
            receiver.storeFrom(readinto, framing="newline")
        except ReceiverStoppedError:
            shared.say("told")

    running = run(Stores(shared, store))
    shared.wait_for("read", 3)
    end(running, tracker)
    shared.wait_for("told")


@pytest.mark.long
@pytest.mark.slow
def test_a_stop_does_not_wait_for_a_disk_of_dead_letters_that_hangs_I12(
    run: Run, tracker: Tracker, shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, goes_on = threading.Event(), threading.Event()
    append_many = LogWriter.append_many

    def append(log: LogWriter, records: Any) -> Any:
        if LETTERS in log.folder:
            hangs.set()
            goes_on.wait(2 * WAIT_S)
        return append_many(log, records)

    monkeypatch.setattr(LogWriter, "append_many", append)
    running = run(Stores(shared, lambda receiver: receiver.store(bytes(2 << 20))))
    try:
        assert hangs.wait(WAIT_S)
        tracker.send(StopReceiver(timeout_s=1.0))
        running.join()
        told = [error.message for error in tracker.of(ReportError)]
        assert any("log of dead letters of receiver 3 did not close within" in m for m in told)
    finally:
        goes_on.set()


@pytest.mark.slow
def test_many_bad_records_are_all_kept_in_order_and_bounded(
    run: Run, tracker: Tracker, shared: Shared, tmp_path: Path
) -> None:
    schema = pa.schema([("number", pa.int64())])
    rows = [{"number": f"bad {n}" * 100} for n in range(5000)]

    def store(receiver: Receiver) -> None:
        for row in rows:
            receiver.store(row)
        receiver.store({"number": 1}, position=1)

    first = run(Stores(shared, store, schema))
    tracker.wait_for_records(1)
    end(first, tracker)
    assert [json.loads(stored.letter.data) for stored in kept(tmp_path)] == rows
    assert len({stored.id for stored in kept(tmp_path)}) == len(rows)
    # They are written with a block each time that many wait, not one by one.
    assert len(tracker.blocks) < len(rows) // 2
    few = replace(SETTINGS, dead_letters_max_bytes=1 << 20)
    run(Stores(shared, store, schema), few)
    tracker.wait_for_records(2)
    tracker.wait_for(lambda: any("were removed" in e.message for e in tracker.of(ReportError)))
    assert sum(path.stat().st_size for path in (tmp_path / LETTERS).rglob("*.log")) < 2 << 20
    assert json.loads(kept(tmp_path)[-1].letter.data) == rows[-1]


def test_a_receiver_that_discards_more_than_its_budget_ends_for_good_and_says_why(
    run: Run, tracker: Tracker, tmp_path: Path
) -> None:
    few = replace(SETTINGS, dead_letters_budget="3/h")
    running = run(EverySecondFits(1000), few)
    assert running.join() is None
    (error,) = [error for error in tracker.of(ReportError) if error.permanent]
    assert "discarded 4 of 7 records" in error.message
    assert "spark.penstock.deadLetters.budget=3/h" in error.message
    # Nothing that was taken is lost, and what was discarded is there.
    last = tracker.last_position()
    assert tracker.records() == [{"number": place} for place in range(1, last, 2)]
    assert len(kept(tmp_path)) == (last + 1) // 2


@pytest.mark.slow
def test_a_receiver_over_its_budget_is_paused_until_it_is_resumed_where_that_is_chosen(
    run: Run, tracker: Tracker
) -> None:
    few = replace(SETTINGS, dead_letters_budget="3/h", dead_letters_budget_action="pause")
    running = run(EverySecondFits(1_000_000), few)

    def reports() -> list[ReportError]:
        return [e for e in tracker.of(ReportError) if "deadLetters.budget=3/h" in e.message]

    def is_held() -> bool:
        return bool(tracker.rate_reports) and tracker.rate_reports[-1].is_held

    def rate(version: int, *, is_paused: bool = False) -> None:
        taken_over = version if is_paused else 0
        tracker.send(UpdateRateLimit(3, 1000.0, None, version, is_paused, taken_over))
        tracker.wait_for(lambda: tracker.rate_reports[-1].rate_version == version)

    for count in (1, 2):
        tracker.wait_for(lambda count=count: is_held() and len(reports()) == count)
        assert "paused, and goes on by `penstock resume 3`" in reports()[-1].message
        # Another rate lets nothing pass; once the driver has paused it, the driver resumes it.
        rate(count * 10 + 1)
        assert is_held()
        rate(count * 10 + 2, is_paused=True)
        assert not is_held()
        before = tracker.rate_reports[-1].records
        assert before < 1_000_000
        rate(count * 10 + 3)
        tracker.wait_for(lambda before=before: tracker.rate_reports[-1].records > before)
    assert not [error for error in reports() if error.permanent]
    end(running, tracker)


def test_a_percentage_is_taken_of_all_records_of_its_time_and_of_a_thousand_at_least() -> None:
    now_s = taken = 0
    meter = BudgetMeter(0, record_budget("1%/5m"), lambda: now_s, lambda: taken)
    assert [meter.add() for _ in range(10)] == [None] * 10
    assert isinstance(meter.add(), DeadLetterBudgetError)
    meter = BudgetMeter(0, record_budget("1%/5m"), lambda: now_s, lambda: taken)
    for _ in range(100):
        now_s += 1
        taken += 50
        meter.look()
    # Also of those that came before anybody looked.
    assert [meter.add() for _ in range(50)] == [None] * 50
    error = meter.add()
    assert isinstance(error, DeadLetterBudgetError)
    assert (error.discarded, error.records) == (51, taken + 51)
    # What is older than the time counts no more.
    now_s += 301
    assert meter.add() is None


def test_that_a_budget_is_used_up_is_told_once() -> None:
    told: list[BaseException] = []
    meter = BudgetMeter(0, record_budget("2/h"), lambda: 0, lambda: 0)
    discards = Discards(lambda message, error: told.append(error), lambda: 0, None, meter)
    for _ in range(20):
        discards.add(ValueError("no number"), lambda: b"bad")
    discards.tell_rest(at_once=True)
    assert [type(error) for error in told].count(DeadLetterBudgetError) == 1
    assert discards.count == 20


def test_a_stream_that_is_resumed_has_its_whole_budget_again() -> None:
    meter = BudgetMeter(0, record_budget("2/h"), lambda: 0, lambda: 0, pauses=True)
    for _ in range(3):
        assert [meter.add() for _ in range(2)] == [None, None]
        # Whoever goes on without having been paused for it has no new one.
        meter.begin()
        begun = meter.add()
        assert isinstance(begun, DeadLetterBudgetError)
        assert begun.discarded == 3
        assert meter.add() is None
        meter.begin()


def test_records_that_were_taken_before_the_first_was_discarded_count_for_a_percentage() -> None:
    told: list[BaseException] = []
    now_s = taken = 0
    meter = BudgetMeter(0, record_budget("1%/5m"), lambda: now_s, lambda: taken)
    discards = Discards(lambda message, error: told.append(error), lambda: now_s, None, meter)
    for _ in range(100):
        discards.tell_rest()
        now_s += 1
        taken += 50
    for _ in range(50):
        discards.add(ValueError("no number"), lambda: b"bad")
    assert not any(isinstance(error, DeadLetterBudgetError) for error in told)


class HeldTracker(Tracker):
    """Takes blocks, and does not say so while it is held."""

    def __init__(self) -> None:
        super().__init__()
        self.is_held = True

    def _answer(self, message: Message) -> Message | None:
        if self.is_held and isinstance(message, AddBlock):
            return None
        return super()._answer(message)


@contextmanager
def process(
    launch: ReceiverLaunch, python: Sequence[str] = (sys.executable,)
) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*python, "-m", "tests.receiver.dead_letter_process"],
        stdin=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdin is not None
        running.stdin.write(cloudpickle.dumps(launch).hex())
        running.stdin.close()
        try:
            yield running
        finally:
            running.kill()


def a_launch(tracker: Tracker, folder: Path, settings: Settings, count: int) -> ReceiverLaunch:
    memory = folder / "memory"
    memory.mkdir(exist_ok=True)
    placed = replace(settings, memory_dir=str(memory), block_interval_ms=20)
    launch = make_launch(EverySecondFits(count), tracker, folder, placed)
    return replace(launch, logs=replace(launch.logs, sync="always"))


def test_letters_are_stored_again_once_and_nothing_else_is(
    run: Run, tracker: Tracker, shared: Shared, tmp_path: Path
) -> None:
    mended = tmp_path / "mended"
    records: list[Any] = ["bad 1", {"bad": 2}, b"good", {"bad"}, "bad 5", "bad 6"]

    def store(receiver: Receiver) -> None:
        receiver.store(records, position=1)

    receiver = Stores(shared, store)
    receiver.validate = lambda record: mended.exists() or record == b"good"
    running = run(receiver)
    tracker.wait_for_records(1)
    found = kept(tmp_path)
    names = [(stored.log, stored.number) for stored in found]
    assert [stored.letter.form for stored in found] == ["text", "json", "pickle", "text", "text"]

    def send(*wanted: tuple[str, int], even_sent: bool = False, of: str = "") -> LettersSent:
        before = len(tracker.of(LettersSent))
        tracker.send(SendLetters(before + 7, of or tracker.attempts[-1], wanted, even_sent))
        tracker.wait_for_count(LettersSent, before + 1)
        answer = tracker.of(LettersSent)[-1]
        assert answer.request == before + 7
        return answer

    mended.touch()
    answer = send(names[0], of="b" * 32)
    assert (answer.stored, answer.error) == (0, "the receiver was replaced meanwhile; ask again")
    answer = send(*names[:3], names[0])
    assert (answer.stored, answer.left, answer.error) == (3, (), "")
    assert tracker.records() == [b"good", "bad 1", {"bad": 2}, {"bad"}]
    assert tracker.last_position() == 1
    strange = ("3-" + "0" * 32, 1)
    answer = send(names[2], names[3], (names[0][0], 99), strange)
    assert answer.stored == 1
    left = dict(answer.left)
    assert left.keys() == {names[2], (names[0][0], 99), strange}
    assert left[names[2]].startswith("it was sent already; --again")
    assert left[strange].startswith(f"it is not in {tmp_path}/deadLetters on ")
    assert send(names[0], even_sent=True).stored == 1
    # What still does not fit stays the letter that it is.
    mended.unlink()
    answer = send(names[4])
    assert (answer.stored, [name for name, _ in answer.left]) == (0, [names[4]])
    assert "it still does not fit: InvalidRecordError: validate=" in answer.left[0][1]
    assert tracker.records() == [b"good", "bad 1", {"bad": 2}, {"bad"}, "bad 5", "bad 1"]
    assert len(kept(tmp_path)) == 5
    keys = [letter_key(name, None) for name in names]
    assert sent(tracker) == [*keys[:4], keys[0]]
    mended.touch()
    assert send(names[4]).stored == 1
    assert sent(tracker) == [*keys[:4], keys[0], keys[4]]
    end(running, tracker)


def sent(tracker: Tracker) -> list[bytes]:
    """Return the keys of the letters that were sent, as they were reported with their records.

    Each is with its record: a block has as many of them as it has of these.
    """
    blocks = [block for message in tracker.of(AddBlock) for block in message.blocks]
    return [key for block in blocks for key in block.letters]


def test_what_a_killed_receiver_had_sent_is_known_by_the_block_or_not_stored(
    run: Run, tracker: Tracker, tmp_path: Path
) -> None:
    held = HeldTracker()
    held.is_held = False
    try:
        with process(a_launch(held, tmp_path, SETTINGS, 4)) as running:
            held.wait_for(lambda: held.last_position() == 4)
            second, _ = [(stored.log, stored.number) for stored in kept(tmp_path)]
            stream = kept(tmp_path)[0].letter.stream
            place = DeadLetterPlace(f"{tmp_path}/deadLetters", stream, "f" * 32, "", "")
            writer = DeadLetterWriter(place, lambda message, error: None)
            writer.add({"number": 7}, ValueError(), "it fits by now")
            writer.write()
            writer.close()
            first, added = (place.name, 1), len(held.of(AddBlock))
            held.is_held = True
            held.send(SendLetters(1, held.attempts[-1], (first, second)))
            held.wait_for_count(AddBlock, added + 1)
            running.send_signal(signal.SIGKILL)
            running.wait(WAIT_S)
    finally:
        held.server.stop()
    # The one that fits came with its record; the other one was discarded again.
    (block,) = held.of(AddBlock)[added].blocks
    assert (block.num_records, block.letters) == (1, (letter_key(first, None),))
    # No ledger took it.
    again = run(EverySecondFits(0))
    tracker.wait_for(lambda: tracker.rate_reports)
    tracker.send(SendLetters(2, tracker.attempts[-1], (first, second)))
    tracker.wait_for_count(LettersSent, 1)
    (answer,) = tracker.of(LettersSent)
    assert (answer.stored, [name for name, _ in answer.left]) == (1, [second])
    end(again, tracker)


def test_a_receiver_killed_between_a_discard_and_its_acknowledgement_loses_no_dead_letter_I1(
    tmp_path: Path,
) -> None:
    tracker = HeldTracker()
    try:
        with process(a_launch(tracker, tmp_path, SETTINGS, 20)) as running:
            # What was reported is not acknowledged; what was discarded before it is in the log.
            tracker.wait_for_count(AddBlock, 1)
            running.send_signal(signal.SIGKILL)
            running.wait(WAIT_S)
        before = [stored.letter.position_text for stored in kept(tmp_path)]
        assert before
        assert before == [str(place) for place in range(1, 2 * len(before), 2)]
        assert tracker.position is None
        tracker.is_held = False
        with process(a_launch(tracker, tmp_path, SETTINGS, 20)):
            tracker.wait_for(lambda: tracker.last_position() == 20)
        after = [stored.letter.position_text for stored in kept(tmp_path)]
        assert {int(str(place)) for place in after} == set(range(1, 20, 2))
        assert len(after) == len(before) + 10
        assert tracker.records() == [{"number": place} for place in range(1, 20, 2)]
    finally:
        tracker.server.stop()


def test_while_the_disk_of_dead_letters_is_full_nothing_is_acknowledged_and_then_all_is(
    tracker: Tracker, tmp_path: Path
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = shlex.join(["mount", "-t", "tmpfs", "-o", "size=256k", "penstock", str(small)])
    fill = f"head -c 300k /dev/zero > {shlex.quote(str(small / 'full'))} 2>/dev/null || true"
    settings = replace(
        SETTINGS, dead_letters_dir=str(small / "letters"), dead_letters_max_bytes=1 << 20
    )
    launch = a_launch(tracker, tmp_path, settings, 20)
    with process(launch, in_own_mounts(f"{mount}; {fill}; true")) as running:
        tracker.wait_for_count(ReportError, 2)
        told = [error.message for error in tracker.of(ReportError)]
        waits = "Dead letters cannot be written; nothing is acknowledged until they are"
        tracker.wait_for(lambda: any(waits in e.message for e in tracker.of(ReportError)))
        assert "was discarded" in told[0]
        assert tracker.last_position() is None
        inside = Path(f"/proc/{running.pid}/root{small}")
        os.unlink(inside / "full")
        tracker.wait_for(lambda: tracker.last_position() == 20)
        found = [stored.letter.position_text for stored in kept(inside / "letters")]
        assert found == [str(place) for place in range(1, 20, 2)]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(720)
def test_a_program_reads_the_dead_letters_of_its_streams_as_a_data_frame(
    sc: Any, tmp_path: Path
) -> None:
    from pyspark.sql import SparkSession

    from penstock.dead_letters import read
    from tests.system.running import run_on

    with run_on(sc, checkpoint=str(tmp_path)) as running:
        running.process(EverySecondFits(20), dict)
        running.start()
        running.await_processed(10)
        spark = SparkSession(sc)
        frame = read(spark, str(tmp_path))
        rows = frame.orderBy("id").collect()
        assert sorted(int(row.position) for row in rows) == list(range(1, 20, 2))
        assert {row.receiver for row in rows} == {"EverySecondFits"}
        assert {bytes(row.data) for row in rows} >= {b'{"number": "bad 2"}'}
        assert frame.where("stream = 0 and reason like 'column number (int64)%'").count() == 10
        running.stop()
