"""What is there whether a driven program runs or not: time, disk, received blocks, sinks.

And what of them a run of the program holds: its ledger, and the blocks that batches read.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock.receiver import Receiver
from penstock.streaming import StreamingContext
from penstock.streaming._receivers import hand_over, number_streams, stream_names
from penstock.tracker.ledger.received_block_tracker import ReceivedBlockTracker
from penstock.wal import LocalFileSystem
from penstock.wire.messages import AddBlock, Ok, ReceivedBlockInfo
from tests.streaming.restarts.spark_stand_in import LocalContext

__all__ = [
    "BEGIN_MS",
    "START_MS",
    "BlockGoneError",
    "CrashError",
    "LedgerSide",
    "SinkError",
    "World",
    "block_rdd",
    "current_world",
    "enter_world",
]

BEGIN_MS = 1_700_000_000_000
"""Wall time of a world's begin; a multiple of all intervals that tests use."""

START_MS = BEGIN_MS + 500
"""Wall time at which the first run of a program starts."""


class CrashError(BaseException):
    """The driver is dead: nothing that it still does has an effect."""


class SinkError(Exception):
    """What a program writes to is down."""


class BlockGoneError(Exception):
    """A job reads a block whose bytes were released."""


class DrivenClock:
    """Two times that a test moves. Whoever waits is told that its wait was ended."""

    def __init__(self) -> None:
        self.wall_ms = START_MS
        self.elapsed_ms = 0

    def time_ms(self) -> int:
        return self.wall_ms

    def monotonic_s(self) -> float:
        return self.elapsed_ms / 1000

    def wait(self, event: Any, timeout_s: float) -> bool:
        return True


class World:
    """What is there whether the program runs or not: time, disk, received blocks, sinks.

    Attributes:
        clock: The clock.
        batch_ms: The batch interval of its programs.
        chance: Chooses what happens next where several things may; None: always the same.
        folder: The disk.
        blocks: The records of every block that was ever stored, by its id.
        gone: Ids of blocks whose bytes were released.
        acknowledged: Ids of blocks that a receiver was told of that they are kept.
        results: What sinks were given: by sink and batch time, once for each time.
        failed: Batch times at which a sink was down, by sink.
        early: Batch times that a sink was given before the clock was there.
        errors: What the runs told of errors that were not the sinks'.
        down: Sinks that are down: whether a job runs first.
    """

    def __init__(self, folder: str, batch_ms: int, chance: random.Random | None) -> None:
        self.clock = DrivenClock()
        self.batch_ms = batch_ms
        self.chance = chance
        self.folder = folder
        self.files = os.path.join(folder, "files")
        self.checkpoint = os.path.join(folder, "checkpoint")
        os.mkdir(self.files)
        self.blocks: dict[str, list[Any]] = {}
        self.gone: set[str] = set()
        self.acknowledged: list[str] = []
        self.results: dict[str, dict[int, list[list[Any]]]] = {}
        self.failed: dict[str, list[int]] = {}
        self.early: set[int] = set()
        self.errors: list[BaseException] = []
        self.down: dict[str, bool] = {}
        self.points = 0
        self._crash_at: int | None = None
        self.disk = _Disk(self)
        self.side: LedgerSide | None = None

    # -- what a program is built with ------------------------------------------------------------

    def stream(self, ssc: StreamingContext) -> Any:
        """Return a stream of received records; the first one has number 0."""
        return ssc.receiverStream(_NoSource())

    def keep(self, stream: Any, name: str) -> None:
        """Write a stream's batches to the sink `name`."""
        stream.foreachRDD(Sink(name))

    # -- crashes ---------------------------------------------------------------------------------

    def point(self) -> None:
        """Die here, if it is time to."""
        self.points += 1
        if self._crash_at is not None and self.points >= self._crash_at:
            raise CrashError

    def crash_at(self, count: int) -> None:
        self._crash_at = self.points + count

    @property
    def is_dead(self) -> bool:
        return self._crash_at is not None and self.points >= self._crash_at

    def revive(self) -> None:
        self._crash_at = None

    # -- sinks and blocks ------------------------------------------------------------------------

    def write(self, name: str, time_ms: int, rdd: Any) -> None:
        """Take a batch; what a batch gave counts also when the sink is down."""
        self.point()
        if time_ms > self.clock.time_ms():
            self.early.add(time_ms)
        if self.down.get(name) is False:
            self.failed.setdefault(name, []).append(time_ms)
            raise SinkError(name)
        records = sorted(rdd.collect())
        self.point()
        self.results.setdefault(name, {}).setdefault(time_ms, []).append(records)
        if name in self.down:
            self.failed.setdefault(name, []).append(time_ms)
            raise SinkError(name)

    def read_block(self, block_id: str) -> list[Any]:
        if block_id in self.gone:
            raise BlockGoneError(f"block {block_id} was released")
        return self.blocks[block_id]


