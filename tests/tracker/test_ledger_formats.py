"""Ledgers that earlier versions wrote are read, and those of later ones refused with a reason.

`ledger_formats/<version>` holds the driver log of a program that was written in that version.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from penstock.tracker import LedgerRecoveryError, ReceivedBlockTracker, _events
from penstock.tracker._events import EVENTS_KIND, FORMAT, SNAPSHOT_KIND, encode
from penstock.tracker._ledger_state import LedgerState
from penstock.tracker._recovery import snapshot_parts
from penstock.wal import LogWriter
from penstock.wire.messages import Ok
from tests.tracker.ledger_cases import LOG_OPTIONS, add, attempt_name, block, ids

BEFORE = Path(__file__).parent / "ledger_formats"


def recover(folder: Path) -> ReceivedBlockTracker:
    return ReceivedBlockTracker.recover([0, 1], str(folder), options=LOG_OPTIONS)


def test_a_ledger_of_format_1_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    shutil.copytree(BEFORE / "1", folder)
    ledger = recover(folder)
    numbers = [(2 << 32) + n for n in range(3)]
    held = ledger.get_blocks_of_batch_and_stream(4000, 0)
    assert ids(held) == [f"input-0-{n}" for n in numbers[:2]]
    assert ids(ledger.unallocated_blocks(0)) == [f"input-0-{numbers[2]}"]
    assert (ledger.last_position(0), ledger.last_position(1)) == (b"a6", b"b1")
    assert ledger.last_allocated_ms == 4000
    # It did not know which batches were complete.
    assert ledger.incomplete_batches() == (4000,)
    assert ledger.return_unfinished_batches() == 2
    name = attempt_name(9)
    first = ledger.register_attempt(0, name, "host").first_block_number
    assert first > max(numbers)
    assert add(ledger, 0, name, [block(0, name, first, position=b"a7")]) == Ok()
    ledger.allocate_blocks_to_batch(5000)
    ledger.complete_batches([5000])
    ledger.close()
    again = recover(folder)
    assert len(again.get_blocks_of_batch_and_stream(5000, 0)) == 4
    assert again.incomplete_batches() == ()


@pytest.mark.parametrize("kind", [EVENTS_KIND, SNAPSHOT_KIND])
@pytest.mark.parametrize("known", [True, False], ids=["known events", "unknown events"])
def test_a_ledger_of_a_later_format_is_refused_with_both_versions(
    tmp_path: Path, kind: int, known: bool
) -> None:
    later = FORMAT + 1
    if kind == SNAPSHOT_KIND:
        (part,) = snapshot_parts(LedgerState(), 1, 0)
        payload = encode(msgspec.structs.replace(part, version=later))
    else:
        event = (3, (1000,)) if known else (99, "something new")
        payload = msgspec.msgpack.encode((1, 0, (event,), later, "more"))
    with LogWriter.create(str(tmp_path), options=LOG_OPTIONS) as log:
        log.append(kind, payload)
    with pytest.raises(LedgerRecoveryError, match="newer Penstock") as raised:
        recover(tmp_path)
    assert f"version {later}" in str(raised.value)
    assert f"up to version {FORMAT}" in str(raised.value)


ROW = _events.BlockRow(1, 2, 3, 4, 5, 6, 7, 8, 9, None, ((10, 11, 12, 13),), 14)
ADDITION = _events.BlockAdditionEvent(0, "a", "h", "m", "f", "binary", None, (ROW,), (("o", "g"),))
WRITTEN = {
    ROW: "[1,2,3,4,5,6,7,8,9,null,[[10,11,12,13]],14]",
    ADDITION: (
        '[1,0,"a","h","m","f","binary",null,[[1,2,3,4,5,6,7,8,9,null,[[10,11,12,13]],14]],'
        '[["o","g"]]]'
    ),
    _events.BatchAllocationEvent(1000, ((0, ((1, 2),)),)): "[2,1000,[[0,[[1,2]]]]]",
    _events.BatchCleanupEvent((1000,)): "[3,[1000],-1]",
    _events.AttemptRegistrationEvent(0, "a", "h", 1): '[4,0,"a","h",1,""]',
    _events.AttemptEndEvent(("a",)): '[5,["a"]]',
    _events.BatchReturnEvent((1000,)): "[6,[1000]]",
    _events.BatchCompletionEvent((1000,)): "[7,[1000]]",
    _events.StreamNamesEvent(((0, "orders"),)): '[8,[[0,"orders"]]]',
    _events.StreamRemovalEvent((0,)): "[9,[0]]",
    _events.StreamKeepingEvent(((0, "e"),)): '[10,[[0,"e"]]]',
    _events.ConsumerEvent(0, "c", 1, True, 2): '[11,0,"c",1,true,2]',
    _events.ConsumerRemovalEvent(0, ("c",)): '[12,0,["c"]]',
    _events.PlaceReleaseEvent(0, 1): "[13,0,1]",
    _events.RetainedReleaseEvent((("f", 1),)): '[14,[["f",1]]]',
    _events.SplitsEvent(((0, ("a",)), (1, None)), 1, 2): '[17,[[0,["a"]],[1,null]],1,2]',
    _events.CheckpointEvent(0, True, b"graph"): '[15,0,true,"Z3JhcGg="]',
    _events.RetainedState("a", "f", 1, 2, 3, 4, ((5, 6),)): '["a","f",1,2,3,4,[[5,6]]]',
    _events.LedgerRecord(2, 1, (_events.BatchCleanupEvent(()),)): "[2,1,[[3,[],-1]],1]",
    _events.GapState(1, 2, 3, 4): "[1,2,3,4]",
    _events.AttemptState("a", 0, "h", 1, 2, 3, ()): '["a",0,"h",1,2,3,[],[],""]',
    _events.StreamState(0, 1, "a", None, 2): '[0,1,"a",null,2,"",null,null,0,0]',
    _events.ConsumerState("c", 1, True, 2): '["c",1,true,2,null]',
    _events.LoggedEpoch("s", 1, 2, 3): '["s",1,2,3,null,0,false]',
    _events.EpochEvent(0, "c", 1, _events.LoggedEpoch("s", 1, 2, 3), 4): (
        '[16,0,"c",1,["s",1,2,3,null,0,false],4]'
    ),
    _events.KeptState("e", 1, 2, 3, ()): '["e",1,2,3,[],"",null,-1]',
    _events.SnapshotPart(1, 2, 3, True, 4, (), (), (), ()): (
        '[1,2,3,true,4,[],[],[],[],1,[],-1,[],""]'
    ),
}


@pytest.mark.parametrize("part", WRITTEN, ids=lambda part: type(part).__name__)
def test_what_the_driver_log_holds_keeps_its_form(part: msgspec.Struct) -> None:
    """Fields may be added at the end, with a default; anything else needs a new `FORMAT`."""
    assert msgspec.json.encode(part).decode() == WRITTEN[part]
    assert type(part).__struct_config__.frozen


def test_there_is_a_form_of_everything_that_the_driver_log_holds() -> None:
    kinds = {
        kind
        for kind in vars(_events).values()
        if isinstance(kind, type)
        and issubclass(kind, msgspec.Struct)
        and kind.__module__ == _events.__name__
        and not kind.__name__.startswith("_")
    }
    assert kinds == set(map(type, WRITTEN))
