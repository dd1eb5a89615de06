"""A driver log that takes nothing for a while: batches wait, and then have all that came."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from tests.streaming.restarts.driven import BEGIN_MS, Driven, World


def build(ssc: Any, world: World) -> None:
    world.keep(world.stream(ssc), "records")


def fill_disk(program: Driven, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    assert program.world.side is not None
    monkeypatch.setattr(program.world.side.ledger._driver_log._writer, "append", refuse)


@pytest.mark.parametrize("ends_in_a_crash", [False, True])
def test_batches_wait_for_it_and_no_record_is_lost(
    ends_in_a_crash: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Driven(build) as program:
        program.start()
        program.receive([1])
        program.advance(1000)
        program.receive([2])
        fill_disk(program, monkeypatch)
        program.advance(3000)
        assert list(program.world.results["records"]) == [BEGIN_MS + 1000]
        monkeypatch.undo()
        if ends_in_a_crash:
            program.crash()
            program.start()
        program.advance(1000)
        program.receive([3])
        program.advance(1000)
        assert program.world.errors == []
        found = {
            (ms - BEGIN_MS) // 1000: given for ms, given in program.world.results["records"].items()
        }
        assert found == {1: [[1]], 2: [[2]], 3: [[]], 4: [[]], 5: [[]], 6: [[3]]}


def test_it_is_told_once_when_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    with Driven(build) as program:
        program.start()
        program.receive([1])
        fill_disk(program, monkeypatch)
        for _ in range(300):
            program.advance(1000)
        (error,) = program.world.errors
        assert "its blocks cannot be allocated for" in str(error)
        monkeypatch.undo()
        program.advance(1000)
        assert program.world.results["records"][BEGIN_MS + 1000] == [[1]]