_world: World | None = None


def enter_world(world: World) -> None:
    """Let this be the world of the programs that run from now on."""
    global _world
    _world = world


def current_world() -> World:
    assert _world is not None
    return _world


class Sink:
    """An output operation that writes to the world."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, time: Any, rdd: Any) -> None:
        current_world().write(self.name, round(time.timestamp() * 1000), rdd)


class _NoSource(Receiver):
    """The receiver of a stream whose blocks a test adds."""

    def onStart(self) -> None:
        """Nothing comes by itself."""

    def onStop(self) -> None:
        """There is nothing to stop."""


class _BlockReader:
    def __init__(self, block_id: str) -> None:
        self._block_id = block_id

    def __call__(self) -> list[Any]:
        return current_world().read_block(self._block_id)


def block_rdd(context: LocalContext, blocks: Sequence[ReceivedBlockInfo], *_: Any) -> Any:
    return context.of_partitions([_BlockReader(block.block_id) for block in blocks])


class _Disk(LocalFileSystem):
    """The disk of the driver's host; each change is a point before and after it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._open: list[Any] = []

    def create(self, path: str, *, direct: bool) -> Any:
        return self._opened(lambda: super(_Disk, self).create(path, direct=direct))

    def reopen(self, path: str, *, direct: bool) -> Any:
        return self._opened(lambda: super(_Disk, self).reopen(path, direct=direct))

    def _opened(self, open_it: Callable[[], Any]) -> Any:
        self._world.point()
        file = _File(open_it(), self._world)
        self._open.append(file)
        return file

    def rename(self, source: str, target: str, *, replace: bool = False) -> None:
        self._world.point()
        super().rename(source, target, replace=replace)
        self._world.point()

    def remove(self, path: str) -> None:
        self._world.point()
        super().remove(path)

    def truncate(self, path: str, size: int) -> None:
        self._world.point()
        super().truncate(path, size)

    def sync_file(self, path: str) -> None:
        """A loss of power is not what is tried here."""

    def sync_folder(self, folder: str) -> None:
        """A loss of power is not what is tried here."""

    def lock(self, path: str, owner: str) -> Any:
        """One process plays all the drivers, one after the other."""
        return _NoLock()

    def end_process(self) -> None:
        """Close what a driver that died had open."""
        for file in self._open:
            file.abandon()
        self._open.clear()


class _NoLock:
    def check(self) -> None:
        """It is held by whoever asks."""

    def release(self) -> None:
        """Nothing is held."""


