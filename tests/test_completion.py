"""What a shell completes, asked of a real shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.__main__ import main
from tests.bounds import HANG_S

WAIT_S = HANG_S

_ASK = """
source "$1"
read -ra COMP_WORDS <<< "$2"
[[ "$2" == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
$(complete -p penstock | sed 's/.*-F \\([^ ]*\\).*/\\1/') penstock "${COMP_WORDS[-1]}" ""
printf '%s\\n' "${COMPREPLY[@]}"
"""
"""Completes a line with the script in a file, as an interactive bash does."""


def completed(line: str, script: Path) -> list[str]:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("platform: there is no bash")
    asked = subprocess.run(
        [bash, "-c", _ASK, "bash", str(script), line],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    return asked.stdout.split()


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    command = [sys.executable, "-m", "penstock", "completion", "bash"]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True)
    path = tmp_path_factory.mktemp("completion") / "penstock"
    path.write_text(printed.stdout)
    return path


def test_bash_completes_commands_and_options(script: Path) -> None:
    commands = completed("penstock ", script)
    assert {"top", "wal", "doctor", "replay", "dead-letters", "settings"} <= {*commands}
    assert completed("penstock rece", script) == ["receivers"]
    assert completed("penstock top --i", script) == ["--interval"]
    assert {"queued", "processing", "completed"} <= {
        *completed("penstock batches --status ", script)
    }
    assert "zsh" in completed("penstock completion ", script)


def test_every_command_that_is_told_of_is_completed(
    capsys: pytest.CaptureFixture[str], script: Path
) -> None:
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    told = {line.split()[0] for line in lines if line.startswith("  ") and line[2] not in " -"}
    assert told <= {*completed("penstock ", script)}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_there_is_a_script_for_other_shells(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "_PENSTOCK_COMPLETE" in capsys.readouterr().out


def test_an_unknown_shell_is_wrong_usage() -> None:
    assert main(["completion", "edlin"]) == 2
