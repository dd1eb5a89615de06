"""Random programs on `pyspark.streaming` and here, with the same batches: the same results.

`PENSTOCK_SOAK_PROGRAMS=200` runs that many sets of programs, drawn anew each time, instead of the
few that are always the same.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import warnings
from datetime import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, assume, given, settings
from hypothesis import strategies as st

from tests.bounds import HANG_S
from tests.streaming.batches import Batches
from tests.streaming.random_programs import Program, inputs, programs

WAIT_S = HANG_S
BATCHES = 7
BATCH_S = 0.1
TOGETHER = 6
"""Programs that run in one context, which takes seconds to start and to stop."""

_SOAK = int(os.environ.get("PENSTOCK_SOAK_PROGRAMS", "0"))

Results = dict[int, dict[int, Any]]

# PySpark pickles the functions of a program that has a checkpoint directory: what they keep is
# reached through functions of this module, which are pickled by name.
_results: Results = {}
_times: list[datetime] = []
_finished = threading.Semaphore(0)
_made: list[datetime] = []
_may_end = threading.Event()


def begin(time: datetime, rdd: Any) -> None:
    _times.append(time)


def keep(program: int, time: datetime, rdd: Any) -> None:
    number = round((time - _times[0]).total_seconds() / BATCH_S)
    if number < BATCHES:
        _results[program][number] = sorted(map(repr, rdd.collect()))


def keeper(program: int) -> Any:
    return lambda time, rdd: keep(program, time, rdd)


def finish(rdd: Any) -> None:
    _finished.release()


def make_no_more(time: datetime, rdd: Any) -> Any:
    """Hold PySpark's generator up after the last batch: what it makes then only takes time."""
    _made.append(time)
    if len(_made) > BATCHES:
        _may_end.wait(WAIT_S)
        raise RuntimeError("no more batches are wanted")
    return rdd


def register(ssc: Any, chosen: list[Program], batches: dict[str, list[list[Any]]]) -> None:
    _times.clear()
    _made.clear()
    _results.clear()
    streams = {name: ssc.queueStream(records) for name, records in batches.items()}
    first = streams["numbers"]
    first.transform(make_no_more).foreachRDD(begin)
    for number, program in enumerate(chosen):
        _results[number] = {}
        program.build(streams, BATCH_S).foreachRDD(keeper(number))
    first.foreachRDD(finish)


def run_pyspark(sc: Any, folder: str, chosen: list[Program], batches: Any) -> Results:
    from pyspark.streaming import StreamingContext as SparkStreamingContext

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        ssc = SparkStreamingContext(sc, BATCH_S)
    _may_end.clear()
    try:
        ssc.checkpoint(folder)
        register(ssc, chosen, batches)
        ssc.start()
        for _ in range(BATCHES):
            assert _finished.acquire(timeout=WAIT_S), "PySpark did not make its batches"
    finally:
        _may_end.set()
        ssc.stop(stopSparkContext=False)
    while _finished.acquire(blocking=False):
        pass
    return dict(_results)


def run_penstock(sc: Any, folder: str, chosen: list[Program], batches: Any) -> Results:
    run = Batches(sc, BATCH_S)
    try:
        run.ssc.checkpoint(folder)
        register(run.ssc, chosen, batches)
        run.run(BATCHES)
    finally:
        run.ssc.stop(stopSparkContext=False)
    while _finished.acquire(blocking=False):
        pass
    return dict(_results)


@pytest.mark.exhaustive  # In CI `test_oracle` compares some programs with PySpark.
@pytest.mark.slow
@pytest.mark.timeout(0 if _SOAK else 600)
@settings(
    max_examples=_SOAK or 1,
    derandomize=not _SOAK,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    verbosity=Verbosity.quiet,
)
@given(st.lists(programs(), min_size=TOGETHER, max_size=TOGETHER, unique_by=repr), inputs(BATCHES))
def test_random_programs_give_what_pyspark_gives(
    sc: Any, chosen: list[Program], batches: dict[str, list[list[Any]]]
) -> None:
    # The first that Hypothesis draws has none.
    assume(any(map(any, batches.values())))
    folder = tempfile.mkdtemp(prefix="random-programs-")
    try:
        expected = run_pyspark(sc, os.path.join(folder, "pyspark"), chosen, batches)
        found = run_penstock(sc, os.path.join(folder, "penstock"), chosen, batches)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    different = {
        repr(chosen[number]): {
            batch: (found[number].get(batch), expected[number].get(batch))
            for batch in range(BATCHES)
            if found[number].get(batch) != expected[number].get(batch)
        }
        for number in expected
        if found[number] != expected[number]
    }
    assert different == {}, f"here and in PySpark, with {batches}"
