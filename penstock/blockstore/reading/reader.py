"""Finding and reading a block, from wherever it is.

`read_block` tries, in this order: the slot in shared memory, the segment on this host, on HDFS or
on an object store, a copy's segment on this host, the block servers of the hosts that may have it.
A segment on HDFS that was not closed is tried once more at last, after its lease was recovered:
that is what a host that is gone leaves. (Should its writer live all the same, it begins a new
segment.) What is on this host is recognised by the path, which holds the receiver attempt's random
id, and a copy's its own; a host name proves nothing. Each way checks the record's header, sequence
and CRC, so a block is either right or the next way is tried.

Each way that fails says what that means. A block is lost (`BlockNotFoundError`) where all of them
said that it is missing or damaged. Where one of them did not answer or refused it, the block may be
whole: that is a `BlockUnavailableError`, and no one goes on without the block.

A host that is away may come back with its disk. Where the user has chosen to wait for it, a task
looks again every second until its part of that time is over, and says so to the tracker meanwhile.
A block that every host with a copy has denied is not waited for.

Where the user has chosen to go on without a block that no host has (`read_block_if_any`), the task
that misses it fails as always, so that Spark tries it again, here or on another host. Only its last
try leaves the block out, and only after the tracker has taken note of it: what is left out is
logged and counted, once for each block. Where there is no tracker any more, the task logs it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import math
import mmap
import os
import pickle
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from penstock.blockstore._compression import expanded
from penstock.blockstore._encryption import block_cipher, opened_copy
from penstock.blockstore.building.builder import (
    DESCRIPTOR,
    KIND_CODES,
    MAGIC,
    WITHOUT_OFFSETS,
    BlockKind,
)
from penstock.blockstore.building.lines import line_chunks, line_column, line_part, line_pieces
from penstock.blockstore.building.memory import lock_shared
from penstock.blockstore.building.record_pickles import learn, plain_record
from penstock.blockstore.process_log import cipher_of, log_of
from penstock.blockstore.reading._readahead import Readahead
from penstock.blockstore.reading.access import BlockAccess
from penstock.errors import PenstockError
from penstock.files.addresses import is_on_hdfs, is_shared
from penstock.runtime.reused_memory import ReusedMemory
from penstock.wal import (
    Answer,
    CorruptRecordError,
    EncryptionKey,
    LogCipher,
    LogReader,
    WalError,
    answer_of,
    locate,
    no_segment,
    parse_record,
    segment_path,
)
from penstock.wire.messages import (
    MemoryPlace,
    Ok,
    ReceivedBlockInfo,
    SegmentPlace,
    ShownBlock,
    SkippedBlock,
    SlowBlock,
)

_log = logging.getLogger("penstock.blockstore")

_KINDS = {code: kind for kind, code in KIND_CODES.items()}
_CHUNK = 2048
"""Records that become Python objects at a time: their memory is then used again and again."""
_LISTS_ARE_FAST = int(pa.__version__.partition(".")[0]) >= 26
"""Before, `to_pylist` took ten times as long as `to_numpy`, which imports pandas, where it is
installed: half a second of a core and 60 MiB of each Python worker."""
_LINES_BYTES = 4 << 20
"""Bytes of lines that are cut into a column at a time."""
_SLOW_S = 1.0
"""A block that takes this long to read is reported,"""
_SLOW_EVERY_S = 10.0
"""one in this many seconds by each process,"""
_SLOW_TELL_S = 2.0
"""for which its task waits at most this long."""
_WAIT_PAUSE_S = 1.0
"""How often it is looked whether a host that is waited for is back."""
_TRIED = 1_000
_BATCH_TIME_PROPERTY = "spark.streaming.internal.batchTime"
_MAPPED_FILES = 8
"""Memory files that a worker process keeps mapped between tasks."""


class BlockNotFoundError(PenstockError):
    """No place that should hold a block has it.

    Attributes:
        block_id: The block.
        tried: What was tried, and why it failed.
    """

    def __init__(self, block_id: str, tried: tuple[str, ...]) -> None:
        super().__init__(
            f"block {block_id} is in none of its places: " + "; ".join(tried or ("none is known",))
        )
        self.block_id = block_id
        self.tried = tried


class BlockUnavailableError(PenstockError):
    """A block cannot be read now, and may be whole: a place of it did not answer, or refused it.

    Attributes:
        block_id: The block.
        tried: What was tried, and why it failed.
    """

    def __init__(self, block_id: str, tried: tuple[str, ...]) -> None:
        super().__init__(
            f"block {block_id} cannot be read now, but may be whole where no answer came or it was "
            f"refused: {'; '.join(tried)}; see to what did not answer, or to the right, ticket or "
            "key that is missing"
        )
        self.block_id = block_id
        self.tried = tried


class _Tried(list[str]):
    """What was tried for a block.

    Attributes:
        is_lost: All of it says that the block is lost.
        may_come: A host that should have it is away.
    """

    is_lost = True
    may_come = False

    def note(self, where: str, error: Exception, is_lost: bool) -> None:
        self.append(f"{where}: {error}")
        self.is_lost = self.is_lost and is_lost


def _is_lost(error: Exception, *, is_local: bool = True) -> bool:
    """Whether a place said that the block is missing, or not whole.

    Any other error may pass: a right or key that is missing, a process without descriptors.
    """
    if isinstance(error, WalError):
        return isinstance(error, CorruptRecordError)
    if isinstance(error, OSError):
        # A sector that cannot be read is damage; of other hosts' disks that is not known.
        is_broken = is_local and error.errno == errno.EIO
        return is_broken or answer_of(error) is Answer.GONE
    return True


@dataclass(frozen=True)
class Block:
    """A block's records, in memory that is valid while `read_block`'s context is open.

    Attributes:
        kind: How they are laid out.
        num_records: How many.
        data: The data buffer.
        offsets: The Arrow offsets, int32, ``num_records + 1``; empty for lines and ``arrow``.
        definitions: Classes that the records of a block of pickles name; see `record_pickles`.
        sealed_ms: When its last record had been taken, ms since the epoch; 0: that is not known.
    """

    kind: BlockKind
    num_records: int
    data: memoryview
    offsets: memoryview
    definitions: memoryview = field(default_factory=lambda: memoryview(b""))
    sealed_ms: int = 0

    def column(self) -> pa.Array:
        """Return a block of bytes or text as one Arrow column; a copy is made of lines only.

        Text that is not UTF-8 throughout comes as a new column with U+FFFD in place of it.
        """
        return self._as_column(self._binary())

    def _as_column(self, binary: pa.Array) -> pa.Array:
        if not self._is_text or binary.type == pa.string():
            return binary
        column = binary.view(pa.string())
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            return pa.array(map(_replace, binary.to_pylist()), pa.string())
        return column

    def part(self, number: int, parts: int) -> Block:
        """Return one of several parts of like size, valid as long; ``arrow`` is not cut."""
        if parts == 1:
            return self
        if self._is_lines:
            data, lines = line_part(self.data, number, parts)
            return Block(self.kind, lines, data, self.offsets)
        first, last = (self.num_records * n // parts for n in (number, number + 1))
        offsets = self.offsets[4 * first : 4 * (last + 1)]
        return Block(self.kind, last - first, self.data, offsets, self.definitions)

    def release(self) -> None:
        """Let go of the memory, as far as no Arrow buffer looks into it."""
        for view in (self.data, self.offsets, self.definitions):
            with contextlib.suppress(BufferError):
                view.release()

    @property
    def _is_text(self) -> bool:
        return self.kind in (BlockKind.STRING, BlockKind.LINES)

    @property
    def _is_lines(self) -> bool:
        return self.kind in (BlockKind.LINES, BlockKind.BYTE_LINES)

    def _binary(self) -> pa.Array:
        if self._is_lines:
            return line_column(self.data)
        buffers = [None, pa.py_buffer(self.offsets), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.binary(), self.num_records, buffers)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the block as Arrow record batches; all others have one column ``value``.

        Lines are cut in pieces, so that a large block does not take as much memory again.
        """
        if self.kind is BlockKind.ARROW:
            with pa.ipc.open_stream(pa.py_buffer(self.data)) as stream:
                yield from stream
        elif self._is_lines and self.num_records:
            for piece in line_pieces(self.data, _LINES_BYTES):
                column = self._as_column(line_column(piece, text=self._is_text))
                yield pa.RecordBatch.from_arrays([column], ["value"])
        else:
            yield pa.RecordBatch.from_arrays([self.column()], ["value"])

    def plain_chunks(self) -> Iterator[list[Any]]:
        """Yield the records of a block of pickles like `chunks`; no code of a program is run.

        Raises:
            ProgramObjectError: One is no plain value.
        """
        binary = self._binary()
        for start in range(0, self.num_records, _CHUNK):
            yield list(map(plain_record, binary.slice(start, _CHUNK).to_pylist()))

    def chunks(self) -> Iterator[list[Any]]:
        """Yield the records as Python objects, a list of some thousand at most at a time."""
        if self._is_lines:
            yield from line_chunks(self.data, text=self._is_text)
            return
        if self.kind is BlockKind.ARROW:
            for batch in self.batches():
                for start in range(0, batch.num_rows, _CHUNK):
                    yield batch.slice(start, _CHUNK).to_pylist()
            return
        if self.definitions:
            learn(self.definitions)
        binary = self._binary()
        column = binary.view(pa.string()) if self._is_text else binary
        for start in range(0, self.num_records, _CHUNK):
            try:
                chunk = _values(column.slice(start, _CHUNK))
            except (UnicodeDecodeError, pa.lib.ArrowException):
                # `to_numpy` raises the second for bytes that are not UTF-8.
                chunk = list(map(_replace, binary.slice(start, _CHUNK).to_pylist()))
            if self.kind is BlockKind.PICKLED:
                chunk = list(map(pickle.loads, chunk))
            yield chunk

    def records(self) -> Iterator[Any]:
        """Iterate over the records as Python objects, in order (I5)."""
        return chain.from_iterable(self.chunks())


