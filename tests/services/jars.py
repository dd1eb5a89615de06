"""Fetches the jars of the services once, with Maven; `make test` runs this before the tests."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"
"""Where servers are that were fetched or built once."""
FETCH_S = 300
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


class JarsMissingError(Exception):
    """The jars are not there and cannot be fetched; the message says what to install."""


def jars(pom: Path) -> Path:
    """Return the folder of the jars that a file names; fetch them when they are not there."""
    name = f"{pom.name.partition('.')[0]}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    folder = CACHE / name
    if folder.is_dir():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "services.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _fetch(pom, folder)
    return folder


def _fetch(pom: Path, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsMissingError(f"{pom.name} needs Maven (`mvn`), for the jars of the server")
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    command = [maven, "-B", "-q", "-f", str(pom), _PLUGIN, f"-DoutputDirectory={part}"]
    try:
        subprocess.run(command, check=True, timeout=FETCH_S, capture_output=True, text=True)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        told = str(error.stdout or error)[-2000:]
        raise JarsMissingError(f"Maven could not fetch the jars of {pom.name}: {told}") from error
    part.rename(folder)


if __name__ == "__main__":
    try:
        for each in sorted(Path(__file__).parent.glob("*.pom.xml")):
            jars(each)
    except JarsMissingError as error:
        # The tests that need them skip, and say so; in CI that is a failure.
        print(error, file=sys.stderr)
