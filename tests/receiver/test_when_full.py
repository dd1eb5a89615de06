"""What becomes of records that come faster than they pass: nothing is lost that is not counted."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from penstock.errors import SettingError
from penstock.receiver import (
    DroppingRefusedError,
    Receiver,
    WhenFull,
    WithLetters,
    as_receiver,
    policy_of,
    receiver,
)
from penstock.receiver.bulk import RecordsPiece
from penstock.receiver.door import ReceiverStoppedError, acknowledge_nothing
from penstock.receiver.intake import Intake
from penstock.settings import Settings
from penstock.sources.kafka import KafkaReceiver
from penstock.sources.sqs import SqsReceiver
from penstock.testing import ReceiverTestError, run_receiver
from penstock.testing.driver import read_back
from penstock.wire.messages import AddBlock, Message, ReportDropped, StopReceiver
from tests.bounds import HANG_S
from tests.receiver.running import Running, Tracker

WHEN_FULL = "spark.penstock.receiver.whenFull"
SMALL = {
    f"{WHEN_FULL}.memory": "16k",
    "spark.penstock.block.maxSize": "8k",
    "spark.streaming.blockQueueSize": "1",
}
"""Some hundred records find room while the driver does not answer."""
NOTHING_PASSES = {**SMALL, "spark.penstock.receiver.rate": "1 per hour"}
POLICIES = ["dropNew", "dropOld"]


class Given:
    """What a receiver in this process is given by a test, and what it answers."""

    calls: ClassVar[list[Callable[[Receiver], Any]]] = []
    are_done: ClassVar[threading.Event] = threading.Event()
    errors: ClassVar[list[BaseException]] = []


class Calls(Receiver):
    """Makes the calls of a test, once for each start, in a thread."""

    def __init__(self, when_full: str | None = None, **attributes: Any) -> None:
        super().__init__()
        self.whenFull = when_full
        self._thread: threading.Thread | None = None
        for name, value in attributes.items():
            setattr(self, name, value)

    def onStart(self) -> None:
        self._thread = threading.Thread(target=self._make)
        self._thread.start()

    def _make(self) -> None:
        for call in Given.calls:
            try:
                call(self)
            except Exception as error:  # noqa: BLE001 - what a test asks for
                Given.errors.append(error)
        Given.are_done.set()

    def onStop(self) -> None:
        assert self._thread is not None
        self._thread.join(HANG_S)


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    give()


def give(*calls: Callable[[Receiver], Any]) -> None:
    Given.calls, Given.errors, Given.are_done = list(calls), [], threading.Event()


def done() -> list[BaseException]:
    assert Given.are_done.wait(HANG_S)
    return Given.errors


def storing(count: int, first: int = 0) -> Callable[[Receiver], None]:
    def store(source: Receiver) -> None:
        for number in range(first, first + count):
            source.store(str(number))

    return store


COUNT = 50_000


def held(policy: str) -> tuple[list[int], int]:
    """Store numbers while the driver does not answer; return what is durable, and the count."""
    is_held = threading.Event()
    give(lambda source: is_held.wait(HANG_S), storing(COUNT))
    with run_receiver(Calls(policy), settings=SMALL) as running:
        running.hold()
        is_held.set()
        assert done() == []
        running.go_on()
        running.stop()
        return [int(record) for record in running.records], running.dropped


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_stored_and_what_was_dropped_are_all_that_came_in_order(policy: str) -> None:
    found, dropped = held(policy)
    assert found == sorted(found)
    assert dropped > COUNT / 2
    assert len(found) + dropped == COUNT
    # What waits longest is not what came last.
    assert (COUNT - 1 in found) is (policy == "dropOld")
    assert (0 in found) or policy == "dropOld"


@pytest.mark.parametrize("policy", POLICIES)
def test_store_never_waits_and_a_stop_drops_what_no_rate_lets_pass(policy: str) -> None:
    give(storing(5_000))
    with run_receiver(Calls(policy), settings=NOTHING_PASSES) as running:
        assert done() == []
        running.wait_for_error("records were dropped")
        running.stop()
        # One record passes at once, whatever the rate.
        assert len(running.records) == 1
        assert running.dropped == 4_999
        assert any(f"{WHEN_FULL} is {policy}" in error for error in running.errors)


def test_a_stop_waits_for_what_the_rate_lets_pass() -> None:
    give(storing(300))
    settings = {"spark.penstock.receiver.rate": "200/second"}
    with run_receiver(Calls("dropNew"), settings=settings) as running:
        done()
        running.stop()
        assert running.records == [str(number) for number in range(300)]
        assert running.dropped == 0


def test_a_short_stop_counts_what_it_leaves() -> None:
    give(storing(500))
    settings = {
        "spark.penstock.receiver.rate": "20/second",
        "spark.streaming.gracefulStopTimeout": "2s",
    }
    with run_receiver(Calls("dropNew"), settings=settings) as running:
        done()
        running.stop()
        assert len(running.records) + running.dropped == 500
        assert 0 < len(running.records) < 200


def test_what_is_dropped_is_told_to_the_driver_before_a_later_block(
    tracker: Tracker, run: Callable[..., Running]
) -> None:
    answered = threading.Event()

    def answer(message: Message) -> None:
        if isinstance(message, AddBlock):
            assert answered.wait(HANG_S)

    tracker.answer = answer
    give(storing(20_000))
    settings = Settings.from_pairs(
        [(WHEN_FULL, "dropOld"), (f"{WHEN_FULL}.memory", "16k"), *FEW_BLOCKS]
    )
    started = run(Calls(), settings)
    done()
    answered.set()
    tracker.send(StopReceiver())
    assert started.join() is None
    told, stored, last = 0, 0, -1
    for message in tracker.messages:
        if isinstance(message, ReportDropped):
            assert message.records > told
            told = message.records
        if isinstance(message, AddBlock):
            for found in read_back(message.blocks):
                stored, last = stored + 1, int(found)
            # Whatever is missing before a record that is known to be stored is counted by then.
            assert stored + told >= last + 1
    assert stored + told == 20_000


FEW_BLOCKS = [
    ("spark.penstock.block.maxSize", "8k"),
    ("spark.penstock.memory.size", "4m"),
    ("spark.streaming.blockQueueSize", "1"),
    ("spark.streaming.blockInterval", "10ms"),
]
WAITS_WHY = "returns when they are durable"


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda source: source.store("a", position=1), "a position"),
        (lambda source: source.store("a", ack=lambda: None), "an acknowledgement"),
        (lambda source: source.store(["a"]), WAITS_WHY),
        (lambda source: source.store(iter(["a"])), WAITS_WHY),
        (lambda source: source.store(b"a\n", framing="newline"), WAITS_WHY),
        (lambda source: source.store(["a"], 1, acknowledge_nothing), "a position"),
        (lambda source: source.discard("a", "bad", position=1), "a position"),
        (lambda source: source.discard("a", "bad", ack=lambda: None), "an acknowledgement"),
    ],
)
def test_what_somebody_relies_on_is_refused(
    policy: str, call: Callable[[Receiver], None], why: str
) -> None:
    give(call, storing(1))
    with run_receiver(Calls(policy)) as running:
        (error,) = done()
        assert isinstance(error, DroppingRefusedError)
        assert why in str(error)
        assert f"{WHEN_FULL}={policy!r} is not accepted: only block for this receiver" in str(error)
        assert running.wait_for_records(1) == ["0"]
        running.stop()


@pytest.mark.parametrize("settings", [{}, {WHEN_FULL: "dropold"}])
def test_the_refusal_ends_the_receiver_for_good(settings: dict[str, str]) -> None:
    @receiver(whenFull=None if settings else "dropNew")
    async def source(ctx: Any) -> None:
        await ctx.store("a")

    with (
        pytest.raises(ReceiverTestError, match=r"await ctx\.store"),
        run_receiver(source, settings=settings) as running,
    ):
        running.wait_for_event("never")


@pytest.mark.parametrize(
    "source",
    [
        KafkaReceiver(["topic"], {"bootstrap.servers": "localhost:9092", "group.id": "g"}),
        SqsReceiver("https://sqs.eu-west-1.amazonaws.com/1/q", region="eu-west-1"),
        as_receiver(receiver(positions=True)(lambda: iter([("a", 1)]))),
    ],
    ids=lambda source: source._receiver_type(),
)
def test_a_source_that_relies_on_what_it_stores_is_refused_at_once(source: Receiver) -> None:
    for policy in POLICIES:
        with pytest.raises(DroppingRefusedError, match="gives positions or acknowledgements"):
            policy_of(source, Settings.from_pairs([(WHEN_FULL, policy)]))
    assert policy_of(source, Settings()) is WhenFull.BLOCK
    source.whenFull = "block"
    assert policy_of(source, Settings.from_pairs([(WHEN_FULL, "dropNew")])) is WhenFull.BLOCK


def test_an_unknown_policy_is_refused_where_it_is_named() -> None:
    with pytest.raises(ValueError, match=r"whenFull='drop'.*block, dropNew, dropOld"):
        receiver(whenFull="drop")
    with pytest.raises(ValueError, match="whenFull='drop'"):
        as_receiver(Calls("drop"))
    with pytest.raises(SettingError, match="block, dropNew, dropOld"):
        Settings.from_pairs([(WHEN_FULL, "drop")])


def test_every_way_in_keeps_its_records_and_their_order() -> None:
    rows = pa.table({"text": ["e", "f"]})
    batch = rows.to_batches()[0]
    lines = io.BytesIO(b"g\nh\n" * 50)
    give(
        lambda source: source.store("a"),
        lambda source: source.store({"n": 1}),
        lambda source: source.store("b" * 10_000),
        lambda source: source.store(["c", "d"], ack=acknowledge_nothing),
        lambda source: source.store(batch, ack=acknowledge_nothing),
        lambda source: source.store(rows, ack=acknowledge_nothing),
        lambda source: source.storeFrom(lines.readinto, "lines"),
        lambda source: source.store(bytearray(b"i\nj\n"), None, acknowledge_nothing, "newline"),
        lambda source: source.store(
            WithLetters(["k"], [("bad", "no good")]), ack=acknowledge_nothing
        ),
        lambda source: source.discard("worse", "no good either"),
        lambda source: source.store([], ack=acknowledge_nothing),
    )
    with run_receiver(Calls("dropNew")) as running:
        assert done() == []
        running.stop()
        found = [
            record["text"] if isinstance(record, dict) and "text" in record else record
            for record in running.records
        ]
        assert found == [
            *("a", {"n": 1}, "b" * 10_000, "c", "d", "e", "f", "e", "f"),
            *["g", "h"] * 50,
            *(b"i", b"j", "k"),
        ]
        assert running.discarded == [
            (b"bad", "no good"),
            (b"worse", "no good either"),
        ]
        assert running.dropped == 0


def test_what_its_author_changes_afterwards_is_kept_as_it_was() -> None:
    def change(source: Receiver) -> None:
        row = {"n": 1, "text": "a"}
        source.store(row)
        row["n"] = 2
        rows = [{"n": 3, "text": "b"}]
        source.store(rows, ack=acknowledge_nothing)
        rows[0]["n"] = 4
        buffer = bytearray(b"x")
        source.discard(buffer, "bad")
        buffer[0] = 65
        source.store({"n": "no number", "text": threading.Lock()})

    give(change)
    schema = pa.schema([("n", pa.int64()), ("text", pa.string())])
    with run_receiver(Calls("dropOld", schema=schema)) as running:
        assert done() == []
        running.stop()
        assert [record["n"] for record in running.records] == [1, 3]
        assert len(running.discarded) == 2
        assert running.discarded[0][0] == b"x"


def not_b(record: Any) -> bool:
    return bool(record != "b")


def test_records_that_are_not_valid_are_letters_and_are_no_way_around() -> None:
    give(
        lambda source: source.store("a"),
        lambda source: source.store("b"),
        lambda source: source.store(["b", "c"], ack=acknowledge_nothing),
        lambda source: source.store(b"d\n", None, acknowledge_nothing, "newline"),
    )
    with run_receiver(Calls("dropOld", validate=not_b)) as running:
        (error,) = done()
        assert isinstance(error, TypeError)
        running.stop()
        assert running.records == ["a", "c"]
        assert [data for data, _ in running.discarded] == [b"b"] * 2
    give(*[lambda source: source.store("b")] * 1_000)
    with run_receiver(Calls("dropOld", validate=not_b), settings=NOTHING_PASSES) as running:
        done()
        running.stop()
        assert len(running.discarded) == 1
        assert running.dropped == 999


def test_a_restart_goes_on_with_what_waits_and_another_attempt_adds_to_the_count() -> None:
    give(storing(1_000))
    with run_receiver(Calls("dropNew"), settings=NOTHING_PASSES) as running:
        done()
        give(storing(500))
        running.restart()
        done()
        running.stop()
        assert running.dropped == 1_499
        give(storing(10))
        running.start()
        done()
        running.stop()
        assert running.dropped == 1_508


def test_a_thread_that_is_late_stores_nothing() -> None:
    late: list[Receiver] = []
    give(late.append)
    with run_receiver(Calls("dropNew"), settings=NOTHING_PASSES) as running:
        done()
        running.stop()
        for call in (
            lambda: late[0].store("a"),
            lambda: late[0].discard("a", "bad"),
            lambda: late[0].storeFrom(io.BytesIO(b"a\n").readinto, "lines"),
        ):
            with pytest.raises(ReceiverStoppedError):
                call()
        assert running.dropped == 0


class Notes:
    """An intake, and what it told."""

    def __init__(self, policy: WhenFull, limit: int) -> None:
        self.now_s = 0.0
        self.told: list[int] = []
        self.reported: list[int] = []
        self.intake = Intake(
            policy,
            limit,
            lambda message, error: self.told.append(error.records),  # type: ignore[attr-defined]
            self.reported.append,
            lambda: self.now_s,
        )

    def put(self, *records: str, size: int = 80) -> None:
        for record in records:
            assert self.intake.put(size, record)

    def take(self, most: int) -> list[Any]:
        found = self.intake.take(most)
        if found is None:
            return []
        piece, start, end = found
        assert isinstance(piece, RecordsPiece)
        return piece.records[start:end]


def test_an_intake_drops_by_bytes_and_takes_in_order() -> None:
    """An entry takes 200 bytes here, so five of them fit."""
    new, old = Notes(WhenFull.DROP_NEW, 1_000), Notes(WhenFull.DROP_OLD, 1_000)
    for notes in (new, old):
        notes.put(*"abcdefg")
        assert notes.intake.dropped == 2
        assert notes.intake.records == 5
    assert (new.take(3), old.take(3)) == (list("abc"), list("cde"))
    assert (new.take(9), old.take(9)) == (list("de"), list("fg"))
    assert (new.take(9), old.take(9)) == ([], [])
    for notes in (new, old):
        # What is larger than all of it waits alone.
        notes.put("h", size=5_000)
        notes.put("i")
    assert (new.take(9), old.take(9)) == (["h"], ["i"])
    assert (new.intake.dropped, old.intake.dropped) == (3, 3)


def test_of_a_piece_that_was_begun_only_the_rest_is_dropped() -> None:
    old = Notes(WhenFull.DROP_OLD, 1_000)
    assert old.intake.put(500, piece=RecordsPiece(list("abcd")))
    old.put("x", size=100)
    assert old.intake.wait(1) == 4
    assert old.take(1) == ["a"]
    assert old.intake.wait(1) == 3
    assert old.intake.records == 4
    old.put("y", "z")
    assert old.intake.dropped == 3
    assert old.take(9) == list("xyz")
    assert old.intake.records == 0


def test_drops_are_told_at_once_and_then_every_ten_seconds_and_reported_when_they_change() -> None:
    notes = Notes(WhenFull.DROP_NEW, 1_000)
    assert not notes.intake.is_busy
    notes.put(*"abcdef")
    assert notes.intake.is_busy
    notes.intake.tell()
    notes.put("g", "h")
    notes.intake.tell()
    notes.now_s = 9.9
    notes.intake.tell()
    assert notes.told == [1]
    notes.now_s = 10.0
    notes.intake.tell()
    notes.intake.tell(at_once=True)
    notes.put("i")
    notes.intake.tell(at_once=True)
    assert (notes.told, notes.reported) == ([1, 2, 1], [1, 3, 4])


def test_a_closed_intake_takes_nothing_and_its_rest_is_counted_once() -> None:
    notes = Notes(WhenFull.DROP_OLD, 1_000)
    notes.put(*"abc")
    asked: list[int] = []
    notes.intake.close(lambda: len(asked) < 3 and not asked.append(0))  # type: ignore[func-returns-value]
    assert not notes.intake.put(10, "d")
    notes.intake.drop_rest()
    notes.intake.drop_rest()
    assert notes.intake.dropped == 3
    assert notes.intake.wait(1) == 0
