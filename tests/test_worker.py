"""What a task sets in a real Python worker."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from penstock import worker


def _acknowledges_at_once(_: Iterable[Any]) -> Iterator[tuple[int, bool]]:
    worker.begin_task()
    connection = worker._to_jvm
    assert connection is not None
    list(_)  # What is not read to its end lets the worker end.
    quick = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
    yield connection.getpeername()[1], bool(quick)


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="platform: no TCP_QUICKACK")
def test_each_task_of_a_worker_acknowledges_its_input_at_once(sc: Any) -> None:
    seen: dict[int, list[bool]] = {}
    # Until a worker got more tasks than it freezes modules in. Spark takes the one that was idle
    # for longest, and tests before this one may have left many.
    for _ in range(100 * worker._TASKS):
        if seen and max(map(len, seen.values())) > worker._TASKS:
            break
        for port, quick in (
            sc.parallelize(range(2), 2).mapPartitions(_acknowledges_at_once).collect()
        ):
            seen.setdefault(port, []).append(quick)
    assert all(all(each) for each in seen.values())
    assert max(map(len, seen.values())) > worker._TASKS


def test_a_process_that_is_no_worker_is_left_alone() -> None:
    before = worker._tasks, worker._to_jvm
    try:
        worker._tasks, worker._to_jvm = worker._TASKS, socket.socket()
        worker._to_jvm.close()
        worker.begin_task()
        assert worker._to_jvm is None
        worker.begin_task()
    finally:
        worker._tasks, worker._to_jvm = before