def _values(column: pa.Array) -> list[Any]:
    if not _LISTS_ARE_FAST:
        column = column.to_numpy(zero_copy_only=False)
    values: list[Any] = column.tolist()
    return values


def _replace(value: bytes) -> str:
    return value.decode("utf-8", errors="replace")


def parse_block(payload: memoryview) -> Block:
    """Interpret a record's payload as a block.

    Raises:
        ValueError: It is none.
    """
    found = DESCRIPTOR.unpack_from(payload, 0)
    magic, code, _, _, definitions_length, records, start, length, offsets_at, sealed_ms = found
    if magic != MAGIC or code not in _KINDS:
        raise ValueError(f"not a block: it begins with {bytes(payload[:8])!r}")
    kind = _KINDS[code]
    offsets_end = offsets_at + (0 if kind in WITHOUT_OFFSETS else 4 * (records + 1))
    return Block(
        kind=kind,
        num_records=records,
        data=payload[start : start + length],
        offsets=payload[offsets_at:offsets_end],
        definitions=payload[offsets_end : offsets_end + definitions_length],
        sealed_ms=sealed_ms,
    )


def shown_block(shown: ShownBlock, access: BlockAccess) -> Block:
    """Return a block that was sent before it was logged.

    Raises:
        WalError, ValueError: It is damaged, or encrypted with another key.
    """
    cipher = block_cipher(access.encryption, shown.attempt)
    return parse_block(opened_copy(cipher, shown.block_id, memoryview(shown.payload)))


