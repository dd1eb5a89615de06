"""`Checkpointer`: what the job generator asks to have its graph and its progress kept."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from penstock.errors import typed_text
from penstock.host.unpicklable import find_unpicklable
from penstock.streaming.checkpoint.errors import CheckpointWriteError, UnpicklableFunctionError
from penstock.streaming.checkpoint.graph_pickling import dump
from penstock.streaming.checkpoint.program_code import ProgramPart
from penstock.streaming.checkpoint.record import (
    Checkpoint,
    CheckpointHeader,
    SavedState,
)
from penstock.streaming.checkpoint.saved_states import SavedStates, save_states
from penstock.streaming.checkpoint.writer import CheckpointRequest, CheckpointWriter
from penstock.streaming.dstream.rdd_files import RDDFiles

if TYPE_CHECKING:
    from penstock.clock import Clock
    from penstock.streaming.dstream.graph import DStreamGraph
    from penstock.tracker import ReceivedBlockTracker

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
        on_error: Told when the graph cannot be pickled any more.
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
        """Pickle the graph; None, once told, when it cannot be.

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
