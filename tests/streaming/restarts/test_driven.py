"""What the driven programs rest on: that runs, crashes and stops do what they say."""

from __future__ import annotations

import operator
from typing import Any

import pytest

from tests.streaming.restarts.driven import BEGIN_MS, Driven, World
from tests.streaming.restarts.world import BlockGoneError


def total(values: list[int], state: int | None) -> int:
    return sum(values) + (state or 0)


def build(ssc: Any, world: World) -> None:
    pairs = world.stream(ssc)
    world.keep(pairs, "in")
    world.keep(pairs.reduceByKeyAndWindow(operator.add, operator.sub, 5, 1), "window")
    world.keep(pairs.updateStateByKey(total), "state")


def by_number(program: Driven, name: str) -> dict[int, list[Any]]:
    """Return what a sink was given for each batch, counted from 1; the first time it was."""
    found = program.world.results.get(name, {})
    return {(ms - BEGIN_MS) // 1000: given[0] for ms, given in found.items()}


def run(program: Driven, batches: int) -> None:
    for _ in range(batches):
        program.receive([("a", 1)])
        program.advance(1000)


def test_a_program_goes_on_after_a_crash_and_after_a_stop() -> None:
    with Driven(build) as program:
        program.start()
        run(program, 12)
        program.crash()
        program.start()
        run(program, 11)
        program.stop()
        program.start()
        run(program, 9)
        assert program.world.errors == []
        numbers = range(1, 32)
        assert {n: by_number(program, "in")[n] for n in numbers} == {n: [("a", 1)] for n in numbers}
        assert {n: by_number(program, "window")[n] for n in numbers} == {
            n: [("a", min(n, 5))] for n in numbers
        }
        assert {n: by_number(program, "state")[n] for n in numbers} == {
            n: [("a", n)] for n in numbers
        }


@pytest.mark.parametrize("count", range(1, 40, 3))
def test_nothing_has_an_effect_after_a_crash_in_the_midst_of_things(count: int) -> None:
    with Driven(build) as program:
        program.start()
        run(program, 3)
        program.crash_at(count)
        program.receive([("a", 1)])
        if program.is_running:
            program.advance(1000)
        before = program.world.points
        while program.is_running:
            program.advance(1000)
        assert program.world.points >= before
        program.start()
        program.advance(2000)
        assert program.world.errors == []
        given = [block for n in by_number(program, "in").values() for block in n]
        assert given.count(("a", 1)) >= len(program.world.acknowledged)


def test_a_block_that_was_released_cannot_be_read() -> None:
    with Driven(build) as program:
        program.start()
        run(program, 40)
        [gone, *_] = sorted(program.world.gone)
        with pytest.raises(BlockGoneError, match=gone):
            program.world.read_block(gone)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_slice_up_to_a_time_to_come_takes_nothing_from_the_batches_to_come(
    restarts: bool,
) -> None:
    def build(ssc: Any, world: World) -> None:
        world.keep(world.stream(ssc), "in")

    begin_s = BEGIN_MS / 1000
    with Driven(build) as program:
        program.start()
        program.receive([1])
        program.advance(1000)
        if restarts:
            program.crash()
            program.start()
        assert program.ssc is not None
        found = program.ssc.receivedStream(0).slice(begin_s, begin_s + 3600)
        assert [rdd.collect() for rdd in found] == [[1]]
        program.receive([2])
        program.advance(1000)
        assert program.world.results["in"][BEGIN_MS + 2000] == [[2]]
        found = program.ssc.receivedStream(0).slice(begin_s, begin_s + 2)
        assert [rdd.collect() for rdd in found] == [[1], [2]]
