"""The file by which commands find a running program: who may read it, and when it is gone."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.monitor.registry import (
    PenstockError,
    register,
    registered,
    runtime_folder,
    unregister,
)
from tests.bounds import HANG_S


def put(
    folder: Path, application_id: str = "local-1", started_ms: int = 5, port: int = 4140
) -> Path:
    return register(
        folder,
        application_id=application_id,
        name="a program",
        url=f"http://127.0.0.1:{port}/",
        token="secret",
        started_ms=started_ms,
    )


def test_only_its_user_can_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "penstock"
    path = put(folder)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (app,) = registered(folder)
    assert (app.application_id, app.url) == ("local-1", "http://127.0.0.1:4140/")
    assert (app.token, app.pid) == ("secret", os.getpid())
    path.unlink()
    assert registered(folder) == []


def test_a_folder_that_others_may_enter_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "penstock"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    with pytest.raises(PenstockError, match="0700"):
        put(folder)
    with pytest.raises(PenstockError, match="0700"):
        registered(folder)


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "penstock").symlink_to(tmp_path / "real")
    with pytest.raises(PenstockError, match="not a folder"):
        put(tmp_path / "penstock")


def test_the_file_of_a_program_that_was_killed_is_removed_by_who_looks_next(tmp_path: Path) -> None:
    folder = tmp_path / "penstock"
    program = (
        "import os, sys; from pathlib import Path; from penstock.monitor.registry import register; "
        "register(Path(sys.argv[1]), application_id='dead', name='', url='', token='', "
        "started_ms=1); os.kill(os.getpid(), 9)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(folder)], timeout=HANG_S, check=False
    )
    assert ended.returncode == -9
    assert len(list(folder.iterdir())) == 1
    assert registered(folder) == []
    assert list(folder.iterdir()) == []


def test_a_file_that_a_killed_program_had_not_written_to_its_end_is_removed(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "penstock"
    program = (
        "import os, sys; from pathlib import Path; from penstock.monitor.registry import register; "
        "Path.replace = lambda *_: os.kill(os.getpid(), 9); "
        "register(Path(sys.argv[1]), application_id='dead', name='', url='', token='', "
        "started_ms=1)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(folder)], timeout=HANG_S, check=False
    )
    assert ended.returncode == -9
    (left,) = folder.iterdir()
    assert registered(folder) == []
    assert left.exists()  # It may be one that is just being written.
    os.utime(left, (1, 1))
    assert registered(folder) == []
    assert list(folder.iterdir()) == []


def test_who_starts_next_removes_it_too(tmp_path: Path) -> None:
    folder = tmp_path / "penstock"
    path = put(folder)
    told = json.loads(path.read_text())
    path.write_text(json.dumps({**told, "process_started": "long ago"}))
    path = path.rename(folder / "dead.json")
    put(folder)
    assert not path.exists()


def test_two_of_one_process_are_both_found_and_each_goes_alone(tmp_path: Path) -> None:
    folder = tmp_path / "penstock"
    first, second = put(folder), put(folder, port=4141)
    assert [app.url[-5:-1] for app in registered(folder)] == ["4140", "4141"]
    unregister(first)
    assert [app.url[-5:-1] for app in registered(folder)] == ["4141"]
    unregister(second)
    assert not folder.exists()


def test_the_folder_goes_with_the_last_file(tmp_path: Path) -> None:
    folder = tmp_path / "penstock"
    first, second = put(folder, "a"), put(folder, "b")
    unregister(first)
    assert [app.application_id for app in registered(folder)] == ["b"]
    unregister(second)
    unregister(second)
    assert not folder.exists()


def test_what_is_not_ours_or_of_another_version_is_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / "penstock"
    put(folder, "b", started_ms=9)
    put(folder, "a/../x", started_ms=3)
    (folder / "broken.json").write_text("{")
    (folder / "later.json").write_text(json.dumps({"something": "else"}))
    (folder / "deep.json").write_text("[" * 60_000)
    told = json.loads(next(folder.glob("b-*")).read_text())
    (folder / "null.json").write_text(json.dumps({**told, "started_ms": None}))
    (folder / "text.json").write_text(json.dumps({**told, "pid": "7"}))
    assert [app.application_id for app in registered(folder)] == ["a/../x", "b"]
    assert all(path.parent == folder for path in folder.rglob("*"))


def test_it_lies_in_the_users_own_folder(tmp_path: Path) -> None:
    assert runtime_folder({"XDG_RUNTIME_DIR": str(tmp_path)}) == tmp_path / "penstock"
    assert runtime_folder({"XDG_RUNTIME_DIR": "/does/not/exist"}).name == f"penstock-{os.getuid()}"
    assert runtime_folder({}).name == f"penstock-{os.getuid()}"
    assert registered(tmp_path / "nothing") == []
