"""Play the first hour of a new user: `make first-hour`.

The wheel is built and installed into an empty environment, with pip's cache. There the programs of
the README run, and forty mistakes are made; what the terminal shows of each is compared with
`expected/`, which a person has read. Afterwards no process, memory file or folder may be left.
How long it takes from `pip install` to the first batch on the terminal is told, and not judged.

``--accept`` writes what was shown into `expected/`; read it before it is committed.
"""

from __future__ import annotations

import argparse
import difflib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.first_hour.readme import is_batch, programs
from tests.first_hour.sessions import (
    INSTALLED,
    MISTAKES,
    ROOT,
    SESSION_S,
    Session,
    expected,
    played,
)

INSTALL_S = 900
PLAYED = (*MISTAKES, INSTALLED)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="make first-hour", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--accept", action="store_true", help="write what is shown to expected/")
    parser.add_argument("names", nargs="*", help=f"of these only: readme, {', '.join(PLAYED)}")
    options = parser.parse_args()
    if unknown := set(options.names) - {"readme", *PLAYED}:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(prefix="penstock-first-hour-") as folder:
        failed = play(Path(folder), options.names or ["readme", *PLAYED], options.accept)
    sys.exit(f"not as expected: {', '.join(failed)}" if failed else 0)


def play(folder: Path, names: list[str], accept: bool) -> list[str]:
    """Play it; return what was not as expected."""
    print("building the wheel", flush=True)
    wheel = build_wheel(folder)
    began_s = time.monotonic()
    print(f"installing {wheel.name} into an empty environment", flush=True)
    python = install(wheel, folder / "environment")
    installed_s = time.monotonic() - began_s
    print(f"installed after {installed_s:.0f} s", flush=True)
    failed = []
    if "readme" in names:
        for number, program in enumerate(programs(), 1):
            session = Session(python, folder / f"readme-{number}")
            try:
                first_s = run_program(program, session)
                print(f"README, program {number}: a batch after {first_s:.1f} s", flush=True)
                if number == 1:
                    took_s = installed_s + first_s
                    print(f"pip install to the first batch: {took_s:.1f} s", flush=True)
                failed += told(f"README, program {number}", session.left())
            finally:
                session.close()
    for name in PLAYED:
        if name in names:
            session = Session(python, folder / name)
            try:
                began_s = time.monotonic()
                shown = played(name, session)
                print(f"{name}: {time.monotonic() - began_s:.0f} s", flush=True)
                if accept:
                    expected(name).write_text(shown)
                elif difference := differences(name, shown):
                    print(difference)
                    failed.append(name)
                failed += told(name, session.left())
            finally:
                session.close()
    return failed


def differences(name: str, shown: str) -> str:
    """Return how what was shown differs from what is expected; empty if it does not."""
    lines = difflib.unified_diff(
        expected(name).read_text().splitlines(),
        shown.splitlines(),
        f"expected/{name}.txt",
        "shown",
        lineterm="",
    )
    return "\n".join(lines)


def told(what: str, left: list[str]) -> list[str]:
    for thing in left:
        print(f"{what} left behind: {thing}", flush=True)
    return [f"{what} (left something behind)"] if left else []


def build_wheel(folder: Path) -> Path:
    source = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    # From a copy, so that nothing that an earlier build left gets into the wheel.
    shutil.copytree(ROOT / "penstock", source / "penstock", ignore=ignored)
    for file in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source / file)
    pip(Path(sys.executable), "wheel", "--no-deps", "--wheel-dir", str(folder), str(source))
    (wheel,) = folder.glob("penstock-*.whl")
    return wheel


def install(wheel: Path, environment: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True, timeout=INSTALL_S)
    python = environment / "bin" / "python"
    pip(python, "install", str(wheel))
    return python


def pip(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    subprocess.run(command, check=True, timeout=INSTALL_S, env=clean)


def run_program(program: str, session: Session) -> float:
    """Run a program until it has printed a batch, and press Ctrl-C; return the seconds until then.

    It has to stop gracefully then, and to end well.
    """
    script = session.folder / "readme.py"
    script.write_text(program)
    began_s = time.monotonic()
    process = session.start(str(session.python), str(script))
    # What does not end is silent, too.
    bound = threading.Timer(SESSION_S, session.close)
    bound.start()
    try:
        assert process.stdout is not None
        shown = []
        took_s = None
        for line in process.stdout:
            shown.append(line)
            if took_s is None and is_batch(line):
                took_s = time.monotonic() - began_s
                os.killpg(process.pid, signal.SIGINT)
        code = process.wait()
    finally:
        bound.cancel()
    if took_s is None or code or "Traceback" in "".join(shown):
        raise AssertionError(f"it ended with {code}, and showed:\n{''.join(shown)}")
    return took_s


if __name__ == "__main__":
    main()
