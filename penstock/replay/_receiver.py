"""`ReplayReceiver`: a stream of what another program received."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from types import TracebackType
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel

from penstock._arguments import as_folder, refused
from penstock.blockstore import Block, BlockKind
from penstock.receiver import ReceiverContext, receiver
from penstock.replay._history import History, HistoryError, Window, as_time_ms, blocks_of
from penstock.runtime.backoff import Backoff
from penstock.tracker import LoggedSegment
from penstock.wal import EncryptionKey

_FIRST_S = 1.0
_MOST_S = 30.0
"""Pauses before what is away is looked for again."""

_log = logging.getLogger("penstock.replay")

_PIECE_BYTES = 64 << 10
"""Records with one position, which enter one block together; more only if one record is larger."""


@receiver(positions=True, finite=True, storageLevel=StorageLevel.MEMORY_AND_DISK)
class ReplayReceiver:
    """Stores again what the receivers of a stream stored, from the logs of that program.

    ::

        clicks = ssc.receiverStream(ReplayReceiver("/var/lib/app", "clicks", start="…", end="…"))

    The records are those that the stream's batches had, in their order. What is kept when it starts
    is read; then the source has ended, and the program goes on without it. Nothing is written to
    the folder, and its program may run.

    Each piece is stored with its place in the logs as its position. So it goes on where it was, to
    the record, when it is started again; that the block that it read last was let go meanwhile is
    an error, since more may be gone.

    Args:
        folder: The checkpoint directory or log folder of the program; it is read by the receiver,
            on the executor's host.
        stream: The stream's name or number in that program.
        start: Only blocks that were sealed then or later; one without a zone is of the time zone
            of this host, as for `read`.
        end: Only blocks that were sealed before.
        speed: 1 stores blocks at the pace at which they came, 10 ten times as fast; None: as fast
            as rates and backpressure let it. Blocks of a release that noted no times come at once.
        steps: Lets blocks through one by one, in place of `speed`.
        encryption: The key, where those logs are encrypted.

    Raises:
        TypeError, ValueError: An argument is not accepted.
        HistoryError: There is no such folder or stream, or it cannot be read. It is raised by the
            receiver, which tries again as after any error of its program. For what is away it
            waits, and logs that once: a name node, a right, or a folder that it has read from.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        stream: str | int,
        *,
        start: datetime | str | None = None,
        end: datetime | str | None = None,
        speed: float | None = None,
        steps: ReplaySteps | None = None,
        encryption: EncryptionKey | None = None,
    ) -> None:
        if type(stream) not in (str, int):
            raise TypeError(refused("stream", stream, "a stream's name or number"))
        if speed is not None and (type(speed) not in (int, float) or not 0 < speed < 1e9):
            raise ValueError(refused("speed", speed, "a number above 0, or None"))
        if steps is not None and (speed is not None or not isinstance(steps, ReplaySteps)):
            raise TypeError(refused("steps", steps, "ReplaySteps, without speed"))
        self._folder = as_folder(folder, "folder")
        self._stream = stream
        self._window = Window(as_time_ms(start, "start") or 0, as_time_ms(end, "end"))
        self._speed = speed
        self._steps = steps
        self._encryption = encryption

    def run(self, ctx: ReceiverContext) -> Iterator[tuple[Any, list[Any]]]:
        """Yield the records in pieces, each with the place behind it."""
        pace: _Pace | StepsTaken | None = None
        if self._speed is not None:
            pace = _Pace(self._speed, ctx.stopped)
        elif self._steps is not None:
            pace = StepsTaken(self._steps, ctx.stopped)
        position, pauses, is_told = ctx.last_position, Backoff(_FIRST_S, _MOST_S), False
        while not ctx.stopped.is_set():
            try:
                for piece, place in self._read(position, pace):
                    if is_told:
                        _log.info("%s can be read again", self._folder)
                    position, is_told = place, False
                    pauses.reset()
                    yield piece, place
            except HistoryError as error:
                # What existed once, and does not now, may come back with its mount.
                is_away = position is not None and not History.is_there(self._folder)
                if not (is_away or error.is_away):
                    raise
                if not is_told:
                    is_told = True
                    ctx.reportError(
                        f"What is to be read is away; it is tried again: {error}", error
                    )
                ctx.stopped.wait(pauses.next_s())
            else:
                return

    def _read(
        self, position: Any, pace: _Pace | StepsTaken | None
    ) -> Iterator[tuple[Any, list[Any]]]:
        """Yield what is behind a position."""
        segments = History(self._folder, self._encryption).segments(self._stream)
        last = done = 0
        if position is not None:
            attempt, number, last, done = position
            segments = self._from(segments, attempt, number, last)
        for segment in segments:
            # A block that was stored in part is read again.
            after = last - 1 if done else last
            for sequence, block in blocks_of(segment, self._window, self._encryption, after=after):
                is_begun = done and sequence == last
                if not (is_begun or pace is None or pace.wait_for(block.sealed_ms)):
                    return
                for piece, upto in _pieces(block, done if sequence == last else 0):
                    # 0 stands for all of it.
                    partly = upto if upto < block.num_records else 0
                    yield piece, [segment.attempt, segment.number, sequence, partly]
            last = done = 0

    def _from(
        self, segments: tuple[LoggedSegment, ...], attempt: str, number: int, last: int
    ) -> tuple[LoggedSegment, ...]:
        for at, segment in enumerate(segments):
            # Blocks go in their order, so where the last one is, all behind it are.
            if (segment.attempt, segment.number) == (attempt, number) and any(
                first <= last <= end for first, end in segment.runs
            ):
                return segments[at:]
        raise HistoryError(
            self._folder,
            f"block {last} of segment {number} of attempt {attempt}, which was read last, was let "
            "go meanwhile, and more may be gone: start over, in a new checkpoint directory, or let "
            "it be retained for longer (spark.penstock.wal.retention)",
        )