class _MappedFiles:
    """The memory files that this process has mapped, the least recently used dropped first."""

    def __init__(self) -> None:
        self._maps: OrderedDict[str, tuple[int, mmap.mmap]] = OrderedDict()

    def get(self, path: str, fd: int) -> mmap.mmap:
        inode = os.fstat(fd).st_ino
        known = self._maps.get(path)
        if known is None or known[0] != inode:
            # Opened again: a mapping keeps its descriptor's locks beyond the descriptor's closing.
            own = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                known = (os.fstat(own).st_ino, mmap.mmap(own, 0, prot=mmap.PROT_READ))
            finally:
                os.close(own)
            self._drop_removed()
            self._maps[path] = known
        self._maps.move_to_end(path)
        while len(self._maps) > _MAPPED_FILES:
            # Not closed by hand: an Arrow buffer may still look into it.
            self._maps.popitem(last=False)
        return known[1]

    def _drop_removed(self) -> None:
        """Let go of files that were removed: the host has their memory only when no one maps it."""
        for path, (inode, _) in list(self._maps.items()):
            try:
                if os.stat(path).st_ino == inode:
                    continue
            except OSError:
                pass
            del self._maps[path]


_mapped_files = _MappedFiles()


@contextlib.contextmanager
def read_block(
    info: ReceivedBlockInfo, access: BlockAccess, ahead: Readahead | None = None
) -> Iterator[Block]:
    """Open a block for reading.

    Args:
        info: Its metadata, from the tracker.
        access: What reaching another host needs.
        ahead: What is read from an object store together with it.

    Yields:
        The block. Its buffers are valid until the context ends.

    Raises:
        BlockNotFoundError: No place has it; every try is named.
        BlockUnavailableError: It may be whole in a place that did not answer, or refused it.
    """
    with contextlib.ExitStack() as stack:
        begun_s = time.monotonic()
        block, tried = _find_or_wait(info, access, stack, ahead)
        stack.callback(block.release)
        took_s = time.monotonic() - begun_s
        if took_s >= _SLOW_S:
            _tell_slow(info, access, took_s, "; ".join(tried))
        yield block


