"""What makes a short task short in PySpark's Python worker, and the worker small.

Two things in the worker cost a small task many times what its own work costs:

* The worker calls `gc.collect` after each task (`pyspark/daemon.py`). With Arrow, NumPy and this
  package imported that takes 20 to 40 ms of CPU. Objects that were there before are no garbage;
  `gc.freeze` takes them out of its sight.
* The JVM sends a task in two small writes: first what is to be done, then the partition's data.
  Its TCP socket holds the second back until the first is acknowledged (Nagle's algorithm), and the
  worker's kernel delays the acknowledgement by 40 ms in the hope of an answer that it can travel
  with. `TCP_QUICKACK` sends it at once. It holds only until the worker's next answer, so each task
  sets it. With ``spark.python.unix.domain.socket.enabled`` there is no such socket and no such
  delay.

And one costs memory: when it begins, the worker has all importers read what they know again, and
each package of ``pyspark.zip`` has one, with a directory of the whole archive for itself.
"""

from __future__ import annotations

import gc
import os
import socket
import stat
import sys
import zipimport
from contextlib import suppress

_TASKS = 3
"""The first tasks of a worker still import modules. Later ones freeze nothing: what is frozen and
becomes garbage in a cycle stays for ever, and a worker may run tasks for months."""

_QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)
"""Linux has it."""

_tasks = 0
_to_jvm: socket.socket | None = None


def begin_task() -> None:
    """Call this at the start of a task, before its input is read; it never fails."""
    global _tasks, _to_jvm
    if _tasks < _TASKS:
        if not _tasks:
            _to_jvm = _connection_to_jvm()
        _tasks += 1
        gc.freeze()
    if _to_jvm is not None:
        try:
            _to_jvm.setsockopt(socket.IPPROTO_TCP, _QUICKACK or 0, 1)
        except OSError:
            _to_jvm = None


def share_directories() -> None:
    """Have the importers of an archive share its directory.

    Called before the worker imports what this package needs, which then takes the room: 10 MiB.
    """
    for importer in archive_importers():
        if "_files" in vars(importer):
            # A new one has the directory that later ones will have.
            with suppress(ImportError):
                vars(importer)["_files"] = vars(zipimport.zipimporter(importer.archive))["_files"]


def archive_importers() -> list[zipimport.zipimporter]:
    """Return the importers of archives; there is one for each package of theirs."""
    known = list(sys.path_importer_cache.values())
    return [one for one in known if isinstance(one, zipimport.zipimporter)]


def _connection_to_jvm() -> socket.socket | None:
    """Return this worker's TCP connection to its executor, if that is what it has.

    The worker has it from its first moment, so among its TCP sockets it has the lowest number.
    """
    if _QUICKACK is None:
        return None
    try:
        for fd in sorted(map(int, os.listdir("/proc/self/fd"))):
            try:
                if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                    continue
                found = socket.socket(fileno=os.dup(fd))
            except OSError:  # The folder's own descriptor is closed by now.
                continue
            if found.type == socket.SOCK_STREAM and found.family != socket.AF_UNIX:
                return found
            found.close()
    except OSError:  # A system without this folder.
        pass
    return None


_THRESHOLDS = (50_000, 20, 10)
"""A full collection after ten million new containers at the earliest. What a program's function
leaves in cycles waits until then."""


def collect_less() -> None:
    """Let the garbage collector look through a task's objects less often, in this worker process.

    With its defaults it looks through new objects after every few hundred, and again and again
    through those that stay. Records and the lists and dicts that they are grouped in are no
    garbage: with a million keys, looking for it took three quarters of a task's time. Reference
    counting frees what a task lets go; PySpark's worker collects cycles after each task.

    A program that has set a higher threshold, or none, keeps it.
    """
    if 0 < gc.get_threshold()[0] < _THRESHOLDS[0]:
        gc.set_threshold(*_THRESHOLDS)
