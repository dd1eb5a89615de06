"""`Checkpointer`: what the job generator asks to have its graph and its progress kept."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import text_of, typed_text
from penstock.host.unpicklable import find_unpicklable
from penstock.runtime.clock import Clock
from penstock.runtime.threads import OwnedThread, wait_for
from penstock.streaming.checkpoint.errors import (
    CheckpointReadError,
    CheckpointWriteError,
    UnpicklableFunctionError,
)
from penstock.streaming.checkpoint.graph_pickling import dump
from penstock.streaming.checkpoint.program_code import ProgramPart
from penstock.streaming.checkpoint.record import (
    Checkpoint,
    CheckpointHeader,
    SavedState,
)
from penstock.streaming.checkpoint.saved_states import SavedStates, save_states
from penstock.streaming.dstream.states.rdd_files import RDDFiles
from penstock.tracker.errors import LedgerLostError

if TYPE_CHECKING:
    from penstock.streaming.dstream.graph import DStreamGraph
    from penstock.tracker import ReceivedBlockTracker

# Writes checkpoints in a thread of its own, so that batches do not wait for the disk.
#
# At most one checkpoint waits: a newer one says all that an older one would have said. What is to
# be done once a checkpoint is durable (blocks may go, old RDD checkpoints may go) is done once it
# or a newer one is.

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
        on_error: Notified once when nothing could be written for `patience_s`, or the driver log
            was removed; and again after the next time that it worked.
        patience_s: See `on_error`.
        clock: Measures it.

    Attributes:
        path: The checkpoint directory.
        is_lost: The driver log was removed or taken over: nothing is written any more.
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
        self.is_lost = False
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
            if self.is_lost:
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
            return self.is_lost or (not self._is_writing and self._waiting is None)

        with self._changed:
            return wait_for(self._changed, is_over, timeout_s) and not self.is_lost

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
                if self.is_lost:
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
        lost = error if isinstance(error, LedgerLostError) else None
        if lost is not None:
            _log.error("No checkpoint can be written any more: %s", _said(error))
        elif self._failing_since_s is None:
            _log.error("A checkpoint could not be written and is tried again: %s", _said(error))
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        failing_s = now_s - self._failing_since_s
        if lost is not None or (not self._told and failing_s >= self._patience_s):
            self._told = True
            failure = CheckpointWriteError(self.path, failing_s, _said(error), lost)
            failure.__cause__ = error
            self._on_error(failure)
        with self._changed:
            self.is_lost = lost is not None

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


_log = logging.getLogger("penstock.streaming.checkpoint")

_TRIES = 3


@dataclass(frozen=True)
class Progress:
    """How far the batches were when a checkpoint was written.

    Attributes:
        program: The program's id.
        last_batch_ms: The last batch that was made.
        pending_ms: Those up to that one that were not complete.
        version: The program's version.
        parts: What its streams were made with.
    """

    program: str
    last_batch_ms: int
    pending_ms: tuple[int, ...]
    version: str = ""
    parts: tuple[ProgramPart, ...] = ()


def check_picklable(graph: DStreamGraph) -> None:
    """Check that the graph can be written to a checkpoint.

    Raises:
        UnpicklableFunctionError: It cannot; names what, and where in the program.
    """
    try:
        dump(graph)
    except Exception as error:
        raise _explained(graph, error) from error


def _explained(graph: DStreamGraph, error: Exception) -> UnpicklableFunctionError:
    # From the inputs on, so that the stream is named that has it, and not one made of that one.
    for node in reversed(graph.nodes()):
        for value in node.own_state().values():
            try:
                dump(value)
            except Exception:  # noqa: BLE001  # whatever pickling runs into; it is looked into
                found = find_unpicklable(value, dump)
                return UnpicklableFunctionError(
                    node.made_by, found.function, found.variable, found.reason
                )
    return UnpicklableFunctionError("the graph", None, "", typed_text(error))


@dataclass(frozen=True)
class Checkpointing:
    """What a context has checkpointed, and where.

    Attributes:
        header: The facts that do not change while it runs.
        ledger: Holds the checkpoints.
        directory: The checkpoint directory.
        rdd_files: How RDD checkpoints are forced and removed.
        recovered: How far the run before was; None at a first start.
        upgraded: The last checkpoint of another version of the program; None without one.
    """

    header: CheckpointHeader
    ledger: ReceivedBlockTracker
    directory: str
    rdd_files: RDDFiles
    recovered: Progress | None
    upgraded: CheckpointHeader | None = None

    def writer(
        self, on_error: Callable[[BaseException], None], patience_s: float, clock: Clock
    ) -> CheckpointWriter:
        """Return the thread that writes, not started; see `CheckpointWriter`."""
        return CheckpointWriter(
            self.ledger,
            self.directory,
            self.rdd_files,
            on_error=on_error,
            patience_s=patience_s,
            clock=clock,
        )

    def checkpointer(
        self,
        graph: DStreamGraph,
        writer: CheckpointWriter,
        on_error: Callable[[BaseException], None],
    ) -> Checkpointer:
        """Return what the job generator asks."""
        return Checkpointer(graph, writer, self.header, on_error)


class Checkpointer:
    """Writes checkpoints of one running context. Only the job generator's thread calls it.

    Args:
        graph: The graph.
        writer: Writes; started and stopped by the owner of this object.
        header: The facts that do not change; the others are filled in.
        on_error: Notified when the graph cannot be pickled any more.
    """

    def __init__(
        self,
        graph: DStreamGraph,
        writer: CheckpointWriter,
        header: CheckpointHeader,
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._graph = graph
        self._states = SavedStates(graph)
        self._writer = writer
        self._header = header
        self._on_error = on_error
        self._is_unpicklable = False
        self._is_ended = False

    def save_last(self, last_batch_ms: int) -> None:
        """Have the last checkpoint of a run written, with the states as of its end.

        Runs a Spark job for each state. Call once every batch is complete; no other checkpoint is
        written after it. When a state cannot be saved, that is one line of the log, and those that
        were saved before count.

        Args:
            last_batch_ms: The last batch that was made.
        """
        try:
            saved = save_states(self._graph, last_batch_ms)
        except Exception as error:  # noqa: BLE001  # Py4J's errors; the run can still be recovered
            _log.warning("The states could not be saved as of the last batch: %s", error)
            saved = None
        if saved is None:
            self.save(last_batch_ms, ())
            return
        states, paths = saved
        self._header = msgspec.structs.replace(self._header, is_last=True)
        self.save(last_batch_ms, (), states=states, state_files=paths)
        self._is_ended = True

    def save(
        self,
        last_batch_ms: int,
        pending_ms: Sequence[int],
        when_durable: tuple[Callable[[], None], ...] = (),
        states: tuple[SavedState, ...] | None = None,
        state_files: Sequence[str] = (),
    ) -> None:
        """Have the graph written as it is now; returns before that is done.

        Args:
            last_batch_ms: The last batch that was made.
            pending_ms: Those up to that one that are not complete.
            when_durable: Called in another thread once this, or a later one, is on the disk.
            states: The states as of the last batch; None: as they were saved last.
            state_files: Where these are.
        """
        if self._is_ended:
            return
        with self._graph.lock:
            first_ms = min(pending_ms, default=last_batch_ms + self._graph.batch_ms)
            rdd_files = self._graph.note_checkpoints(first_ms)
            needed_ms = self._graph.oldest_needed_ms()
            if states is None:
                states = self._states.find()
            body = self._pickle()
            zero_ms = self._graph.zero_ms
        if body is None:
            return
        assert zero_ms is not None
        header = msgspec.structs.replace(
            self._header,
            zero_ms=zero_ms,
            last_batch_ms=last_batch_ms,
            pending_ms=tuple(pending_ms),
            rdd_files=(*rdd_files, *state_files),
            states=states,
            needed_ms=needed_ms,
        )
        self._writer.submit(CheckpointRequest(Checkpoint(header, body), when_durable))

    def flush(self, timeout_s: float) -> bool:
        """Wait until all that was saved is on the disk; False when the time was over first."""
        return self._writer.flush(timeout_s)

    def _pickle(self) -> bytes | None:
        """Pickle the graph; None when it cannot be, which is reported once.

        It could be at the start, so a function has changed what it holds. It may be changing it
        just now, in an output operation that runs: then the next try mostly works.
        """
        for left in reversed(range(_TRIES)):
            try:
                body = dump(self._graph)
            except Exception as error:  # noqa: BLE001  # whatever the program's objects raise
                if left or self._is_unpicklable:
                    continue
                self._is_unpicklable = True
                failure = _explained(self._graph, error)
                _log.error("Checkpoints cannot be written any more: %s", failure)
                told = CheckpointWriteError(self._writer.path, 0, str(failure))
                told.__cause__ = failure
                self._on_error(told)
            else:
                self._is_unpicklable = False
                return body
        return None
