"""The messages of the control protocol, as frozen `msgspec` types.

They are the messages of Spark's `ReceiverTracker` and `ReceiverSupervisor`
(`ReceiverTracker.scala`, `ReceiverMessage.scala`), under the same names, and the block servers'
messages. Each travels as MessagePack inside one frame. An *ask* is answered by exactly one reply
with the same `id`; a *send* is not answered.

`AddBlock` may be asked again after a lost answer: the tracker takes a block id once (I2).
"""

from __future__ import annotations

import msgspec


class MemoryPlace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a block's hot copy is: a byte range of a shared-memory file of its host."""

    path: str
    offset: int
    length: int
    """Bytes of the whole log record (header and payload), from `offset` on."""


class SegmentPlace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a block is in a segment log: `offset` is that of the record's header."""

    folder: str
    segment: int
    offset: int
    length: int
    """Bytes of the whole log record (header and payload), without padding."""


class ReplicaPlace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where a block's copy on another host is: in a log of its own, under a number of its own."""

    host: str
    segment: SegmentPlace
    sequence: int
    """The sequence number in the header of its record."""


class ReceivedBlockInfo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the tracker knows of a block: enough to find, check and read it."""

    stream_id: int
    block_id: str
    """``input-<streamId>-<n>``, as Spark names it; never used twice for a stream."""
    num_records: int
    num_bytes: int
    """Bytes of the Arrow payload."""
    attempt: str
    """The receiver attempt that stored it: 32 hex digits, also part of its folder's names."""
    host: str
    sequence: int
    """The sequence number in the record's header: a reader refuses a slot that holds another."""
    memory: MemoryPlace | None
    segment: SegmentPlace | None
    position: bytes | None = None
    """MessagePack of the source position after this block's last record, if the source has one."""
    kind: str = "binary"
    """How its records are laid out: ``binary``, ``string``, ``pickled`` or ``arrow``."""
    schema: bytes | None = None
    """The serialised Arrow schema of an ``arrow`` block."""
    replicas: tuple[ReplicaPlace, ...] = ()
    """The copies on other hosts than `host`; made before the block is reported."""
    letters: tuple[bytes, ...] = ()
    """The keys of the dead letters whose records are in it; see `penstock.dead_letters`."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that have the block: the receiver's first."""
        return (self.host, *(replica.host for replica in self.replicas))


# -- receiver to tracker -----------------------------------------------------------------------


class RegisterReceiver(msgspec.Struct, frozen=True, tag=True):
    """Ask to be the receiver of a stream. Answered by `Registered` or `Refused`."""

    stream_id: int
    attempt: str
    receiver_type: str
    """Class name: what the tracker calls a receiver whose stream has no name."""
    host: str
    executor_id: str
    pid: int
    log: str = ""
    """Folder of the log that it shares with others of its process; empty: it has its own."""


