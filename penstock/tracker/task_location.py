"""Where a receiver may run: a host, or one executor on a host (Spark's ``TaskLocation``)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ExecutorLocation", "HostLocation", "TaskLocation", "parse_location"]

_EXECUTOR_PREFIX = "executor_"


@dataclass(frozen=True, order=True)
class HostLocation:
    """Any executor of a host."""

    host: str

    def __str__(self) -> str:
        return self.host


@dataclass(frozen=True, order=True)
class ExecutorLocation:
    """One executor. As text it is what Spark's scheduler reads: ``executor_<host>_<id>``."""

    host: str
    executor_id: str

    def __str__(self) -> str:
        return f"{_EXECUTOR_PREFIX}{self.host}_{self.executor_id}"


TaskLocation = HostLocation | ExecutorLocation


def parse_location(text: str) -> TaskLocation:
    """Return the location that a receiver's ``preferredLocation`` names.

    Text that begins like an executor's location but has no executor id is taken as a host, so
    that a wrong wish never keeps a receiver from running.
    """
    if text.startswith(_EXECUTOR_PREFIX):
        host, _, executor_id = text[len(_EXECUTOR_PREFIX) :].rpartition("_")
        if host and executor_id:
            return ExecutorLocation(host, executor_id)
    return HostLocation(text)
