"""`KinesisReceiver`: what it is given, and what it promises."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict

import pyarrow as pa
from pyspark import StorageLevel

from penstock._arguments import as_count, refused
from penstock.receiver import Receiver
from penstock.sources._aws import REQUIRES, Account, checked_text
from penstock.sources._common import Messages
from penstock.sources.formats import ValueFormat
from penstock.sources.kinesis._reading import Reading

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


class KinesisReceiver(Receiver):
    """Reads all shards of a Kinesis stream and stores the data of their records.

    Exactly once: the sequence number of each shard is the stream's position. Records that a
    producer packed into one (KPL) are unpacked. Splits and merges are followed, parents first.

    Args:
        stream: The stream's name or ARN.
        region: Such as ``eu-west-1``; None: as boto3 finds it in the executor.
        initialPosition: Where a new stream begins: ``"LATEST"``, ``"TRIM_HORIZON"`` (the oldest
            record that is there), or a `datetime` with a zone.
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

    requires = REQUIRES
    _position_type = _Position

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
        storageLevel: StorageLevel | str = StorageLevel.MEMORY_AND_DISK_2,
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
        self._reading: Reading | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_reading": None}

    def _source_lag_ms(self) -> int | None:
        return None if self._reading is None else self._reading.lag_ms()

    def onStart(self) -> None:
        """Start the thread that reads."""
        self._reading = Reading(self)
        self._reading.start()

    def onStop(self) -> None:
        """End the threads; all that was stored is durable by now."""
        if self._reading is not None:
            self._reading.stop()
