"""Checkpoints in the driver log: whole or not there, with the ledger that they belong to."""

from __future__ import annotations

import contextlib
import os
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from penstock.tracker import DamagedLedgerError, LedgerWriteError, read_checkpoint
from penstock.tracker.ledger._driver_log import SnapshotRule
from penstock.tracker.ledger._ledger_state import LedgerState
from penstock.tracker.ledger._recovery import SnapshotReader, snapshot_parts
from penstock.tracker.ledger.received_block_tracker import ReceivedBlockTracker
from penstock.wal import (
    EncryptionKey,
    EncryptionMismatchError,
    LogFolderInUseError,
    LogOptions,
    SyncPolicy,
    WalError,
)
from tests.tracker.ledger_cases import LOG_OPTIONS, RefusingFileSystem
from tests.wal.faulty_filesystem import FaultyFileSystem, MeanwhileFileSystem, SimulatedCrashError

KEY = EncryptionKey.generate()
OTHER = EncryptionKey.generate()
LARGE = os.urandom(5 << 20)
"""More than two records hold."""


def recover(folder: Path, **arguments: object) -> ReceivedBlockTracker:
    given = {"options": LOG_OPTIONS, **arguments}
    return ReceivedBlockTracker.recover([0], str(folder), **given)  # type: ignore[arg-type]


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("segment-*.log"))


@pytest.mark.parametrize("size", [1, 2 << 20, len(LARGE)])
def test_the_newest_one_is_read_also_from_a_snapshot(tmp_path: Path, size: int) -> None:
    assert read_checkpoint(str(tmp_path / "none")) == b""
    ledger = recover(tmp_path)
    assert ledger.checkpoint == b""
    ledger.write_checkpoint(b"older")
    ledger.allocate_blocks_to_batch(1000)
    ledger.write_checkpoint(LARGE[:size])
    ledger.allocate_blocks_to_batch(2000)
    ledger.close()
    for _ in range(2):  # the first one writes a snapshot
        assert read_checkpoint(str(tmp_path)) == LARGE[:size]
        ledger = recover(tmp_path)
        assert ledger.checkpoint == LARGE[:size]
        assert ledger.last_allocated_ms == 2000
        ledger.close()
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in segments(tmp_path))


def test_older_ones_go_with_their_segments(tmp_path: Path) -> None:
    ledger = recover(tmp_path, snapshots=SnapshotRule(size_bytes=1 << 16))
    for number in range(200):
        ledger.write_checkpoint(bytes([number]) * 5000)
        ledger.allocate_blocks_to_batch(1000 * (number + 1))
    assert sum(path.stat().st_size for path in segments(tmp_path)) < 1 << 18
    ledger.close()
    again = recover(tmp_path)
    assert again.checkpoint == bytes([199]) * 5000
    assert again.last_allocated_ms == 200_000
    again.close()


def test_who_runs_from_the_log_is_named_to_who_would_go_on_from_it(tmp_path: Path) -> None:
    ledger = recover(tmp_path, application="orders")
    ledger.write_checkpoint(b"one")
    for use in (lambda: read_checkpoint(str(tmp_path)), lambda: recover(tmp_path)):
        with pytest.raises(LogFolderInUseError, match=f"process {os.getpid()} .*orders"):
            use()
    # Who only looks may.
    assert read_checkpoint(str(tmp_path), is_taken=False) == b"one"
    ledger.close()
    assert read_checkpoint(str(tmp_path)) == b"one"


def test_who_looks_while_a_snapshot_replaces_all_finds_the_one_before_or_the_new_one(
    tmp_path: Path,
) -> None:
    """Never none, and no file that is gone (I15)."""
    for moment in count():
        folder = tmp_path / str(moment)
        ledger = recover(folder, snapshots=SnapshotRule(size_bytes=1))
        ledger.write_checkpoint(b"one")
        fs = MeanwhileFileSystem(moment, partial(ledger.write_checkpoint, b"two" * 1000))
        found = ReceivedBlockTracker.read(str(folder), fs=fs).checkpoint
        ledger.close()
        if not fs.is_done:
            assert moment >= 3
            return
        assert found in (b"one", b"two" * 1000)


def test_one_that_the_log_did_not_take_leaves_the_one_before(tmp_path: Path) -> None:
    fs = RefusingFileSystem()
    ledger = recover(tmp_path, fs=fs)
    ledger.write_checkpoint(b"one")
    fs.full = True
    with pytest.raises(LedgerWriteError, match="a checkpoint"):
        ledger.write_checkpoint(LARGE)
    assert ledger.checkpoint == b"one"
    fs.full = False
    assert read_checkpoint(str(tmp_path), is_taken=False) == b"one"
    ledger.allocate_blocks_to_batch(1000)
    assert read_checkpoint(str(tmp_path), is_taken=False) == b"one"
    ledger.write_checkpoint(LARGE)
    ledger.close()
    assert recover(tmp_path).checkpoint == LARGE


