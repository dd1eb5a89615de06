"""What a task sets in a real Python worker."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
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


def test_the_importers_of_an_archive_share_one_directory(tmp_path: Path) -> None:
    archive = tmp_path / "packages.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("some/__init__.py", "some/inner/__init__.py", "some/later.py"):
            file.writestr(name, "")
    code = """if True:
        import importlib, sys, zipimport

        import some.inner
        from penstock.worker import share_directories

        def directories():
            importers = sys.path_importer_cache.values()
            return [
                vars(each)["_files"] for each in importers
                if isinstance(each, zipimport.zipimporter) and each.archive.endswith("packages.zip")
            ]

        importlib.invalidate_caches()
        share_directories()
        found = directories()
        assert len(found) == 2 and found[0] is found[1] and len(found[0]) == 3, found
        import some.later
        """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(archive), os.getcwd()])}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


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
