"""The machine and the versions of a run, as found."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from datetime import datetime, timezone
from importlib.metadata import version

__all__ = ["describe", "now"]

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def describe(folder: str) -> dict[str, str]:
    """Return what the figures hold for.

    Args:
        folder: Where the logs lie.
    """
    return {
        "date": now(),
        "commit": _commit(),
        "CPU": f"{_cpu_model()}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / (1 << 30):.0f} GiB",
        "disk": _disk(folder),
        "kernel": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "PySpark": version("pyspark"),
        "PyArrow": version("pyarrow"),
        "Java": _java(),
    }


def now() -> str:
    """Return the time of the page's date."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def _first_line(*command: str) -> str:
    try:
        done = subprocess.run(
            command, cwd=_ROOT, capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return (done.stdout + done.stderr).partition("\n")[0].strip()


def _commit() -> str:
    commit = _first_line("git", "rev-parse", "--short=10", "HEAD")
    changed = _first_line("git", "status", "--porcelain", "--untracked-files=no", "penstock")
    return f"{commit or 'not known'}{' and changes since' if changed else ''}"


def _cpu_model() -> str:
    with open("/proc/cpuinfo") as file:
        models = re.findall(r"^model name\s*:\s*(.*)$", file.read(), re.MULTILINE)
    return models[0] if models else platform.machine()


def _disk(folder: str) -> str:
    """Return file system, device and, if the kernel tells, the device's kind."""
    best = ("", "not known", "")
    with open("/proc/mounts") as file:
        for line in file:
            device, place, kind = line.split()[:3]
            path = os.path.realpath(folder)
            if (path + "/").startswith(place.rstrip("/") + "/") and len(place) >= len(best[0]):
                best = (place, kind, device)
    name = os.path.basename(best[2])
    rotational = _read(f"/sys/block/{name}/queue/rotational")
    spinning = {"0": ", solid state or virtual", "1": ", rotating or virtual"}.get(rotational, "")
    return f"{best[1]} on {name}{spinning}"


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    command = os.path.join(home, "bin", "java") if home else "java"
    return _first_line(command, "-version") or "not known"


if sys.platform != "linux":
    raise ImportError("the benchmarks read /proc and need Linux")
