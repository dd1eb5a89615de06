"""What PySpark's own tests of streams, and Spark's of states, show and no other file here does."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from penstock.streaming import OutputOperationError, StateSpec
from tests.streaming.batches import batches


@pytest.mark.exhaustive  # `test_conformance` has windows.
@pytest.mark.slow
def test_windows_of_half_seconds(sc: Any, tmp_path: Path) -> None:
    inputs = [list(range(size)) for size in (1, 3, 0, 2, 5)]
    count = len(inputs) + 4
    with batches(sc, 0.5) as run:
        run.ssc.checkpoint(str(tmp_path))
        stream = run.ssc.queueStream(inputs)
        keyed = stream.map(lambda number: (number % 2, number))
        windows = run.collect(stream.window(1.5, 0.5).count())
        small = run.collect(stream.countByWindow(1.5, 0.5))
        large = run.collect(stream.countByWindow(2.5, 0.5))
        values = run.collect(stream.countByValueAndWindow(2.5, 0.5))
        groups = run.collect(keyed.groupByKeyAndWindow(1.5, 0.5).mapValues(sorted))
        run.run(count)

    def records(end: int, batches_in_window: int) -> list[int]:
        return list(chain.from_iterable(inputs[max(0, end - batches_in_window + 1) : end + 1]))

    threes = [records(end, 3) for end in range(count)]
    fives = [records(end, 5) for end in range(count)]
    assert windows == [[len(found)] for found in threes]
    # A window of fewer than five slides is counted anew; one without records has no count then.
    assert small == [[len(found)] if found else [] for found in threes]
    assert large == [[len(found)] for found in fives]
    assert [dict(found) for found in values] == [dict(Counter(found)) for found in fives]
    expected = [
        {parity: sorted(x for x in found if x % 2 == parity) for parity in (0, 1)}
        for found in threes
    ]
    assert [dict(found) for found in groups] == [
        {parity: found for parity, found in both.items() if found} for both in expected
    ]


@pytest.mark.slow
def test_a_state_may_be_changed_in_place(sc: Any, tmp_path: Path) -> None:
    def extend(values: Any, state: Any) -> Any:
        state = state or []
        state.extend(values)
        return state

    with batches(sc) as run:
        run.ssc.checkpoint(str(tmp_path))
        pairs = run.ssc.queueStream([[("k", number)] for number in range(4)])
        fresh = run.collect(pairs.updateStateByKey(extend))
        initial = sc.parallelize([("k", [-2, -1])], 1)
        begun = run.collect(pairs.updateStateByKey(extend, initialRDD=initial))
        run.run(4)
    assert fresh == [[("k", list(range(last + 1)))] for last in range(4)]
    assert begun == [[("k", list(range(-2, last + 1)))] for last in range(4)]


def test_an_error_in_a_function_of_two_rdds_reaches_the_waiter(sc: Any) -> None:
    def fail(a: Any, b: Any) -> Any:
        raise ValueError("both were given")

    with batches(sc) as run:
        one, other = run.ssc.queueStream([[1]]), run.ssc.queueStream([[2]])
        run.collect(one.transformWith(fail, other, True))
        run.run(1)
        with pytest.raises(Exception, match="both were given"):
            run.ssc.awaitTerminationOrTimeout(10)


def test_the_batches_after_a_failed_one_have_their_results(sc: Any) -> None:
    def fail_at_1(number: int) -> int:
        if number == 1:
            raise ValueError("this is 1")
        return number

    with batches(sc) as run:
        found = run.collect(run.ssc.queueStream([[0], [1], [2], [3]]).map(fail_at_1))
        run.run(4)
        with pytest.raises(OutputOperationError, match="this is 1"):
            run.ssc.awaitTerminationOrTimeout(10)
    assert found == [[0], [2], [3]]


@pytest.mark.slow
def test_states_are_in_the_stream_when_they_are_returned(sc: Any, tmp_path: Path) -> None:
    def remember(key: str, value: int, state: Any) -> Any:
        state.update((state.getOption() or 0) + value)
        return state.get()

    with batches(sc) as run:
        run.ssc.checkpoint(str(tmp_path))
        pairs = run.ssc.queueStream([[("a", 1)], [("a", 2), ("b", 5)], []])
        found = run.collect(pairs.mapWithState(StateSpec.function(remember)))
        run.run(3)
    assert [sorted(x) for x in found] == [[1], [3, 5], []]


@pytest.mark.slow
def test_states_of_no_key_are_checkpointed(sc: Any, tmp_path: Path) -> None:
    with batches(sc) as run:
        run.ssc.checkpoint(str(tmp_path))
        pairs = run.ssc.queueStream([[], [], [("a", 1)]])
        mapped = pairs.mapWithState(StateSpec.function(lambda key, value, state: (key, value)))
        mapped.checkpoint(1)
        found = run.collect(mapped)
        states = pairs.updateStateByKey(lambda values, state: sum(values) + (state or 0))
        totals = run.collect(states.checkpoint(1))
        run.run(3)
    assert found == [[], [], [("a", 1)]]
    assert totals == [[], [], [("a", 1)]]
