"""What is promised of letters when their log fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.dead_letters import (
    BudgetMeter,
    DeadLetterPlace,
    DeadLetterWriter,
    letters,
)
from penstock.settings.values import record_budget
from penstock.streaming.kernels.dead_letters import LettersOfRun, MapOrLetterOperation
from penstock.streaming.kernels.fusion import FusedFunction
from penstock.wal import LogWriteError, LogWriter


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the next appends to logs of these names fail, as many as there are."""
    names: list[str] = []
    append = LogWriter.append_many

    def failing(log: LogWriter, records: Any) -> Any:
        if names:
            names.pop()
            raise LogWriteError(log.folder, "the disk is full")
        return append(log, records)

    monkeypatch.setattr(LogWriter, "append_many", failing)
    return names


def test_letters_wait_in_memory_until_the_log_has_them(tmp_path: Path, fails: list[str]) -> None:
    place = DeadLetterPlace(str(tmp_path), 2, "a" * 32, "Gauge", "here")
    writer = DeadLetterWriter(place, lambda message, error: pytest.fail(message))
    for text in ("one", "two"):
        writer.add(text, ValueError(), "")
    fails.append("once")
    with pytest.raises(LogWriteError):
        writer.write()
    assert writer.has_waiting
    assert writer.waiting_bytes == writer.added_bytes
    writer.write()
    assert (writer.has_waiting, writer.waiting_bytes) == (False, 0)
    writer.close()
    assert [stored.letter.data for stored in letters(str(tmp_path))] == [b"one", b"two"]


def test_a_task_after_one_that_could_not_write_its_letters_begins_another_log_with_its_own(
    tmp_path: Path, fails: list[str]
) -> None:
    run = LettersOfRun(f"run-{tmp_path}", DeadLetterPlace(str(tmp_path), 0, "", "", ""))
    parse = MapOrLetterOperation(int, name="parse", made_by="here").in_batch(1000, 3, run)
    fails.append("once")
    with pytest.raises(LogWriteError):
        list(FusedFunction([parse])(0, ["of the first"]))
    assert list(FusedFunction([parse])(1, ["1", "of the second"])) == [1]
    assert [stored.letter.data for stored in letters(str(tmp_path))] == [b"of the second"]
    # The task is tried again.
    assert list(FusedFunction([parse])(0, ["of the first"])) == []
    found = [stored.letter for stored in letters(str(tmp_path))]
    assert [letter.data for letter in found] == [b"of the second", b"of the first"]
    assert len({letter.attempt for letter in found}) == 1


def test_the_window_of_a_budget_is_as_long_as_it_says() -> None:
    now_s = 0.5
    meter = BudgetMeter(0, record_budget("1/m"), lambda: now_s, lambda: 0)
    assert meter.add() is None
    now_s = 60.0
    assert meter.add() is None
    now_s = 119.0
    assert meter.add() is not None
