"""The block store of one receiver attempt: reserve, build, append to the log, release.

The storage level says which copies must exist before a block counts as stored: memory levels the
slot, disk levels the segment, ``MEMORY_AND_DISK`` both. A durable sync policy needs the segment
whatever the level says. When the memory file system is missing or too small, the arena is in
the log's folder, or with a log on HDFS in a folder of this host, instead; it says so once and stays
correct. With encryption it does not: slots hold records in clear, so that is an error.

*A log on HDFS.* No one can read a segment of it before it is closed. So a slot can be given away
only after the segment of its block was closed, and when slots run short the open segment is. Blocks
may be compressed there and on an object store, which saves more of the network's time than it
takes.

*A second copy.* With a `Replicator` a block is stored when another host also has it, or there is no
other host; it is sent while the log takes it.

Life: made by the receiver's launch, used by the block generator's push thread (`put`) and store
path (`open_block`), asked by the tracker to `release`, closed after the generator has drained. One
lock, `BlockStore._lock`, guards the table of blocks.
"""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass

import pyarrow as pa

from penstock.blockstore._compression import BlockCompression, Compressing
from penstock.blockstore._encryption import block_cipher, check_in_memory, sealed_copy
from penstock.blockstore.building.builder import HEADER_ROOM, BlockBuilder, BlockKind, SealedBlock
from penstock.blockstore.building.memory import ArenaError, MemoryArena, Slot
from penstock.blockstore.process_log import ProcessLog, ProcessLogMember
from penstock.blockstore.replicator import Replicator
from penstock.blockstore.server.replica_service import BLOCK_RECORD
from penstock.dead_letters import SentLetter
from penstock.errors import IllegalStateError
from penstock.files.addresses import is_on_hdfs, is_shared
from penstock.runtime.checksum import crc32c
from penstock.runtime.clock import Clock, SystemClock, WaitClock
from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.wal import (
    EncryptionKey,
    LogOptions,
    LogStatistics,
    LogWriter,
    RecordPlace,
    SyncPolicy,
    WalError,
    locate,
    stamp_record,
)
from penstock.wire.messages import (
    MemoryPlace,
    ReceivedBlockInfo,
    ReplicaPlace,
    SegmentPlace,
)

_log = logging.getLogger("penstock.blockstore")

_LOG_OPTIONS = LogOptions(roll_age_s=60.0)
_CLOSE_STEP_S = 1.0
"""How often the open segment on HDFS is closed while memory is short."""


@dataclass(frozen=True)
class BlockStoreOptions:
    """How a block store keeps blocks; sizes in bytes.

    Attributes:
        memory_dir: Folder of a memory file system.
        memory_bytes: Capacity of the arena.
        memory_prefix: What its file's name begins with; the attempt's follows.
        block_max_bytes: Size of a slot, and so of a block.
        log: How the log is written.
        use_memory: The storage level asks for a copy in memory.
        use_disk: The storage level asks for a copy in the log.
        compression: How blocks are compressed in a log on HDFS: ``lz4``, ``zstd``; None: not.
        encryption: Encrypts blocks in memory and in the log; None: they are in clear.
    """

    memory_dir: str = "/dev/shm"
    memory_bytes: int = 1 << 30
    memory_prefix: str = "penstock-"
    block_max_bytes: int = 32 << 20
    log: LogOptions = _LOG_OPTIONS
    use_memory: bool = True
    use_disk: bool = True
    compression: str | None = None
    encryption: EncryptionKey | None = None


