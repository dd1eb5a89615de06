"""Where a receiver runs: the executor's id and its host, as Spark names them.

PySpark's `TaskContext` tells neither. The command line of the executor's JVM does, on every
cluster manager (`CoarseGrainedExecutorBackend.parseArguments`), and that JVM is a parent of the
Python worker.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping, Sequence
from itertools import pairwise

__all__ = ["executor_command", "executor_id", "host_name"]

LOCAL_EXECUTOR = "driver"
"""Spark's name for the only executor of a local master."""

_PARENTS = 4
"""Parent processes that are searched for the executor: worker, PySpark's daemon, wrapper, JVM."""


def executor_command(pid: int | None = None) -> tuple[str, ...]:
    """Return the command line of the executor above a process.

    Args:
        pid: The process; this one when None.

    Returns:
        The words; none where there is no such process (a local master) or no ``/proc``.
    """
    found = os.getpid() if pid is None else pid
    for _ in range(_PARENTS):
        try:
            with open(f"/proc/{found}/stat", encoding="utf-8", errors="replace") as file:
                found = int(file.read().rpartition(")")[2].split()[1])
            with open(f"/proc/{found}/cmdline", encoding="utf-8", errors="replace") as file:
                words = tuple(file.read().split("\0"))
        except OSError:
            return ()
        if "--executor-id" in words:
            return words
    return ()


def executor_id(
    environment: Mapping[str, str] = os.environ, command: Sequence[str] | None = None
) -> str:
    """Return the id of the executor that this Python worker belongs to.

    Kubernetes sets ``SPARK_EXECUTOR_ID``; a standalone worker has it in the address of the
    executor's log (`ExecutorRunner.scala`); the executor's own command line is asked last. Where
    none tells it there is one executor (a local master), or the id is not known to Python.

    Args:
        environment: This process's.
        command: The executor's command line; looked for when None.
    """
    found = environment.get("SPARK_EXECUTOR_ID")
    if found:
        return found
    match = re.search(r"[?&]executorId=([^&]+)", environment.get("SPARK_LOG_URL_STDOUT", ""))
    if match:
        return match.group(1)
    return _option("--executor-id", command) or LOCAL_EXECUTOR


def host_name(
    executor: str, executor_hosts: Mapping[str, str], command: Sequence[str] | None = None
) -> str:
    """Return the host of `executor` under the name that Spark's scheduler knows.

    An executor that came up after the driver looked is not among those it knows. Then its own
    command line tells the name; that all others are on one host says nothing of this one.

    Args:
        executor: From `executor_id`.
        executor_hosts: What the driver knows: executor id to host.
        command: The executor's command line; looked for when None.
    """
    known = executor_hosts.get(executor) or _option("--hostname", command)
    if known:
        return known
    if len(set(executor_hosts.values())) == 1:
        return next(iter(executor_hosts.values()))
    return os.environ.get("SPARK_LOCAL_HOSTNAME") or socket.gethostname()


def _option(name: str, command: Sequence[str] | None) -> str | None:
    words = executor_command() if command is None else command
    for word, value in pairwise(words):
        if word == name:
            return value
    return None
