"""`KafkaSink`: the output of a continuous stream as records of a topic, exactly once.

What must hold:

- *One record of truth* (I17). The records of a part of an epoch and the number of the next epoch
  are in one transaction. Whether a part is committed is asked of Kafka, and of nothing else.
- *Once.* Nothing of a part is written before the epoch is in the driver log, and no transaction is
  open while that is waited for. So there is none that must be found again after a crash, as a
  new process could not: beginning under a transactional id ends what is open under it (before
  KIP-939). A part that was logged and not committed is written again.
- *One writes.* A part has one transactional id, whichever task and attempt has the part. A task
  that begins with it fences those before, then asks for the number, and so sees all that they have
  committed. One that was fenced fails. If the older of two begins last, it finds what the younger
  has committed, and the younger fails; the next attempt goes on.
- *Bounded* (I12). Each wait has an end, and its error names the part of Kafka that was waited for.
  What no other attempt would get past is a `SinkError`, with the way out.

Layout. In Kafka, for each part: the transactional id ``<group.id>-<source>-<part>``, and a group
of that name, whose offset in partition 0 of the topic is the number of the next epoch. The offset
is in the topic's name, so that it is gone when the topic is: another topic of the name begins
empty. Here: this file makes records of columns, ``engines.transactions`` has the client.

The life of a part of an epoch:

1. *Prepared*: its rows are records, in memory. With the first epoch of an attempt the topic was
   looked for, the attempts before were fenced, and the number was read.
2. *Logged*, by the driver.
3. *Committed*: a transaction with the records and the number, unless the number is stored already.

A consumer must have ``isolation.level=read_committed``: others also see what was aborted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any

from penstock._arguments import refused
from penstock.continuous.sinks import Epoch, Sink, SinkError, json_rows
from penstock.sources.kafka.columns import HEADERS
from penstock.sources.kafka.params import KafkaParams
from penstock.sources.kafka.strategies import as_topics

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.sources.kafka.engines.transactions import ProducedRecord, Transactions

_CLIENT = "confluent-kafka"
_GROUP = "penstock"

_log = logging.getLogger("penstock.sources.kafka")


@dataclass
class _Part:
    """What an attempt has of a part.

    Attributes:
        transactions: Its own, and no one else's.
        next: The number of the epoch that it wants; None: Kafka does not know.
        records: Those of the epoch that is prepared.
    """

    transactions: Transactions
    next: int | None
    records: list[ProducedRecord]


def _check_name(value: Any, name: str, accepted: str) -> None:
    if not isinstance(value, str) or not value:
        raise TypeError(refused(name, value, accepted))


class KafkaSink(Sink):
    """Writes a record for each row, in a transaction for each part of an epoch.

    It needs confluent-kafka, and brokers of Kafka 2.5 or later. Columns that become bytes may be
    bytes, text, or what Arrow can make text of, such as numbers.

    Args:
        topic: The topic.
        kafkaParams: The client's settings, as for `KafkaReceiver`, and producers' settings;
            ``bootstrap.servers`` is needed. ``group.id`` (by default ``penstock``) begins the names
            of transactional ids and groups.
        key: The column with the keys; None: records have none.
        value: The column with the values, in which null is a tombstone; None: all columns, as a
            JSON object, as `FileSink` writes it.
        headers: The column with the headers, of the type that Spark's Kafka source has:
            ``array<struct<key: string, value: binary>>``; None: records have none.

    Raises:
        MissingPackageError: The client is not installed.
        TypeError, ValueError: An argument is not accepted.
    """

    def __init__(
        self,
        topic: str,
        kafkaParams: Mapping[str, Any],
        *,
        key: str | None = None,
        value: str | None = None,
        headers: str | None = None,
    ) -> None:
        _check_name(topic, "topic", "the name of a topic")
        as_topics([topic])
        for name, column in (("key", key), ("value", value), ("headers", headers)):
            if column is not None:
                _check_name(column, name, "the name of a column, or None")
        if isinstance(kafkaParams, Mapping):
            kafkaParams = {"penstock.engine": _CLIENT, "group.id": _GROUP, **kafkaParams}
        params = KafkaParams(kafkaParams)
        if params.engine_name != _CLIENT:
            raise ValueError(
                f"penstock.engine={params.engine_name!r} is not accepted: a KafkaSink needs "
                f"{_CLIENT}, as transactions of {params.engine_name} wait without a bound"
            )
        from penstock.sources.kafka.engines.transactions import check_settings

        check_settings(params)
        self._topic, self._params = topic, params
        self._key, self._value, self._headers = key, value, headers

    def open(self, source: str, task: int) -> None:
        """Begin without any part."""
        self._task = task
        self._parts: dict[int, _Part] = {}

    def prepare(self, epoch: Epoch, batches: Sequence[pa.RecordBatch]) -> None:
        """Make the records; fence other attempts, when it is the first epoch."""
        records = [record for batch in batches for record in self._records(batch)]
        part = self._parts.get(epoch.part)
        if part is None:
            part = self._parts[epoch.part] = self._begin(epoch)
        part.records = records

    def _begin(self, epoch: Epoch) -> _Part:
        from penstock.sources.kafka.engines.transactions import Transactions

        name = f"{self._params.group_id}-{epoch.source}-{epoch.part:04d}"
        transactions = Transactions(self._params, self._topic, name)
        number = transactions.begin()
        if number is None and epoch.number > 0:
            _log.warning(
                "Kafka knows no epoch of %s, and the next one is %d. With a new sink, a new topic "
                "or more parts than before that is right. If the program was away for longer than "
                "offsets.retention.minutes of the brokers, %s may have this epoch twice",
                name,
                epoch.number,
                self._topic,
            )
        return _Part(transactions, number, [])

    def commit(self, epoch: Epoch, batches: Sequence[pa.RecordBatch]) -> None:
        """Write the records and the number, unless the number is stored already."""
        part = self._parts[epoch.part]
        records, part.records = part.records, []
        # The number of a part's first epoch is written though there are no rows: then its being
        # away means something.
        if part.next is None or (records and part.next <= epoch.number):
            part.transactions.write(records, epoch.number + 1)
            part.next = epoch.number + 1
        if epoch.part != self._task:
            # Of an epoch that was logged when there were more tasks.
            del self._parts[epoch.part]

    def close(self) -> None:
        """Close the connections."""
        self._parts.clear()

    def _records(self, batch: pa.RecordBatch) -> Iterator[ProducedRecord]:
        nothing: Iterable[Any] = repeat(None)
        keys = nothing if self._key is None else self._bytes(batch, self._key)
        values = json_rows(batch) if self._value is None else self._bytes(batch, self._value)
        headers = nothing if self._headers is None else self._pairs(batch, self._headers)
        yield from zip(keys, values, headers, strict=False)

    def _pairs(self, batch: pa.RecordBatch, name: str) -> Iterator[Any]:
        import pyarrow as pa

        column = self._column(batch, name)
        try:
            made = column.cast(HEADERS.type)
        except pa.ArrowException:
            made = None
        if made is None or made.flatten().flatten()[0].null_count:
            raise SinkError(
                f"the column {name} is of type {column.type}, or a header in it has no key: "
                "headers are array<struct<key: string, value: binary>>"
            )
        for row in made.to_pylist():
            yield row and [(each["key"], each["value"]) for each in row]

    def _bytes(self, batch: pa.RecordBatch, name: str) -> list[bytes | None]:
        import pyarrow as pa

        column = self._column(batch, name)
        try:
            try:
                column = column.cast(pa.large_binary())
            except pa.ArrowException:
                column = column.cast(pa.large_string()).cast(pa.large_binary())
        except pa.ArrowException:
            raise SinkError(
                f"the column {name} is of type {column.type}, of which Arrow makes no text: let "
                "the function make it bytes or text, or leave value out for JSON"
            ) from None
        found: list[bytes | None] = column.to_pylist()
        return found

    def _column(self, batch: pa.RecordBatch, name: str) -> Any:
        if batch.schema.names.count(name) != 1:
            found = ", ".join(batch.schema.names)
            raise SinkError(f"the function must return one column {name}, and returned: {found}")
        return batch.column(name)
