"""`KinesisUtils`: what a program of `pyspark.streaming.kinesis` calls."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel

from penstock._arguments import refused
from penstock.receiver import ReceiverContext
from penstock.sources.kinesis.receiver import KinesisReceiver

if TYPE_CHECKING:
    from penstock.streaming.context import StreamingContext
    from penstock.streaming.dstream import DStream

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
        shards, makes them here, too: the first one reads all shards, the others have no records.

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
            stsAssumeRoleArn: A role that is assumed; then the two that follow are needed, too.
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
