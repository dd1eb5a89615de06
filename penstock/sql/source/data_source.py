"""The data source ``penstock`` of Spark, and how Spark gets to know it.

Spark finds it by its class, which `register` makes for each host: pickled by value it carries
what opens a connection to the host, and no option, plan or offset shows it.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader

from penstock.blockstore import BlockAccess, block_schema
from penstock.blockstore.arrow_frames import plain_schema, to_spark_schema
from penstock.runtime.processes import ProcessIdentity
from penstock.sql.errors import SourceError, SourceOptionError
from penstock.sql.source._batch_reader import BatchReader, PlaceClient
from penstock.sql.source._options import SourceOptions
from penstock.sql.source._reader import (
    Offset,
    PlaceReader,
    ReaderOfQuery,
    RefusedReader,
    default_read_limit,
)
from penstock.sql.source._tasks import BlocksPartition, packed, read_partition
from penstock.sql.source.host_client import HostClient
from penstock.tracker.cluster import most_tries
from penstock.wire.messages import FindStream, ReceivedBlockInfo, StreamAt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_ENVIRONMENT = {
    "SPARK_LOCAL_DIRS": "",
    "SPARK_AUTH_SOCKET_TIMEOUT": "15",
    "SPARK_BUFFER_SIZE": "65536",
    "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
}
"""What each query of a source in Python sets when it starts, in one map that all of them share.

Spark's map is not made for several threads: queries that start together and add a name to it can
leave it broken, and then each of their tasks fails with a `java.io.OptionalDataException` until the
driver ends. To set a name that is already in it is safe. The values are Spark's defaults; a process
that is started gets its own first.
"""

_environment_lock = threading.Lock()

_COLUMNS_S = 30.0
"""How long to wait for the first record of a stream without a schema."""

_PAUSE_S = 0.5

_LOCK_S = 10.0
"""How long a share file waits for the lock of its folder, which a host holds only for a moment."""

_LOCK_PAUSE_S = 0.02

_NO_LOCKS = (errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
"""How locking a folder fails on file systems without such locks, such as NFS."""

_SHARE_BYTES = 1 << 20
"""More than the size of any share file."""

_METADATA = {
    "_stream": pa.field("_stream", pa.string(), nullable=False),
    "_place": pa.field("_place", pa.int64(), nullable=False),
    "_received_at": pa.field("_received_at", pa.timestamp("us", tz="UTC"), nullable=False),
    "_position": pa.field("_position", pa.string()),
    "_watermark": pa.field("_watermark", pa.timestamp("us", tz="UTC")),
}


class PenstockSource(DataSource):
    """The source that a host registers; Spark makes one for each query and each task's plan."""

    access: ClassVar[BlockAccess | None] = None
    """What opens a connection to the host; None: only directories can be read."""
    tries: ClassVar[int] = 1
    """How often Spark tries a task."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "penstock"

    def schema(self) -> StructType:
        """Return the columns of the stream, with the metadata columns that are wanted.

        Raises:
            SourceOptionError: An option is not accepted.
            SourceError: The columns are not known, or the records are pickled objects.
            HostNotReachableError: The host does not answer, or another one does.
            FolderError: A directory cannot be read.
        """
        options = SourceOptions.of(self.options)
        client = self._connection(options)()
        patience_s = 0.0 if options.path else _COLUMNS_S
        names = options.streams or (options.stream,)
        try:
            found = {name: _columns(client, name, patience_s) for name in names}
        finally:
            client.close()
        fields = found[names[0]]
        for name, others in found.items():
            if others != fields:
                raise SourceOptionError(
                    "streams",
                    f"they have not the same columns: {names[0]} has {_names(fields)}, {name} has "
                    f"{_names(others)}. Read them one by one, and union what they have",
                )
        return to_spark_schema(pa.schema(fields + [_METADATA[name] for name in options.metadata]))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return what reads the streams for one query."""
        try:
            options = SourceOptions.of(self.options)
            options.check_query()
            access = self._access(options)
        except SourceError as error:
            # PySpark 4.3 hides what is raised here behind an error of its own.
            return RefusedReader(error)
        reader = StreamsReader if options.streams else PlaceReader
        return reader(access, options, schema)

    def reader(self, schema: StructType) -> BatchReader:
        """Return what reads the stream for `spark.read`."""
        options = SourceOptions.of(self.options)
        return BatchReader(self._connection(options), self._access(options), options, schema)

    def _connection(self, options: SourceOptions) -> Callable[[], PlaceClient]:
        access = self._access(options)
        if options.path:
            # Not with the module: queries and their tasks do without it.
            from penstock.sql.source._ended_host import EndedHost

            return partial(EndedHost, options.path, access.encryption)
        return partial(HostClient, access)

    def _access(self, options: SourceOptions) -> BlockAccess:
        if options.path:
            from penstock.host.encryption import recovery_encryption

            key = recovery_encryption(None, os.environ)
            return BlockAccess(encryption=key, skip_after=self.tries)
        if self.access is None:
            raise SourceError(
                "no ReceiverHost was started in this session, and none connected to; a batch read "
                "of one that has ended is given its directory: load(directory)"
            )
        return replace(self.access, skip_after=self.tries)


