"""Importing the package on a Python or PySpark that does not fit says so; otherwise it is cheap."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path
from zipfile import ZipFile

import pytest

import penstock
from penstock.__main__ import main
from penstock._versions import check_versions, find_pyspark_version
from tests.bounds import HANG_S


def run_python(code: str, *path: Path) -> subprocess.CompletedProcess[str]:
    prepared = f"import sys; sys.path[:0] = {[str(entry) for entry in path]!r}; {code}"
    return subprocess.run(
        [sys.executable, "-c", prepared],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
        cwd=Path(penstock.__file__).parent.parent,
    )


@pytest.mark.parametrize("pyspark", ["4.0.0", "4.1.0.dev1", "4.2.0-SNAPSHOT"])
@pytest.mark.parametrize("python", [(3, 10, 0), (3, 14, 2)])
def test_versions_that_fit_pass(python: tuple[int, ...], pyspark: str) -> None:
    check_versions(python, pyspark)


@pytest.mark.parametrize("pyspark", ["4.3.0", "4.10.1"])
def test_a_pyspark_that_needs_a_later_python_says_so(pyspark: str) -> None:
    check_versions((3, 11, 0), pyspark)
    with pytest.raises(ImportError) as caught:
        check_versions((3, 10, 13), pyspark)
    message = str(caught.value)
    assert "PySpark 4.3 and later need Python 3.11 or later" in message
    assert f"this is Python 3.10.13 with PySpark {pyspark}" in message
    assert "pip install 'pyspark>=4.0,<4.3'" in message


@pytest.mark.parametrize("pyspark", ["3.5.4", "5.0.0", "2.4.8", "next"])
def test_a_pyspark_that_does_not_fit_is_named_with_what_to_install(pyspark: str) -> None:
    with pytest.raises(ImportError) as caught:
        check_versions((3, 11, 7), pyspark)
    message = str(caught.value)
    assert f"PySpark {pyspark}" in message
    assert "Python 3.11.7" in message
    assert "pip install 'pyspark>=4.0,<5'" in message


def test_a_python_that_is_too_old_is_named_with_what_to_install() -> None:
    with pytest.raises(ImportError, match=r"Python 3\.9\.18 .*Install Python 3\.10 or later"):
        check_versions((3, 9, 18), "4.0.0")


def test_the_version_found_is_that_of_the_installed_pyspark() -> None:
    assert find_pyspark_version() == metadata.version("pyspark")


def test_the_version_is_found_in_a_zip_file_as_executors_have_it(tmp_path: Path) -> None:
    archive = tmp_path / "pyspark.zip"
    with ZipFile(archive, "w") as zip_file:
        zip_file.writestr("pyspark/__init__.py", "raise AssertionError('must not be imported')")
        zip_file.writestr("pyspark/version.py", '__version__: str = "3.5.1"\n')
    result = run_python("import penstock", archive)
    assert "ImportError" in result.stderr
    assert "PySpark 3.5.1" in result.stderr


def test_a_missing_pyspark_is_said_at_import() -> None:
    hide = (
        "import importlib.util; find = importlib.util.find_spec; "
        "importlib.util.find_spec = lambda name, *rest: "
        "None if name == 'pyspark' else find(name, *rest); import penstock"
    )
    result = run_python(hide)
    assert "no PySpark" in result.stderr
    assert "pip install 'pyspark>=4.0,<5'" in result.stderr


def test_a_pyspark_that_hides_its_version_is_an_import_error(tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    result = run_python("import penstock", tmp_path)
    assert "cannot tell the version of PySpark" in result.stderr
    (tmp_path / "pyspark" / "version.py").write_text("version = 4\n")
    result = run_python("import penstock", tmp_path)
    assert "cannot read the version of PySpark" in result.stderr


def test_importing_the_package_does_not_import_pyspark() -> None:
    result = run_python("import penstock; assert 'pyspark' not in sys.modules, 'imported'")
    assert result.returncode == 0, result.stderr


def test_warnings_reach_the_terminal_and_the_rest_when_the_program_asks_for_it() -> None:
    plain = run_python(
        "import logging, penstock; log = logging.getLogger('penstock.wal'); "
        "log.info('unseen'); log.warning('seen')"
    )
    assert (plain.stdout, plain.stderr) == ("", "seen\n")
    asked = run_python(
        "import logging, penstock; logging.basicConfig(); "
        "logging.getLogger('penstock.wal').warning('seen')"
    )
    assert "WARNING:penstock.wal:seen" in asked.stderr


def test_the_command_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"penstock {penstock.__version__}\n"
