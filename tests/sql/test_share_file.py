"""A share file goes with the host that wrote it, and with no other."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotDoneError
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from penstock.blockstore import BlockAccess
from penstock.runtime.processes import ProcessIdentity, host_id, started
from penstock.sql import SourceError, connect
from penstock.sql.source import data_source
from penstock.sql.source.data_source import check_share_file, write_share_file
from penstock.wire import ApplicationLink
from tests.bounds import HANG_S

ACCESS = BlockAccess(
    {}, ApplicationLink(b"a secret of this test alone", ("h", 1)), fetch_timeout_s=10.0
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


def test_the_file_of_another_host_that_lives_is_left_and_that_of_a_killed_one_replaced(
    tmp_path: Path,
) -> None:
    path = tmp_path / "share"
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        identity = ProcessIdentity(host_id(), other.pid, started(other.pid))
        text = json.dumps({"version": 1, "process": astuple(identity)})
        path.write_text(text)
        with pytest.raises(SourceError, match=rf"process {other.pid}, which lives.*another sh"):
            write_share_file(str(path), ACCESS)
        assert path.read_text() == text
    finally:
        other.kill()
        other.communicate()
    write_share_file(str(path), ACCESS)
    assert json.loads(path.read_text())["process"] == list(astuple(ProcessIdentity.this_process()))
    assert os.listdir(tmp_path) == ["share"]


def test_of_hosts_that_start_in_one_instant_one_has_the_file(tmp_path: Path) -> None:
    path = tmp_path / "share"
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # The other host is at it.
        with ThreadPoolExecutor(1) as pool:
            written = pool.submit(write_share_file, str(path), ACCESS)
            with pytest.raises(NotDoneError):
                written.result(0.5)
            identity = ProcessIdentity(host_id(), other.pid, started(other.pid))
            text = json.dumps({"version": 1, "process": astuple(identity)})
            path.write_text(text)
            os.close(folder)
            with pytest.raises(SourceError, match=f"process {other.pid}, which lives"):
                written.result(HANG_S)
        assert path.read_text() == text
        assert os.listdir(tmp_path) == ["share"]
    finally:
        other.kill()
        other.communicate()


def test_a_folder_that_somebody_keeps_locked_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_source, "_LOCK_S", 0.05)
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        with pytest.raises(SourceError, match="held the lock of its folder"):
            write_share_file(str(tmp_path / "share"), ACCESS)
        assert not list(tmp_path.iterdir())
    finally:
        os.close(folder)
    write_share_file(str(tmp_path / "share"), ACCESS)


@pytest.mark.parametrize("text", ["print('mine')\n", '{"mine": 1}', "[1]"])
def test_a_file_of_something_else_is_left_as_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "app.py"
    path.write_text(text)
    with pytest.raises(SourceError, match="a file of something else"):
        write_share_file(str(path), ACCESS)
    assert path.read_text() == text


@pytest.mark.parametrize("left", [b"", bytes(300)])
def test_what_a_power_loss_left_of_one_is_replaced(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "share").write_bytes(left)
    write_share_file(str(tmp_path / "share"), ACCESS)
    assert json.loads((tmp_path / "share").read_text())["version"] == 1


def test_a_file_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    for path in (tmp_path / "none" / "share", tmp_path):
        with pytest.raises(SourceError, match=r"share file .* cannot be used: .*Name a file"):
            check_share_file(str(path))
    assert not list(tmp_path.iterdir())


def test_a_share_file_that_is_not_there_or_no_file_is_an_error_with_the_way_out(
    tmp_path: Path,
) -> None:
    session: Any = None  # It is not looked at before the file was read.
    with pytest.raises(SourceError, match=r"there is no share file .*has not started"):
        connect(session, tmp_path / "share")
    with pytest.raises(SourceError, match=f"share file {tmp_path} cannot be read: Is a dir"):
        connect(session, tmp_path)
    other = tmp_path / "other"
    other.write_bytes(b"\xff\xfe")
    other.chmod(0o600)
    with pytest.raises(SourceError, match="other is not a file that a ReceiverHost wrote"):
        connect(session, other)
    wrong: Any = 5
    with pytest.raises(TypeError, match="share=5 is not accepted"):
        connect(session, wrong)
