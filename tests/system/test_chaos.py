"""What `make chaos` checks: it finds what is lost, doubled, late or wrong."""

from __future__ import annotations

import json
from argparse import Namespace
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.system.chaos.__main__ import plan, summary
from tests.system.chaos.program import BATCH_S, WINDOW_S, numbers_in_order
from tests.system.chaos.results import Results
from tests.system.chaos.run import MODES
from tests.system.recoverable import numbers_of_batch, word_of

TIMES = [1000 * BATCH_S * n for n in range(1, 8)]
SENT = 100 * len(TIMES)


def write(results: Results, name: str, time_ms: int, made: Any) -> None:
    (results.paths[name] / str(time_ms)).write_text(json.dumps(made))


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """Exact results of some batches."""
    made = Results(tmp_path, states=True)
    batches = [list(range(100 * n, 100 * n + 100)) for n in range(len(TIMES))]
    for n, time_ms in enumerate(TIMES):
        write(made, "batches", time_ms, numbers_of_batch(batches[n]))
        write(made, "plain", time_ms, numbers_in_order(batches[n]))
        state = numbers_of_batch([number for batch in batches[: n + 1] for number in batch])
        write(made, "states", time_ms, state)
        window = [
            number
            for batch, at_ms in zip(batches, TIMES, strict=True)
            for number in batch
            if time_ms - 1000 * WINDOW_S < at_ms <= time_ms
        ]
        write(made, "windows", time_ms, {"counts": Counter(map(word_of, window))})
    return made


def check(results: Results, *, plain_once: bool = True) -> int:
    return results.check(SENT, SENT, plain_once=plain_once)


def test_exact_results_are_taken(results: Results) -> None:
    assert check(results) == 0
    assert results.processed == results.plain_end == SENT
    assert results.batches == results.checked_states == results.checked_windows == len(TIMES)


@pytest.mark.parametrize(
    "numbers",
    [range(200, 299), [*range(200, 300), 299], [*range(200, 299), 300], []],
    ids=["one lost", "one doubled", "another one", "all lost"],
)
def test_a_batch_with_other_numbers_is_found(results: Results, numbers: list[int]) -> None:
    write(results, "batches", TIMES[2], numbers_of_batch(list(numbers)))
    with pytest.raises(AssertionError, match="has not the numbers"):
        check(results)


def test_a_batch_that_came_late_is_found(results: Results) -> None:
    results.look()
    write(results, "batches", TIMES[0] - 1, numbers_of_batch([]))
    with pytest.raises(AssertionError, match="came after"):
        check(results)


@pytest.mark.parametrize("name", ["states", "windows"])
def test_a_wrong_state_or_window_is_found(results: Results, name: str) -> None:
    path = results.paths[name] / str(TIMES[4])
    made = json.loads(path.read_text())
    made["counts"]["to"] += 1
    path.write_text(json.dumps(made))
    with pytest.raises(AssertionError):
        check(results)


def test_a_batch_without_a_state_is_found(results: Results) -> None:
    (results.paths["states"] / str(TIMES[4])).unlink()
    with pytest.raises(AssertionError, match="without a state"):
        check(results)


def test_a_second_result_of_a_batch_is_found(results: Results) -> None:
    (results.paths["windows"] / f"{TIMES[1]}.other").touch()
    with pytest.raises(AssertionError, match="other results"):
        check(results)


def test_numbers_that_were_not_processed_are_found(results: Results) -> None:
    with pytest.raises(AssertionError, match="were processed"):
        results.check(SENT + 1, SENT, plain_once=True)
    with pytest.raises(AssertionError, match="in no batch"):
        results.check(SENT, SENT + 1, plain_once=True)


def test_a_gap_without_positions_is_found(results: Results) -> None:
    write(results, "plain", TIMES[3], numbers_in_order([*range(300, 350), *range(351, 400)]))
    with pytest.raises(AssertionError, match="from 350 to 351 are in no batch"):
        check(results)


def test_doubles_are_counted_and_found_where_there_may_be_none(results: Results) -> None:
    write(results, "plain", TIMES[3], numbers_in_order([*range(290, 400), *range(300, 305)]))
    assert check(results, plain_once=False) == 15
    with pytest.raises(AssertionError, match="15 numbers of the direct stream came twice"):
        check(results)


def test_all_cycles_are_shared_out_and_each_program_has_its_seed() -> None:
    options = Namespace(cycles=1000, seed=7, size=50, master=None, minutes=None)
    pieces = plan(options, list(MODES), Path("/folder"))
    assert sum(each.cycles for each in pieces) == 1000
    assert max(each.cycles for each in pieces) <= 50
    assert [each.seed for each in pieces] == list(range(7, 7 + len(pieces)))
    cycles = {mode: sum(e.cycles for e in pieces if e.mode == mode) for mode in MODES}
    assert cycles == {"folder": 600, "no folder": 100, "hdfs": 100, "kafka": 100, "s3": 100}
    assert len({each.folder for each in pieces}) == len(pieces)


def test_a_program_that_failed_is_not_among_the_exact_ones() -> None:
    good = {
        "mode": "folder",
        "master": "local[4]",
        "seed": 1,
        "cycles": 5,
        "drivers": 6,
        "records": 9,
        "batches": 3,
        "states": 3,
        "windows": 1,
        "doubled without positions": 0,
        "faults": {"kill driver": 5},
    }
    bad = {"mode": "hdfs", "seed": 2, "folder": "/kept", "failed": "AssertionError: x"}
    told = summary([good, bad], 60.0)
    assert told.startswith("5 cycles in 1 programs, 6 drivers: exact")
    assert "FAILED, and not counted: hdfs, seed 2, /kept: AssertionError: x" in told
