"""Generators, async generators, and classes with run() as receivers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import itertools
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark import SparkContext, StorageLevel
from pyspark.sql import SparkSession

from penstock.receiver import (
    NotAReceiverError,
    PositionError,
    Receiver,
    ReceiverContext,
    ReceiverStoppedError,
    as_receiver,
    receiver,
)
from penstock.receiver.forms.short_forms import arrow_schema
from penstock.testing import run_receiver
from penstock.wire.messages import (
    AddBlock,
    DeregisterReceiver,
    Message,
    RegisterReceiver,
    ReportError,
    StopReceiver,
    UpdateRateLimit,
)
from tests.receiver.running import WAIT_S, Running, Shared, Tracker

Run = Callable[..., Running]


# -- what is a receiver ----------------------------------------------------------------------------


class Idle(Receiver):
    def onStart(self) -> None:
        """Receive nothing."""

    def onStop(self) -> None:
        """Nothing is to be stopped."""


def test_a_receiver_is_taken_as_it_is() -> None:
    made = Idle()
    assert as_receiver(made) is made


def nothing() -> None:
    """Not a generator."""


class WithoutRun:
    pass


class RunIsData:
    run = 5


class NeedsTwo:
    def run(self, one: object, two: object) -> None: ...


class MadeOf:
    def __init__(self, url: str) -> None:
        self.url = url

    def run(self) -> None: ...


def generator_of_two(one: object, two: object) -> Iterator[object]:
    yield one, two


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (nothing, "a function without yield"),
        (WithoutRun, "a class without run"),
        (WithoutRun(), "'WithoutRun'"),
        (Receiver, "give an instance"),
        (RunIsData(), "run is not a method"),
        (NeedsTwo(), "needs the arguments one, two"),
        (MadeOf, "(missing a required argument: 'url'); give an instance"),
        (generator_of_two, "needs the arguments one, two"),
        ([1, 2], "'list'"),
        (receiver(positions=True)(type("R", (), {"run": lambda self: None})), "needs a run"),
    ],
)
def test_what_is_no_receiver_is_refused_with_the_accepted_forms(source: object, says: str) -> None:
    with pytest.raises(NotAReceiverError) as caught:
        as_receiver(source)
    assert says in str(caught.value)
    assert "a generator function or async generator function" in str(caught.value)


@pytest.mark.parametrize("schema", ["n INT", pa.schema([("n", pa.int64())])])
def test_a_schema_that_declares_nothing_is_told(schema: object, caplog: Any) -> None:
    class Numbers:
        def run(self) -> None: ...

    setattr(Numbers, "schema", schema)  # noqa: B010
    with caplog.at_level("WARNING", logger="penstock.receiver"):
        assert as_receiver(Numbers).schema is None
        assert as_receiver(Numbers()).schema is None
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert all("the attribute schema of Numbers declares nothing" in line for line in said)


def test_the_decorator_declares_and_leaves_the_function_as_it_is() -> None:
    schema = pa.schema([("n", pa.int64())])

    @receiver(schema=schema, storageLevel=StorageLevel.DISK_ONLY, preferredLocation="executor_h_1")
    def numbers() -> Iterator[dict[str, int]]:
        yield {"n": 1}

    assert list(numbers()) == [{"n": 1}]
    made = as_receiver(numbers, StorageLevel.MEMORY_ONLY)
    assert made.schema == schema
    assert made.storageLevel == StorageLevel.DISK_ONLY
    assert made.preferredLocation() == "executor_h_1"
    assert as_receiver(numbers) is not made, "two streams of one function have two receivers"


def test_the_decorator_needs_no_parentheses_and_the_level_can_be_given() -> None:
    @receiver
    def one() -> Iterator[bytes]:
        yield b"1"

    assert as_receiver(one).storageLevel == StorageLevel.MEMORY_AND_DISK_2
    assert as_receiver(one, StorageLevel.MEMORY_ONLY).storageLevel == StorageLevel.MEMORY_ONLY


# -- generators ------------------------------------------------------------------------------------


def test_a_generator_is_a_receiver_and_its_end_is_for_good(run: Run, tracker: Tracker) -> None:
    def few() -> Iterator[str]:
        for number in range(10_000):
            yield str(number)

    assert run(few).join() is None
    assert tracker.records() == [str(number) for number in range(10_000)]
    assert tracker.of(RegisterReceiver)[0].receiver_type == "few"
    assert len(tracker.of(RegisterReceiver)) == 1
    assert tracker.of(DeregisterReceiver)[0].message == (
        "Source ended: generator 'few' of receiver 3 returned"
    )


def test_the_end_of_a_source_is_told_with_the_ways_out(run: Run, tracker: Tracker) -> None:
    def few() -> Iterator[str]:
        yield "one"

    assert run(few).join() is None
    (report,) = tracker.of(ReportError)
    assert "gets no more records" in report.message
    assert "@receiver(finite=True)" in report.message
    assert '@receiver(restart="always")' in report.message
    assert tracker.of(DeregisterReceiver)[0].expected


def test_the_end_of_a_source_that_may_end_is_no_error(run: Run, tracker: Tracker) -> None:
    @receiver(finite=True)
    def few() -> Iterator[str]:
        yield "one"

    assert run(few).join() is None
    assert tracker.records() == ["one"]
    assert not tracker.of(ReportError)


def test_a_source_that_is_always_restarted_is_opened_again_when_it_ends(
    run: Run, tracker: Tracker
) -> None:
    @receiver(restart="always")
    def one() -> Iterator[str]:
        yield "one"

    running = run(one)
    tracker.wait_for_records(3)
    tracker.send(StopReceiver())
    assert running.join() is None
    assert set(tracker.records()) == {"one"}
    first = tracker.of(DeregisterReceiver)[0]
    assert first.message.endswith("Source ended: generator 'one' of receiver 3 returned")


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"finite": 1}, TypeError, "finite"),
        ({"restart": "never"}, ValueError, '"always"'),
        ({"finite": True, "restart": "always"}, ValueError, "contradict"),
    ],
)
def test_how_a_source_ends_is_declared_in_these_ways_only(
    arguments: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        receiver(**arguments)


def test_an_empty_generator_ends(run: Run, tracker: Tracker) -> None:
    def none() -> Iterator[str]:
        yield from ()

    assert run(none).join() is None
    assert tracker.records() == []


def test_a_partial_and_a_callable_object_are_generators_too(run: Run, tracker: Tracker) -> None:
    class Counting:
        def __init__(self, end: int) -> None:
            self.end = end

        def __call__(self) -> Iterator[int]:
            yield from range(self.end)

    def up_to(end: int, ctx: ReceiverContext) -> Iterator[int]:
        yield ctx.stream_id
        yield from range(end)

    assert run(functools.partial(up_to, 2)).join() is None
    assert tracker.records() == [3, 0, 1]
    assert run(Counting(2)).join() is None
    assert tracker.records() == [3, 0, 1, 0, 1]


def test_each_record_is_stored_before_the_next_is_asked_for(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    """A slow source is not kept waiting for a chunk to fill."""

    def slow() -> Iterator[str]:
        yield "first"
        shared.say("asked")
        assert shared.go.wait(WAIT_S)
        yield "second"

    run(slow)
    shared.wait_for("asked")
    assert tracker.wait_for_records(1) == ["first"]
    shared.go.set()
    assert tracker.wait_for_records(2) == ["first", "second"]


def test_a_generator_yields_lists_batches_and_tables_as_many_records(
    run: Run, tracker: Tracker
) -> None:
    batch = pa.RecordBatch.from_pydict({"n": [1, 2]})

    def bulk() -> Iterator[Any]:
        yield ["a", "b"]
        yield batch
        yield pa.Table.from_batches([batch])
        yield "c"

    assert run(bulk).join() is None
    rows = [{"n": 1}, {"n": 2}]
    assert tracker.records() == ["a", "b", *rows, *rows, "c"]


def test_a_yielded_pair_is_a_record_unless_declared(run: Run, tracker: Tracker) -> None:
    def pairs() -> Iterator[tuple[str, int]]:
        yield "a", 1
        yield "b", 2

    assert run(pairs).join() is None
    assert tracker.records() == [("a", 1), ("b", 2)]
    assert tracker.position is None


def test_declared_positions_are_durable_with_their_records(run: Run, tracker: Tracker) -> None:
    @receiver(positions=True)
    def pairs(ctx: ReceiverContext) -> Iterator[tuple[Any, int]]:
        start = ctx.last_position or 0
        yield f"after {start}", start + 1
        yield ["x", "y"], start + 3

    assert run(pairs).join() is None
    assert tracker.last_position() == 3
    assert run(pairs).join() is None
    assert tracker.last_position() == 6
    assert tracker.records() == ["after 0", "x", "y", "after 3", "x", "y"]


@pytest.mark.parametrize("form", ["generator", "async generator", "run"])
def test_a_record_over_the_limit_is_discarded_with_its_position_and_told_once(
    run: Run, tracker: Tracker, shared: Shared, form: str
) -> None:
    """It is never read again: not in this start of the source, and not in the next."""

    def items(ctx: ReceiverContext) -> Iterator[tuple[Any, int]]:
        shared.say("start")
        start = ctx.last_position or 0
        large = b"x" * (2 << 20)
        found = [b"0", large, [b"2", large, b"3"], b"4"]
        for number in range(start, len(found)):
            yield found[number], number + 1

    @receiver(positions=True, finite=True)
    def generator(ctx: ReceiverContext) -> Iterator[tuple[Any, int]]:
        yield from items(ctx)

    @receiver(positions=True, finite=True)
    async def async_generator(ctx: ReceiverContext) -> AsyncIterator[tuple[Any, int]]:
        for item in items(ctx):
            yield item

    @receiver(finite=True)
    class Runs:
        def run(self, ctx: ReceiverContext) -> None:
            for data, position in items(ctx):
                ctx.store(data, position)

    forms = {"generator": generator, "async generator": async_generator, "run": Runs}
    assert run(forms[form]).join() is None
    assert tracker.records() == [b"0", b"2", b"3", b"4"]
    assert tracker.last_position() == 4
    assert shared.events == ["start"]
    told = [message.message for message in tracker.of(ReportError)]
    assert len(told) == 2
    assert "it begins with b'xxx" in told[0]


@pytest.mark.parametrize("schema", [None, pa.schema([("n", pa.int64())])], ids=["objects", "rows"])
def test_an_object_that_a_generator_yields_again_is_stored_as_it_was(
    run: Run, tracker: Tracker, schema: pa.Schema | None
) -> None:
    @receiver(schema=schema)
    async def asynchronous() -> AsyncIterator[dict[str, int]]:
        row = {"n": 0}
        for row["n"] in range(500):
            yield row

    @receiver(schema=schema)
    def synchronous() -> Iterator[dict[str, int]]:
        row = {"n": 0}
        for row["n"] in range(500):
            yield row

    for form in (asynchronous, synchronous):
        assert run(form).join() is None
    assert tracker.records() == 2 * [{"n": n} for n in range(500)]


def test_what_is_no_pair_is_an_error_where_pairs_are_declared(run: Run, tracker: Tracker) -> None:
    @receiver(positions=True)
    def broken() -> Iterator[Any]:
        yield "no position"

    run(broken)
    tracker.wait_for_count(DeregisterReceiver, 1)
    assert "must be a pair (records, position)" in tracker.of(DeregisterReceiver)[0].error


@pytest.mark.parametrize(
    "pair",
    [
        (5, ["GET /", "PUT /"]),
        (5, "GET /"),
        (5.0, b"GET /"),
        (5, []),
        (5, {"line": "GET /"}),
        (5, pa.table({"line": ["GET /"]})),
        ("token", ["GET /", "PUT /"]),
        (("file", 5), [{"line": "GET /"}]),
    ],
    ids=repr,
)
def test_a_pair_that_has_the_position_first_ends_the_receiver_at_once(
    run: Run, tracker: Tracker, pair: Any
) -> None:
    @receiver(positions=True)
    def swapped() -> Iterator[Any]:
        yield pair

    assert run(swapped).join() is None
    [report] = tracker.of(ReportError)
    assert report.permanent
    assert "has the position first" in report.message
    assert tracker.records() == []
    assert tracker.last_position() is None


@pytest.mark.parametrize(
    "pair",
    [
        ([5], "token"),
        (5, 5.5),
        (5, None),
        (True, "token"),
        (5, {"watermark": 1}),
        ({"n": 5}, {"offset": 1}),
        ("line", ["file", 5]),
        ("line", "token"),
        ("line", [1, 2]),
    ],
    ids=repr,
)
def test_pairs_that_may_be_meant_are_taken(run: Run, tracker: Tracker, pair: Any) -> None:
    @receiver(positions=True)
    def source() -> Iterator[Any]:
        yield pair

    assert run(source).join() is None
    assert tracker.records() == (pair[0] if type(pair[0]) is list else [pair[0]])
    assert tracker.last_position() == pair[1]


def test_a_source_that_does_not_begin_after_its_last_position_is_told(
    run: Run, tracker: Tracker
) -> None:
    @receiver(positions=True)
    def from_the_start() -> Iterator[tuple[str, int]]:
        for number in range(3):
            yield str(number), number + 1

    assert run(from_the_start).join() is None
    assert run(from_the_start).join() is None
    report = tracker.of(ReportError)[-1]
    assert report.permanent
    assert "position=1 goes back behind the last one, 3" in report.message
    assert tracker.records() == ["0", "1", "2"], "nothing comes twice"


def test_a_generator_that_raises_is_called_again_and_goes_on_from_its_position(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    @receiver(positions=True)
    def stumbling(ctx: ReceiverContext) -> Iterator[tuple[str, int]]:
        start = ctx.last_position or 0
        for number in range(start, start + 3):
            yield str(number), number + 1
        if start < 6:
            raise OSError("line broke")

    assert run(stumbling).join() is None
    assert tracker.records() == [str(number) for number in range(9)]
    restarts = [m for m in tracker.of(DeregisterReceiver) if m.error]
    assert len(restarts) == 2
    assert restarts[0].message.startswith(
        "Restarting receiver with delay 10 ms: Error in generator 'stumbling' of receiver 3: "
        "OSError: line broke ("
    )
    assert "OSError: line broke" in restarts[0].error


def test_an_endless_generator_is_closed_at_a_stop_and_loses_nothing(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    def endless() -> Iterator[str]:
        number = 0
        try:
            while True:
                yield str(number)
                number += 1
        finally:
            shared.say(("closed", number))

    running = run(endless)
    tracker.wait_for_records(5000)
    tracker.send(StopReceiver())
    assert running.join() is None
    (event,) = shared.events
    assert tracker.records() == [str(number) for number in range(event[1] + 1)]


def test_a_generator_that_waits_for_its_stop_ends_at_once(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    def waiting(ctx: ReceiverContext) -> Iterator[str]:
        yield "up"
        shared.say(ctx.stopped.wait(WAIT_S))

    running = run(waiting)
    tracker.wait_for_records(1)
    tracker.send(StopReceiver())
    assert running.join() is None
    assert shared.events == [True]


def test_a_generator_blocked_for_ever_does_not_hang_the_stop_and_is_named(
    run: Run, tracker: Tracker, shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.receiver.forms.threaded.ThreadedReceiver.STOP_BOUND_S", 0.2)

    def blocked() -> Iterator[str]:
        yield "up"
        shared.go.wait(WAIT_S)

    running = run(blocked)
    tracker.wait_for_records(1)
    tracker.send(StopReceiver())
    assert running.join() is None
    (report,) = tracker.of(ReportError)
    # How long it waited: longer on a slow machine.
    assert re.search(r"'blocked' of receiver 3 did not end within \d+\.\d s", report.message)
    assert "in wait" in report.message
    shared.go.set()


def records_and_more(ctx: ReceiverContext) -> Iterator[str]:
    yield "up"
    while True:
        yield "more"


@receiver(positions=True)
def lists_with_positions(ctx: ReceiverContext) -> Iterator[tuple[list[str], int]]:
    yield ["up"], 0
    for position in itertools.count(1):
        yield ["more"] * 3, position


class Asking:
    """Stores with an acknowledgement, and hears of its stop in no other way than by `store`."""

    def run(self, ctx: ReceiverContext) -> None:
        while True:
            ctx.store("up", ack=bool)


class AskingForLists:
    """The same with lists, which wait where they are about to be added."""

    def run(self, ctx: ReceiverContext) -> None:
        while True:
            ctx.store(["up"] * 3, ack=bool)


class AskingInThreads:
    """The same in several threads, which wait one behind the other."""

    def run(self, ctx: ReceiverContext) -> None:
        threads = [threading.Thread(target=Asking().run, args=(ctx,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


async def many_at_once(ctx: ReceiverContext) -> None:
    while True:
        await asyncio.gather(*(ctx.store("up") for _ in range(20)))


PAUSED = UpdateRateLimit(3, None, is_paused=True)
FEW_RECORDS = UpdateRateLimit(3, 0.001)
FEW_BYTES = UpdateRateLimit(3, None, 0.001)


@pytest.mark.long
@pytest.mark.parametrize(
    ("source", "rates"),
    [
        (records_and_more, PAUSED),
        (lists_with_positions, PAUSED),
        (Asking, PAUSED),
        (AskingForLists, PAUSED),
        (AskingInThreads, PAUSED),
        (many_at_once, PAUSED),
        (AskingForLists, FEW_RECORDS),
        (AskingInThreads, FEW_RECORDS),
        (AskingForLists, FEW_BYTES),
        (records_and_more, FEW_BYTES),
    ],
)
def test_a_source_that_waits_as_its_stream_lets_nothing_pass_holds_no_stop_up(
    run: Run, tracker: Tracker, source: Any, rates: UpdateRateLimit
) -> None:
    running = run(source)
    tracker.wait_for_records(1)
    tracker.send(rates)
    tracker.wait_for(
        lambda: any(told.rate_version and told.is_waiting for told in tracker.rate_reports)
    )
    tracker.send(StopReceiver())
    assert running.join() is None
    assert tracker.of(ReportError) == []


# -- async generators ------------------------------------------------------------------------------


def test_an_async_generator_is_a_receiver(run: Run, tracker: Tracker) -> None:
    async def few(ctx: ReceiverContext) -> AsyncIterator[str]:
        for number in range(2000):
            yield str(number)
            if number % 500 == 0:
                await asyncio.sleep(0)

    assert run(few).join() is None
    assert tracker.records() == [str(number) for number in range(2000)]


def test_what_storing_raises_is_raised_where_a_coroutine_awaits_it_whatever_it_is(
    run: Run, tracker: Tracker
) -> None:
    """As a panic of a library in Rust, which is no `Exception`; else it would wait for ever."""

    class PanicError(BaseException):
        pass

    def records() -> Iterator[str]:
        yield "before"
        raise PanicError

    @receiver(finite=True)
    async def coroutine(ctx: ReceiverContext) -> None:
        with pytest.raises(PanicError):
            await ctx.store(records())
        await ctx.store("after")

    assert run(coroutine).join() is None
    assert tracker.records()[-1] == "after"


def test_an_async_generator_is_cancelled_where_it_waits(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    async def waiting() -> AsyncIterator[str]:
        try:
            yield "up"
            await asyncio.sleep(3600)
        finally:
            shared.say("closed")

    running = run(waiting)
    assert tracker.wait_for_records(1) == ["up"]
    tracker.send(StopReceiver())
    assert running.join() is None
    assert shared.events == ["closed"]
    assert not tracker.of(ReportError)


def test_an_async_generator_that_raises_is_called_again(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    async def stumbling() -> AsyncIterator[str]:
        shared.say("called")
        yield "x"
        if len(shared.events) == 1:
            raise OSError("line broke")

    assert run(stumbling).join() is None
    assert tracker.records() == ["x", "x"]
    assert "OSError: line broke" in tracker.of(DeregisterReceiver)[0].error


@pytest.mark.parametrize("form", ["coroutine", "async generator"])
def test_a_source_whose_task_someone_else_cancels_has_failed_and_not_ended(
    run: Run, tracker: Tracker, shared: Shared, form: str
) -> None:
    """As when it awaits a task of a library, which that cancels with its connection."""

    async def hold_out() -> None:
        shared.say("called")
        if len(shared.events) == 1:
            connection = asyncio.ensure_future(asyncio.sleep(3600))
            asyncio.get_running_loop().call_soon(connection.cancel)
            await connection

    async def coroutine(ctx: ReceiverContext) -> None:
        await ctx.store("x")
        await hold_out()

    async def generator() -> AsyncIterator[str]:
        yield "x"
        await hold_out()

    assert run(coroutine if form == "coroutine" else generator).join() is None
    assert tracker.records() == ["x", "x"]
    assert "CancelledError" in tracker.of(DeregisterReceiver)[0].error


def test_i7_storing_never_blocks_the_event_loop_and_what_is_in_hand_is_bounded(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    may_answer = threading.Event()

    def answer(message: Message) -> Message | None:
        if isinstance(message, AddBlock):
            assert may_answer.wait(WAIT_S)
        return None

    tracker.answer = answer
    yielded = [0]
    shared.receiver = yielded

    async def flood() -> AsyncIterator[list[str]]:
        async def heartbeat() -> None:
            while True:
                await asyncio.sleep(0.01)
                shared.say("beat")

        beating = asyncio.ensure_future(heartbeat())
        try:
            while True:
                shared.receiver[0] += 1
                yield ["x" * 100_000]
        finally:
            beating.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await beating

    running = run(flood)
    # Four megabytes of arena are full soon; from then on nothing more is taken, but the loop lives.
    seen = -1
    while seen != yielded[0]:
        seen = yielded[0]
        shared.wait_for("beat", shared.events.count("beat") + 20)
    assert 0 < yielded[0] < 256 + 200
    may_answer.set()
    tracker.send(StopReceiver())
    assert running.join() is None


# -- classes with run() ----------------------------------------------------------------------------


class Counter:
    """Stores through its context until it is told to stop."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared

    def run(self, ctx: ReceiverContext) -> None:
        ctx.store("up")
        self.shared.go.wait(WAIT_S)
        ctx.store("last")

    def stop(self) -> None:
        self.shared.say("stop")
        self.shared.go.set()


