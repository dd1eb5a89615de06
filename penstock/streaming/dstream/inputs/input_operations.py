"""The inputs of a context that come from folders and from sockets, and its dead letters."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from pyspark import RDD, SparkContext, StorageLevel
from pyspark import serializers as _untyped_serializers

from penstock._arguments import as_folder, refused
from penstock.errors import StreamGraphError
from penstock.host.spark.contexts import read_settings
from penstock.rates.book import RateBook, RateGroup
from penstock.rates.decision import RateLimits, StreamRate
from penstock.rates.memory import RateMemory
from penstock.runtime.clock import Clock
from penstock.settings import Settings
from penstock.streaming.dstream.inputs.dead_letter_stream import DeadLetterInputDStream
from penstock.streaming.dstream.inputs.file_input_stream import (
    FileInputDStream,
    FileSelection,
    is_visible,
)
from penstock.streaming.dstream.inputs.input_streams import DirectInputDStream, ReceiverInputDStream
from penstock.streaming.dstream.stream_handle import node_of

if TYPE_CHECKING:
    from penstock.dead_letters import StoredLetter
    from penstock.streaming.dstream.dstream import DStream
    from penstock.streaming.dstream.graph import DStreamGraph
    from penstock.streaming.dstream.inputs.receiver_dstream import ReceiverDStream
    from penstock.streaming.dstream.node import DStreamNode

T = TypeVar("T")

# PySpark does not type these.
_serializers: Any = _untyped_serializers

_FILE_KEYS = (
    "spark.streaming.fileStream.minRememberDuration",
    "spark.streaming.minRememberDuration",
)
_RAW_KEYS = ("spark.streaming.raw.maxBlockSizeBytes",)


class InputOperations(ABC):
    """The part of `StreamingContext` that makes streams of files, sockets and dead letters.

    A file stream takes each file that appears in a folder while the context runs, in the batch in
    which it was last modified. Files must appear whole: write them elsewhere on the same file
    system, then rename them into the folder. Files whose names begin with a dot or an underscore
    are left out, and so are folders within it. The folder must exist, with the same files, on every
    host that runs tasks; it may be a glob that stands for several folders.
    """

    _sc: SparkContext
    _graph: DStreamGraph
    _clock: Clock

    @abstractmethod
    def receiverStream(self, receiver: Any, name: str | None = None) -> ReceiverDStream[Any]:
        """Return the records that a receiver stores."""

    @abstractmethod
    def _stream(self, node: DStreamNode) -> DStream[Any]: ...

    # -- files -----------------------------------------------------------------------------------

    def textFileStream(self, directory: str | os.PathLike[str]) -> DStream[str]:
        """Return the lines of the files that appear in a folder: UTF-8 text, maybe compressed."""
        return self._file_stream(directory, lambda paths: self._sc.textFile(paths, 1))

    def binaryRecordsStream(
        self, directory: str | os.PathLike[str], recordLength: int
    ) -> DStream[bytes]:
        """Return the records of the files that appear in a folder, each of `recordLength` bytes.

        A file that ends within a record makes its batch's operations fail.
        """
        if type(recordLength) is not int or recordLength < 1:
            raise ValueError(f"recordLength must be a number of bytes above 0, not {recordLength}")
        return self._file_stream(directory, _RecordReader(self._sc, recordLength))

    def fileStream(
        self,
        directory: str | os.PathLike[str],
        inputFormatClass: str,
        keyClass: str,
        valueClass: str,
        fileFilter: Callable[[str], bool] | None = None,
        newFilesOnly: bool = True,
        keyConverter: str | None = None,
        valueConverter: str | None = None,
        conf: dict[str, str] | None = None,
    ) -> DStream[tuple[Any, Any]]:
        """Return the pairs that a Hadoop input format makes of the files that appear in a folder.

        Args:
            directory: The folder.
            inputFormatClass: As for `SparkContext.newAPIHadoopFile`; so are `keyClass`,
                `valueClass`, `keyConverter`, `valueConverter` and `conf`.
            keyClass: A Hadoop `Writable`.
            valueClass: A Hadoop `Writable`.
            fileFilter: Whether a path is wanted; None for all whose names do not begin with a dot
                or an underscore. Called on the driver for each batch and file.
            newFilesOnly: Whether files that existed before the stream was made are left out.
            keyConverter: Makes keys into what Python can have.
            valueConverter: The same for values.
            conf: Hadoop configuration for the input format.
        """

        def read(paths: str) -> RDD[Any]:
            return self._sc.newAPIHadoopFile(
                paths, inputFormatClass, keyClass, valueClass, keyConverter, valueConverter, conf
            )

        return self._file_stream(directory, read, fileFilter or is_visible, newFilesOnly)

    def _file_stream(
        self,
        directory: str | os.PathLike[str],
        read: Callable[[str], RDD[Any]],
        accepts: Callable[[str], bool] = is_visible,
        new_only: bool = True,
    ) -> DStream[Any]:
        if not callable(accepts):
            raise TypeError(refused("fileFilter", accepts, "a function of a path, or None"))
        selection = FileSelection(
            as_folder(directory, "directory"),
            accepts,
            self._clock.time_ms() if new_only else 0,
            round(self._settings_of(_FILE_KEYS).file_min_remember_s * 1000),
        )
        return self._stream(FileInputDStream(self._graph, selection, read))

    # -- dead letters ----------------------------------------------------------------------------

    def deadLetters(self) -> DStream[StoredLetter]:
        """Return the dead letters that come while the program runs, for it to store elsewhere.

        Each record is a `penstock.dead_letters.StoredLetter`. A batch has what receivers and
        functions of streams, except this one's, wrote since the one before; at most 10,000 letters
        or 16 MiB of them, the others come next. With checkpoints the stream goes on where it was;
        else it begins with the first batch.

        A letter comes once, and again where it was written again (docs/dead-letters.md): then
        `letter.origin`, or its position, is the same. The driver reads them, so on a cluster they
        must be on HDFS.
        """
        return self._stream(DeadLetterInputDStream(self._graph))

    # -- sockets ---------------------------------------------------------------------------------

    def socketTextStream(
        self,
        hostname: str,
        port: int,
        storageLevel: StorageLevel | str = StorageLevel.MEMORY_AND_DISK_2,
    ) -> ReceiverDStream[str]:
        r"""Return the lines that a TCP server sends: UTF-8 text, each line ended by ``\n``."""
        from penstock.receiver.forms.socket_receivers import SocketReceiver

        return self.receiverStream(SocketReceiver(hostname, port, storageLevel))

    def socketStream(
        self,
        hostname: str,
        port: int,
        converter: Callable[[BinaryIO], Iterable[T]],
        storageLevel: StorageLevel | str = StorageLevel.MEMORY_AND_DISK_2,
    ) -> ReceiverDStream[T]:
        """Return the records that `converter` makes of what a TCP server sends.

        Args:
            hostname: Name or address of the server.
            port: Its port.
            converter: Called in an executor for each connection, with a binary file that reads
                from it; yields records until the file ends.
            storageLevel: Which copies of a block must exist; a level or its name.
        """
        from penstock.receiver.forms.socket_receivers import ConvertingSocketReceiver

        return self.receiverStream(
            ConvertingSocketReceiver(hostname, port, converter, storageLevel)
        )

    def rawSocketStream(
        self,
        hostname: str,
        port: int,
        storageLevel: StorageLevel | str = StorageLevel.MEMORY_AND_DISK_2,
    ) -> ReceiverDStream[bytes]:
        """Return the frames that a TCP server sends, each as one `bytes`.

        A frame is its length, 4 bytes big-endian, and then that many bytes. One that is larger than
        `spark.streaming.raw.maxBlockSizeBytes`, or of negative length, ends the connection; one
        that is larger than a block (`spark.penstock.block.maxSize`) is dropped and reported.
        """
        from penstock.receiver.forms.socket_receivers import RawSocketReceiver

        limit = self._settings_of(_RAW_KEYS).raw_max_frame_bytes
        return self.receiverStream(RawSocketReceiver(hostname, port, storageLevel, limit))

    def _settings_of(self, keys: tuple[str, ...]) -> Settings:
        """Return settings that are only read for `keys`; `start` checks all."""
        return read_settings(self._sc, keys.__contains__)


class _RecordReader:
    """Reads records of one length.

    `SparkContext.binaryRecords` puts the length into the configuration that everything in the
    application shares, where two streams disturb each other. Here each stream has its own.
    """

    def __init__(self, sc: SparkContext, record_length: int) -> None:
        self._sc = sc
        self._record_length = record_length
        self._conf: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_conf": None}

    def __call__(self, paths: str) -> RDD[bytes]:
        spark: Any = self._sc
        if self._conf is None:
            shared = spark._jsc.hadoopConfiguration()
            self._conf = spark._jvm.org.apache.hadoop.conf.Configuration(shared)
        found = spark._jsc.sc().binaryRecords(paths, self._record_length, self._conf)
        return RDD(found.toJavaRDD(), self._sc, _serializers.NoOpSerializer())


_KEYS = (
    "spark.streaming.receiver.maxRate",
    "spark.streaming.backpressure.enabled",
    "spark.streaming.backpressure.initialRate",
    "spark.penstock.receiver.rate",
    "spark.penstock.receiver.byteRate",
    "spark.penstock.backpressure.slowStartRate",
)


class RateOperations(ABC):
    """The part of `StreamingContext` that deals with rates."""

    _graph: DStreamGraph
    _clock: Clock
    _rates: RateBook

    @abstractmethod
    def _settings_of(self, keys: tuple[str, ...]) -> Settings: ...

    @abstractmethod
    def _received(self, node: ReceiverInputDStream) -> ReceiverDStream[Any]: ...

    def receivedStream(self, streamId: int) -> ReceiverDStream[Any]:
        """Return the stream of a receiver by its number, for a program that has no handle on it.

        A context that was recovered from a checkpoint has its streams, and the program that made
        them did not run.

        Raises:
            StreamGraphError: The stream has no receiver.
        """
        for node in self._graph.inputs:
            if isinstance(node, ReceiverInputDStream) and node.stream_id == streamId:
                return self._received(node)
        raise StreamGraphError(f"stream {streamId} has no receiver")

    def rates(self) -> dict[int, StreamRate]:
        """Return the rates of receivers and direct streams as they are now, by stream number.

        The numbers are the same as in listener events.
        """
        return self._rates.rates()

    def rateGroup(
        self,
        rate: str | float,
        streams: Sequence[ReceiverDStream[Any]],
        *,
        inBytes: bool = False,
    ) -> RateGroup:
        """Let streams share one total rate; may be called at any time.

        The driver divides the total again, several times a second, by what each receiver uses: one
        that has nothing to receive leaves its share to those that wait. The shares in force never
        add up to more than the total. Other limits of a stream hold beside its share.

        Args:
            rate: The total, such as ``"300000/second"``; a number counts records per second.
            streams: Streams of receivers; each in one group at most.
            inBytes: Whether the rate counts bytes, as `set_byte_rate` does, and not records.

        Returns:
            A handle by which the total can be seen and changed.

        Raises:
            ValueError: It is not one rate above 0; no stream, or one of another context.
            TypeError: They are no list of streams of receivers.
            StreamGraphError: A stream has no receiver, or is in a group already.
        """
        stream_ids = _stream_ids(streams)
        if any(node_of(stream, "streams").graph is not self._graph for stream in streams):
            raise ValueError(
                "the DStreams belong to different contexts, or to another one than this"
            )
        return self._rates.make_group(rate, stream_ids, in_bytes=inBytes)

    def _make_rates(self) -> RateBook:
        found: dict[int, RateMemory] = {}

        def memories() -> dict[int, RateMemory]:
            # Asked for with each report of each receiver; inputs are only ever added.
            if not found or self._graph.inputs[-1].stream_id not in found:
                found.update(
                    (node.stream_id, node.rate)
                    for node in self._graph.inputs
                    if isinstance(node, (ReceiverInputDStream, DirectInputDStream))
                )
            return found

        def limits() -> RateLimits:
            return RateLimits.of(self._settings_of(_KEYS))

        return RateBook(memories, limits, self._clock)


def _stream_ids(streams: Any) -> list[int]:
    listed: list[Any] = list(streams) if isinstance(streams, Iterable) else [None]
    if not all(hasattr(stream, "stream_id") for stream in listed):
        accepted = "a list of streams of receivers, such as the members of one that several share"
        raise TypeError(refused("streams", streams, accepted))
    return [stream.stream_id for stream in listed]