class _Pace:
    """Waits for as long as there was between blocks.

    Args:
        speed: How many times as fast.
        stopped: Ends a wait.
    """

    def __init__(self, speed: float, stopped: threading.Event) -> None:
        self._speed = speed
        self._stopped = stopped
        self._first_ms = 0
        self._began_s = 0.0

    def wait_for(self, sealed_ms: int) -> bool:
        """Wait until a block is due; False: the receiver stops."""
        if not sealed_ms:
            return not self._stopped.is_set()
        if not self._first_ms:
            self._first_ms, self._began_s = sealed_ms, time.monotonic()
        due_s = self._began_s + (sealed_ms - self._first_ms) / 1000 / self._speed
        wait_s = min(threading.TIMEOUT_MAX, due_s - time.monotonic())
        return not self._stopped.wait(max(0.0, wait_s))


def _pieces(block: Block, done: int) -> Iterator[tuple[Any, int]]:
    """Yield the records behind the first `done`, in pieces, each with how many are then done."""
    at = 0
    if block.kind is BlockKind.ARROW:
        for batch in block.batches():
            left = batch.slice(max(0, done - at))
            at = max(at, min(done, at + batch.num_rows))
            while left.num_rows:
                rows = min(left.num_rows, max(1, left.num_rows * _PIECE_BYTES // _size_of(left)))
                at += rows
                yield left.slice(0, rows), at
                left = left.slice(rows)
        return
    for records in block.chunks():
        start = max(0, done - at)
        at = max(at, min(done, at + len(records)))
        while start < len(records):
            piece: list[Any] = []
            size = 0
            for record in islice(records, start, None):
                size += len(record) if isinstance(record, (bytes, str)) else _PIECE_BYTES // 256
                if piece and size > _PIECE_BYTES:
                    break
                piece.append(record)
            start += len(piece)
            at += len(piece)
            yield piece, at


def _size_of(batch: pa.RecordBatch) -> int:
    return max(1, int(batch.nbytes))


_LOOK_S = 0.1


class ReplaySteps:
    """How far a `ReplayReceiver` plays back: a block with each `step`.

    ::

        with ReplaySteps("/tmp/steps") as steps:
            with run_receiver(ReplayReceiver("clicks-recorded", "clicks", steps=steps)) as running:
                steps.step()

    It is a named pipe, so that it reaches a receiver in another process of this host. Steps that
    no receiver has taken yet wait for the next one; one that was taken by a receiver that is killed
    is made again.

    Args:
        path: The pipe, which is made; it is removed at the end of the `with`.

    Raises:
        OSError: It exists, or cannot be made.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = as_folder(path, "path")
        os.mkfifo(self._path, 0o600)
        # For both: what is written stays while no receiver reads.
        self._pipe = os.open(self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def __enter__(self) -> ReplaySteps:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"_path": self._path}

    def step(self, blocks: int = 1) -> None:
        """Let blocks through; returns at once.

        Raises:
            ValueError: It is no number above 0.
            BlockingIOError: Some thousands wait already.
        """
        if type(blocks) is not int or blocks < 1:
            raise ValueError(refused("blocks", blocks, "a whole number above 0"))
        os.write(self._pipe, b"." * blocks)

    def close(self) -> None:
        """Remove the pipe; the receiver lets nothing more through. May be called again."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)


class StepsTaken:
    """The receiver's side of steps.

    Args:
        steps: The other side.
        stopped: Ends a wait.
    """

    def __init__(self, steps: ReplaySteps, stopped: threading.Event) -> None:
        self._path = steps._path
        self._stopped = stopped

    def wait_for(self, sealed_ms: int) -> bool:
        """Wait until a block is let through; False: the receiver stops."""
        with contextlib.ExitStack() as opened:
            pipe = -1
            while not self._stopped.is_set():
                if pipe < 0:
                    with contextlib.suppress(FileNotFoundError):
                        pipe = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                        opened.callback(os.close, pipe)
                readable = pipe >= 0 and select.select([pipe], [], [], _LOOK_S)[0]
                if readable and os.read(pipe, 1):
                    return True
                if readable or pipe < 0:  # Closed, or absent.
                    self._stopped.wait(_LOOK_S)
        return False