def _with_columns(client: PlaceClient, name: str, patience_s: float) -> StreamAt:
    end_s = time.monotonic() + patience_s
    while True:
        found = client.ask(FindStream(name), StreamAt)
        if found.kind:
            return found
        if time.monotonic() >= end_s:
            what = f"the columns of stream {name!r} are not known: nothing was received"
            if not patience_s:
                raise SourceError(what)
            raise SourceError(
                f"{what} within {patience_s:.0f} s. If its receiver has failed, the host's log "
                "says why. Declare a schema, so that they are known before: "
                '@receiver(schema="value string")'
            )
        time.sleep(_PAUSE_S)


def _columns(client: PlaceClient, name: str, patience_s: float) -> list[pa.Field]:
    found = _with_columns(client, name, patience_s)
    schema = block_schema(found.kind, found.schema)
    if schema is None:
        raise SourceError(
            f"the columns of stream {name!r} are not known: its records are Python objects, which "
            "are pickled. Let the receiver store bytes, str or Arrow batches, or declare a schema: "
            '@receiver(schema="name string")'
        )
    return list(plain_schema(schema))


def _names(fields: Sequence[pa.Field]) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in fields)


def register(spark: SparkSession, access: BlockAccess | None) -> None:
    """Let a session know the source, and through it the host, if there is one."""
    tries = most_tries(
        spark.conf.get("spark.master", "") or "", spark.conf.get("spark.task.maxFailures", None)
    )
    # Not at the top of a module, so that it is pickled with what it carries.
    made = type("PenstockSourceOfHost", (PenstockSource,), {"access": access, "tries": tries})
    with _environment_of_queries(spark):
        spark.dataSource.register(made)


@contextlib.contextmanager
def _environment_of_queries(spark: SparkSession) -> Iterator[None]:
    """Let what is registered have all names of its environment from the beginning."""
    if not hasattr(spark, "_jsparkSession"):  # Spark Connect: its server makes the map.
        yield
        return
    sc = spark.sparkContext
    # Of the driver alone: a query's process has no use for it.
    from penstock.host.spark.contexts import hand_over_storage

    hand_over_storage(sc)
    with _environment_lock:
        environment = sc.environment
        sc.environment = {**_ENVIRONMENT, **environment}
        try:
            yield
        finally:
            sc.environment = environment


@dataclass(frozen=True)
class ShareFile:
    """A share file that a host wrote.

    Attributes:
        path: Where.
        inode: Device and inode: they distinguish it from one that another host put in its place.
    """

    path: str
    inode: tuple[int, int]

    def remove(self) -> None:
        """Remove it, if it still exists and is not another host's."""
        with contextlib.suppress(FileNotFoundError):
            found = os.stat(self.path)
            if (found.st_dev, found.st_ino) == self.inode:
                os.unlink(self.path)