def _find_or_wait(
    info: ReceivedBlockInfo,
    access: BlockAccess,
    stack: contextlib.ExitStack,
    ahead: Readahead | None,
) -> tuple[Block, _Tried]:
    begun_s = time.monotonic()
    while True:
        tried = _Tried()
        try:
            return _find(info, access, stack, tried, ahead), tried
        except (BlockNotFoundError, BlockUnavailableError):
            waited_s = time.monotonic() - begun_s
            if not tried.may_come or waited_s >= access.wait_s:
                raise
            _tell_slow(info, access, waited_s, "; ".join(tried), is_waiting=True)
        time.sleep(_WAIT_PAUSE_S)


def _find(
    info: ReceivedBlockInfo,
    access: BlockAccess,
    stack: contextlib.ExitStack,
    tried: _Tried,
    ahead: Readahead | None,
) -> Block:
    if info.memory is not None:
        try:
            return _from_memory(info.memory, info.sequence, stack)
        except (OSError, WalError, ValueError) as error:
            tried.note(f"memory {info.memory.path}", error, _is_lost(error))
    shared = None
    cipher = log_cipher = block_cipher(access.encryption, info.attempt)
    if info.segment is not None:
        log_cipher = cipher_of(access.encryption, info.attempt, info.segment.folder)
    if info.segment is not None and is_shared(info.segment.folder):
        shared, info = info.segment, msgspec.structs.replace(info, segment=None)
        try:
            return _from_shared(shared, info.sequence, log_cipher, settle=False, ahead=ahead)
        except (OSError, WalError, ValueError) as error:
            # What it says is asked again at last.
            tried.note(_named(shared), error, is_lost=True)
    elif info.segment is not None:
        try:
            return _from_segment(info.segment, info.sequence, log_cipher, stack)
        except (OSError, WalError, ValueError) as error:
            tried.note(_named(info.segment), error, _is_lost(error))
    for replica in info.replicas:
        try:
            payload = payload_in(replica.segment, replica.sequence, None, stack)
            return parse_block(
                opened_copy(cipher, info.block_id, payload, log_cipher, info.sequence)
            )
        except (OSError, WalError, ValueError) as error:
            tried.note(_named(replica.segment), error, _is_lost(error))
    if access.link.tracker is not None or any(host in access.servers for host in info.hosts):
        # A fetch is rare; the import would cost every task.
        from penstock.blockstore.reading._remote import fetch_from_host
        from penstock.wire import (
            AuthenticationError,
            ConnectionLostError,
            ProtocolError,
            WireError,
        )

        try:
            return parse_block(fetch_from_host(info, access, cipher, log_cipher, ahead))
        except (WalError, WireError, ValueError) as error:
            where = f"block server of {' and of '.join(info.hosts)}"
            may_have_it = isinstance(error, ConnectionLostError) and error.may_have_it
            tried.note(where, error, not may_have_it)
            # Of the last two, another program has the port of a server that is away.
            away = (ConnectionLostError, AuthenticationError, ProtocolError)
            tried.may_come = isinstance(error, away)
    if shared is not None:
        settle = is_on_hdfs(shared.folder)
        try:
            return _from_shared(shared, info.sequence, log_cipher, settle=settle)
        except (OSError, WalError, ValueError) as error:
            where = f"{'after lease recovery' if settle else 'again'} {_named(shared)}"
            tried.note(where, error, _is_lost(error, is_local=False))
    kind = BlockNotFoundError if tried.is_lost else BlockUnavailableError
    raise kind(info.block_id, tuple(tried))


_slow_told_s = -math.inf