class BlockStore:
    """Keeps the blocks of one receiver attempt.

    Args:
        stream_id: The stream.
        attempt: The receiver attempt, 32 hex digits.
        host: The name under which tasks prefer this host.
        log_folder: The attempt's own log folder, here or on HDFS; made here. With `process_log`
            what stands for it in that.
        host_folder: The attempt's folder on this host; None for `log_folder`.
        options: How to keep blocks.
        clock: For the log.
        replicators: Make copies, each on another host; none for one copy. Closed by `close`.
        process_log: The log that the attempt shares with others; None: it has its own.

    Attributes:
        replica_waits: How long `put` waited for another host, after the log had the block.

    Raises:
        WalError: The log's folder cannot be made or written, or is in use; or the package that
            encrypts is missing.
        ArenaError: No arena can be made, neither in memory nor in the log's folder; with
            encryption only in memory.
    """

    def __init__(
        self,
        *,
        stream_id: int,
        attempt: str,
        host: str,
        log_folder: str,
        host_folder: str | None = None,
        options: BlockStoreOptions | None = None,
        clock: Clock | None = None,
        replicators: Sequence[Replicator] = (),
        process_log: ProcessLog | None = None,
    ) -> None:
        self.stream_id = stream_id
        self.attempt = attempt
        self.host = host
        self.options = options or BlockStoreOptions()
        self._lock = threading.Lock()
        self._slots: dict[str, Slot] = {}
        self._closed = False
        self._limited_log = RateLimitedLog(_log)
        self.replica_waits = WaitClock()
        self._cipher = block_cipher(self.options.encryption, attempt)
        # For a level without a disk copy the log stays empty: it holds the folder's lock.
        self._sequences = itertools.count(1)
        self._is_shared = is_shared(log_folder)
        self._is_read_when_closed = is_on_hdfs(log_folder)
        # A durable sync policy needs the log whatever the level says.
        self._has_log = self.options.use_disk or self.options.log.sync is not SyncPolicy.NONE
        codec = self.options.compression if self._is_shared and self._has_log else None
        self._compression = BlockCompression(codec) if codec is not None else None
        self._compressing: dict[str, Compressing] = {}
        # By segment: slots whose blocks can be read nowhere else before it is closed.
        self._unclosed: dict[int, list[Slot]] = {}
        self._writer: LogWriter | ProcessLogMember
        if process_log is not None:
            self._writer = process_log.join(log_folder, self.options.log, self.options.encryption)
        else:
            fs, path = locate(log_folder)
            self._writer = LogWriter.create(
                path,
                fs=fs,
                options=self.options.log,
                clock=clock or SystemClock(),
                cipher=self._cipher,
            )
        self._folder = log_folder
        self._host_folder = host_folder or log_folder
        self._replicators = tuple(replicators)
        try:
            self._arena = self._make_arena()
        except ArenaError:
            self._writer.close()
            raise

    def _make_arena(self) -> MemoryArena:
        options = self.options
        path = os.path.join(options.memory_dir, options.memory_prefix + self.attempt)
        try:
            if self._cipher is not None:
                check_in_memory(options.memory_dir)
            free = shutil.disk_usage(options.memory_dir).free
            if free >= options.block_max_bytes * 3:
                return MemoryArena(path, min(options.memory_bytes, free))
            reason = f"{free} bytes are free there, three blocks need {options.block_max_bytes * 3}"
        except (OSError, ArenaError) as error:
            reason = str(error)
        if self._cipher is not None:
            raise ArenaError(
                options.memory_dir,
                f"no memory for blocks ({reason}), and with spark.io.encryption.enabled they "
                "cannot be on a disk instead; give the host more shared memory, set "
                "spark.penstock.memory.dir to a folder in memory, or lower "
                "spark.penstock.block.maxSize",
            )
        _log.warning(
            "no shared memory in %s (%s): stream %d builds its blocks in a file in %s, which is "
            "slower; give the host more shared memory or lower spark.penstock.block.maxSize",
            options.memory_dir,
            reason,
            self.stream_id,
            self._host_folder,
        )
        try:
            os.makedirs(self._host_folder, 0o700, exist_ok=True)
        except OSError as error:
            raise ArenaError(self._host_folder, f"cannot be made: {error.strerror}") from error
        return MemoryArena(os.path.join(self._host_folder, "memory"), options.memory_bytes)

    def open_block(
        self,
        kind: BlockKind,
        schema: pa.Schema | None = None,
        *,
        give_up: Callable[[], bool] = lambda: False,
        on_full: Callable[[ArenaError], None] = lambda error: None,
        timeout_s: float = 3600.0,
    ) -> BlockBuilder:
        """Reserve a slot and return an empty block in it; waits while memory is short (I7).

        `on_full` is called when it waits because others have filled the memory file system.

        Raises:
            IllegalStateError: `give_up` or the timeout ended the wait.
            ArenaError: A slot can never fit.
        """
        size = self.options.block_max_bytes
        if self._is_read_when_closed:
            slot = self._reserve_or_close(size, timeout_s, give_up, on_full)
        else:
            slot = self._arena.reserve(size, timeout_s=timeout_s, give_up=give_up, on_full=on_full)
        if slot is None:
            raise IllegalStateError(
                f"stream {self.stream_id} got no memory for a block: {self._arena.statistics()}"
            )
        return BlockBuilder(slot, kind, schema)

    def _reserve_or_close(
        self,
        size: int,
        timeout_s: float,
        give_up: Callable[[], bool],
        on_full: Callable[[ArenaError], None],
    ) -> Slot | None:
        """Reserve a slot; while memory is short, close the segment that keeps slots from going.

        Again and again: blocks that fill the memory may still be on their way to the log.
        """
        end_s = time.monotonic() + timeout_s
        slot = self._arena.reserve(size, timeout_s=0, give_up=give_up)
        while slot is None and not self._closed and not give_up():
            with self._lock:
                is_in_the_way = bool(self._unclosed)
            if is_in_the_way:
                self._close_segment()
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                break
            step_s = min(left_s, _CLOSE_STEP_S)
            slot = self._arena.reserve(size, timeout_s=step_s, give_up=give_up, on_full=on_full)
        return slot

    def discard(self, builder: BlockBuilder) -> None:
        """Give back the slot of a block that is not wanted."""
        self._arena.free(builder.slot)

    def payload_of(self, block: SealedBlock) -> bytes:
        """Return a copy of what is in a sealed block; encrypted, if its log is."""
        payload = block.slot.view[HEADER_ROOM : HEADER_ROOM + block.payload_length]
        cipher = self._cipher
        return bytes(payload if cipher is None else sealed_copy(cipher, block.block_id, payload))

    def begin(self, block: SealedBlock) -> None:
        """Begin what can be done before it is the block's turn to be `put`; returns at once."""
        if self._compression is not None and not self._closed:
            payload = block.slot.view[HEADER_ROOM : HEADER_ROOM + block.payload_length]
            self._compressing[block.block_id] = self._compression.begin(payload)

    def put(self, block: SealedBlock) -> ReceivedBlockInfo:
        """Store a sealed block to the storage level and the log's sync policy.

        With replicators it also waits for their copies; that may take as long as the driver cannot
        say whether there is another host.

        Returns:
            Its metadata, for the tracker. When this returns, the block survives what the sync
            policy promises.

        Raises:
            WalError: The log did not take it; the block is unharmed and may be put again.
            IllegalStateError: The store was closed before another host had it.
        """
        options = self.options
        slot = block.slot
        length = HEADER_ROOM + block.payload_length
        crc = None
        copying = []
        if self._replicators:
            payload = slot.view[HEADER_ROOM:length]
            if self._cipher is not None:
                payload = sealed_copy(self._cipher, block.block_id, payload)
            copy_crc = crc32c(payload)
            if self._cipher is None:
                crc = copy_crc
            copying = [
                (each, each.begin(block.block_id, payload, copy_crc)) for each in self._replicators
            ]
        if self._has_log:
            place = self._append(block, crc)
            sequence = place.sequence
            segment = SegmentPlace(self._folder, place.segment, place.offset, place.length)
        else:
            sequence = next(self._sequences)
            stamp_record(slot.view, BLOCK_RECORD, block.payload_length, sequence)
            segment = None
        replicas: tuple[ReplicaPlace, ...] = ()
        if copying:
            with self.replica_waits:
                places = [each.wait(copy) for each, copy in copying]
            replicas = tuple(place for place in places if place is not None)
        memory = None
        if options.use_memory or segment is None or self._is_shared:
            memory = MemoryPlace(self._arena.path, slot.offset, length)
            is_readable = segment is not None and not self._is_read_when_closed
            with self._lock:
                self._slots[block.block_id] = slot
                if segment is not None and not is_readable:
                    self._unclosed.setdefault(segment.segment, []).append(slot)
            self._arena.publish(slot, evictable=is_readable)
            if segment is not None and not is_readable:
                self._let_closed_go(segment.segment)
        else:
            self._arena.free(slot)
        return ReceivedBlockInfo(
            stream_id=self.stream_id,
            block_id=block.block_id,
            num_records=block.num_records,
            num_bytes=block.payload_length,
            attempt=self.attempt,
            host=self.host,
            sequence=sequence,
            memory=memory,
            segment=segment,
            position=block.position,
            kind=block.kind.value,
            schema=None if block.schema is None else block.schema.serialize().to_pybytes(),
            replicas=replicas,
            letters=tuple(
                each.key
                for each in block.acknowledge
                if isinstance(each, SentLetter) and not each.is_refused
            ),
        )

    def _append(self, block: SealedBlock, crc: int | None) -> RecordPlace:
        """Append a block to the log; its slot also gets the record's header."""
        slot, length = block.slot, block.payload_length
        if self._compression is not None:
            if block.block_id not in self._compressing:
                self.begin(block)
            try:
                compressed = self._compressing[block.block_id].result()
            except (KeyError, CancelledError) as error:
                raise IllegalStateError(f"{block.block_id} was not stored") from error
            except BaseException:
                # The next try begins again: memory may be short for a moment only.
                self._compressing.pop(block.block_id, None)
                raise
            if compressed is not None:
                place = self._writer.append(BLOCK_RECORD, compressed)
                stamp_record(slot.view, BLOCK_RECORD, length, place.sequence)
                del self._compressing[block.block_id]
                return place
            del self._compressing[block.block_id]
        return self._writer.append_slot(BLOCK_RECORD, slot.view, length, crc)

    def _close_segment(self) -> None:
        """Close the open segment on HDFS, so that its blocks can be read from it."""
        try:
            self._writer.roll()
        except WalError as error:
            # HDFS is away, or full: the wait for a slot goes on.
            text = f"no memory, and the open segment cannot be closed: {error}"
            self._limited_log.log(text, like="")
            return
        self._let_closed_go(self._writer.statistics().segment)

    def _let_closed_go(self, newest: int | None) -> None:
        """Let slots be given away whose blocks are in segments before the newest."""
        with self._lock:
            closed = [number for number in self._unclosed if newest is not None and number < newest]
            slots = [slot for number in closed for slot in self._unclosed.pop(number)]
        for slot in slots:
            self._arena.make_evictable(slot)

    def release(self, block_ids: Iterable[str], segments: Iterable[tuple[str, int]]) -> None:
        """Free what the tracker has released (I4).

        Args:
            block_ids: Blocks whose slots may go.
            segments: (folder, number) of segments that may go; those of other folders are left,
                except of attempts that share the log.
        """
        with self._lock:
            slots = [self._slots.pop(block_id, None) for block_id in block_ids]
        for slot in slots:
            if slot is not None:
                self._arena.free(slot)
        if self._closed:
            return
        if isinstance(self._writer, ProcessLogMember):
            self._writer.release(segments)
        elif mine := [number for folder, number in segments if folder == self._folder]:
            self._writer.remove_segments(mine)

    def wake(self) -> None:
        """Have waiters for a slot look again whether to give up."""
        self._arena.wake()

    @property
    def memory_is_full(self) -> bool:
        """Whether the memory file system had no room when it was asked last."""
        return self._arena.is_full

    def log_statistics(self) -> LogStatistics | None:
        """Return what the log has done; None when blocks are in memory only."""
        return self._writer.statistics() if self._has_log else None

    @property
    def memory_path(self) -> str:
        """The arena's file."""
        return self._arena.path

    def close(self) -> None:
        """Close the log and the arena; their files stay for readers (I4)."""
        self._closed = True
        for each in self._replicators:
            each.close()
        self._writer.close()
        if self._compression is not None:
            self._compression.close()
            self._compressing.clear()
        self._arena.close()
