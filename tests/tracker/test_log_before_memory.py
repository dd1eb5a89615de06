"""I3, I4: whatever changes the ledger, its memory changes after the driver log has it, or not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.runtime.clock import ManualClock
from penstock.tracker import LedgerWriteError, Places, ReceivedBlockTracker, Retention
from penstock.tracker.ledger._recovery import snapshot_parts
from penstock.tracker.ledger.events import encode
from tests.tracker.ledger_cases import LOG_OPTIONS, RefusingFileSystem, add, attempt_name, block

A1, A2, A3 = (attempt_name(number) for number in (1, 2, 3))
HOUR_MS = 3_600_000


class Watched(RefusingFileSystem):
    """Looks at the ledger's memory when its log is written."""

    ledger: ReceivedBlockTracker | None = None

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[bytes] = []

    def check(self) -> None:
        if self.ledger is not None:
            self.seen.append(memory(self.ledger))
        super().check()


def memory(ledger: ReceivedBlockTracker) -> bytes:
    """Return all that a snapshot would have."""
    return b"".join(encode(part) for part in snapshot_parts(ledger._state, 1, 0))


def of_batches(folder: Path, clock: ManualClock, fs: Watched) -> ReceivedBlockTracker:
    """Return a ledger with two batches, a block that waits, a retained one, and an old attempt."""
    ledger = ReceivedBlockTracker.recover(
        (), str(folder), options=LOG_OPTIONS, fs=fs, clock=clock, retention=Retention(HOUR_MS)
    )
    ledger.register_streams({"clicks": 0})
    ledger.register_attempt(0, A1, "host")
    first = ledger.register_attempt(0, A2, "host").first_block_number
    for batch in range(3):
        add(ledger, 0, A2, [block(0, A2, first + batch, segment=batch)])
        ledger.allocate_blocks_to_batch(batch)
    add(ledger, 0, A2, [block(0, A2, first + 3, position=b"\x01")])
    ledger.complete_batches((0, 1))
    ledger.cleanup_old_batches(1)
    ledger.end_attempt(A1)
    return ledger


def of_places(folder: Path, clock: ManualClock, fs: Watched) -> ReceivedBlockTracker:
    """Return a ledger with five blocks; all that read them have passed the second one."""
    ledger = ReceivedBlockTracker.recover((), str(folder), options=LOG_OPTIONS, fs=fs, clock=clock)
    ledger.register_streams({"clicks": 0}, are_kept=True)
    first = ledger.register_attempt(0, A1, "host").first_block_number
    add(ledger, 0, A1, [block(0, A1, number) for number in range(first, first + 5)])
    ledger.places.hold(0, "new", 3)
    ledger.places.commit(0, "reads", 2)
    clock.advance(1000)
    return ledger


def next_block(ledger: ReceivedBlockTracker, attempt: str) -> Any:
    return block(0, attempt, ledger._state.attempts[attempt].numbers.next)


def raised(found: Sequence[object]) -> None:
    """Raise what a ledger returned as an error."""
    for one in found:
        if isinstance(one, Exception):
            raise one


def on_places(act: Callable[[Places], object]) -> Callable[[ReceivedBlockTracker], object]:
    return lambda ledger: act(ledger.places)


CHANGES: dict[str, tuple[Any, Callable[[ReceivedBlockTracker], object]]] = {
    "streams are named": (
        of_batches,
        lambda ledger: ledger.register_streams({"clicks": 0, "orders": 1}),
    ),
    "a stream is given up": (
        of_batches,
        lambda ledger: ledger.register_streams({"orders": 1}, removed=("clicks",)),
    ),
    "an attempt is registered": (
        of_batches,
        lambda ledger: ledger.register_attempt(0, A3, "host"),
    ),
    "attempts are registered together": (
        of_batches,
        lambda ledger: raised(ledger.register_attempts([(0, A2, "host", ""), (0, A3, "host", "")])),
    ),
    "an attempt is forgotten": (of_batches, lambda ledger: ledger.forget_attempts((A1,))),
    "a block is added": (
        of_batches,
        lambda ledger: add(ledger, 0, A2, [next_block(ledger, A2)]),
    ),
    "a batch is allocated": (of_batches, lambda ledger: ledger.allocate_blocks_to_batch(3)),
    "batches are given back": (of_batches, lambda ledger: ledger.return_unfinished_batches()),
    "a batch is cleaned up": (of_batches, lambda ledger: ledger.cleanup_old_batches(2)),
    "a kept block is added": (
        of_places,
        lambda ledger: add(ledger, 0, A1, [next_block(ledger, A1)]),
    ),
    "a stream that is kept is named": (
        of_places,
        lambda ledger: ledger.register_streams({"clicks": 0, "orders": 1}, are_kept=True),
    ),
    "a consumer comes": (of_places, on_places(lambda places: places.hold(0, "later", 1))),
    "a consumer commits": (of_places, on_places(lambda places: places.commit(0, "reads", 4))),
    "an unknown one commits": (of_places, on_places(lambda places: places.commit(0, "later", 4))),
    "a consumer is real": (of_places, on_places(lambda places: places.confirm(0, "new", 3))),
    "an unknown one is real": (of_places, on_places(lambda places: places.confirm(0, "later", 3))),
    "a consumer is seen": (of_places, on_places(lambda places: places.note_seen(0, ["reads"]))),
    "a consumer is dropped": (of_places, on_places(lambda places: places.drop(0, ["reads"]))),
    "places are released": (of_places, on_places(lambda places: places.release({0: Retention(0)}))),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("is_taken", [True, False])
def test_memory_changes_after_the_driver_log_or_not_at_all(
    tmp_path: Path, change: str, is_taken: bool
) -> None:
    make, act = CHANGES[change]
    fs = Watched()
    ledger = make(tmp_path / "log", ManualClock(1_700_000_000_000), fs)
    before = memory(ledger)
    fs.ledger, fs.full = ledger, not is_taken
    with contextlib.suppress(LedgerWriteError):
        act(ledger)
    assert set(fs.seen) == {before}
    assert (memory(ledger) != before) == is_taken
    fs.full = False
    if not is_taken:
        act(ledger)
        assert memory(ledger) != before
    ledger.close()


def test_what_the_driver_log_did_not_take_is_neither_deleted_nor_out_of_reach(
    tmp_path: Path,
) -> None:
    fs = Watched()
    ledger = of_places(tmp_path / "log", ManualClock(1_700_000_000_000), fs)
    fs.full = True
    assert ledger.places.release({0: Retention(0)}) == []
    assert ledger.places.stream(0).first == 0
    assert len(ledger.places.between(0, 0, 5)[1]) == 5
    fs.full = False
    (gone,) = ledger.places.release({0: Retention(0)})
    assert len(gone.block_ids) == ledger.places.stream(0).first == 2
    ledger.close()
