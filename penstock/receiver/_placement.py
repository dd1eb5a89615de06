"""Where a receiver runs: the executor's id and its host, as Spark names them."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping

__all__ = ["executor_id", "host_name"]

LOCAL_EXECUTOR = "driver"
"""Spark's name for the only executor of a local master."""


def executor_id(environment: Mapping[str, str] = os.environ) -> str:
    """Return the id of the executor that this Python worker belongs to.

    PySpark's `TaskContext` does not tell it. Kubernetes sets ``SPARK_EXECUTOR_ID``; a standalone
    worker has it in the address of the executor's log (`ExecutorRunner.scala`). Where neither is
    set there is one executor (a local master), or the id is not known to Python.
    """
    found = environment.get("SPARK_EXECUTOR_ID")
    if found:
        return found
    match = re.search(r"[?&]executorId=([^&]+)", environment.get("SPARK_LOG_URL_STDOUT", ""))
    return match.group(1) if match else LOCAL_EXECUTOR


def host_name(executor: str, executor_hosts: Mapping[str, str]) -> str:
    """Return the host of `executor` under the name that Spark's scheduler knows.

    Args:
        executor: From `executor_id`.
        executor_hosts: What the driver knows: executor id to host.
    """
    known = executor_hosts.get(executor)
    if known is not None:
        return known
    if len(set(executor_hosts.values())) == 1:
        return next(iter(executor_hosts.values()))
    return os.environ.get("SPARK_LOCAL_HOSTNAME") or socket.gethostname()
