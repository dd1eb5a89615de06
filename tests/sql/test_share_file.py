"""A share file goes with the host that wrote it, and with no other."""

from __future__ import annotations

from pathlib import Path

from penstock.blockstore import BlockAccess
from penstock.sql.source import write_share_file

ACCESS = BlockAccess(
    servers={}, secret=b"a secret of this test alone", fetch_timeout_s=10.0, tracker=("h", 1)
)


def test_a_host_removes_the_file_that_it_wrote(tmp_path: Path) -> None:
    made = write_share_file(str(tmp_path / "share"), ACCESS)
    made.remove()
    made.remove()
    assert not list(tmp_path.iterdir())


def test_a_host_leaves_the_file_that_another_one_put_in_its_place(tmp_path: Path) -> None:
    earlier = write_share_file(str(tmp_path / "share"), ACCESS)
    later = write_share_file(str(tmp_path / "share"), ACCESS)
    earlier.remove()
    assert (tmp_path / "share").exists()
    later.remove()
    assert not list(tmp_path.iterdir())
