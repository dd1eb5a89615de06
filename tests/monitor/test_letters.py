"""The page counts dead letters as the commands do."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.dead_letters import DeadLetterPlace, DeadLetterWriter, LetterTail, letters
from penstock.monitor.web.status import Letters


def test_a_letter_counts_once_however_often_its_batch_is_computed(tmp_path: Path) -> None:
    for digit in "abc":
        place = DeadLetterPlace(str(tmp_path), 2, digit * 32, "map", "here")
        writer = DeadLetterWriter(place, lambda message, error: pytest.fail(message))
        for number in range(5):
            writer.add("bad", ValueError(), "", batch_ms=1, origin=f"map:1:0:{number}")
        # A receiver may discard what it is given again: these are two, here and there.
        writer.add("bad", KeyError(), "")
        writer.write()
        writer.close()
    shown = Letters(lambda: LetterTail(str(tmp_path), None, but=-1, tell=pytest.fail))
    counts, newest = shown.look()
    assert {found.error: found.count for found in counts} == {"ValueError": 5, "KeyError": 3}
    assert len(newest) == 8 == len(list(letters(str(tmp_path))))
