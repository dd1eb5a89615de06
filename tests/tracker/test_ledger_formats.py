"""What the ledger writes keeps its form; a ledger of another form is refused with a reason."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from penstock.tracker import LedgerRecoveryError, ReceivedBlockTracker
from penstock.tracker.ledger import events
from penstock.tracker.ledger._ledger_state import LedgerState
from penstock.tracker.ledger._recovery import snapshot_parts
from penstock.tracker.ledger.events import EVENTS_KIND, FORMAT, SNAPSHOT_KIND, encode
from penstock.wal import LogWriter
from tests.tracker.ledger_cases import LOG_OPTIONS


def recover(folder: Path) -> ReceivedBlockTracker:
    return ReceivedBlockTracker.recover([0, 1], str(folder), options=LOG_OPTIONS)


@pytest.mark.parametrize("version", [FORMAT - 1, FORMAT + 1])
@pytest.mark.parametrize("kind", [EVENTS_KIND, SNAPSHOT_KIND])
@pytest.mark.parametrize("known", [True, False], ids=["known events", "unknown events"])
def test_a_ledger_of_another_format_is_refused_with_both_versions(
    tmp_path: Path, kind: int, known: bool, version: int
) -> None:
    if kind == SNAPSHOT_KIND:
        (part,) = snapshot_parts(LedgerState(), 1, 0)
        payload = encode(msgspec.structs.replace(part, version=version))
    else:
        event = (3, (1000,)) if known else (99, "something new")
        payload = msgspec.msgpack.encode((1, 0, (event,), version, "more"))
    with LogWriter.create(str(tmp_path), options=LOG_OPTIONS) as log:
        log.append(kind, payload)
    with pytest.raises(LedgerRecoveryError, match="this Penstock reads") as raised:
        recover(tmp_path)
    assert f"in version {version} " in str(raised.value)
    assert f"reads version {FORMAT}:" in str(raised.value)


ROW = events.BlockRow(1, 2, 3, 4, 5, 6, 7, 8, 9, None, ((10, 11, 12, 13),), 14)
ADDITION = events.BlockAdditionEvent(0, "a", "h", "m", "f", "binary", None, (ROW,), (("o", "g"),))
WRITTEN: list[tuple[msgspec.Struct, str]] = [
    (ROW, "[1,2,3,4,5,6,7,8,9,null,[[10,11,12,13]],14]"),
    (
        ADDITION,
        (
            '[1,0,"a","h","m","f","binary",null,[[1,2,3,4,5,6,7,8,9,null,[[10,11,12,13]],14]],'
            '[["o","g"]]]'
        ),
    ),
    (events.BatchAllocationEvent(1000, ((0, ((1, 2),)),)), "[2,1000,[[0,[[1,2]]]]]"),
    (events.BatchCleanupEvent((1000,)), "[3,[1000],-1]"),
    (events.AttemptRegistrationEvent(0, "a", "h", 1), '[4,0,"a","h",1,""]'),
    (events.AttemptEndEvent(("a",)), '[5,["a"]]'),
    (events.BatchReturnEvent((1000,)), "[6,[1000]]"),
    (events.BatchCompletionEvent((1000,)), "[7,[1000]]"),
    (events.StreamNamesEvent(((0, "orders"),)), '[8,[[0,"orders"]]]'),
    (events.StreamRemovalEvent((0,)), "[9,[0]]"),
    (events.StreamKeepingEvent(((0, "e"),)), '[10,[[0,"e"]]]'),
    (events.ConsumerEvent(0, "c", 1, True, 2), '[11,0,"c",1,true,2]'),
    (events.ConsumerRemovalEvent(0, ("c",)), '[12,0,["c"]]'),
    (events.PlaceReleaseEvent(0, 1), "[13,0,1]"),
    (events.RetainedReleaseEvent((("f", 1),)), '[14,[["f",1]]]'),
    (events.SplitsEvent(((0, ("a",)), (1, None)), 1, 2), '[17,[[0,["a"]],[1,null]],1,2,{}]'),
    (
        events.CopyEvent(0, "a", "h", "f", ((1, 2, 3, 4, 5),), ("g",)),
        '[18,0,"a","h","f",[[1,2,3,4,5]],["g"]]',
    ),
    (events.LettersSentEvent(0, (b"key",), 1, 2), '[19,0,["a2V5"],1,2]'),
    (events.CheckpointEvent(0, True, b"graph"), '[15,0,true,"Z3JhcGg="]'),
    (events.RetainedSegment("a", "f", 1, 2, 3, 4, [(5, 6)]), '["a","f",1,2,3,4,[[5,6]]]'),
    (events.LedgerRecord(2, 1, (events.BatchCleanupEvent(()),)), "[2,1,[[3,[],-1]],13]"),
    (events.GapState(1, 2, 3, 4), "[1,2,3,4]"),
    (events.AttemptState("a", 0, "h", 1, 2, 3, ()), '["a",0,"h",1,2,3,[],[],""]'),
    (events.StreamState(0, 1, "a", None, 2), '[0,1,"a",null,2,"",null,null,0,0,[]]'),
    (events.Consumer(1, True, 2), "[1,true,2,null]"),
    (events.LoggedEpoch("s", 1, 2, 3), '["s",1,2,3,null,0,false]'),
    (
        events.EpochEvent(0, "c", 1, events.LoggedEpoch("s", 1, 2, 3), 4),
        '[16,0,"c",1,["s",1,2,3,null,0,false],4]',
    ),
    (events.KeptState("e", 1, 2, 3, {}), '["e",1,2,3,{},"",null,-1]'),
    (
        events.SnapshotPart(1, 2, 3, True, 4, (), (), (), ()),
        '[1,2,3,true,4,[],[],[],[],13,[],-1,[],""]',
    ),
]


@pytest.mark.parametrize(
    ("part", "written"), WRITTEN, ids=[type(part).__name__ for part, _ in WRITTEN]
)
def test_what_the_driver_log_holds_keeps_its_form(part: msgspec.Struct, written: str) -> None:
    """Another form needs a new `FORMAT`."""
    assert msgspec.json.encode(part).decode() == written


def test_there_is_a_form_of_everything_that_the_driver_log_holds() -> None:
    kinds = {
        kind
        for kind in vars(events).values()
        if isinstance(kind, type)
        and issubclass(kind, msgspec.Struct)
        and kind.__module__ == events.__name__
        and not kind.__name__.startswith("_")
    }
    assert kinds == {type(part) for part, _ in WRITTEN}
