"""Writes checkpoints in a thread of its own, so that batches do not wait for the disk.

At most one checkpoint waits: a newer one says all that an older one would have said. What is to
be done once a checkpoint is durable (blocks may go, old RDD checkpoints may go) is done once it
or a newer one is.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.clock import Clock
from penstock.errors import text_of, typed_text
from penstock.streaming.checkpoint.errors import CheckpointReadError, CheckpointWriteError
from penstock.streaming.checkpoint.record import Checkpoint, CheckpointHeader
from penstock.streaming.dstream.rdd_files import RDDFiles
from penstock.threads import OwnedThread, wait_for
from penstock.tracker.errors import LedgerRemovedError

if TYPE_CHECKING:
    from penstock.tracker import ReceivedBlockTracker

_log = logging.getLogger("penstock.streaming.checkpoint")

_RETRY_S = 1.0

Done = Callable[[], None]


@dataclass(frozen=True)
class CheckpointRequest:
    """A checkpoint, and what to do once it is durable.

    Attributes:
        checkpoint: The checkpoint.
        when_durable: Called in the writer's thread; must return at once.
    """

    checkpoint: Checkpoint
    when_durable: tuple[Done, ...] = ()


class CheckpointWriter:
    """One thread, one waiting checkpoint.

    `_changed` guards what waits. A checkpoint that cannot be written is tried again every second
    until a newer one takes its place; batches go on meanwhile. After a log that was removed takes
    nothing more the thread ends.

    Args:
        ledger: Holds them.
        path: The checkpoint directory, for errors.
        rdd_files: How RDD checkpoints are forced and removed.
        on_error: Told once when nothing could be written for `patience_s`, or the driver log was
            removed; and again after the next time that it worked.
        patience_s: See there.
        clock: Measures it.

    Attributes:
        path: The checkpoint directory.
        is_removed: The driver log was removed under the program: nothing is written any more.
    """

    def __init__(
        self,
        ledger: ReceivedBlockTracker,
        path: str,
        rdd_files: RDDFiles,
        *,
        on_error: Callable[[BaseException], None],
        patience_s: float,
        clock: Clock,
    ) -> None:
        self.path = path
        self._ledger = ledger
        self._rdd_files = rdd_files
        self._on_error = on_error
        self._patience_s = patience_s
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: CheckpointRequest | None = None
        self._is_writing = False
        self._stopping = False
        self._stop_event = threading.Event()
        self._failing_since_s: float | None = None
        self._told = False
        self.is_removed = False
        # Only the thread uses these.
        self._known: list[CheckpointHeader] = []
        self._synced: set[str] = set()
        self._rdd_folders: set[str] = set()
        self._thread = OwnedThread(self._run, "checkpoint-writer", on_error=on_error, again=True)

    def start(self) -> None:
        """Begin to write; what the checkpoint before needs stays until there is a newer one."""
        before = self._ledger.checkpoint
        if before:
            # One of another format belongs to a program that is given up.
            with contextlib.suppress(CheckpointReadError):
                self._known = [Checkpoint.decode(before, self.path).header]
        self._thread.start()

    def submit(self, request: CheckpointRequest) -> None:
        """Let a checkpoint be written, in place of one that waits."""
        with self._changed:
            if self.is_removed:
                return
            if self._waiting is not None:
                before = self._waiting.when_durable
                request = CheckpointRequest(request.checkpoint, before + request.when_durable)
            self._waiting = request
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Wait until nothing is left to write.

        Returns:
            False when the time was over first, or nothing can be written in this run any more.
        """

        def is_over() -> bool:
            return self.is_removed or (not self._is_writing and self._waiting is None)

        with self._changed:
            return wait_for(self._changed, is_over, timeout_s) and not self.is_removed

    def stop(self, timeout_s: float) -> bool:
        """Write what waits, and end.

        Returns:
            False when something is not written: that took longer, or it cannot be.
        """
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._stop_event.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)
        return not self._thread.is_alive() and self._waiting is None

    # -- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or self._waiting is not None)
                request, self._waiting = self._waiting, None
                self._is_writing = request is not None
                if request is None:
                    return
            failure = self._try(request)
            with self._changed:
                self._is_writing = False
                if failure is not None:
                    self._put_back(request)
                self._changed.notify_all()
                if self.is_removed:
                    return
                if failure is not None and self._stopping:
                    _log.error("The last checkpoint was not written: %s", _said(failure))
                    return
            if failure is not None:
                self._stop_event.wait(_RETRY_S)

    def _put_back(self, request: CheckpointRequest) -> None:
        """Let a checkpoint that was not written wait again, or what is to be done after it."""
        newer = self._waiting
        if newer is not None:
            request = CheckpointRequest(newer.checkpoint, request.when_durable + newer.when_durable)
        self._waiting = request

    def _try(self, request: CheckpointRequest) -> BaseException | None:
        header = request.checkpoint.header
        try:
            for path in header.rdd_files:
                if path not in self._synced:
                    self._rdd_files.sync(path)
            self._synced = set(header.rdd_files)
            self._ledger.write_checkpoint(request.checkpoint.encode())
        except BaseException as error:  # noqa: BLE001  # whatever it is, it is tried again
            self._failed(error)
            return error
        self._failing_since_s = None
        self._told = False
        for done in request.when_durable:
            try:
                done()
            except BaseException as error:  # noqa: BLE001  # what else waited is done all the same
                _log.exception("What waited for a checkpoint was not done")
                self._on_error(error)
        self._prune(header)
        return None

    def _failed(self, error: BaseException) -> None:
        now_s = self._clock.monotonic_s()
        is_removed = isinstance(error, LedgerRemovedError)
        if is_removed:
            _log.error("No checkpoint can be written any more: %s", _said(error))
        elif self._failing_since_s is None:
            _log.error("A checkpoint could not be written and is tried again: %s", _said(error))
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        failing_s = now_s - self._failing_since_s
        if is_removed or (not self._told and failing_s >= self._patience_s):
            self._told = True
            failure = CheckpointWriteError(
                self.path, 0 if is_removed else failing_s, _said(error), is_removed=is_removed
            )
            failure.__cause__ = error
            self._on_error(failure)
        with self._changed:
            self.is_removed = is_removed

    def _prune(self, header: CheckpointHeader) -> None:
        """Remove the RDD checkpoints that neither the newest checkpoint nor the one before needs.

        The last record of a log that was not closed may be damaged and taken for a torn tail.
        """
        before, self._known = self._known, [*self._known[-1:], header]
        needed = {path for known in self._known for path in known.rdd_files}
        for path in sorted({path for known in before for path in known.rdd_files} - needed):
            self._remove_rdds(path)
        self._rdd_folders.update(known.rdd_folder for known in before)
        for path in sorted(self._rdd_folders - {known.rdd_folder for known in self._known} - {""}):
            # A run that is over: what it left goes, unless a later run still needs some of it.
            if not any(_lies_in(file, path) for file in needed):
                self._rdd_folders.discard(path)
                self._remove_rdds(path)

    def _remove_rdds(self, path: str) -> None:
        try:
            self._rdd_files.remove(path)
        except Exception as error:  # noqa: BLE001  # Py4J's errors; nothing depends on it
            _log.warning("An old RDD checkpoint stays at %s: %s", path, error)


def _said(error: BaseException) -> str:
    return text_of(error) if isinstance(error, OSError) else typed_text(error)


def _lies_in(path: str, folder: str) -> bool:
    return os.path.normpath(path).startswith(os.path.normpath(folder) + os.sep)