def _tell_slow(
    info: ReceivedBlockInfo,
    access: BlockAccess,
    took_s: float,
    tried: str,
    *,
    is_waiting: bool = False,
) -> None:
    """Report to the tracker a block that was slow to read, or is waited for.

    Now and then, for that also takes time.
    """
    global _slow_told_s
    if access.link.tracker is None or time.monotonic() < _slow_told_s + _SLOW_EVERY_S:
        return
    from penstock.blockstore.reading._remote import ask_tracker

    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty(_BATCH_TIME_PROPERTY)
    batch_ms = int(batch) if batch and batch.isdecimal() else -1
    host = socket.gethostname()
    told = (info.stream_id, info.block_id, took_s, host, tried[:_TRIED], batch_ms, is_waiting)
    ask_tracker(SlowBlock(*told), access, _SLOW_TELL_S)
    _slow_told_s = time.monotonic()


def read_segment(
    folder: str,
    number: int,
    runs: Sequence[tuple[int, int]],
    *,
    attempt: str,
    encryption: EncryptionKey | None,
    is_wanted: Callable[[int, int | None], bool] = lambda created_ms, closed_ms: True,
) -> Iterator[tuple[int, Block]]:
    """Yield blocks of one segment of a receiver's log, each with its sequence in it, in order.

    Args:
        folder: The log, on this host or on HDFS.
        number: The segment.
        runs: The sequences of the blocks that are wanted: first and last of each run, in order.
        attempt: The receiver attempt that wrote it.
        encryption: The key, where logs are encrypted.
        is_wanted: Called with the time at which the segment was begun, and that of the one after
            it (None: there is none, or it is not known), ms since the epoch; if it returns False,
            nothing is read.

    Yields:
        The blocks. The buffers of each are valid until the next one is asked for.

    Raises:
        OSError: It is missing, or cannot be read.
        WalError: A record in it is damaged, or encrypted with another key.
        ValueError: A record is no block, or one is missing.
    """
    fs, path = locate(log_of(folder))
    cipher = cipher_of(encryption, attempt, folder)
    reader = LogReader.open(path, fs=fs, cipher=cipher, only=number)
    found = {info.number: info for info in reader.segments}
    if number not in found:
        raise no_segment(segment_path(folder, number))
    # Of one whose header is damaged it is not known.
    later = [info for info in reader.segments if info.number > number and info.damage is None]
    if not is_wanted(found[number].created_ms, later[0].created_ms if later else None):
        return
    wanted = sum(last - first + 1 for first, last in runs)
    run = iter(runs)
    first, last = next(run, (0, -1))
    for record in reader.segment_records(number):
        while first <= last and record.sequence > last:
            first, last = next(run, (0, -1))
        if first <= record.sequence <= last:
            wanted -= 1
            block = parse_block(expanded(record.payload))
            yield record.sequence, block
            block.release()
    if wanted:
        raise ValueError(f"{wanted} of its blocks are missing")


def _named(place: SegmentPlace) -> str:
    return f"segment {place.segment} of {place.folder}"


def _from_memory(place: MemoryPlace, sequence: int, stack: contextlib.ExitStack) -> Block:
    fd = os.open(place.path, os.O_RDONLY | os.O_CLOEXEC)
    # Closing the descriptor drops its locks.
    stack.callback(os.close, fd)
    if not lock_shared(fd, place.offset, place.length):
        raise ValueError("the slot was given to another block")
    mapped = memoryview(_mapped_files.get(place.path, fd))
    record = mapped[place.offset : place.offset + place.length]
    return parse_block(parse_record(record, expected_sequence=sequence))


def _from_segment(
    place: SegmentPlace, sequence: int, cipher: LogCipher | None, stack: contextlib.ExitStack
) -> Block:
    return parse_block(payload_in(place, sequence, cipher, stack))


def payload_in(
    place: SegmentPlace, sequence: int, cipher: LogCipher | None, stack: contextlib.ExitStack
) -> memoryview:
    """Return the payload of a block in a log on this host, valid until the stack is closed."""
    path = segment_path(log_of(place.folder), place.segment)
    record = stack.enter_context(read_range(path, place.offset, place.length))
    with _damage_in(place):
        return parse_record(record, expected_sequence=sequence, cipher=cipher)


@contextlib.contextmanager
def _damage_in(place: SegmentPlace) -> Iterator[None]:
    """Say of a damaged record in which log it is, as commands take it, and where."""
    try:
        yield
    except CorruptRecordError as error:
        folder = log_of(place.folder)
        raise CorruptRecordError(place.segment, place.offset, error.reason, folder) from error


