"""What killed programs left goes with the next start; what somebody still has stays."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from penstock.host.orphans import (
    ScratchClaim,
    remove_empty_rdd_folders,
    remove_scratch_folders,
)
from tests.bounds import HANG_S

LEDGER = "receivedBlockMetadata"


def claim_of(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.lock")


def scratch(parent: Path, *, age_s: float = 3600.0) -> Path:
    """A scratch folder and its claim, as a driver that was killed leaves them."""
    folder = parent / f"penstock-local-1795347899203-{uuid.uuid4().hex[:8]}"
    claim_of(folder).touch()
    for name in (LEDGER, "receivedData/0-abc"):
        (folder / name).mkdir(parents=True)
        (folder / name / "LOCK").touch()
        (folder / name / "segment-000000000001.log").write_bytes(b"x")
    (folder / "block-server-x.lock").touch()
    past_s = time.time() - age_s
    for path in [claim_of(folder), *folder.rglob("*")]:
        os.utime(path, (past_s, past_s))
    return folder


def test_the_scratch_folder_of_a_killed_program_is_removed(tmp_path: Path) -> None:
    scratch(tmp_path)
    remove_scratch_folders(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_a_ledger_is_removed_and_so_is_a_claim_without_a_folder(
    tmp_path: Path,
) -> None:
    folder = scratch(tmp_path)
    shutil.rmtree(folder / LEDGER)
    shutil.rmtree(scratch(tmp_path))
    remove_scratch_folders(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_claim_keeps_the_folder_and_its_release_removes_both(tmp_path: Path) -> None:
    folder = tmp_path / "not there yet" / "penstock-local-1-0123abcd"
    claim = ScratchClaim(str(folder))
    (folder / LEDGER).mkdir(parents=True)
    os.utime(claim_of(folder), (0, 0))
    remove_scratch_folders(str(folder.parent))
    assert folder.exists()
    claim.release()
    claim.release()
    assert list(folder.parent.iterdir()) == []


def test_a_claim_that_never_had_its_name_is_removed_once_it_is_old(tmp_path: Path) -> None:
    code = (
        "import os, sys; from penstock.host.orphans import ScratchClaim;"
        "os.rename = lambda *_: os._exit(0); ScratchClaim(sys.argv[1])"
    )
    folder = tmp_path / "penstock-local-1-0123abcd"
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True, timeout=HANG_S)
    [left] = tmp_path.iterdir()
    remove_scratch_folders(str(tmp_path))
    assert left.exists()  # Its owner may be about to name it.
    os.utime(left, (0, 0))
    remove_scratch_folders(str(tmp_path))
    assert not left.exists()


def test_a_claim_goes_with_its_process(tmp_path: Path) -> None:
    folder = tmp_path / "penstock-local-1-0123abcd"
    folder.mkdir()
    script = (
        "import os, sys; from penstock.host.orphans import ScratchClaim;"
        "claim = ScratchClaim(sys.argv[1]); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", script, str(folder)], check=True)
    os.utime(claim_of(folder), (0, 0))
    remove_scratch_folders(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "lock", [f"{LEDGER}/LOCK", "receivedData/0-abc/LOCK", "block-server-x.lock"]
)
def test_a_folder_stays_while_a_driver_a_receiver_or_a_block_server_has_it(
    tmp_path: Path, lock: str
) -> None:
    folder = scratch(tmp_path)
    with (folder / lock).open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        remove_scratch_folders(str(tmp_path))
        assert claim_of(folder).exists()
        assert len(list(folder.rglob("*"))) == 8


def test_a_program_that_is_just_starting_keeps_its_folder(tmp_path: Path) -> None:
    young = scratch(tmp_path, age_s=1.0)
    unlocked = tmp_path / "penstock-local-1-0123abcd" / LEDGER
    unlocked.mkdir(parents=True)
    remove_scratch_folders(str(tmp_path))
    assert young.exists()
    assert unlocked.exists()


def test_other_folders_and_links_are_left_alone(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    target = scratch(elsewhere)
    here = tmp_path / "here"
    here.mkdir()
    (here / target.name).symlink_to(target)
    claim_of(here / target.name).touch()
    os.utime(claim_of(here / target.name), (0, 0))
    (here / "penstock-demo-abc").mkdir()
    remove_scratch_folders(str(here))
    assert target.exists()
    assert (here / "penstock-demo-abc").exists()


def test_empty_folders_of_rdd_checkpoints_are_removed_but_for_the_own_one(tmp_path: Path) -> None:
    own, empty, full = (tmp_path / str(uuid.uuid4()) for _ in range(3))
    for folder in (own, empty, full / "rdd-7", tmp_path / "mine"):
        folder.mkdir(parents=True)
    remove_empty_rdd_folders(str(tmp_path), f"file:{own}")
    assert {path.name for path in tmp_path.iterdir()} == {own.name, full.name, "mine"}
