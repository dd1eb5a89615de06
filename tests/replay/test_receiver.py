"""A program is given what another one received, from that one's logs."""

from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock.blockstore import BlockKind
from penstock.replay import HistoryError, ReplayReceiver
from penstock.replay._receiver import _Pace, _pieces
from penstock.wal import LogReader
from tests.replay.history import COUNT, STREAMS, make_history, number, numbers
from tests.system.running import run_on


@pytest.fixture(scope="module")
def folder(sc: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_history(sc, tmp_path_factory.mktemp("program") / "checkpoint")


@dataclass
class Context:
    """What `run` uses of a `ReceiverContext`."""

    last_position: Any = None
    stopped: threading.Event = field(default_factory=threading.Event)
    told: list[str] = field(default_factory=list)

    def reportError(self, message: str, error: BaseException) -> None:
        self.told.append(message)


def run(receiver: Any, position: Any = None) -> Iterator[tuple[Any, Any]]:
    found: Iterator[tuple[Any, Any]] = receiver.run(Context(position))
    return found


def as_list(piece: Any) -> list[Any]:
    return piece.to_pylist() if isinstance(piece, pa.RecordBatch) else piece


@pytest.mark.long
@pytest.mark.slow
def test_a_program_gets_what_another_one_got_as_that_one_got_it(sc: Any, folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    with run_on(sc) as again:
        for name in STREAMS:
            again.process(ReplayReceiver(folder, numbers(folder)[name]), number)
        again.start()
        again.await_processed(len(STREAMS) * COUNT)
        again.stop()
    assert sorted(again.processed) == sorted(list(range(COUNT)) * len(STREAMS))
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.long
@pytest.mark.parametrize("name", STREAMS)
def test_it_goes_on_exactly_where_it_was(folder: Path, name: str) -> None:
    receiver = ReplayReceiver(folder, numbers(folder)[name])
    pieces = [(as_list(piece), position) for piece, position in run(receiver)]
    records = [record for piece, _ in pieces for record in piece]
    assert [number(record) for record in records] == list(range(COUNT))
    assert name != "rows" or any(position[3] for _, position in pieces)
    done = 0
    for at, (piece, position) in enumerate(pieces):
        done += len(piece)
        if at % 7 == 0 or at == len(pieces) - 1:
            left = [record for piece, _ in run(receiver, position) for record in as_list(piece)]
            assert left == records[done:]


def test_that_more_may_be_gone_than_was_read_is_an_error(folder: Path, tmp_path: Path) -> None:
    receiver = ReplayReceiver(folder, numbers(folder)["rows"])
    with pytest.raises(HistoryError, match=r"segment 7 of attempt abc.*was let go meanwhile"):
        next(run(receiver, ["abc", 7, 3, 0]))
    # Without retention a segment stays for its last blocks, when others are cleaned up.
    attempt, segment, *_ = next(run(receiver))[1]
    with pytest.raises(HistoryError, match=r"block 0 of segment .*was let go meanwhile"):
        next(run(receiver, [attempt, segment, 0, 0]))
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    lost = sorted(copy.glob(f"receivedData/{numbers(folder)['rows']}-*/segment-*.log"))[1]
    lost.unlink()
    with pytest.raises(HistoryError, match="cannot be read here: no segment at"):
        list(run(ReplayReceiver(copy, numbers(folder)["rows"])))
    with pytest.raises(HistoryError, match="there is no ledger"):
        next(run(ReplayReceiver(tmp_path, 0)))


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.replay._receiver._FIRST_S", 0.001)
    monkeypatch.setattr("penstock.replay._receiver._MOST_S", 0.001)


@pytest.mark.usefixtures("no_pauses")
def test_it_waits_for_a_folder_that_is_away_and_goes_on_where_it_was(
    folder: Path, tmp_path: Path
) -> None:
    copy, away = tmp_path / "copy", tmp_path / "away"
    shutil.copytree(folder, copy)
    context = Context()
    pieces = ReplayReceiver(copy, numbers(folder)["rows"]).run(context)  # type: ignore[arg-type]
    records = as_list(next(pieces)[0])
    copy.rename(away)

    is_over = threading.Event()

    def come_back() -> None:
        while not (context.told or is_over.wait(0.001)):
            pass
        away.rename(copy)

    coming = threading.Thread(target=come_back)
    coming.start()
    try:
        for piece, _ in pieces:
            records += as_list(piece)
    finally:
        is_over.set()
        coming.join()
    assert [number(record) for record in records] == list(range(COUNT))
    assert len(context.told) == 1
    assert "is away" in context.told[0]


@pytest.mark.usefixtures("no_pauses")
def test_it_waits_where_a_disk_or_a_name_node_does_not_answer_for_now(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = LogReader.open
    failures = [OSError(errno.EIO, "no answer"), PermissionError(errno.EACCES, "expired")]

    def failing(*arguments: Any, **named: Any) -> Any:
        if failures:
            raise failures.pop()
        return read(*arguments, **named)

    receiver = ReplayReceiver(folder, numbers(folder)["rows"])
    monkeypatch.setattr(LogReader, "open", failing)
    context = Context()
    found = receiver.run(context)  # type: ignore[arg-type]
    assert sum(len(as_list(piece)) for piece, _ in found) == COUNT
    assert not failures
    assert len(context.told) == 1


def test_a_stop_ends_the_wait_for_what_is_away(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    context = Context()
    pieces = ReplayReceiver(copy, numbers(folder)["rows"]).run(context)  # type: ignore[arg-type]
    next(pieces)
    shutil.rmtree(copy)
    context.reportError = lambda *_: context.stopped.set()  # type: ignore[method-assign]
    for _ in pieces:
        pass  # What was in its hand.
    assert context.stopped.is_set()


def test_a_pace_may_be_so_slow_that_nothing_comes_any_more() -> None:
    stopped = threading.Event()
    pace = _Pace(1e-300, stopped)
    assert pace.wait_for(1_000)
    threading.Timer(0.05, stopped.set).start()
    assert not pace.wait_for(61_000)


def test_blocks_come_at_their_pace(folder: Path) -> None:
    waits: list[float] = []
    stopped: Any = SimpleNamespace(wait=lambda timeout: waits.append(timeout) or False)
    pace = _Pace(10, stopped)
    assert all(pace.wait_for(1_000_000 + ms) for ms in (0, 5_000, 2_000, 60_000))
    assert waits[0] == 0
    assert [round(wait, 1) for wait in waits[1:]] == [0.5, 0.2, 6.0]
    context = Context()
    context.stopped.set()
    receiver = ReplayReceiver(folder, numbers(folder)["rows"], speed=1)
    assert list(receiver.run(context)) == []


@pytest.mark.parametrize("done", range(5))
def test_a_block_is_cut_into_pieces_whatever_its_records_are(done: int) -> None:
    small, big = b"x", b"y" * (200 << 10)
    records = [small, big, small, small]
    block: Any = SimpleNamespace(kind=BlockKind.BINARY, chunks=lambda: [records[:3], records[3:]])
    found = list(_pieces(block, done))
    assert [record for piece, _ in found for record in piece] == records[done:]
    batches = [pa.record_batch({"v": records[:3]}), pa.record_batch({"v": records[3:]})]
    block = SimpleNamespace(kind=BlockKind.ARROW, batches=lambda: batches)
    found = list(_pieces(block, done))
    assert [row["v"] for piece, _ in found for row in piece.to_pylist()] == records[done:]
    assert [upto for _, upto in found] == sorted({upto for _, upto in found})


@pytest.mark.parametrize(
    "arguments",
    [
        {"stream": True},
        {"speed": 0},
        {"speed": "1"},
        {"steps": 1},
        {"start": "soon"},
        {"folder": ""},
    ],
)
def test_an_argument_that_is_not_accepted_is_refused_at_once(arguments: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=next(iter(arguments))):
        ReplayReceiver(**{"folder": "/tmp", "stream": 0, **arguments})
