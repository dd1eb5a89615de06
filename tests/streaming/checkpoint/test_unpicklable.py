"""What cannot be written to a checkpoint is named at `start()`: operation, function, variable."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.receiver import Receiver
from penstock.streaming import (
    CheckpointWriteError,
    StreamingContext,
    StreamingContextState,
    UnpicklableFunctionError,
)
from penstock.tracker import ReceiverPickleError
from tests.streaming.batches import WAIT_S
from tests.streaming.checkpoint.recovering import BATCH_MS, Keep, Listed, Program, ProgramOf
from tests.streaming.checkpoint.stored import stored

GLOBAL_LOCK = threading.Lock()


class Held:
    def __init__(self) -> None:
        self.deep = {"a": [1, {"key": threading.Lock()}]}

    def method(self, x: Any) -> Any:
        return x

    def __call__(self, x: Any) -> Any:
        return x


class WithLock(Receiver):
    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()

    def onStart(self) -> None:
        """Receives nothing."""

    def onStop(self) -> None:
        """Receives nothing."""


def closure(sc: Any) -> Any:
    lock = threading.Lock()
    return lambda x: (x, lock)


def nested(sc: Any) -> Any:
    inner = closure(sc)
    return lambda x: inner(x)


def of_main(sc: Any) -> Any:
    # A function of the program's own file is pickled with the globals that it uses.
    func: Any = lambda x: (x, GLOBAL_LOCK)  # noqa: E731  # a lambda is meant
    func.__module__ = "__main__"
    return func


def default(sc: Any) -> Any:
    return lambda x, lock=threading.Lock(): (x, lock)  # noqa: B008  # that is the error


def captured(thing: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def make(sc: Any) -> Any:
        value = thing(sc)
        return lambda x: (x, value)

    return make


@pytest.mark.parametrize(
    ("make", "function", "variable", "reason"),
    [
        (closure, "closure.<locals>.<lambda>", "closure variable 'lock'", "lock"),
        (nested, "closure.<locals>.<lambda>", "closure variable 'lock'", "lock"),
        (of_main, "of_main.<locals>.<lambda>", "global variable 'GLOBAL_LOCK'", "lock"),
        (default, "default.<locals>.<lambda>", "default of argument 0", "lock"),
        (lambda sc: Held(), "Held", "attribute 'deep' -> ['a'] -> [1] -> ['key']", "lock"),
        (lambda sc: Held().method, "Held.method", "attribute 'deep'", "lock"),
        (
            lambda sc: functools.partial(max, threading.Lock()),
            "builtin",
            "argument 0 of the partial",
            "lock",
        ),
        (captured(lambda sc: sc.parallelize([1])), "captured", "'value'", "an RDD is gone"),
        (captured(lambda sc: sc._jsc), "captured", "'value'", "an object of the JVM is gone"),
    ],
)
def test_functions(
    sc: Any, tmp_path: Path, make: Any, function: str, variable: str, reason: str
) -> None:
    """Spark: start with non-serializable DStream checkpoints; transform_function_serializer."""
    ssc = StreamingContext(sc, 1)
    ssc.checkpoint(str(tmp_path))
    stream = ssc._stream(Listed(ssc._graph, []))
    stream.map(make(sc)).foreachRDD(lambda rdd: None)
    with pytest.raises(UnpicklableFunctionError) as raised:
        ssc.start()
    error = raised.value
    assert error.operation.startswith("map at test_unpicklable.py:")
    assert function in str(error.function)
    assert variable in error.variable
    assert reason in error.reason
    for part in (error.operation, error.function, error.variable, error.reason):
        assert str(part) in str(error)
    assert "are not serializable" in str(error)
    assert ssc.getState() is StreamingContextState.STOPPED
    assert StreamingContext.getActive() is None
    assert stored(tmp_path) is None


def test_functions_of_rdds_and_receivers(sc: Any, tmp_path: Path) -> None:
    lock = threading.Lock()

    def output(time: Any, rdd: Any) -> None:
        with lock:
            rdd.count()

    ssc = StreamingContext(sc, 1)
    ssc.checkpoint(str(tmp_path))
    ssc._stream(Listed(ssc._graph, [])).foreachRDD(output)
    with pytest.raises(UnpicklableFunctionError) as raised:
        ssc.start()
    assert raised.value.operation.startswith("foreachRDD at ")
    assert "output (test_unpicklable.py:" in str(raised.value.function)
    assert raised.value.variable == "closure variable 'lock'"

    ssc = StreamingContext(sc, 1)
    ssc.checkpoint(str(tmp_path))
    # A receiver travels with each start, checkpoints or not.
    with pytest.raises(ReceiverPickleError, match="attribute 'lock'"):
        ssc.receiverStream(WithLock())
    ssc.stop(False)


def test_without_a_checkpoint_directory_nothing_is_pickled(sc: Any) -> None:
    lock = threading.Lock()
    ssc = StreamingContext(sc, 1)
    ssc._stream(Listed(ssc._graph, [])).foreachRDD(lambda rdd: lock.locked())
    ssc.start()
    ssc.stop(stopSparkContext=False)


def test_what_a_function_comes_to_hold_is_told_and_batches_go_on(program_of: ProgramOf) -> None:
    def build(program: Program, ssc: StreamingContext) -> None:
        held: list[Any] = []
        keep = Keep(program.results, "out")

        def output(time: Any, rdd: Any) -> None:
            held.append(threading.Lock())
            keep(time, rdd)

        program.listed(ssc, [[1], [2]]).foreachRDD(output)

    program = program_of(build)
    ssc = program.open()
    ssc.start()
    for number in (1, 2):
        program.clock.advance(BATCH_MS)
        program.events.wait_for("batch", count=number)
    program.settle()
    with pytest.raises(CheckpointWriteError, match="closure variable 'held'") as raised:
        ssc.awaitTermination(WAIT_S)
    assert isinstance(raised.value.__cause__, UnpicklableFunctionError)
    assert program.times([1, 2]) == [1, 1]
