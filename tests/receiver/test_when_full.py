"""What becomes of records that come faster than they pass: nothing is lost that is not counted."""

from __future__ import annotations

import contextlib
import io
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from penstock.errors import SettingError
from penstock.receiver import (
    Receiver,
    ReceiverContext,
    ReceiverFailedError,
    WhenFull,
    WithLetters,
    as_receiver,
    policy_of,
    receiver,
)
from penstock.receiver.blocks.assembler import RecordPickleError
from penstock.receiver.blocks.intake import Call, Intake, IntakeStoring
from penstock.receiver.blocks.spill import Spill
from penstock.receiver.door import ReceiverStoppedError, acknowledge_nothing
from penstock.settings import Settings
from penstock.sources.kafka import KafkaReceiver
from penstock.sources.sqs import SqsReceiver
from penstock.testing import ReceiverTestError, RunningReceiver, run_receiver
from penstock.testing.driver import read_back
from penstock.wal import EncryptionKey
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
    half = COUNT // 2
    # Until all that has room is in blocks that wait for the driver, records find room now and then.
    rest: list[Callable[[Receiver], Any]] = [storing(half), lambda source: time.sleep(1)]
    give(lambda source: is_held.wait(HANG_S), *rest, storing(half, half))
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


def test_what_is_read_from_a_socket_is_bounded_by_its_bytes() -> None:
    lines = io.BytesIO((b"x" * 999 + b"\n") * 4_000)
    give(lambda source: source.storeFrom(lines.readinto, "lines"))
    with run_receiver(Calls("dropNew"), settings=NOTHING_PASSES) as running:
        assert done() == []
        # By the number of reads, all of it would have room.
        running.wait_for_error("records were dropped", timeout_s=HANG_S)
        running.stop()
        assert len(running.records) + running.dropped == 4_000


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
            assert message.records >= told
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
        assert isinstance(error, SettingError)
        assert why in str(error)
        assert (
            f"{WHEN_FULL}={policy!r} is not accepted: only block or spill for this receiver"
            in str(error)
        )
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
        with pytest.raises(SettingError, match=source._receiver_type()):
            policy_of(source, Settings.from_pairs([(WHEN_FULL, policy)]))
    assert policy_of(source, Settings()) is WhenFull.BLOCK
    source.whenFull = "block"
    assert policy_of(source, Settings.from_pairs([(WHEN_FULL, "dropNew")])) is WhenFull.BLOCK


class ComesBackNot:
    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("no number",)


def test_an_object_that_cannot_be_unpickled_is_a_letter() -> None:
    give(lambda source: source.store(ComesBackNot()), storing(1))
    with run_receiver(Calls("dropNew")) as running:
        assert done() == []
        running.stop()
        assert running.records == ["0"]
        assert len(running.discarded) == 1
        assert "no number" in running.discarded[0][1]
        assert running.dropped == 0


def test_a_defect_of_the_intake_ends_the_attempt_at_once_and_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise LookupError("a defect")

    monkeypatch.setattr(IntakeStoring, "_pass_store", fail)
    give(storing(100))
    found: list[RunningReceiver] = []

    def run() -> None:
        with run_receiver(Calls("dropNew")) as running:
            found.append(running)
            done()
            running.wait_for_error("a defect")

    with pytest.raises(ReceiverFailedError, match="a defect"):
        run()
    assert found[0].dropped == 100


def test_an_attribute_that_declares_no_policy_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Source:
        whenFull = "dropNew"

        def run(self, ctx: Any) -> None:
            ctx.store("a")

    as_receiver(Source)
    assert "the attribute whenFull of Source declares nothing" in caplog.text
    caplog.clear()
    assert as_receiver(receiver(whenFull="dropOld")(Source)).whenFull == "dropOld"
    assert not caplog.messages


@pytest.mark.parametrize("name", ["dropOld", "dropold", " DROPOLD "])
def test_a_policy_is_named_in_any_case(name: str) -> None:
    def numbers(ctx: ReceiverContext) -> Iterator[int]:
        yield from range(3)

    settings = Settings()
    assert policy_of(as_receiver(receiver(whenFull=name)(numbers)), settings) is WhenFull.DROP_OLD
    assert policy_of(as_receiver(Calls(name)), settings) is WhenFull.DROP_OLD
    assert policy_of(as_receiver(numbers), Settings.from_pairs([(WHEN_FULL, name)])).drops


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


SPILLING = {**SMALL, WHEN_FULL: "spill", f"{WHEN_FULL}.memory": "32k"}