def _from_shared(
    place: SegmentPlace,
    sequence: int,
    cipher: LogCipher | None,
    *,
    settle: bool,
    ahead: Readahead | None = None,
) -> Block:
    fs, folder = locate(log_of(place.folder))
    path = segment_path(folder, place.segment)
    if settle:
        fs.settle([path])
    record = None if ahead is None else ahead.take(place)
    if record is None:
        record = fs.read_range(path, place.offset, place.length)
    with _damage_in(place):
        payload = parse_record(record, expected_sequence=sequence, cipher=cipher)
        return parse_block(expanded(payload))


@contextlib.contextmanager
def read_block_if_any(
    info: ReceivedBlockInfo, access: BlockAccess, ahead: Readahead | None = None
) -> Iterator[Block | None]:
    """Open a block for reading, as `read_block`.

    Yields:
        The block; None when it is nowhere, and the batch goes on without it.

    Raises:
        BlockNotFoundError: It is nowhere, and that is an error; or the tracker could not be
            reached.
        BlockUnavailableError: As `read_block`.
    """
    with contextlib.ExitStack() as stack:
        block: Block | None = None
        try:
            block = stack.enter_context(read_block(info, access, ahead))
        except BlockNotFoundError as error:
            if not _is_last_try(access) or not _is_noted(info, access, error):
                raise
        yield block


def _is_last_try(access: BlockAccess) -> bool:
    context = TaskContext.get()
    if access.skip_after is None or context is None:
        return False
    return context.attemptNumber() + 1 >= access.skip_after


def _is_noted(info: ReceivedBlockInfo, access: BlockAccess, error: BlockNotFoundError) -> bool:
    if access.link.tracker is None:
        _log.warning("Block %s, which is lost, is left out: %s", info.block_id, error)
        return True
    # It is rare; the import would cost every task.
    from penstock.blockstore.reading._remote import ask_tracker

    message = SkippedBlock(info.stream_id, info.block_id, str(error))
    return isinstance(ask_tracker(message, access, access.fetch_timeout_s), Ok)


# Reading a block from its segment past the page cache, into memory that is used again.
#
# Segments are written past the page cache, so a first read through it would allocate, fill and
# later drop a page for each 4 KiB: that costs several times the read itself. A worker process keeps
# a buffer or two between its tasks.
#
# Where the file system has no direct I/O the page cache is read. A segment is never mapped: when it
# is released and used again its file may be cut, and a mapping beyond the end would end the
# process.

_PAGE = mmap.PAGESIZE
_NO_DIRECT_IO = (errno.EINVAL, errno.EOPNOTSUPP)


_memory = ReusedMemory()


@contextlib.contextmanager
def read_range(path: str, offset: int, length: int) -> Iterator[memoryview]:
    """Open a byte range of a file for reading.

    Args:
        path: The file.
        offset: Where the range begins.
        length: Its bytes.

    Yields:
        The bytes. Views of them that are released when the context ends let the memory be used
        again; others keep it.

    Raises:
        OSError: The file cannot be read.
        ValueError: It ends before the range does.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        begin = offset // _PAGE * _PAGE
        yield _read(fd, begin, offset + length)[offset - begin : offset - begin + length]
    finally:
        os.close(fd)


def _read(fd: int, begin: int, end: int) -> memoryview:
    """Read from the beginning of a page on, past the page cache if the file system can."""
    size = end - begin
    view = _memory.take(-(-size // _PAGE) * _PAGE)
    have = _fill(fd, view, begin, 0, direct=True)
    # A read may be cut short anywhere, and direct ones go on at pages only.
    if have < size:
        have = _fill(fd, view[:size], begin, have, direct=False)
    if have < size:
        raise ValueError(f"the segment ends at {begin + have}, before the block's end")
    return view


def _fill(fd: int, view: memoryview, begin: int, have: int, *, direct: bool) -> int:
    """Read until a buffer is full, or no more comes; return how much of it is filled."""
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_DIRECT if direct else flags & ~os.O_DIRECT)
        while have < len(view) and not (direct and have % _PAGE):
            with view[have:] as rest:
                read = os.preadv(fd, [rest], begin + have)
            if not read:
                break
            have += read
    except OSError as error:
        if not direct or error.errno not in _NO_DIRECT_IO:
            raise
    return have
