"""What killed programs left goes with the next start; what somebody still has stays."""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from pathlib import Path

import pytest

from penstock.streaming._leftovers import remove_empty_rdd_folders, remove_scratch_folders

LEDGER = "receivedBlockMetadata"


def scratch(parent: Path, *, age_s: float = 3600.0) -> Path:
    """A scratch folder as a driver that was killed leaves it."""
    folder = parent / f"penstock-local-1795347899203-{uuid.uuid4().hex[:8]}"
    for name in (LEDGER, "receivedData/0-abc"):
        (folder / name).mkdir(parents=True)
        (folder / name / "LOCK").touch()
        (folder / name / "segment-000000000001.log").write_bytes(b"x")
    (folder / "block-server-x.lock").touch()
    past_s = time.time() - age_s
    for path in folder.rglob("*"):
        os.utime(path, (past_s, past_s))
    return folder


def test_the_scratch_folder_of_a_killed_program_is_removed(tmp_path: Path) -> None:
    folder = scratch(tmp_path)
    remove_scratch_folders(str(tmp_path), LEDGER)
    assert not folder.exists()


@pytest.mark.parametrize(
    "lock", [f"{LEDGER}/LOCK", "receivedData/0-abc/LOCK", "block-server-x.lock"]
)
def test_a_folder_stays_while_a_driver_a_receiver_or_a_block_server_has_it(
    tmp_path: Path, lock: str
) -> None:
    folder = scratch(tmp_path)
    with (folder / lock).open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        remove_scratch_folders(str(tmp_path), LEDGER)
        assert len(list(folder.rglob("*"))) == 8


def test_a_program_that_is_just_starting_keeps_its_folder(tmp_path: Path) -> None:
    young = scratch(tmp_path, age_s=1.0)
    unlocked = tmp_path / "penstock-local-1-0123abcd" / LEDGER
    unlocked.mkdir(parents=True)
    remove_scratch_folders(str(tmp_path), LEDGER)
    assert young.exists()
    assert unlocked.exists()


def test_other_folders_and_links_are_left_alone(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    target = scratch(elsewhere)
    here = tmp_path / "here"
    here.mkdir()
    (here / target.name).symlink_to(target)
    (here / "penstock-demo-abc").mkdir()
    remove_scratch_folders(str(here), LEDGER)
    assert target.exists()
    assert (here / "penstock-demo-abc").exists()


def test_empty_folders_of_rdd_checkpoints_are_removed_but_for_the_own_one(tmp_path: Path) -> None:
    own, empty, full = (tmp_path / str(uuid.uuid4()) for _ in range(3))
    for folder in (own, empty, full / "rdd-7", tmp_path / "mine"):
        folder.mkdir(parents=True)
    remove_empty_rdd_folders(str(tmp_path), f"file:{own}")
    assert {path.name for path in tmp_path.iterdir()} == {own.name, full.name, "mine"}