def test_a_class_with_run_may_block_and_is_told_to_stop(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    running = run(Counter(shared))
    tracker.wait_for_records(1)
    assert tracker.of(RegisterReceiver)[0].receiver_type == "Counter"
    tracker.send(StopReceiver())
    assert running.join() is None
    assert shared.events == ["stop"]
    assert tracker.records() == ["up", "last"]


class Deaf:
    """Does not look at its context."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared

    def run(self, ctx: ReceiverContext) -> None:
        ctx.store("up")
        self.shared.go.wait(WAIT_S)


def test_a_run_that_does_not_end_is_named_with_its_line_while_it_is_waited_for(
    run: Run, tracker: Tracker, shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.receiver.forms.threaded.ThreadedReceiver.STOP_BOUND_S", 0.2)
    monkeypatch.setattr("penstock.receiver.forms.threaded.TELL_S", 0.1)
    running = run(Deaf(shared))
    tracker.wait_for_records(1)
    tracker.send(StopReceiver())
    tracker.wait_for(lambda: bool(tracker.of(ReportError)))
    shared.go.set()
    assert running.join() is None
    (report,) = tracker.of(ReportError)
    assert "Deaf of receiver 3 has not ended 0 s after it was stopped" in report.message
    assert f"called from {__file__}" in report.message
    assert "in run. A source that waits should" in report.message


def test_a_run_without_an_argument_stores_through_the_object(run: Run, tracker: Tracker) -> None:
    class Simple:
        store: Callable[..., None]
        context: ReceiverContext

        def run(self) -> None:
            self.store(f"stream {self.context.stream_id}")

    del Simple.__annotations__
    assert run(Simple()).join() is None
    assert tracker.records() == ["stream 3"]


def test_a_class_is_instantiated_in_the_executor(run: Run, tracker: Tracker) -> None:
    class Holding:
        def __init__(self) -> None:
            self.lock = threading.Lock()  # could not have been pickled

        def run(self) -> Iterator[str]:
            with self.lock:
                yield "made here"

    assert run(Holding).join() is None
    assert tracker.records() == ["made here"]


def test_run_may_be_a_coroutine_or_an_async_generator(run: Run, tracker: Tracker) -> None:
    @receiver(finite=True)
    class Coroutine:
        async def run(self, ctx: ReceiverContext) -> None:
            await asyncio.sleep(0)
            ctx.store("coroutine")

    @receiver(finite=True)
    class Generator:
        async def run(self) -> AsyncIterator[str]:
            yield "async generator"

    for made in (Coroutine(), Generator()):
        assert run(receiver(finite=True)(made)).join() is None
    assert tracker.records() == ["coroutine", "async generator"]
    assert not tracker.of(ReportError)


def test_a_coroutine_is_cancelled_at_a_stop(run: Run, tracker: Tracker, shared: Shared) -> None:
    class Waiting:
        async def run(self, ctx: ReceiverContext) -> None:
            ctx.store("up")
            try:
                await asyncio.sleep(3600)
            finally:
                shared.say("cancelled")

    running = run(Waiting())
    tracker.wait_for_records(1)
    tracker.send(StopReceiver())
    assert running.join() is None
    assert shared.events == ["cancelled"]


def test_a_run_that_raises_is_run_again(run: Run, tracker: Tracker, shared: Shared) -> None:
    class Stumbling:
        def run(self, ctx: ReceiverContext) -> None:
            shared.say("run")
            ctx.store("x")
            if len(shared.events) < 3:
                raise RuntimeError("again")

    assert run(Stumbling()).join() is None
    assert tracker.records() == ["x", "x", "x"]


# -- other callables -------------------------------------------------------------------------------


def numbered(ctx: ReceiverContext, first: int) -> Iterator[str]:
    yield f"{ctx.stream_id}: {first}"


async def numbered_later(ctx: ReceiverContext, first: int) -> AsyncIterator[str]:
    yield f"{ctx.stream_id}: {first}"


def test_a_callable_that_returns_a_generator_gives_it_arguments(run: Run, tracker: Tracker) -> None:
    class Urls:
        def source(self, ctx: ReceiverContext) -> Iterator[str]:
            return numbered(ctx, 4)

    sources = [
        lambda ctx: numbered(ctx, 1),
        lambda ctx: numbered_later(ctx, 2),
        lambda: iter(["3: 3"]),
        Urls().source,
    ]
    for source in sources:
        assert run(source).join() is None
    assert tracker.records() == ["3: 1", "3: 2", "3: 3", "3: 4"]


def test_a_run_that_returns_a_generator_is_stored(run: Run, tracker: Tracker) -> None:
    class Delegates:
        def run(self, ctx: ReceiverContext) -> Iterator[str]:
            return numbered(ctx, 1)

    assert run(Delegates()).join() is None
    assert tracker.records() == ["3: 1"]


def test_a_callable_that_returns_something_else_fails_for_good_and_says_what(
    run: Run, tracker: Tracker
) -> None:
    run(lambda: 5).join()
    (report,) = tracker.of(ReportError)
    assert report.permanent
    assert "function '<lambda>' of receiver 3 returned 'int', which is no generator" in (
        report.message
    )


def test_what_was_called_already_is_refused() -> None:
    with pytest.raises(NotAReceiverError, match="it was called already; give generator_of_two, w"):
        as_receiver(generator_of_two(1, 2))


# -- the decorator's own ---------------------------------------------------------------------------


class OfModule:
    def run(self) -> Iterator[tuple[str, int]]:
        yield "a", 1


def test_one_function_or_class_declared_twice_has_two_declarations() -> None:
    def source(first: int = 1, *, second: int = 2) -> Iterator[Any]:
        """Says what it is."""
        yield first, second

    instance = OfModule()
    for given in (source, OfModule, instance, functools.partial(source, 3), instance.run):
        plain: Any = given
        disk = receiver(storageLevel=StorageLevel.DISK_ONLY, positions=True)(plain)
        memory = receiver(preferredLocation="here")(plain)
        made = [as_receiver(each) for each in (disk, memory, plain)]
        level = StorageLevel.MEMORY_AND_DISK_2
        assert [each.storageLevel for each in made] == [StorageLevel.DISK_ONLY, level, level]
        assert [each.preferredLocation() for each in made] == [None, "here", None]
        assert [getattr(each, "_with_positions") for each in made] == [True, False, False]  # noqa: B009  # of two classes
    declared = receiver(positions=True)(source)
    assert list(declared(4)) == [(4, 2)]
    assert (declared.__doc__, declared.__name__) == (source.__doc__, source.__name__)


def test_a_declared_class_is_still_that_class(run: Run, tracker: Tracker) -> None:
    declared = receiver(positions=True)(OfModule)
    assert issubclass(declared, OfModule)
    assert declared.__name__ == "OfModule"
    assert run(declared).join() is None
    assert tracker.records() == ["a"]
    assert tracker.last_position() == 1


@pytest.mark.parametrize(
    ("position", "kind"),
    [
        (object(), "object"),
        ({"at": threading.Lock()}, "lock"),
        (2**70, "int"),
        ([1, {2, 3}], "set"),
        (b"".join, "builtin_function_or_method"),
    ],
)
def test_a_position_that_is_none_is_refused_and_named(
    run: Run, tracker: Tracker, shared: Shared, position: Any, kind: str
) -> None:
    shared.receiver = position

    @receiver(positions=True)
    def source() -> Iterator[Any]:
        yield "a", shared.receiver

    run(source).join()
    report = tracker.of(ReportError)[-1]
    assert report.permanent
    assert f"is not accepted, because of the {kind}: a position comes back" in report.message
    assert tracker.records() == []


# -- coroutines that wait until it is durable ------------------------------------------------------


class RunsAwaiting:
    async def run(self, ctx: ReceiverContext) -> None:
        await awaits(ctx)


class StoresAwaiting:
    store: Callable[..., Any]
    context: ReceiverContext

    async def run(self) -> None:
        await awaits(self.context)
        await self.store("last", position=4)


del StoresAwaiting.__annotations__


async def awaits(ctx: ReceiverContext) -> None:
    await ctx.store("one", position=1)
    await ctx.store(["two", "three"], position=3)


async def awaits_and_yields(ctx: ReceiverContext) -> AsyncIterator[str]:
    await awaits(ctx)
    yield "yielded"


@pytest.mark.parametrize(
    ("source", "more"),
    [
        (awaits, []),
        (lambda ctx: awaits(ctx), []),
        (RunsAwaiting(), []),
        (StoresAwaiting(), ["last"]),
        (awaits_and_yields, ["yielded"]),
    ],
    ids=["function", "lambda", "run", "run without argument", "async generator"],
)
def test_i1_a_coroutine_goes_on_when_its_record_is_durable(
    run: Run, tracker: Tracker, source: Any, more: list[str]
) -> None:
    """Each `await` returns after the tracker has the block: the second store finds the first."""
    known: list[int] = []

    def answer(message: Message) -> Message | None:
        if isinstance(message, AddBlock):
            known.append(sum(block.num_records for block in message.blocks))
        return None

    tracker.answer = answer
    assert run(source).join() is None
    assert tracker.records() == ["one", "two", "three", *more]
    # One without records is a position or an acknowledgement whose records a tick has sealed.
    assert [records for records in known if records] == [1, 2, *[1 for _ in more]]
    assert tracker.last_position() == (4 if more == ["last"] else 3)


def test_ddl_that_is_read_without_spark_is_said_to_be_too_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", None)
    with pytest.raises(ValueError, match=r"cannot be read yet.*make the SparkContext first"):
        arrow_schema("sensor STRING")


async def seals(ctx: ReceiverContext) -> None:
    durable = [ctx.store(text) for text in ("one", "two")]
    ctx.seal()
    await asyncio.gather(*durable)
    last = ctx.store("three")
    ctx.seal()
    ctx.seal()
    await last


def seals_and_yields(ctx: ReceiverContext) -> Iterator[str]:
    for text in ("one", "two", "three"):
        durable = threading.Event()
        ctx.store(text, ack=durable.set)
        ctx.seal()
        assert durable.wait(WAIT_S)
    yield from ()


class RunsAndSeals:
    def run(self, ctx: ReceiverContext) -> None:
        list(seals_and_yields(ctx))


@pytest.mark.parametrize("source", [seals, seals_and_yields, RunsAndSeals()])
def test_what_a_source_waits_for_is_durable_before_the_block_interval_ends(source: Any) -> None:
    with run_receiver(source, settings={"spark.streaming.blockInterval": "1h"}) as running:
        assert running.wait_for_records(3) == ["one", "two", "three"]


def test_a_coroutine_that_does_not_wait_stores_all_the_same_in_order(
    run: Run, tracker: Tracker
) -> None:
    async def flood(ctx: ReceiverContext) -> None:
        row = {"n": 0}
        for row["n"] in range(2000):
            ctx.store(row)

    assert run(flood).join() is None
    assert tracker.records() == [{"n": n} for n in range(2000)]


def test_waiting_for_durability_holds_up_nobody_else(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    def answer(message: Message) -> Message | None:
        if isinstance(message, AddBlock):
            shared.say("asked")
            assert shared.go.wait(WAIT_S)
        return None

    tracker.answer = answer

    async def serve(ctx: ReceiverContext) -> None:
        waiting = [ctx.store(str(n)) for n in range(100)]
        await asyncio.to_thread(shared.wait_for, "asked")
        shared.say(("waiting", sum(not each.done() for each in waiting)))
        shared.go.set()
        await asyncio.gather(*waiting)
        shared.say("durable")

    assert run(serve).join() is None
    told = [event for event in shared.events if event != "asked"]
    assert told == [("waiting", 100), "durable"]
    assert tracker.records() == [str(n) for n in range(100)]


def test_an_error_of_storing_is_raised_where_it_is_awaited_or_else_reported(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    @receiver(finite=True)
    async def source(ctx: ReceiverContext) -> None:
        try:
            await ctx.store("x", position=object())
        except PositionError as error:
            shared.say(str(error))
        ctx.store("y", position=object())
        await ctx.store("z")
        # What nobody awaits is found when it is thrown away.
        gc.collect()
        await asyncio.sleep(0)

    assert run(source).join() is None
    assert "is not accepted, because of the object" in shared.events[0]
    assert tracker.records() == ["z"]
    (report,) = tracker.of(ReportError)
    assert "Store exception was never retrieved: PositionError" in report.message


def test_what_a_coroutine_stores_at_a_stop_and_does_not_await_is_stored(
    run: Run, tracker: Tracker
) -> None:
    async def source(ctx: ReceiverContext) -> None:
        ctx.store("first")
        ctx.store(["many", "more"])
        try:
            await asyncio.sleep(3600)
        finally:
            ctx.store("last")
            ctx.store(["of", "all"])

    running = run(source)
    assert tracker.wait_for_records(3) == ["first", "many", "more"]
    tracker.send(StopReceiver())
    assert running.join() is None
    assert tracker.records() == ["first", "many", "more", "last", "of", "all"]


def test_a_task_that_fails_and_that_nobody_awaits_is_told(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    async def poll() -> None:
        raise KeyError("no such device")

    @receiver(finite=True)
    async def source(ctx: ReceiverContext) -> AsyncIterator[str]:
        yield "x"
        awaited = asyncio.create_task(poll())
        with contextlib.suppress(KeyError):
            await awaited
        # Held, so that it is not collected.
        held = asyncio.create_task(poll())
        await asyncio.to_thread(shared.wait_for, "told")
        assert held.done()
        yield "y"

    running = run(source)
    tracker.wait_for_count(ReportError, 1)
    shared.say("told")
    assert running.join() is None
    assert tracker.records() == ["x", "y"]
    (report,) = tracker.of(ReportError)
    assert "failed that no one awaits: KeyError: 'no such device'" in report.message
    assert "in poll" in report.message


def test_who_waits_goes_on_also_when_the_acknowledgement_fails(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    @receiver(finite=True)
    async def source(ctx: ReceiverContext) -> None:
        await ctx.store("x", ack=lambda: shared.say(1 // 0))
        shared.say("durable")

    assert run(source).join() is None
    assert shared.events == ["durable"]
    (report,) = tracker.of(ReportError)
    assert "Error in an acknowledgement callback" in report.message


def test_what_comes_too_late_is_refused_and_not_left_waiting(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    async def late(ctx: ReceiverContext) -> None:
        await ctx.store("up")
        shared.say("stored")
        try:
            await asyncio.sleep(3600)
        finally:
            try:
                await ctx.store("late")
            except ReceiverStoppedError:
                shared.say("refused")

    running = run(late)
    shared.wait_for("stored")
    tracker.send(StopReceiver())
    assert running.join() is None
    assert shared.events == ["stored", "refused"]
    assert tracker.records() == ["up"]