def test_what_is_spilled_is_all_there_in_order_and_nothing_is_left(tmp_path: Path) -> None:
    is_held = threading.Event()
    give(lambda source: is_held.wait(HANG_S), storing(10_000))
    with run_receiver(Calls(), settings=SPILLING, folder=tmp_path) as running:
        before = open_files()
        running.hold()
        is_held.set()
        assert done() == []
        assert len(open_files() - before) == 1
        running.go_on()
        assert running.wait_for_records(10_000) == [str(number) for number in range(10_000)]
        give(storing(10, 10_000))
        running.restart()
        running.wait_for_records(10_010)
        running.stop()
        assert [int(record) for record in running.records] == list(range(10_010))
        assert running.dropped == 0
        assert running.errors == []
    assert open_files() <= before


def open_files() -> set[str]:
    """Return the files without a name that this process has open."""
    found = set()
    for each in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.add(os.readlink(f"/proc/self/fd/{each}"))
    return {each for each in found if each.endswith(" (deleted)") and "receivedData" in each}


def test_store_waits_when_the_disk_that_it_may_take_is_full() -> None:
    settings = {**SPILLING, f"{WHEN_FULL}.disk": "1m", "spark.penstock.receiver.rate": "1 per hour"}
    is_over = threading.Event()
    taken: list[int] = []

    def store(source: Receiver) -> None:
        try:
            for number in range(1_000_000):
                source.store(str(number))
                taken.append(number)
        except ReceiverStoppedError:
            is_over.set()

    give(store)
    with run_receiver(Calls(), settings=settings) as running:
        before = -1
        while len(taken) != before or before < 1_000:
            before = len(taken)
            assert not is_over.wait(0.5)
        running.stop()
        assert is_over.is_set()
        # All that was taken found no way out, and is counted.
        assert running.dropped + len(running.records) == len(taken)
        assert 10_000 < len(taken) < 200_000
        assert any("when the receiver stopped" in error for error in running.errors)


def test_what_is_relied_on_waits_until_what_was_spilled_has_passed() -> None:
    acknowledged: list[int] = []
    is_held = threading.Event()

    def store(source: Receiver) -> None:
        is_held.wait(HANG_S)
        storing(10_000)(source)
        Given.are_done.set()
        source.store("10000", ack=lambda: acknowledged.append(running._driver.count))
        source.store(["10001", "10002"])
        source.store("10003", position=7)
        source.discard("10004", "bad", position=8)

    give(store)
    with run_receiver(Calls(), settings=SPILLING) as running:
        running.hold()
        is_held.set()
        done()
        running.go_on()
        running.wait_for_records(10_004)
        running.stop()
        assert [int(record) for record in running.records] == list(range(10_004))
        assert running.position == 8
        assert acknowledged[0] >= 10_001
        assert len(running.discarded) == 1
        assert Given.errors == []


def test_every_way_in_can_be_spilled() -> None:
    rows = pa.table({"n": range(100)})
    is_held = threading.Event()
    lines = b"".join(b"%d\n" % number for number in range(100))

    def store(source: Receiver) -> None:
        is_held.wait(HANG_S)
        for number in range(300):
            source.store({"n": number}, ack=None)
            source.store(rows, ack=acknowledge_nothing)
            source.storeFrom(io.BytesIO(lines).readinto, "lines")
            source.store([number, "s"], ack=acknowledge_nothing)
        source.store(threading.Lock())

    give(store)
    with run_receiver(
        Calls(), settings={**SPILLING, "spark.penstock.block.maxSize": "1m"}
    ) as running:
        running.hold()
        is_held.set()
        (error,) = done()
        assert isinstance(error, RecordPickleError)
        running.go_on()
        running.stop()
        expected: list[Any] = []
        for number in range(300):
            expected += [{"n": number}, *rows.to_pylist(), *map(str, range(100)), number, "s"]
        assert running.records == expected


def test_what_is_spilled_is_encrypted_and_bounded(tmp_path: Path) -> None:
    told: list[str] = []
    spill = Spill(
        str(tmp_path), 10_000, EncryptionKey.generate(), lambda text, _: told.append(text)
    )
    first = spill.push(["secret"] * 100)
    assert first is not None
    (file,) = spill._files
    assert b"secret" not in os.pread(file.file.fileno(), 10_000, 0)
    assert spill.push(["x" * 10_000]) is None
    # Nothing is tried again at once.
    assert spill.push(["y"]) is None
    assert spill.pull(first) == ["secret"] * 100
    assert spill._files == []
    assert told == []
    assert list(tmp_path.iterdir()) == []


def test_what_comes_back_from_the_disk_waits_in_its_order_and_is_counted(tmp_path: Path) -> None:
    notes = Notes(WhenFull.SPILL)
    spill = Spill(str(tmp_path), 10_000, None, lambda *_: None)
    notes.intake = Intake(WhenFull.SPILL, 1_000, lambda: 0.0, spill)
    notes.put(*"abcdefgh")
    # No one takes anything, and the disk has room for one that is as large as the memory.
    notes.put("i", size=900)
    taken = ""
    while notes.intake.records:
        taken += notes.take()
        assert len(taken) + notes.intake.records == 9
    assert taken == "abcdefghi"


