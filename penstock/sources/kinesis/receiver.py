"""`KinesisReceiver`: what it is given, and what it promises; and by `pyspark.streaming`'s name."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict

import pyarrow as pa
from pyspark import StorageLevel

from penstock._arguments import as_count, refused
from penstock.receiver import ReceiverContext
from penstock.sources._aws import Account, AwsReceiver, checked_text, meaning_of
from penstock.sources._common import Messages
from penstock.sources.formats import ValueFormat
from penstock.sources.kinesis._reading import (
    ENDED,
    OLDEST,
    READ_S,
    Reading,
    described,
    is_closed,
    made_again,
    parents_of,
    shard_of,
    split_name,
)

if TYPE_CHECKING:
    from penstock.streaming.context import StreamingContext
    from penstock.streaming.dstream import DStream

_MOST_INTERVAL_S = 60.0

ENVELOPE = pa.schema(
    [
        ("partitionKey", pa.string()),
        ("stream", pa.string()),
        ("shardId", pa.string()),
        ("sequenceNumber", pa.string()),
        ("subSequenceNumber", pa.int64()),
        ("approximateArrivalTimestamp", pa.timestamp("us", "UTC")),
    ]
)


class _Position(TypedDict):
    stream: str
    made: int


class KinesisReceiver(AwsReceiver):
    """Reads all shards of a Kinesis stream and stores the data of their records.

    Exactly once: the sequence number of each shard is the stream's position. Records that a
    producer packed into one (KPL) are unpacked. Splits and merges are followed, parents first.

    Args:
        stream: The stream's name or ARN.
        region: Such as ``eu-west-1``; None: as boto3 finds it in the executor.
        initialPosition: Where a new stream begins: ``"LATEST"``, ``"TRIM_HORIZON"`` (the oldest
            record that is kept), or a `datetime` with a zone.
        columns: Whether a record is stored with all that Kinesis has of it, as columns for
            `foreachBatch`, its data in ``value``. Else its data is stored, as `bytes`.
        values: Makes typed values of the data, such as `JsonFormat`.
        readInterval: After how many seconds a shard that had nothing new is read again.
        threads: How many shards are read at a time; each answer may have 10 MB.
        endpointUrl: Another address than the region's own.
        accessKeyId: None: credentials are found as boto3 finds them in the executor.
        secretKey: Belongs to `accessKeyId`.
        sessionToken: Of temporary keys.
        roleArn: A role that is assumed with these credentials.
        roleSessionName: Names the role's sessions.
        roleExternalId: What the role's trust policy asks for.
        storageLevel: Which copies of a block must exist.

    Raises:
        MissingPackageError: boto3 is not installed.
        TypeError, ValueError: An argument is not accepted.
    """

    _position_type = _Position
    _place_type = str | float
    _end_place = ENDED
    _has_splits_alone = False
    _reading: Reading | None = None

    def __init__(
        self,
        stream: str,
        *,
        region: str | None = None,
        initialPosition: str | datetime = "LATEST",
        columns: bool = False,
        values: ValueFormat | None = None,
        readInterval: float = 1.0,
        threads: int = 4,
        endpointUrl: str | None = None,
        accessKeyId: str | None = None,
        secretKey: str | None = None,
        sessionToken: str | None = None,
        roleArn: str | None = None,
        roleSessionName: str = "penstock",
        roleExternalId: str | None = None,
        storageLevel: StorageLevel | str | None = None,
    ) -> None:
        super().__init__(storageLevel)
        self.stream = checked_text(stream, "stream", "the name or the ARN of a stream")
        self.account = Account(
            region,
            endpointUrl,
            accessKeyId,
            secretKey,
            sessionToken,
            roleArn,
            roleSessionName,
            roleExternalId,
        )
        accepted = '"LATEST", "TRIM_HORIZON" or a datetime with a zone'
        if isinstance(initialPosition, datetime):
            if initialPosition.tzinfo is None:
                raise ValueError(refused("initialPosition", initialPosition, accepted))
        elif initialPosition not in ("LATEST", "TRIM_HORIZON"):
            raise ValueError(refused("initialPosition", initialPosition, accepted))
        self.initial = initialPosition
        self.messages = Messages(ENVELOPE, columns=columns, values=values)
        self.schema = self.messages.schema
        given: object = readInterval
        if not isinstance(given, (int, float)) or not 0 < given <= _MOST_INTERVAL_S:
            accepted = f"seconds, more than 0 and at most {_MOST_INTERVAL_S:g}"
            raise ValueError(refused("readInterval", readInterval, accepted))
        self.read_interval_s = float(readInterval)
        self.threads = as_count(threads, "threads", "threads", 1)

    def splits(self) -> list[str]:
        """Return the shards that can be read at first, for receivers that share them."""
        return self._splits_after({})[0]

    def _splits_after(self, places: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
        """Return the shards that have not ended, and whose parents have, wherever these were read.

        Their changes of places are where new shards begin, and None for those that were trimmed as
        a whole. In the driver.

        Raises:
            AwsError: They cannot be asked for.
        """
        what = f"stream {self.stream!r}"
        try:
            client = self.account.client("kinesis", 1, READ_S)
            found = described(client, self.stream)
        except Exception as error:
            raise meaning_of(error, what) from error
        listed = {split_name(each["ShardId"], found.made_ms): each for each in found.shards}
        changes: dict[str, Any] = dict.fromkeys(places.keys() - listed.keys())
        for split in listed.keys() - places.keys():
            is_over = self.initial == "LATEST" and is_closed(listed[split])
            # What comes later than the first shards is read from its oldest record.
            changes[split] = OLDEST if places else ENDED if is_over else found.since_s(self.initial)
        if any(shard_of(split, found.made_ms) is None for split in places):
            _log.warning(made_again(what))
        ended = {split for split, place in (changes | dict(places)).items() if place == ENDED}
        # A parent that is not listed any more was trimmed as a whole.
        left = {each["ShardId"] for split, each in listed.items() if split not in ended}
        splits = [
            split
            for split, each in listed.items()
            if split not in ended and left.isdisjoint(parents_of(each))
        ]
        return splits, changes

    def _source_lag_ms(self) -> int | None:
        return None if self._reading is None else self._reading.lag_ms()

    def _receive(self, context: ReceiverContext) -> bool:
        self._reading = Reading(self, context.stopped)
        self._reading.run()
        return False


_log = logging.getLogger("penstock.sources.kinesis")


class InitialPositionInStream:
    """As in `pyspark.streaming.kinesis`."""

    LATEST, TRIM_HORIZON = (0, 1)


class MetricsLevel:
    """As in `pyspark.streaming.kinesis`; nothing goes to CloudWatch from here."""

    DETAILED, SUMMARY, NONE = (0, 1, 2)


def utf8_decoder(s: bytes | None) -> str | None:
    """Return text; None for None."""
    return None if s is None else s.decode("utf-8")


_applications: weakref.WeakKeyDictionary[StreamingContext, set[tuple[str, ...]]] = (
    weakref.WeakKeyDictionary()
)


class KinesisUtils:
    """Makes streams of Kinesis, with the signature of `pyspark.streaming.kinesis`."""

    @staticmethod
    def createStream(
        ssc: StreamingContext,
        kinesisAppName: str,
        streamName: str,
        endpointUrl: str,
        regionName: str,
        initialPositionInStream: int,
        checkpointInterval: float,
        metricsLevel: int = MetricsLevel.DETAILED,
        storageLevel: StorageLevel | str = StorageLevel.MEMORY_AND_DISK_2,
        awsAccessKeyId: str | None = None,
        awsSecretKey: str | None = None,
        decoder: Callable[[Any], Any] = utf8_decoder,
        stsAssumeRoleArn: str | None = None,
        stsSessionName: str | None = None,
        stsExternalId: str | None = None,
    ) -> DStream[Any]:
        """Return the records of a Kinesis stream, each as `decoder` makes it of `bytes`.

        How far the shards are read is kept in the program's checkpoint, with each block, and not
        in DynamoDB. A program that made several streams of one application, so that they share its
        shards, also makes them here: the first one reads all shards, the others have no records.

        Args:
            ssc: The context.
            kinesisAppName: Says which streams of this context are one application.
            streamName: The stream.
            endpointUrl: Such as ``https://kinesis.eu-west-1.amazonaws.com``.
            regionName: Such as ``eu-west-1``.
            initialPositionInStream: Where a new stream begins: one of `InitialPositionInStream`.
            checkpointInterval: In seconds; without effect.
            metricsLevel: Without effect.
            storageLevel: Which copies of a block must exist.
            awsAccessKeyId: None: credentials are found as boto3 finds them in the executor.
            awsSecretKey: Belongs to it.
            decoder: Called with the data of each record in the tasks of the batches.
            stsAssumeRoleArn: A role that is assumed; the two that follow are then also needed.
            stsSessionName: Names the role's sessions.
            stsExternalId: What the role's trust policy asks for.

        Raises:
            MissingPackageError: boto3 is not installed.
            TypeError, ValueError: An argument is not accepted.
        """
        positions = {
            InitialPositionInStream.LATEST: "LATEST",
            InitialPositionInStream.TRIM_HORIZON: "TRIM_HORIZON",
        }
        initial = positions.get(initialPositionInStream)
        if initial is None or isinstance(initialPositionInStream, bool):
            accepted = "InitialPositionInStream.LATEST or InitialPositionInStream.TRIM_HORIZON"
            raise ValueError(refused("initialPositionInStream", initialPositionInStream, accepted))
        if not callable(decoder):
            raise TypeError(refused("decoder", decoder, "a function of the bytes of a record"))
        role = (stsAssumeRoleArn, stsSessionName, stsExternalId)
        if any(role) and not all(role):
            raise ValueError(
                "stsAssumeRoleArn, stsSessionName and stsExternalId are given all or none"
            )
        if (awsAccessKeyId is None) != (awsSecretKey is None):
            raise ValueError("awsAccessKeyId and awsSecretKey are given both or none")
        receiver = KinesisReceiver(
            streamName,
            region=regionName,
            initialPosition=initial,
            endpointUrl=endpointUrl,
            accessKeyId=awsAccessKeyId,
            secretKey=awsSecretKey,
            roleArn=stsAssumeRoleArn,
            roleSessionName=stsSessionName or "penstock",
            roleExternalId=stsExternalId,
            storageLevel=storageLevel,
        )
        application = (kinesisAppName, streamName, endpointUrl, regionName)
        known = _applications.setdefault(ssc, set())
        if application in known:
            _log.warning(
                "Another stream of the application %s for %s: the first one reads all shards, and "
                "this one has no records; it holds a core",
                kinesisAppName,
                streamName,
            )
            return ssc.receiverStream(_nothing)
        known.add(application)
        _log.warning(
            "How far %s is read is kept in the checkpoint of this program. What the application %s "
            "has in DynamoDB is not read: a first start begins at %s, and so does each one without "
            "ssc.checkpoint(...). checkpointInterval and metricsLevel have no effect",
            streamName,
            kinesisAppName,
            initial,
        )
        return ssc.receiverStream(receiver).map(decoder)


def _nothing(context: ReceiverContext) -> Iterator[bytes]:
    context.stopped.wait()
    yield from ()
