"""What the directory of a host that has ended says of its streams, without Spark."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.host.durability import BLOCKS, LEDGER
from penstock.sql import FolderError, SourceError
from penstock.sql.source._ended_host import EndedHost
from penstock.tracker import ReceivedBlockTracker
from penstock.wal import EncryptionKey
from penstock.wire.messages import BlocksAt, FindStream, ListBlocks, StreamAt
from tests.tracker.ledger_cases import LOG_OPTIONS, attempt_name
from tests.tracker.place_cases import Case


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_it_answers_as_the_host_did_and_changes_nothing(tmp_path: Path) -> None:
    case = Case(tmp_path / LEDGER)
    case.commit(2)
    case.release()
    before = case.ask(FindStream("clicks"))
    case.ledger.close()
    files = contents(tmp_path)
    ended = EndedHost(str(tmp_path))
    found = ended.ask(FindStream("clicks"), StreamAt)
    assert (found.epoch, found.first, found.next, found.kind) == (before.epoch, 2, 5, "binary")
    assert found.released_ms == before.released_ms >= 0
    blocks = ended.ask(ListBlocks(0, found.epoch, "", 2, 5), BlocksAt)
    assert [block.block_id for block in blocks.blocks] == [b.block_id for b in case.blocks[2:]]
    ended.close()
    assert contents(tmp_path) == files


def test_blocks_are_looked_for_below_the_folder_and_else_where_they_were(tmp_path: Path) -> None:
    case = Case(tmp_path / LEDGER, count=1)
    case.start_again()
    case.add(1)
    case.ledger.close()
    moved = tmp_path / BLOCKS / f"0-{attempt_name(2)}"
    moved.mkdir(parents=True)
    ended = EndedHost(str(tmp_path))
    found = ended.ask(ListBlocks(0, case.epoch, "", 0, 2), BlocksAt).blocks
    assert [block.segment.folder for block in found if block.segment is not None] == [
        f"/log/0-{attempt_name(1)}",
        str(moved),
    ]
    assert all(block.memory is None for block in found)


def test_the_directory_of_a_host_that_runs_is_refused(tmp_path: Path) -> None:
    case = Case(tmp_path / LEDGER)
    with pytest.raises(FolderError, match=rf"host runs \(process {os.getpid()} .*stop it first"):
        EndedHost(str(tmp_path))
    case.ledger.close()
    EndedHost(str(tmp_path)).close()


def test_a_stream_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    Case(tmp_path / LEDGER).ledger.close()
    with pytest.raises(SourceError, match=r"there is no stream 'orders'.* clicks"):
        EndedHost(str(tmp_path)).ask(FindStream("orders"), StreamAt)


def test_a_folder_without_a_ledger_or_places_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(FolderError, match="there is no ledger"):
            EndedHost(str(folder))
    with pytest.raises(FolderError, match="on a file system that"):
        EndedHost("s3a://bucket/folder")
    ledger = ReceivedBlockTracker.recover((), str(tmp_path / LEDGER), options=LOG_OPTIONS)
    ledger.register_streams({"clicks": 0})
    ledger.close()
    with pytest.raises(FolderError, match="StreamingContext"):
        EndedHost(str(tmp_path))


def test_an_encrypted_ledger_is_read_with_its_key_only(tmp_path: Path) -> None:
    key = EncryptionKey(os.urandom(32))
    ledger = ReceivedBlockTracker.recover(
        (), str(tmp_path / LEDGER), options=LOG_OPTIONS, encryption=key
    )
    ledger.register_streams({"clicks": 0}, are_kept=True)
    ledger.close()
    assert EndedHost(str(tmp_path), key).ask(FindStream("clicks"), StreamAt).next == 0
    for wrong in (None, EncryptionKey(os.urandom(32))):
        with pytest.raises(FolderError, match=r"encrypted|key"):
            EndedHost(str(tmp_path), wrong)


def test_a_damaged_ledger_is_an_error(tmp_path: Path) -> None:
    case = Case(tmp_path / LEDGER)
    case.add(3)
    case.ledger.close()
    (log,) = (tmp_path / LEDGER).glob("segment-*.log")
    data = bytearray(log.read_bytes())
    at = data.index(b"binary")
    data[at] ^= 1
    log.write_bytes(data)
    with pytest.raises(FolderError, match="damaged"):
        EndedHost(str(tmp_path))