def test_one_of_which_only_a_part_was_written_counts_for_nothing(tmp_path: Path) -> None:
    fs = RefusingFileSystem()
    ledger = recover(tmp_path, fs=fs)
    ledger.write_checkpoint(b"one")
    taken = ledger._driver_log.append
    calls = []

    def full_after_two(*arguments: object) -> None:
        calls.append(arguments)
        fs.full = len(calls) > 2
        taken(*arguments)  # type: ignore[arg-type]

    ledger._driver_log.append = full_after_two  # type: ignore[method-assign]
    with pytest.raises(LedgerWriteError):
        ledger.write_checkpoint(LARGE)
    assert len(calls) == 3
    fs.full = False
    ledger._driver_log.append = taken  # type: ignore[method-assign]
    assert ledger.checkpoint == b"one"
    ledger.allocate_blocks_to_batch(1000)
    assert read_checkpoint(str(tmp_path), is_taken=False) == b"one"
    ledger.write_checkpoint(b"two")
    ledger.close()
    assert recover(tmp_path).checkpoint == b"two"


@pytest.mark.parametrize("sync", list(SyncPolicy))
@pytest.mark.parametrize("power_loss", [False, True])
def test_after_a_crash_at_any_call_the_ledger_is_not_behind_the_checkpoint(
    sync: SyncPolicy, power_loss: bool
) -> None:
    """Whatever the log's policy, a checkpoint that was written survives a loss of power."""
    options = LogOptions(segment_size=1 << 14, alignment=64, sync=sync, sync_interval_s=1e6)
    calls = 0
    while True:
        fs = FaultyFileSystem(seed=calls)
        fs.crash_after(calls)
        written = 0
        try:
            ledger = recover(
                Path("/log"), fs=fs, options=options, snapshots=SnapshotRule(size_bytes=9000)
            )
            for number in range(1, 6):
                ledger.allocate_blocks_to_batch(number)
                ledger.write_checkpoint(bytes([number]) * 3000)
                written = number
        except SimulatedCrashError:
            pass
        if written == 5:
            assert calls > 20
            return
        fs.restart(power_loss=power_loss)
        again = recover(Path("/log"), fs=fs, options=options)
        newest = again.checkpoint[0] if again.checkpoint else 0
        assert newest in (written, written + 1)
        assert again.checkpoint == bytes([newest]) * (3000 if newest else 0)
        assert max(again.last_allocated_ms, 0) >= newest
        again.write_checkpoint(b"next")
        again.close()
        calls += 1


def test_every_changed_byte_of_a_closed_log_is_found(tmp_path: Path) -> None:
    """No older state is gone on from in place of a newer one."""
    ledger = recover(tmp_path)
    ledger.write_checkpoint(b"older" * 20)
    ledger.allocate_blocks_to_batch(1000)
    ledger.write_checkpoint(b"newest" * 20)
    ledger.close()
    (path,) = segments(tmp_path)
    whole = path.read_bytes()
    begin, end = whole.index(b"older"), whole.rindex(b"newest") + 6
    found = 0
    for place in range(begin, end, 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with contextlib.suppress(DamagedLedgerError):
            # Between the records nothing is lost.
            assert read_checkpoint(str(tmp_path)) == b"newest" * 20
            found += 1
    assert found < (end - begin) / 7 / 2


def test_what_is_encrypted_lies_there_in_no_other_form(tmp_path: Path) -> None:
    mark = b"what nobody may find on a disk" * 10
    ledger = recover(tmp_path, encryption=KEY)
    ledger.write_checkpoint(mark)
    ledger.close()
    assert read_checkpoint(str(tmp_path), KEY) == mark
    stored = b"".join(path.read_bytes() for path in segments(tmp_path))
    assert mark[:10] not in stored
    assert KEY.secret not in stored


@pytest.mark.parametrize(
    ("written", "read", "error"),
    [
        (KEY, OTHER, EncryptionMismatchError),
        (KEY, None, EncryptionMismatchError),
        (None, KEY, EncryptionMismatchError),
    ],
)
def test_what_has_another_key_or_none_is_refused_and_stays(
    tmp_path: Path,
    written: EncryptionKey | None,
    read: EncryptionKey | None,
    error: type[WalError],
) -> None:
    ledger = recover(tmp_path, encryption=written)
    ledger.write_checkpoint(b"one")
    ledger.close()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(error):
        read_checkpoint(str(tmp_path), read)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    with pytest.raises(error):
        recover(tmp_path, encryption=read)
    assert read_checkpoint(str(tmp_path), written) == b"one"


def test_nothing_of_a_snapshot_without_an_end_is_in_the_checkpoint_of_the_next_one() -> None:
    state = LedgerState()
    state.checkpoint = LARGE
    parts = list(snapshot_parts(state, 1, 0))
    reader = SnapshotReader()
    assert [reader.feed(part) for part in parts[:-1]] == [None] * (len(parts) - 1)
    *_, found = [reader.feed(part) for part in parts]
    assert found is not None
    assert found.checkpoint == LARGE
