"""This machine: Python, Java, shared memory, open files, ports."""

from __future__ import annotations

import enum
import importlib
import os
import platform
import re
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyspark

from penstock.host.spark.executor_python import DEPENDENCIES
from penstock.settings import Settings


class Level(enum.Enum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    """A program runs, slower or with less room than it might have."""
    PROBLEM = "problem"
    """A program does not run, or not for long."""


@dataclass(frozen=True)
class Finding:
    """What a check found.

    Attributes:
        check: What was looked at, in a word or two.
        level: How bad it is.
        found: What was found.
        change: What to change; empty where nothing need be.
    """

    check: str
    level: Level
    found: str
    change: str = ""


_LEAST_JAVA = 17
"""Spark 4's own."""
_JAVA_S = 30.0
_JAVA_VERSION = re.compile(r'version "(\d+)')

_LEAST_FILES, _ENOUGH_FILES = 256, 1024
"""Spark's driver alone has some 200 files open, and each receiver, task and segment a few more."""

_FROM_DRIVER = "prometheus_client"
"""What only the driver needs, beside what all do."""


def check_python(modules: Iterable[str]) -> list[Finding]:
    """Look at the driver's Python, PySpark, and what they must be able to import.

    That the versions go together was seen when this package was imported.
    """
    found = [
        Finding("Python", Level.OK, f"{platform.python_version()} at {sys.executable}"),
        Finding(
            "PySpark", Level.OK, f"{pyspark.__version__} in {os.path.dirname(pyspark.__file__)}"
        ),
    ]
    missing = []
    for name in (*DEPENDENCIES, _FROM_DRIVER, *modules):
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001  # what a module raises is its own
            missing.append(f"{name} ({type(error).__name__}: {error})")
    if missing:
        change = f"install them for {sys.executable}"
        found.append(Finding("imports", Level.PROBLEM, "; ".join(missing), change))
    else:
        found.append(Finding("imports", Level.OK, "all that is needed can be imported"))
    return found


def check_java(environ: Mapping[str, str]) -> Finding:
    """Look at the Java that PySpark will start."""
    home = environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"
    change = f"install Java {_LEAST_JAVA} or later and put it on the PATH, or let JAVA_HOME name it"
    path = shutil.which(java, path=environ.get("PATH"))
    if path is None:
        where = f"JAVA_HOME is {home}, and {java} cannot be run" if home else "no java on the PATH"
        return Finding("Java", Level.PROBLEM, where, change)
    try:
        ran = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=_JAVA_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("Java", Level.PROBLEM, f"{path}: {error}", change)
    version = _JAVA_VERSION.search(ran.stderr + ran.stdout)
    if version is None:
        said = (ran.stderr + ran.stdout).strip().splitlines() or ["nothing"]
        return Finding("Java", Level.PROBLEM, f"{path} tells no version: {said[0][:200]}", change)
    found = f"{version[1]} at {path}"
    if int(version[1]) < _LEAST_JAVA:
        return Finding("Java", Level.PROBLEM, found, change)
    return Finding("Java", Level.OK, found)


def check_memory(settings: Settings, receivers: int) -> Finding:
    """Look for room for the blocks of that many receivers on this host."""
    folder = settings.memory_dir
    change = (
        "give the host more (mount -o remount,size=…; docker run --shm-size=…), or lower "
        "spark.penstock.memory.size"
    )
    try:
        space = shutil.disk_usage(folder)
    except OSError as error:
        return Finding("shared memory", Level.PROBLEM, f"{folder}: {error.strerror}", change)
    if not os.access(folder, os.W_OK | os.X_OK):
        found = f"{folder} cannot be written to by this user"
        return Finding("shared memory", Level.PROBLEM, found, f"chmod 1777 {folder}")
    wanted = settings.memory_bytes * receivers
    found = (
        f"{size_text(space.free)} of {size_text(space.total)} free in {folder}; "
        f"{receivers} receiver(s) of {size_text(settings.memory_bytes)} may take "
        f"{size_text(wanted)}"
    )
    if space.free < 3 * settings.block_max_bytes:
        # Less than the block store asks for: it would go on in a file, or not at all.
        level = Level.PROBLEM if settings.io_encryption_enabled else Level.WARNING
        return Finding("shared memory", level, f"{found}: too little for three blocks", change)
    if space.free < wanted:
        return Finding("shared memory", Level.WARNING, found, change)
    return Finding("shared memory", Level.OK, found)


def check_open_files() -> Finding:
    """Look at how many files a process of this user may have open."""
    return of_open_files("open files", resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def of_open_files(check: str, limit: int, where: str = "") -> Finding:
    """Judge a limit of open files; below 0 there is none."""
    if limit < 0 or limit >= _ENOUGH_FILES:
        return Finding(check, Level.OK, f"{'any number' if limit < 0 else limit}{where}")
    level = Level.PROBLEM if limit < _LEAST_FILES else Level.WARNING
    change = f"ulimit -n {_ENOUGH_FILES} or more (limits.conf, LimitNOFILE= of a service)"
    return Finding(check, level, f"{limit}{where}", change)


def check_ports(settings: Settings) -> list[Finding]:
    """Look whether the ports that are named in the settings can be had on this host."""
    found = []
    for check, key, port, has_any in (
        ("tracker port", "spark.penstock.tracker.port", settings.tracker_port, False),
        ("block port", "spark.penstock.blockServer.port", settings.block_server_port, False),
        ("page port", "spark.penstock.ui.port", settings.ui_port, True),
    ):
        if port == 0:
            found.append(Finding(check, Level.OK, f"any free one ({key}=0)"))
            continue
        last = min(port + settings.port_max_retries, 65_535)
        free = next((each for each in range(port, last + 1) if _is_free(each)), None)
        if free == port:
            found.append(Finding(check, Level.OK, f"{port} is free"))
        elif free is not None:
            told = f"{port} is taken; {free} is free, and would be used"
            found.append(Finding(check, Level.WARNING, told, f"set {key} to a free port"))
        else:
            level = Level.WARNING if has_any else Level.PROBLEM
            told = f"{port} to {last} are taken"
            found.append(Finding(check, level, told, f"set {key} to a free port, or to 0"))
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("", port))
        except OSError:
            return False
    return True


def size_text(size_bytes: int) -> str:
    """Return a size that is easy to read: ``512.0 MiB``."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