def check_share_file(path: str) -> None:
    """Check that a share file can be written, and is not that of another host that lives.

    Raises:
        SourceError: It cannot, or it is; or the file is something else.
    """
    writer = _writer_of(path)
    if writer is not None and writer.is_alive_here and writer.pid != os.getpid():
        raise _unusable(
            path,
            f"it is that of another ReceiverHost, of process {writer.pid}, which lives. Stop that "
            "one first, or give this host another share",
        )
    trial = f"{path}.{secrets.token_hex(4)}"
    try:
        os.close(os.open(trial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        os.unlink(trial)
    except OSError as error:
        raise _unwritable(path, error) from error


def _writer_of(path: str) -> ProcessIdentity | None:
    """Return who wrote a share file; None if there is none, or that is not known.

    Raises:
        SourceError: There is something else.
    """
    try:
        with open(path, "rb") as file:
            text = file.read(_SHARE_BYTES)
    except IsADirectoryError as error:
        raise _unwritable(path, error) from error
    except OSError:
        return None  # Whether it can be replaced, its folder shows.
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if isinstance(found, dict) and "version" in found:
        try:
            return ProcessIdentity(*found["process"])
        except (KeyError, TypeError):
            return None
    if text.strip(b"\0"):
        raise _unusable(
            path, "it is a file of something else. Remove it, or give this host another share"
        )
    return None  # What a power loss left of one.


def write_share_file(path: str, access: BlockAccess) -> ShareFile:
    """Write what another application of the same user needs to read the streams of a host.

    Returns:
        The file, to be removed with the host.

    Raises:
        SourceError: Its logs are encrypted: the key is in no file.
        SourceError: It cannot be written, or is that of another host that lives.
    """
    if access.encryption is not None:
        raise SourceError("a host whose logs are encrypted cannot be shared by a file")
    link, tls = access.link, access.link.tls
    text = json.dumps(
        {
            "version": 1,
            "process": astuple(ProcessIdentity.this_process()),
            "tracker": link.tracker,
            "secret": base64.b64encode(link.secret).decode(),
            "certificate": None if tls is None else tls.certificate,
            "key": None if tls is None else tls.private_key,
            "fetch_timeout_s": access.fetch_timeout_s,
        }
    )
    unnamed = f"{path}.{secrets.token_hex(4)}"
    # Two hosts that start in one instant: the second one finds the file of the first.
    with _folder_locked(path):
        check_share_file(path)
        try:
            fd = os.open(unnamed, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(fd, "w", encoding="utf-8") as file:
                file.write(text)
                made = os.fstat(fd)
            os.rename(unnamed, path)
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.unlink(unnamed)
            if isinstance(error, OSError):
                raise _unwritable(path, error) from error
            raise
    return ShareFile(path, (made.st_dev, made.st_ino))


@contextlib.contextmanager
def _folder_locked(path: str) -> Iterator[None]:
    """Hold the lock of a share file's folder, where its file system has locks.

    Raises:
        SourceError: The folder cannot be opened, or another process holds the lock for long.
    """
    end_s = time.monotonic() + _LOCK_S
    try:
        fd = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end_s:
                    raise _unusable(
                        path,
                        f"another process has held the lock of its folder for {_LOCK_S:g} s. Name "
                        "a file in a folder of this application's own",
                    ) from None
                time.sleep(_LOCK_PAUSE_S)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise _unwritable(path, error) from error
                break
        yield
    finally:
        os.close(fd)


# `StreamsReader`: several streams as one source, each read by places.
#
# An offset is ``{"v", "streams": {name: offset}}`` of a `PlaceReader`'s offsets. So each stream has
# a consumer of its own, and what holds for one stream holds for each. A stream that was added to
# the query's option begins as in a new query. The blocks of all are packed together, stream by
# stream: how many partitions a batch has depends on its bytes, not on how many receivers there are.

_VERSION = 1


class StreamsReader(ReaderOfQuery):
    """Reads streams by places for one query.

    Args:
        access: What reaches the host and the blocks.
        options: The query's.
        schema: The columns, of each of the streams.
    """

    def __init__(self, access: BlockAccess, options: SourceOptions, schema: StructType) -> None:
        self._access = access
        self._options = options
        self._schema = schema
        self._client: HostClient | None = None
        self._readers: dict[str, PlaceReader] = {}

    # -- offsets -------------------------------------------------------------------------------

    def initialOffset(self) -> Offset:
        """Return where a new query begins."""
        return _of({name: each.initialOffset() for name, each in self._each().items()})

    def getDefaultReadLimit(self) -> Any:
        """Return the limit that Spark shows; both are held by `latestOffset`."""
        return default_read_limit(self._options)

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:
        """Return how far the next batch goes; each stream has its share of the limits.

        Args:
            start: Where it begins; None before PySpark 4.2: after what was planned last.
            limit: Spark's; with `ReadAllAvailable` the options' limits do not count.
        """
        begins = {} if start is None else self._parts(start)
        return _of(
            {
                # A stream that is new among them begins where a new query does.
                name: each.latestOffset(
                    begins.get(name) or (None if start is None else each.initialOffset()), limit
                )
                for name, each in self._each().items()
            }
        )

    def reportLatestOffset(self) -> Offset | None:
        """Return the ends of the streams as of the last question, for the query's progress."""
        ends = {name: each.reportLatestOffset() for name, each in self._each().items()}
        known = {name: end for name, end in ends.items() if end is not None}
        return _of(known) if known else None

    def prepareForTriggerAvailableNow(self) -> None:
        """Take note of the ends of the streams, up to which the query goes."""
        for each in self._each().values():
            each.prepareForTriggerAvailableNow()

    # -- batches -------------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> Sequence[BlocksPartition]:
        """Return the blocks between two offsets, packed; may be called more than once."""
        begins, ends = self._parts(start), self._parts(end)
        blocks: list[ReceivedBlockInfo] = []
        places: list[int] = []
        added_ms: list[int] = []
        servers: dict[str, tuple[str, int]] = {}
        names: dict[int, str] = {}
        parallelism = 1
        for name, until in ends.items():
            each = self._each()[name]
            # As of another consumer: the batch has what comes after the beginning.
            begin = begins.get(name) or {**until, "consumer": "", "block": -1}
            found = each.blocks_between(begin, until)
            blocks += found.blocks
            places += found.places
            added_ms += found.added_ms
            servers.update(found.servers)
            stream = each.found()
            names[stream.stream_id] = name
            parallelism = stream.parallelism
        return packed(
            blocks,
            places,
            added_ms,
            servers,
            min_partitions=self._options.min_partitions,
            parallelism=parallelism,
            names=names,
        )

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Return the records of a partition as Arrow batches (in a task)."""
        return read_partition(partition, self._access, self._options, self._schema)

    def commit(self, end: Offset) -> None:
        """Say that all before an offset was processed."""
        for name, until in self._parts(end).items():
            self._each()[name].commit(until)

    def stop(self) -> None:
        """Close the connection."""
        for each in self._readers.values():
            each.stop()
        if self._client is not None:
            self._client.close()

    # ------------------------------------------------------------------------------------------

    def _each(self) -> dict[str, PlaceReader]:
        if not self._readers:
            self._client = HostClient(self._access)
            names = self._options.streams
            for name in names:
                options = replace(
                    self._options,
                    stream=name,
                    streams=(),
                    max_records=_share(self._options.max_records, len(names)),
                    max_bytes=_share(self._options.max_bytes, len(names)),
                )
                self._readers[name] = PlaceReader(
                    self._access, options, self._schema, client=self._client
                )
        return self._readers

    def _parts(self, offset: Offset) -> dict[str, Offset]:
        parts = offset.get("streams")
        if offset.get("v") != _VERSION or not isinstance(parts, dict):
            raise SourceError(
                f"the checkpoint has an offset that is none of version {_VERSION} of a source of "
                f"several streams: {json.dumps(offset)}. It is of a query of one stream, of "
                "another source or of a newer Penstock, or was edited; another "
                "checkpointLocation starts over"
            )
        missing = sorted(parts.keys() - set(self._options.streams))
        if missing:
            raise SourceError(
                f"the checkpoint has places of {', '.join(missing)}, which the option streams does "
                "not name: name them, or start over with another checkpointLocation"
            )
        return parts


def _of(parts: dict[str, Offset]) -> Offset:
    return {"v": _VERSION, "streams": parts}


def _share(limit: int | None, streams: int) -> int | None:
    return None if limit is None else max(1, limit // streams)


def _unusable(path: str, reason: str) -> SourceError:
    return SourceError(f"the share file {path} cannot be used: {reason}")


def _unwritable(path: str, error: OSError) -> SourceError:
    why = error.strerror or str(error)
    return _unusable(
        path, f"{why}. Name a file in a folder that exists and that this user may write"
    )