def test_a_disk_that_fails_is_told_once_and_tried_again(tmp_path: Path) -> None:
    told: list[str] = []
    folder = tmp_path / "folder"
    folder.touch()
    spill = Spill(str(folder), 10_000, None, lambda text, error: told.append(f"{text}: {error}"))
    for _ in range(2):
        assert spill.push(["a"]) is None
        spill._again_s = 0.0
    folder.unlink()
    place = spill.push(["a"])
    assert place is not None
    assert len(told) == 1
    assert "store waits" in told[0]
    spill.close()
    notes = Notes(WhenFull.SPILL)
    notes.intake = Intake(WhenFull.SPILL, 1_000, lambda: 0.0, spill)
    notes.put(*"abcdefgh")
    assert notes.intake.records == 8
    spill.close()
    assert spill._files == []
    # What cannot be read again is counted.
    assert len(notes.take()) + notes.intake.dropped == 8
    assert notes.intake.dropped > 0
    notes.put(*"abcdefgh")
    assert len(spill._files) == 1
    notes.intake.drop_rest()
    assert spill._files == []


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
    """An intake of calls that take 200 bytes each, and a clock."""

    def __init__(self, policy: WhenFull) -> None:
        self.now_s = 0.0
        self.intake = Intake(policy, 1_000, lambda: self.now_s)

    def put(self, *records: str, size: int = 200) -> None:
        for record in records:
            assert self.intake.put(Call(record, (), 1, size))

    def take(self) -> str:
        return "".join(call.name for call in self.intake.take())

    def told(self, **given: bool) -> str | None:
        news = self.intake.news(**given)
        return None if news is None else str(news).partition(" dropped")[0]


def test_an_intake_drops_by_bytes_and_gives_back_in_order() -> None:
    new, old = Notes(WhenFull.DROP_NEW), Notes(WhenFull.DROP_OLD)
    for notes in (new, old):
        notes.put(*"abcdefg")
        assert notes.intake.dropped == 2
        assert notes.intake.records == 5
    assert (new.take(), old.take()) == ("abcde", "cdefg")
    for notes in (new, old):
        # What is out takes no room, and one that is larger than all waits alone.
        notes.put("h", "i")
        assert notes.intake.dropped == 2
    assert (new.take(), old.take()) == ("hi", "hi")
    for notes in (new, old):
        notes.put("j", size=5_000)
        notes.put("k")
        assert notes.intake.dropped == 3
    assert (new.take(), old.take()) == ("j", "k")
    assert new.intake.records == old.intake.records == 0


def test_only_a_few_calls_are_out_at_a_time() -> None:
    notes = Notes(WhenFull.DROP_OLD)
    notes.intake = Intake(WhenFull.DROP_OLD, 1 << 20, lambda: 0.0)
    notes.put(*map(str, range(1_000)))
    assert len(notes.intake.take()) < 200


def test_many_records_of_one_call_are_dropped_together() -> None:
    for policy, left in ((WhenFull.DROP_NEW, "many"), (WhenFull.DROP_OLD, "last")):
        notes = Notes(policy)
        assert notes.intake.put(Call("many", (), 70, 900))
        assert notes.intake.put(Call("last", (), 30, 900))
        assert notes.intake.records + notes.intake.dropped == 100
        assert notes.take() == left


def test_drops_are_told_at_once_and_then_every_ten_seconds() -> None:
    notes = Notes(WhenFull.DROP_NEW)
    assert notes.told() is None
    notes.put(*"abcdef")
    notes.take()
    assert notes.intake.is_busy
    assert notes.told() == "1 record was"
    assert not notes.intake.is_busy
    notes.put(*"abcdefg")
    assert notes.told() is None
    notes.now_s = 9.9
    assert notes.told() is None
    notes.now_s = 10.0
    assert notes.told() == "2 records were"
    assert notes.told(at_once=True) is None
    notes.put("i")
    assert notes.told() is None
    assert notes.told(at_once=True) == "1 record was"


def test_a_closed_intake_takes_nothing_and_its_rest_is_counted_once() -> None:
    notes = Notes(WhenFull.DROP_OLD)
    notes.put(*"abc")
    assert notes.take() == "abc"
    notes.put(*"de")
    asked: list[int] = []

    def may_wait() -> bool:
        asked.append(0)
        return len(asked) < 3

    notes.intake.close(may_wait)
    assert len(asked) == 3
    assert not notes.intake.put(Call("f", (), 1, 10))
    notes.intake.drop_rest()
    notes.intake.drop_rest()
    assert notes.intake.dropped == 2
    assert notes.intake.take() == []
    # Now nothing waits, and nothing is out.
    notes.intake.close(lambda: pytest.fail("it waits"))