class _File:
    def __init__(self, file: Any, world: World) -> None:
        self._file = file
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, offset: int, data: Any, *, sync: bool) -> Any:
        self._world.point()
        done = self._file.write(offset, data, sync=False)
        self._world.point()
        return done

    def sync(self) -> None:
        self._world.point()

    def abandon(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._file.close()


class LedgerSide:
    """In the place of the engine's `ReceiverSide`: the ledger without receivers.

    It is what batches ask for received blocks, too.

    Attributes:
        numbers: The numbers of the streams, by name.
    """

    skipped_blocks = 0
    count = tasks = 0
    block_access = None

    def __init__(
        self,
        graph: Any,
        run: Any,
        *,
        rates: Any,
        ledger: ReceivedBlockTracker,
        checkpointing: Any = None,
        **_: Any,
    ) -> None:
        upgraded = None if checkpointing is None else checkpointing.upgraded
        self._world = current_world()
        self.ledger = ledger
        self._keep_batches = checkpointing is not None and checkpointing.recovered is not None
        self._next: dict[int, tuple[str, int]] = {}
        removed = run.settings.removed_streams or ()
        number_streams(graph, self.ledger, rates, removed=removed, before=upgraded)
        if upgraded is not None:
            hand_over(self.ledger, upgraded, is_resumed=self._keep_batches)
        self.numbers = {name: node.stream_id for name, node in stream_names(graph).items()}
        self.blocks = self
        self._world.side = self

    def start(self) -> None:
        if not self._keep_batches:
            self.ledger.return_unfinished_batches()
        for stream_id in self.numbers.values():
            # As unique as a receiver attempt's random id, and the same in each run of a test.
            attempt = f"{self._world.points:032x}"
            found = self.ledger.register_attempt(stream_id, attempt, "host")
            self._next[stream_id] = (attempt, found.first_block_number)

    def running(self) -> tuple[int, int]:
        return 0, 0

    def executors(self) -> frozenset[str]:
        return frozenset()

    def scale_by(self, more: int) -> None: ...

    def unallocated_records(self) -> dict[int, int]:
        return {
            stream_id: sum(block.num_records for block in self.ledger.unallocated_blocks(stream_id))
            for stream_id in self.numbers.values()
        }

    def drain(self, timeout_s: float) -> bool:
        return True

    def stop_receiving(self, graceful: bool, timeout_s: float) -> None:
        """All that was received is in the ledger already."""

    def stop(self, timeout_s: float) -> None:
        self.ledger.close()

    def receive(self, stream_id: int, records: Iterable[Any]) -> None:
        """Store a block and report it, as a receiver does."""
        attempt, number = self._next[stream_id]
        block_id = f"input-{stream_id}-{number}"
        kept = list(records)
        self._world.blocks[block_id] = kept
        self._next[stream_id] = (attempt, number + 1)
        block = ReceivedBlockInfo(
            stream_id, block_id, len(kept), 0, attempt, "host", number, None, None
        )
        answer = self.ledger.add_blocks(AddBlock(stream_id, attempt, (block,)))
        self._world.point()
        assert isinstance(answer, Ok), answer
        self._world.acknowledged.append(block_id)

    # -- what batches ask ------------------------------------------------------------------------

    def allocate_blocks_to_batch(self, time_ms: int, /) -> None:
        self.ledger.allocate_blocks_to_batch(time_ms)

    def get_blocks_of_batch_and_stream(
        self, time_ms: int, stream_id: int, /
    ) -> Sequence[ReceivedBlockInfo]:
        return self.ledger.get_blocks_of_batch_and_stream(time_ms, stream_id)

    def has_unallocated_blocks(self) -> bool:
        return self.ledger.has_unallocated_blocks

    def last_allocated_ms(self) -> int:
        return self.ledger.last_allocated_ms

    def incomplete_batches(self) -> tuple[int, ...]:
        return self.ledger.incomplete_batches()

    def complete_batches(self, times_ms: Iterable[int], /) -> None:
        self.ledger.complete_batches(times_ms)

    def release_memory(self, time_ms: int, /) -> None:
        """Blocks are not in memory."""

    def cleanup_old_blocks_and_batches(self, threshold_ms: int, /) -> None:
        for release in self.ledger.cleanup_old_batches(threshold_ms):
            self._world.gone.update(release.block_ids)
