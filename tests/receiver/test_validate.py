"""A receiver's `validate`: what it refuses is a dead letter, and the rest is stored."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle

from penstock.dead_letters import letters
from penstock.receiver import as_receiver, receiver
from penstock.receiver.splits import PositionError
from penstock.wire.messages import AddBlock, ReportError
from tests.receiver.conftest import SETTINGS
from tests.receiver.running import Receiver, Running, Shared, Tracker
from tests.receiver.test_dead_letters import Stores

Run = Callable[..., Running]


def positive(number: Any) -> Any:
    if number == 0:
        raise ValueError("nothing at all")
    return number > 0


def kept(folder: Path) -> list[tuple[Any, str, str | None]]:
    found = [each.letter for each in letters(str(folder))]
    return [(json.loads(each.data), each.reason, each.position_text) for each in found]


class Checks(Stores):
    def __init__(self, shared: Shared, store: Callable[[Any], None], validate: Any) -> None:
        super().__init__(shared, store)
        self.validate = validate


@pytest.fixture
def stored(run: Run, tracker: Tracker, shared: Shared) -> Callable[..., Any]:
    def start(store: Callable[[Any], None], validate: Any = positive, records: int = 0) -> Any:
        run(Checks(shared, store, validate))
        shared.wait_for("stored")
        tracker.wait_for_records(records)
        tracker.wait_for_count(AddBlock, 1)
        return tracker.records()

    return start


@pytest.mark.parametrize("form", [list, iter, lambda rows: rows[0]])
def test_nothing_of_a_position_that_goes_back_is_discarded(
    stored: Callable[..., Any], tmp_path: Path, form: Any
) -> None:
    def store(source: Receiver) -> None:
        source.store(7, position=9)
        with pytest.raises(PositionError):
            source.store(form([-1, -2]), position=8)
        source.store(-5, position=10)
        source.store(3, position=11)

    assert stored(store, records=2) == [7, 3]
    assert [(record, position) for record, _, position in kept(tmp_path)] == [(-5, "10")]


def test_a_record_that_it_refuses_is_kept_and_its_position_and_ack_hold(
    stored: Callable[..., Any], tracker: Tracker, shared: Shared, tmp_path: Path
) -> None:
    def store(source: Receiver) -> None:
        source.store(1)
        source.store(-2, position={"offset": 7}, ack=lambda: shared.say("acknowledged"))
        source.store(0)
        source.store(3)

    assert stored(store, records=2) == [1, 3]
    shared.wait_for("acknowledged")
    assert kept(tmp_path)[:2] == [
        (-2, "validate=positive returned False", '{"offset":7}'),
        (0, "nothing at all", None),
    ]


@pytest.mark.parametrize("form", [list, iter, lambda records: (each for each in records)])
def test_of_many_records_the_valid_ones_are_stored_and_the_position_with_them(
    stored: Callable[..., Any], tracker: Tracker, tmp_path: Path, form: Any
) -> None:
    found = stored(lambda source: source.store(form([1, -2, 0, 3]), position=9), records=2)
    assert found == [1, 3]
    assert [(record, position) for record, _, position in kept(tmp_path)] == [(-2, "9"), (0, "9")]
    assert [block.position for block in tracker.blocks if block.num_records] == [b"\x09"]


def test_of_many_records_that_are_all_refused_the_position_holds(
    stored: Callable[..., Any], tracker: Tracker, tmp_path: Path
) -> None:
    assert stored(lambda source: source.store([-1, -2], position=9)) == []
    assert tracker.last_position() == 9
    assert [record for record, _, _ in kept(tmp_path)] == [-1, -2]


NUMBERS = pa.record_batch({"n": pa.array([1, -2, None, 4])})


@pytest.mark.parametrize(
    "mask",
    [
        lambda batch: pc.greater(batch["n"], 0),
        lambda batch: pa.chunked_array([pc.greater(batch["n"], 0)]),
        lambda batch: [True, False, None, True],
        lambda batch: np.array([True, False, False, True]),
    ],
)
@pytest.mark.parametrize("form", ["batch", "table"])
def test_an_arrow_batch_is_looked_at_as_a_whole_with_a_bool_for_each_row(
    stored: Callable[..., Any], tmp_path: Path, mask: Any, form: str
) -> None:
    data = NUMBERS if form == "batch" else pa.Table.from_batches([NUMBERS])
    assert stored(lambda source: source.store(data), mask, records=2) == [{"n": 1}, {"n": 4}]
    assert [record for record, _, _ in kept(tmp_path)] == [{"n": -2}, {"n": None}]


@pytest.mark.parametrize(
    ("validate", "reason"),
    [
        (lambda batch: 1 // 0, "integer division or modulo by zero"),
        (lambda batch: False, "returned False"),
        (lambda batch: np.bool_(False), "returned False"),
        (lambda batch: [True], "nor a bool for each of 4 rows"),
        (lambda batch: [1, 2, 3, 4], "nor a bool for each of 4 rows"),
        (lambda batch: "yes", "nor a bool for each of 4 rows"),
    ],
)
def test_what_it_says_of_a_whole_batch_holds_for_all_rows(
    stored: Callable[..., Any], tmp_path: Path, validate: Any, reason: str
) -> None:
    assert stored(lambda source: source.store(NUMBERS), validate) == []
    found = kept(tmp_path)
    assert [record["n"] for record, _, _ in found] == [1, -2, None, 4]
    assert all(reason in told for _, told, _ in found)


@pytest.mark.parametrize("valid", [True, None, np.bool_(True)])
def test_true_and_none_mean_that_it_is_valid(
    stored: Callable[..., Any], tmp_path: Path, valid: Any
) -> None:
    def store(source: Receiver) -> None:
        source.store(b"one")
        source.store([b"two"])
        source.store(pa.record_batch({"n": [3]}))

    assert stored(store, lambda _: valid, records=3) == [b"one", b"two", {"n": 3}]
    assert not (tmp_path / "deadLetters").exists()


def test_another_answer_is_an_error_of_the_function(
    stored: Callable[..., Any], tmp_path: Path
) -> None:
    stored(lambda source: source.store(1), lambda record: "")
    ((_, reason, _),) = kept(tmp_path)
    assert reason.endswith("returned '', neither True, False nor None")


def test_framed_bytes_are_refused_with_it(
    stored: Callable[..., Any], run: Run, tracker: Tracker, shared: Shared
) -> None:
    def store(source: Receiver) -> None:
        for call in (
            lambda: source.store(b"a\n", framing="newline"),
            lambda: source.storeFrom(lambda _: 0, "newline"),
        ):
            with pytest.raises(TypeError, match="'newline' is not accepted where validate is"):
                call()
        source.store(1)

    assert stored(store, records=1) == [1]


def test_no_memory_is_an_error_of_the_call_and_says_nothing_of_the_record(
    stored: Callable[..., Any], tmp_path: Path
) -> None:
    left = [MemoryError]

    def validate(record: int) -> None:
        if left:
            raise left.pop()

    def store(source: Receiver) -> None:
        with pytest.raises(MemoryError):
            source.store(1)
        source.store(1)

    assert stored(store, validate, records=1) == [1]
    assert not (tmp_path / "deadLetters").exists()


class Doubtful(Receiver):
    def onStart(self) -> None:
        self.store(-1)
        self.store(1)

    def onStop(self) -> None:
        pass

    def validate(self, record: int) -> bool:
        return record > 0


def test_a_method_of_a_subclass_and_a_declared_function_are_sent_along(
    run: Run, tracker: Tracker, tmp_path: Path
) -> None:
    run(Doubtful())
    tracker.wait_for_records(1)
    assert tracker.records() == [1]
    assert [record for record, _, _ in kept(tmp_path)] == [-1]

    @receiver(validate=positive)
    def numbers() -> Any:
        yield -1

    sent = cloudpickle.loads(cloudpickle.dumps(as_receiver(numbers)))
    assert sent.validate(1) is True
    assert as_receiver(lambda: iter([1])).validate is None


def test_refused_records_count_for_the_budget(run: Run, tracker: Tracker, shared: Shared) -> None:
    few = replace(SETTINGS, dead_letters_budget="1/d")
    run(Checks(shared, lambda source: source.store([-1, -2]), positive), few)
    tracker.wait_for(
        lambda: any(
            isinstance(message, ReportError) and "spark.penstock.deadLetters.budget" in str(message)
            for message in tracker.messages
        )
    )


async def coroutine(record: Any) -> None: ...


def generator(record: Any) -> Any:
    yield


@pytest.mark.parametrize(
    "wrong", ["text", 1, coroutine, generator, lambda: True, lambda a, b: True]
)
def test_what_is_no_function_of_one_record_is_refused_by_the_call(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"validate=.* is not accepted: a function of a record"):
        receiver(validate=wrong)
    source = Doubtful()
    source.validate = wrong
    with pytest.raises(TypeError, match=r"validate=.* is not accepted: a function of a record"):
        as_receiver(source)