class AddBlock(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Ask that blocks be written to the driver log, in this order. Answered by `Ok`/`Refused`.

    One message carries all the blocks that were waiting, so that they share a round trip.
    """

    stream_id: int
    attempt: str
    blocks: tuple[ReceivedBlockInfo, ...]


class ReportError(msgspec.Struct, frozen=True, tag=True):
    """Report an error in a receiver (send)."""

    stream_id: int
    attempt: str
    message: str
    error: str
    """The traceback as text, or empty."""
    permanent: bool = False
    """True when starting the receiver again cannot help (bad setting, cannot be unpickled)."""


class ReportAddresses(msgspec.Struct, frozen=True, tag=True):
    """Report where a receiver listens: all addresses, in place of those reported before (send)."""

    stream_id: int
    attempt: str
    addresses: tuple[str, ...]


class ReportDropped(msgspec.Struct, frozen=True, tag=True):
    """Report how many records a receiver dropped, since they came too fast (send).

    It comes before the `AddBlock` of any block that was stored later.
    """

    stream_id: int
    attempt: str
    records: int
    """Since the attempt began."""


class LogReading(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The log of an attempt, since the attempt began."""

    segments: int = 0
    """Segments that it has."""
    bytes: int = 0
    """Bytes that were appended."""
    syncs: int = 0
    """Forced writes and syncs."""
    sync_s: float = 0.0
    """Seconds that they took."""
    slowest_sync_s: float = 0.0
    """The slowest of them."""
    free_bytes: int = -1
    """Free bytes on its file system; -1 when that is not known."""


class BlockTrace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """When a block passed each part of its way, by the clock of its receiver's host.

    Times are seconds since the epoch.
    """

    block_id: str
    num_records: int
    num_bytes: int
    since_s: float
    """When it was last looked at and had no record, or the block before it was full: about when the
    first of its records came, at the earliest."""
    sealed_s: float
    """When it was sealed."""
    taken_s: float
    """When its turn in the queue had come."""
    stored_s: float
    """When the log, and other hosts that are to have a replica, had it."""
    known_s: float
    """When the driver had written its metadata down."""

    @staticmethod
    def is_due(block_id: str, every: int) -> bool:
        """Return whether a block is traced: one in `every` of an attempt, from its first one on."""
        return every > 0 and (int(block_id.rpartition("-")[2]) & 0xFFFF_FFFF) % every == 0


class PipeReading(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the threads of an attempt have waited for since it began, and what is on its way.

    Seconds are summed over all threads; a wait that goes on is counted up to now.
    """

    rate_s: float = 0.0
    """Storing threads: for permits for records."""
    byte_rate_s: float = 0.0
    """Storing threads: for the rate of bytes."""
    shared_rate_s: float = 0.0
    """Storing threads: for permits of the rate that applications share."""
    queue_s: float = 0.0
    """Storing threads: for room in the queue of sealed blocks."""
    durable_s: float = 0.0
    """Storing threads: for what they stored in bulk to be durable and known to the driver."""
    memory_s: float = 0.0
    """Storing threads: for memory for the next block."""
    log_s: float = 0.0
    """The pushing thread: for the log to take a block, its pauses after failures included."""
    replica_s: float = 0.0
    """The pushing thread: for another host to have its copy, after the log had the block."""
    room_s: float = 0.0
    """The pushing thread: for room in the queue of blocks that the driver is to be notified of."""
    driver_s: float = 0.0
    """The reporting thread: for the driver's answers."""
    busy_s: float = 0.0
    """Processor time of the receiver's process."""
    open_records: int = 0
    """Records that are in no sealed block yet."""
    queued_blocks: int = 0
    """Blocks that are sealed and not yet in the log."""
    stored_blocks: int = 0
    """Blocks that are in the log and that the driver does not know yet."""
    blocks: int = 0
    """Blocks that were reported, since the attempt began."""
    latency_ms: tuple[float, float] | None = None
    """From sealed to acknowledged, of the last blocks: the median, and what 99 % stay under."""
    log: LogReading | None = None
    """The attempt's log; None where it has none."""
    traces: tuple[BlockTrace, ...] = ()
    """Of the blocks that are traced, those that became known since the reading before."""
    discarded: int = 0
    """Records that were discarded since the attempt began."""
    source_lag: int | None = None
    """Records that the source has and that are not stored, as far as it is known; else None."""
    source_lag_ms: int | None = None
    """By how many milliseconds it is behind the source's end, where it knows times; else None."""


class ReportRateStatus(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Report how a receiver's rate is used: regularly, and when it has a new rate (send)."""

    stream_id: int
    attempt: str
    rate_version: int
    """Of the rates in force; 0 before the first."""
    records: int
    """Records that passed since the attempt began."""
    waited_s: float
    """Seconds that its threads waited for the rate of records since then, all together."""
    is_waiting: bool
    """Whether one of them waits at this moment, for whatever rate."""
    queue_fill: float
    """How full the queue of sealed blocks is, 0 to 1; 1 also when the memory for blocks is full."""
    at_s: float
    """The receiver's monotonic clock, so that rates do not depend on the message's way."""
    bytes: int = 0
    """Bytes that passed since the attempt began."""
    pipe: PipeReading | None = None
    """About once a second: what the attempt's threads wait for."""
    is_held: bool = False
    """Whether it has paused itself, and is to stay paused until its stream is resumed."""
    byte_waited_s: float = 0.0
    """As `waited_s`, for the rate of bytes."""


class LettersSent(msgspec.Struct, frozen=True, tag=True):
    """What became of a `SendLetters` (send)."""

    stream_id: int
    attempt: str
    request: int
    stored: int
    """How many are in the ledger as records of the stream."""
    left: tuple[tuple[tuple[str, int], str], ...] = ()
    """Those that were not stored, and why."""
    error: str = ""
    """Why it ended in the middle; what of the rest was stored the ledger knows."""


class ReportFullLog(msgspec.Struct, frozen=True, tag=True):
    """Report that a receiver finds no room to begin its log, and so does not start (send)."""

    stream_id: int
    attempt: str
    host: str
    free_bytes: int
    """Free bytes where the log should be; -1 when that is not known."""


class DeregisterReceiver(msgspec.Struct, frozen=True, tag=True):
    """Ask to be counted as stopped; the receiver will add no more blocks. Answered by `Ok`.

    `expected`: it is as the author declared it, and no news.
    """

    stream_id: int
    attempt: str
    message: str
    error: str
    expected: bool = False


class RegisterSlot(msgspec.Struct, frozen=True, tag=True):
    """Say whose receivers a process runs, again after each reconnect.

    Answered by `Ok`, and then by a `StartAttempt` for each of them that is to run.
    """

    slot: int
    task: str
    """The Spark task that the process belongs to: 32 hex digits, never used before."""
    process: int
    """Its number in that task, from 1."""
    streams: tuple[int, ...]
    ended: str = ""
    """What ended the process that these streams had before."""


class StartAttempt(msgspec.Struct, frozen=True, tag=True):
    """To a slot's process: start an attempt, unless it was started before (send)."""

    stream_id: int
    attempt: str


class AttemptEnded(msgspec.Struct, frozen=True, tag=True):
    """Say that an attempt is over, as a Spark task would by its end. Answered by `Ok`."""

    slot: int
    stream_id: int
    attempt: str
    error: str = ""
    """The traceback it failed with; empty when it ended for good."""


class FindReplicaHost(msgspec.Struct, frozen=True, tag=True):
    """Ask which other host is to have the second copies of an attempt's blocks.

    Answered by `ReplicaHostAt`.
    """

    stream_id: int
    attempt: str
    host: str
    """The receiver's own."""
    silent: tuple[str, ...] = ()
    """Hosts that did not answer, or refused, a moment ago."""


class ReplicaHostAt(msgspec.Struct, frozen=True, tag=True):
    """The tracker's answer: the host and its block server, or none."""

    host: str | None
    address: tuple[str, int] | None
    is_expected: bool
    """Without a host: whether a block server is about to start on one."""
    is_alone: bool
    """No other host was ever seen in this application."""


# -- tracker to receiver -----------------------------------------------------------------------


class StopReceiver(msgspec.Struct, frozen=True, tag=True):
    """Stop for good: ``Stopped by driver`` (send)."""

    reason: str = "Stopped by driver"
    timeout_s: float | None = None
    """How long the driver waits for the end; None: as the receiver's settings say."""


class RestartReceiver(msgspec.Struct, frozen=True, tag=True):
    """Stop and start the receiver in its process, as if it had called `restart` (send)."""

    reason: str


class SealBlock(msgspec.Struct, frozen=True, tag=True):
    """Seal the open block now, and not at the end of its interval (send)."""


class SendLetters(msgspec.Struct, frozen=True, tag=True):
    """Store dead letters of the stream again; answered later by `LettersSent` (send)."""

    request: int
    """Comes back in the answer."""
    attempt: str
    """The newest attempt when the ledger did not know them as sent; no other one does it."""
    letters: tuple[tuple[str, int], ...]
    """The folder of each one's log, and its number in that."""
    even_sent: bool = False
    """Also those that were sent before."""


class CleanupOldBlocks(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The clean-up of these blocks is in the driver log: their bytes may go (I4) (send).

    `block_ids` frees their hot copies. `segments` are (folder, segment number) of segments whose
    blocks are all released and to which nothing will be appended: delete those files. Of a log that
    attempts share the folder may be that of one that has ended, and -1 stands for all it had.
    """

    block_ids: tuple[str, ...]
    segments: tuple[tuple[str, int], ...]


class UpdateRateLimit(msgspec.Struct, frozen=True, tag=True):
    """Use new rates at once, also for the open block (I8) (send). None is no limit."""

    stream_id: int
    records_per_second: float | None
    bytes_per_second: float | None = None
    version: int = 1
    """Grows with each change of the stream's rates; a receiver passes over what is older than what
    it has, for an update may overtake the answer to a registration."""
    is_paused: bool = False
    """Whether nothing is to pass at all, until the next update."""
    taken_over_version: int = 0
    """Version of the last rates by which the driver took over a pause of the receiver's own, as it
    had heard of it (`ReportRateStatus.is_held`); 0 for none. From then on the driver says when it
    goes on."""


class EnsureBlockServer(msgspec.Struct, frozen=True, tag=True):
    """This host's block server is gone: start another (send)."""


# -- block server and tracker ------------------------------------------------------------------


class RegisterBlockServer(msgspec.Struct, frozen=True, tag=True):
    """A block server offers the blocks of its host. Answered by `BlockServerRegistered`."""

    host: str
    address: tuple[str, int]
    pid: int


class BlockServerRegistered(msgspec.Struct, frozen=True, tag=True):
    """The tracker's answer: the lease is held while the connection lives, and this long after."""

    lease_s: float


class FindBlockServer(msgspec.Struct, frozen=True, tag=True):
    """Ask where the blocks of a host are served (batch task). Answered by `BlockServerAt`."""

    host: str


class BlockServerAt(msgspec.Struct, frozen=True, tag=True):
    """The tracker's answer: where, and whether waiting helps when there is nothing."""

    address: tuple[str, int] | None
    """None while no block server of the host is connected to the tracker."""
    is_expected: bool
    """Whether one is about to come: a receiver of the host lives and starts it."""


class FindCopies(msgspec.Struct, frozen=True, tag=True):
    """Ask which copies a block has by now (batch task). Answered by `CopiesAt`."""

    stream_id: int
    block_id: str


class CopiesAt(msgspec.Struct, frozen=True, tag=True):
    """The tracker's answer."""

    replicas: tuple[ReplicaPlace, ...]


class SkippedBlock(msgspec.Struct, frozen=True, tag=True):
    """A batch goes on without a block that no host has (batch task). Answered by `Ok`.

    `Refused` when the stream has no receiver.
    """

    stream_id: int
    block_id: str
    reason: str


class SlowBlock(msgspec.Struct, frozen=True, tag=True):
    """A task took long to read a block, or waits for it (batch task). Answered by `Ok`.

    `Refused` when the stream has no receiver.
    """

    stream_id: int
    block_id: str
    seconds: float
    host: str
    """Where the task ran."""
    tried: str = ""
    """The places that did not have it, and why."""
    batch_ms: int = -1
    """The batch; -1 where none read it, but a query or ``penstock tap``."""
    is_waiting: bool = False
    """It waits for a host that is away."""


class ReleaseBlocks(msgspec.Struct, frozen=True, tag=True):
    """Delete what ended receiver attempts left on this host (send to a block server).

    `attempts` are wholly released: their memory files and log folders go. `segments` are single
    released segments of attempts that ended but still have live blocks. Of those in `memory` only
    the log is retained: their memory files go.
    """

    attempts: tuple[str, ...]
    segments: tuple[tuple[str, int], ...]
    memory: tuple[str, ...] = ()


class CopyBlocks(msgspec.Struct, frozen=True, tag=True):
    """Copy blocks of this host to another one; answered later by `BlocksCopied` (send)."""

    request: int
    """Comes back in the answer."""
    host: str
    """The other one."""
    address: tuple[str, int]
    """Its block server."""
    blocks: tuple[ReceivedBlockInfo, ...]
    """Each as this host has it: `host` is this one, and no other place is named."""


class BlocksCopied(msgspec.Struct, frozen=True, tag=True):
    """What became of a `CopyBlocks` (send)."""

    request: int
    places: tuple[ReplicaPlace | None, ...]
    """Of the first of its blocks, in order; None: it was not copied. The others were not tried."""
    reason: str = ""
    """Why the last of those was not copied."""
    is_refused: bool = False
    """It was the other host that took none."""


class CheckLogs(msgspec.Struct, frozen=True, tag=True):
    """Say which of these folders are not there; answered later by `LogsMissing` (send)."""

    folders: tuple[str, ...]


class LogsMissing(msgspec.Struct, frozen=True, tag=True):
    """What became of a `CheckLogs` (send)."""

    host: str
    folders: tuple[str, ...]


class StopBlockServer(msgspec.Struct, frozen=True, tag=True):
    """The application ends: remove its scratch files, if it may, and exit (send)."""

    remove_files: bool


# -- those who read streams by places, and tracker -----------------------------------------------


class FindStream(msgspec.Struct, frozen=True, tag=True):
    """Ask for a stream by its name. Answered by `StreamAt`, or `Refused` if there is none."""

    name: str
    from_ms: int | None = None
    """Also the place of the first block that was added at this time or later."""


class StreamAt(msgspec.Struct, frozen=True, tag=True):
    """The tracker's answer: what is kept of the stream."""

    stream_id: int
    epoch: str
    """Names this stream of this ledger: places of another one are other blocks."""
    first: int
    """The place of the first block that is kept."""
    next: int
    """The place that the next block will have."""
    kind: str
    """That of its blocks; empty while that is not known."""
    schema: bytes | None
    """The serialised Arrow schema, of ``arrow`` blocks."""
    parallelism: int
    """How many tasks run at a time beside the receivers."""
    place: int | None = None
    """What `from_ms` asks for."""
    released_ms: int = -1
    """When the last block that is gone was added, ms since the epoch; -1: none is."""


class FindEnd(msgspec.Struct, frozen=True, tag=True):
    """Ask how far a consumer may go. Answered by `EndAt`.

    From then on what comes at `start` or later is kept for the consumer.
    """

    stream_id: int
    epoch: str
    consumer: str
    """Empty: no one's, nothing is kept."""
    start: int
    until: int | None = None
    """Not further than this place."""
    max_records: int | None = None
    max_bytes: int | None = None


class EndAt(msgspec.Struct, frozen=True, tag=True):
    """The tracker's answer."""

    place: int
    """So far; `start` if there is nothing."""
    records: int
    """Records of the stream before that place, since it began."""
    first: int
    next: int
    first_records: int
    """Records before `first`."""
    next_records: int
    """Records before `next`."""
    start_records: int | None = None
    """Records before `start`, if that is kept or is next."""


class ListBlocks(msgspec.Struct, frozen=True, tag=True):
    """Ask for the blocks from one place up to another. Answered by `BlocksAt`."""

    stream_id: int
    epoch: str
    consumer: str
    """Empty: no one's, nothing is committed."""
    start: int
    end: int
    phantom: str = ""
    """A consumer that is none: it was made for a batch that another one began."""
    batch: int | None = None
    """The place at which the batch begins that this asks for a part of; None: at `start`."""


class BlocksAt(msgspec.Struct, frozen=True, tag=True):
    """The tracker's answer: as many of them as fit, and are kept."""

    first: int
    """The place of the first of them, or of the first that is kept at all."""
    blocks: tuple[ReceivedBlockInfo, ...]
    added_ms: tuple[int, ...]
    """When each was added, ms since the epoch."""
    servers: dict[str, tuple[str, int]]
    """The block servers by host."""


class CommitPlace(msgspec.Struct, frozen=True, tag=True):
    """Ask to note that a consumer has processed all before a place. Answered by `Ok`."""

    stream_id: int
    epoch: str
    consumer: str
    place: int


# -- tasks of continuous streams, and tracker --------------------------------------------------


class SubscribeTask(msgspec.Struct, frozen=True, tag=True):
    """Ask for the blocks of a task of a continuous stream. Answered by `Subscribed`/`Refused`.

    The answer is followed by `TaskBlocks` and `EndEpoch`, as they come.
    """

    stream_id: int
    task: int
    attempt: str
    """32 hex digits, never used before; older attempts of the task are fenced."""
    host: str
    pid: int


class Subscribed(msgspec.Struct, frozen=True, tag=True):
    """The tracker's answer."""

    source: str
    """Names the stream's epochs: no other stream, ledger or consumer has the name."""
    number: int = -1
    """The task is sent the blocks behind this epoch; -1: from the first one on."""
    end: int = 0
    """Before which place that ends."""


class ShownBlock(msgspec.Struct, frozen=True, tag=True):
    """A block that is sealed and in no log yet: to the driver, and by it to a task (send)."""

    stream_id: int
    attempt: str
    block_id: str
    payload: bytes
    """As in the receiver's log; where that is encrypted, as a copy on another host is."""


class TaskBlocks(msgspec.Struct, frozen=True, tag=True):
    """To a task: its next blocks, in order (send).

    Each with its place, and when the driver log had it, in ms since the epoch.
    """

    blocks: tuple[tuple[int, ReceivedBlockInfo, int], ...]


class EndEpoch(msgspec.Struct, frozen=True, tag=True):
    """To a task: the blocks before a place, as far as it was sent them, are an epoch (send)."""

    number: int
    end: int
    parts: int
    """How many parts its blocks are divided into: place modulo parts."""
    is_logged: bool
    """It is in the driver log: commit it, perhaps once more, and do not wait for `CommitEpoch`."""
    clock_ms: int = 0
    """What time it was when it ended, in ms since the epoch: timers expire by that."""


class EpochPrepared(msgspec.Struct, frozen=True, tag=True):
    """Report that a task has an epoch's output ready to be committed (send)."""

    stream_id: int
    task: int
    attempt: str
    number: int


class CommitEpoch(msgspec.Struct, frozen=True, tag=True):
    """To a task: the epoch is in the driver log, commit it (send)."""

    number: int


class EpochCommitted(msgspec.Struct, frozen=True, tag=True):
    """Report that a task's part of an epoch is where it belongs (send)."""

    stream_id: int
    task: int
    attempt: str
    number: int
    records: int
    """Records that its function was given."""
    letters: int = 0
    """How many of them it raised for, and are dead letters."""
    late: int = 0
    """Records of the task that were earlier than the watermark."""
    watermark_ms: int | None = None
    """Where that is at its end, in ms since the epoch."""


class TimerDue(msgspec.Struct, frozen=True, tag=True):
    """Say when a task has something to do without a block (send); the last one counts."""

    stream_id: int
    task: int
    attempt: str
    due_ms: int | None
    """In ms since the epoch; None: never."""


class TaskWaits(msgspec.Struct, frozen=True, tag=True):
    """Say which call a task waits for, once a second if that has changed (send)."""

    stream_id: int
    task: int
    attempt: str
    what: str
    """Empty: for none."""


class TaskFailed(msgspec.Struct, frozen=True, tag=True):
    """Report that a task's function or sink failed, or hangs; the attempt ends (send)."""

    stream_id: int
    task: int
    attempt: str
    message: str
    error: str
    """The traceback as text, or empty."""
    permanent: bool = False
    """True when trying again cannot help."""


# -- replies and both ways ---------------------------------------------------------------------


class Ok(msgspec.Struct, frozen=True, tag=True):
    """Done."""


class Registered(msgspec.Struct, frozen=True, tag=True):
    """The receiver is accepted."""

    first_block_number: int
    """The attempt numbers its blocks from here; no other attempt of the stream ever does."""
    last_position: bytes | None
    """The last durable position of the stream (MessagePack), or None."""
    records_per_second: float | None
    """The rate in force; None is no limit."""
    bytes_per_second: float | None = None
    """The same for bytes."""
    rate_version: int = 0
    """The version of these rates; 0 when none were set yet, and the settings hold."""
    is_paused: bool = False
    """Whether nothing is to pass at all, until an update."""
    taken_over_version: int = 0
    """As of `UpdateRateLimit`."""
    splits: tuple[str, ...] | None = None
    """The splits that the attempt has; None where its source has none."""


class Refused(msgspec.Struct, frozen=True, tag=True):
    """A clear no: asking again does not help."""

    reason: str


class Failure(msgspec.Struct, frozen=True, tag=True):
    """The handler failed; the same ask may succeed later."""

    reason: str


class Heartbeat(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Nothing happened; the connection lives (send)."""


Message = (
    RegisterReceiver
    | AddBlock
    | ReportError
    | ReportAddresses
    | ReportDropped
    | ReportRateStatus
    | ReportFullLog
    | DeregisterReceiver
    | RegisterSlot
    | StartAttempt
    | AttemptEnded
    | FindReplicaHost
    | ReplicaHostAt
    | StopReceiver
    | RestartReceiver
    | SealBlock
    | SendLetters
    | LettersSent
    | CleanupOldBlocks
    | UpdateRateLimit
    | EnsureBlockServer
    | RegisterBlockServer
    | BlockServerRegistered
    | FindBlockServer
    | BlockServerAt
    | FindCopies
    | CopiesAt
    | SkippedBlock
    | SlowBlock
    | FindStream
    | StreamAt
    | FindEnd
    | EndAt
    | ListBlocks
    | BlocksAt
    | CommitPlace
    | ReleaseBlocks
    | CopyBlocks
    | BlocksCopied
    | CheckLogs
    | LogsMissing
    | StopBlockServer
    | SubscribeTask
    | Subscribed
    | ShownBlock
    | TaskBlocks
    | EndEpoch
    | EpochPrepared
    | CommitEpoch
    | EpochCommitted
    | TimerDue
    | TaskWaits
    | TaskFailed
    | Ok
    | Registered
    | Refused
    | Failure
    | Heartbeat
)
"""Every message: what a decoder accepts; anything else is a protocol error."""
