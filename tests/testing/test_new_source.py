"""``penstock new-source``: what it writes works as it stands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.__main__ import main
from tests.bounds import HANG_S

ROOT = Path(__file__).parents[2]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.long
def test_the_package_passes_its_own_tests_at_once(here: Path) -> None:
    assert main(["new-source", "acme-feed"]) == 0
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"],
        cwd=here / "acme-feed",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert "3 passed" in ended.stdout, ended.stdout + ended.stderr


def test_the_package_is_as_this_project_would_have_it(here: Path) -> None:
    assert main(["new-source", "a_b-c1"]) == 0
    assert sorted(str(path.relative_to(here)) for path in here.rglob("*.*")) == [
        "a_b-c1/a_b_c1/__init__.py",
        "a_b-c1/a_b_c1/receiver.py",
        "a_b-c1/pyproject.toml",
        "a_b-c1/tests/test_a_b_c1.py",
    ]
    ruff = str(Path(sys.executable).parent / "ruff")
    for check in ("check", "format --check"):
        ended = subprocess.run(
            [ruff, *check.split(), "--no-cache", "--isolated", "--line-length=100"],
            cwd=here / "a_b-c1",
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize(
    "name",
    ["", "Upper", "1st", "json", "a--b", "class", "../up", "penstock", "test", "tests", "kafka"],
)
def test_a_name_that_no_package_can_have_is_refused(
    name: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new-source", name]) == 2
    assert "such as acme-feed" in capsys.readouterr().err
    assert not list(here.iterdir())


def test_a_folder_that_is_there_is_left_alone(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "acme").mkdir()
    assert main(["new-source", "acme"]) == 2
    assert "acme" in capsys.readouterr().err
    assert not list((here / "acme").iterdir())
