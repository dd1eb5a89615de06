"""Inputs that a program writes: in order, once, with their state in checkpoints."""

from __future__ import annotations

import operator
import threading
from datetime import datetime
from typing import Any

import pytest
from pyspark import RDD

from penstock.streaming import DStream, InputDStream, StreamingListener
from penstock.streaming.durations import batch_datetime
from tests.streaming.restarts.driven import BEGIN_MS, Driven, World


class Counting(InputDStream[int]):
    """Two numbers a batch, from 0; every third batch has no RDD."""

    def __init__(self, ssc: Any) -> None:
        super().__init__(ssc)
        self.next = 0
        self.opened = 0
        self.lock: Any = None

    def start(self) -> None:
        self.lock = threading.Lock()  # cannot be pickled
        self.opened += 1

    def stop(self) -> None:
        self.lock = None

    def compute(self, time: datetime) -> RDD[int] | None:
        with self.lock:
            if (round(time.timestamp() * 1000) - BEGIN_MS) % 3000 == 0:
                return None
            first, self.next = self.next, self.next + 2
            self.reportInfo(time, 2, {"Description": f"from {first}"})
            return self.context().sparkContext.parallelize(range(first, self.next), 1)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "lock": None}


def build(ssc: Any, world: World) -> None:
    numbers = Counting(ssc)
    world.keep(numbers.map(lambda number: (number, number)), "numbers")


