"""A program made again from its checkpoint goes on as if it had not ended."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.streaming import StateSpec, StreamingContext
from tests.streaming.recovering import Program

INPUT = [["a", "a", "b"], ["", ""], [], ["a"], ["b", "b"], ["a", "c"], [], ["c"], ["a"], ["b"]]

Build = Callable[[Program, StreamingContext], None]


@pytest.fixture
def made(sc: Any, tmp_path: Path) -> Iterator[Callable[[Build], Program]]:
    programs: list[Program] = []

    def make(build: Build) -> Program:
        folder = tmp_path / str(len(programs))
        folder.mkdir()
        programs.append(Program(sc, folder, build))
        return programs[-1]

    yield make
    for program in programs:
        program.stop()


def map_and_reduce(program: Program, ssc: StreamingContext) -> None:
    words = program.listed(ssc, INPUT)
    program.keep(words.map(lambda word: (word, 1)).reduceByKey(operator.add))


def inverse_window(program: Program, ssc: StreamingContext) -> None:
    words = program.listed(ssc, INPUT)
    windows = words.map(lambda word: (word, 1)).reduceByKeyAndWindow(
        lambda a, b: a + b, lambda a, b: a - b, 5, 1, 2, lambda pair: pair[1] > 0
    )
    program.keep(windows.checkpoint(2))


def state(program: Program, ssc: StreamingContext) -> None:
    words = program.listed(ssc, INPUT)
    counts = words.map(lambda word: (word, 1)).updateStateByKey(
        lambda values, count: sum(values) + (count or 0),
        initialRDD=ssc.sparkContext.parallelize([("a", 100)]),
    )
    program.keep(counts.checkpoint(3))


def map_with_state(program: Program, ssc: StreamingContext) -> None:
    def count(key: str, value: Any, state: Any) -> Any:
        total = (state.getOption() or 0) + (value or 0)
        if not state.isTimingOut():
            state.update(total)
        return (key, total, state.isTimingOut())

    words = program.listed(ssc, INPUT)
    spec = StateSpec.function(count).timeout(3).initialState([("z", 1)])
    stream = words.map(lambda word: (word, 1)).mapWithState(spec)
    stream.checkpoint(3)
    program.keep(stream)
    program.keep(stream.stateSnapshots(), "states")


PROGRAMS = [map_and_reduce, inverse_window, state, map_with_state]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("build", PROGRAMS)
def test_results_after_recoveries_are_those_of_one_run(
    made: Callable[[Build], Program], build: Build
) -> None:
    whole = made(build)
    whole.run(10)
    parts = made(build)
    parts.run(2)
    parts.run(5)
    parts.clock.advance(1000)
    parts.run(2, again=1)
    for name in ("out", "states"):
        for number in range(1, 11):
            expected = whole.result(number, name)
            found = parts.result(number, name)
            assert found[-1:] == expected, (name, number)
            assert all(again == found[0] for again in found)