def given(program: Driven) -> dict[int, list[list[Any]]]:
    """Return what the sink was given for each batch, counted from 1, each time."""
    found = program.world.results.get("numbers", {})
    return {(ms - BEGIN_MS) // 1000: each for ms, each in found.items()}


def test_each_batch_is_made_once_in_order_and_none_is_none() -> None:
    with Driven(build) as program:
        program.start()
        for _ in range(7):
            program.advance(1000)
        assert program.world.errors == []
        expected = {n: 2 * (n - 1 - n // 3) for n in (1, 2, 4, 5, 7)}
        assert given(program) == {
            n: [[(first, first), (first + 1, first + 1)]] for n, first in expected.items()
        }


@pytest.mark.parametrize("ending", ["stop", "crash"])
def test_an_input_goes_on_with_its_attributes_after_a_restart(ending: str) -> None:
    with Driven(build) as program:
        program.start()
        for _ in range(2):
            program.advance(1000)
        program.stop() if ending == "stop" else program.crash()
        program.start()
        for _ in range(2):
            program.advance(1000)
        assert program.world.errors == []
        found = given(program)
        numbers = sorted(record[0] for each in found.values() for record in each[0])
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= 6
        for each in found.values():
            assert all(again == each[0] for again in each)
        (node,) = program.ssc._graph.inputs  # type: ignore[union-attr]  # it runs
        assert node._stream.opened == 2


def test_listeners_are_told_how_many_records_there_are() -> None:
    told: list[tuple[int, dict[int, Any]]] = []

    class Told(StreamingListener):
        def onBatchCompleted(self, batchCompleted: Any) -> None:
            info = batchCompleted.batchInfo()
            streams = info.streamIdToInputInfo()
            told.append(
                (info.numRecords(), {n: i.metadataDescription() for n, i in streams.items()})
            )

    def listening(ssc: Any, world: World) -> None:
        build(ssc, world)
        ssc.addStreamingListener(Told())

    with Driven(listening) as program:
        program.start()
        program.advance(1000)
        program.stop()
    assert told == [(2, {0: "from 0"})]


def test_what_is_no_rdd_is_an_error_of_the_batch_that_says_so() -> None:
    class Lists(InputDStream[int]):
        def compute(self, time: datetime) -> Any:
            return [1, 2]

    def lists(ssc: Any, world: World) -> None:
        world.keep(Lists(ssc), "numbers")

    with Driven(lists) as program:
        program.start()
        program.advance(1000)
        (error,) = program.world.errors
    assert "Lists.compute returned 'list', and not an RDD or None" in str(error)


def test_a_stream_without_compute_is_refused() -> None:
    class Empty(InputDStream[int]):
        pass

    def empty(ssc: Any, world: World) -> None:
        Empty(ssc)  # type: ignore[abstract]  # that is the error

    with Driven(empty) as program, pytest.raises(TypeError, match=r"Empty must define compute"):
        program.start()


def test_it_is_a_stream_and_its_times_are_local_datetimes() -> None:
    times: list[Any] = []

    class Times(InputDStream[int]):
        def compute(self, time: datetime) -> None:
            times.append(time)

    def of_times(ssc: Any, world: World) -> None:
        stream = Times(ssc)
        assert isinstance(stream, DStream)
        world.keep(stream, "numbers")

    with Driven(of_times) as program:
        program.start()
        program.advance(1000)
    assert times == [batch_datetime(BEGIN_MS + 1000)]


class Idle(InputDStream[int]):
    """Notes when it is asked, and has nothing for most batches."""

    def __init__(self, ssc: Any, every: int = 0) -> None:
        super().__init__(ssc)
        self.every = every
        self.asked: list[int] = []

    def compute(self, time: datetime) -> RDD[int] | None:
        number = (round(time.timestamp() * 1000) - BEGIN_MS) // 1000
        self.asked.append(number)
        self.reportInfo(time, 0)
        if self.every and number % self.every == 0:
            return self.context().sparkContext.parallelize([number], 1)
        return None


def asked(program: Driven) -> list[int]:
    (node,) = program.ssc._graph.inputs  # type: ignore[union-attr]  # it runs
    found: list[int] = node._stream.asked
    return found


def test_a_batch_without_an_rdd_is_asked_for_once_whoever_needs_it() -> None:
    def several(ssc: Any, world: World) -> None:
        stream = Idle(ssc, every=3)
        world.keep(stream.window(2, 1), "window")
        world.keep(stream.map(lambda number: (number, number)), "numbers")
        world.keep(stream.filter(bool), "again")

    with Driven(several) as program:
        program.start()
        for _ in range(5):
            program.advance(1000)
        assert program.world.errors == []
        assert asked(program) == [1, 2, 3, 4, 5]
        assert given(program) == {3: [[(3, 3)]]}


def test_an_input_is_asked_at_each_batch_time_also_for_a_window_with_a_longer_slide() -> None:
    def slow(ssc: Any, world: World) -> None:
        world.keep(Idle(ssc).window(3, 3), "window")

    with Driven(slow) as program:
        program.start()
        program.advance(2000)
        assert asked(program) == [1, 2]
        program.advance(1000)
        assert asked(program) == [1, 2, 3]


def test_after_a_restart_an_input_is_asked_for_what_windows_need_the_oldest_first() -> None:
    def with_window(ssc: Any, world: World) -> None:
        stream = Idle(ssc, every=1)
        world.keep(stream.map(lambda number: (number, number)), "numbers")
        world.keep(stream.window(3, 1), "window")

    with Driven(with_window) as program:
        program.start()
        for _ in range(4):
            program.advance(1000)
        program.stop()
        program.start()
        program.advance(1000)
        assert asked(program) == [1, 2, 3, 4, 3, 4, 5]
        assert program.world.results["window"][BEGIN_MS + 5000] == [[3, 4, 5]]


@pytest.mark.parametrize("kind", ["updateStateByKey", "reduceByKeyAndWindow"])
def test_an_input_may_be_idle_for_as_long_as_it_likes(kind: str) -> None:
    # As many batches as would use up Python's stack, were each made of the one before.
    batches = 600

    def with_state(ssc: Any, world: World) -> None:
        pairs = Idle(ssc, every=batches).map(lambda number: ("all", 1))
        if kind == "updateStateByKey":
            world.keep(pairs.updateStateByKey(lambda new, old: sum(new) + (old or 0)), "state")
        else:
            window = pairs.reduceByKeyAndWindow(operator.add, operator.sub, 6, 1)
            world.keep(window, "state")

    with Driven(with_state) as program:
        program.start()
        program.advance(batches * 1000)
        assert program.world.errors == []
        assert program.world.results["state"] == {BEGIN_MS + batches * 1000: [[("all", 1)]]}
        assert len(asked(program)) == batches


def test_an_input_that_cannot_be_stopped_keeps_no_other_one_from_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Stuck(Counting):
        def stop(self) -> None:
            raise OSError("it does not close")

    made: list[Counting] = []

    def two(ssc: Any, world: World) -> None:
        made.extend((Stuck(ssc), Counting(ssc)))
        world.keep(made[0].union(made[1]).map(lambda number: (number, number)), "numbers")

    with Driven(two) as program:
        program.start()
        program.advance(1000)
        assert made[1].lock is not None
        program.stop()
        assert made[1].lock is None
    assert "OSError: it does not close" in caplog.text
