"""`KafkaReceiver`: a member of a consumer group whose offsets are committed after its blocks."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from pyspark import StorageLevel

from penstock._arguments import refused
from penstock.errors import PenstockError
from penstock.receiver import ReceiverContext, RecordTooLargeError
from penstock.receiver.forms.threaded import ThreadedReceiver
from penstock.receiver.validation import InvalidRecordError
from penstock.sources.formats import ValueFormat
from penstock.sources.kafka._driver_client import DriverClient
from penstock.sources.kafka._group_watch import GroupWatch
from penstock.sources.kafka._ledger import OffsetLedger
from penstock.sources.kafka._reading import as_records
from penstock.sources.kafka.columns import Layout
from penstock.sources.kafka.engines import package_of
from penstock.sources.kafka.engines.interface import (
    AccessDeniedError,
    Chunk,
    ClientError,
    GroupMember,
    RetriableError,
)
from penstock.sources.kafka.errors import KafkaSourceError
from penstock.sources.kafka.params import KafkaParams
from penstock.sources.kafka.records import KafkaRecord, TopicPartition
from penstock.sources.kafka.strategies import as_topics
from penstock.worker import collect_less

_POLL_S = 0.2
_LOOK_EVERY_S = 1.0
_DURABLE_S = 5.0
"""How long partitions are held back in a rebalance, and a stop's last commit waits, for blocks
to be durable. What was not durable by then comes again."""

_CONNECT_S = 30.0
_ASK_S = 5.0
_PAUSE_S = 0.1
_REFUSED_S = 2.0
"""How long the receiver waits after a refusal, so that it does not report without end."""


_log = logging.getLogger("penstock.sources.kafka")


class _Poison(bytes):
    """The value of a record for which a function raised: discarded before it is stored."""

    error: InvalidRecordError


class KafkaReceiver(ThreadedReceiver):
    """Joins a consumer group and stores the values of its partitions' records.

    The offsets of all partitions become durable together with the records, as the stream's
    position, so a receiver that was killed goes on exactly where its last block ended. The group
    gets offsets only when their block is durable and known to the driver's log (I1), about once a
    second, before partitions go to another member, and at a stop. A partition is read from the
    later of both.

    Several receivers of one group share its topics. When one of them is killed and a partition
    goes to another before it is back, the other begins where the group has committed: up to about
    a second of that partition's records come twice. Otherwise each record is stored once.

    Args:
        topics: The topics.
        kafkaParams: The client's settings; `group.id` is needed.
        convert: Makes what is stored of a `KafkaRecord`; None for its value. It runs in the
            executor, for each record. One for which it raises is a dead letter with the bytes of
            its value, and reported as an error of the receiver with its place. So is one for which
            a deserializer raises.
        storageLevel: Which copies of a block must exist.
        columns: Whether records are stored with all that Kafka has of them, as columns for
            `foreachBatch`, and not as values only.
        includeHeaders: Whether a column ``headers`` is among them.
        values: Makes typed values for the columns, such as `JsonFormat`; None for bytes.

    Raises:
        MissingPackageError: The client is not installed.
        ValueError: A setting is not accepted, `group.id` is missing, or both `convert` and
            columns are asked for.
    """

    STOP_BOUND_S = None
    _position_type = dict[str, dict[str, int | str]]

    def __init__(
        self,
        topics: Iterable[str],
        kafkaParams: Mapping[str, Any],
        convert: Callable[[KafkaRecord], Any] | None = None,
        storageLevel: StorageLevel | str | None = None,
        *,
        columns: bool = False,
        includeHeaders: bool = False,
        values: ValueFormat | None = None,
    ) -> None:
        super().__init__(storageLevel)
        self.topics = sorted(set(as_topics(topics)))
        self.params = KafkaParams(kafkaParams)
        self.requires = (package_of(self.params.engine_name),)
        if not self.topics:
            raise ValueError("a Kafka receiver needs at least one topic")
        if not self.params.group_id:
            raise ValueError("a Kafka receiver needs group.id in kafkaParams")
        _check_convert(convert)
        if convert is not None and columns:
            raise ValueError("a Kafka receiver takes convert or columns, and not both")
        if not columns and (includeHeaders or values is not None):
            raise ValueError("includeHeaders and values are for columns=True")
        self.convert = convert
        has_function = convert is not None or self.params.value_deserializer is not None
        if has_function and self.validate is None:
            self.validate = _raise_of_poison
        self.layout = Layout(includeHeaders, values) if columns else None
        if self.layout is not None:
            self.schema = self.layout.schema
        # The same for all attempts: the broker lets the next one take the place of the last at
        # once, instead of waiting until the session of the killed one is over.
        self.member = f"penstock-{uuid.uuid4().hex}"
        self._reset()

    def _reset(self) -> None:
        self._is_connected = False
        self._offsets = OffsetLedger(_DURABLE_S)
        self._watch: GroupWatch | None = None

    def __getstate__(self) -> dict[str, Any]:
        own = ("_offsets", "_watch")
        return {name: value for name, value in super().__getstate__().items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._reset()

    # -- life ------------------------------------------------------------------------------------

    def onStart(self) -> None:
        """Start the thread that connects and receives."""
        if not self._offsets:
            self._offsets.restore(self.lastPosition or {})
        self._is_connected = False
        super().onStart()

    def _stop_bound_s(self, took_s: float) -> float:
        # Until the last offsets are committed and the member has left the group. One that is still
        # connecting has stored nothing, and ends by itself when it has connected.
        return super()._stop_bound_s(took_s) if self._is_connected else 0.0

    def _report_held_up(self, what: str, follows: str, stands: str) -> None:
        if self._is_connected:
            super()._report_held_up(what, follows, stands)

    def _receive(self, context: ReceiverContext) -> bool:
        # The client's messages are objects that the collector would look through by the thousands.
        collect_less()
        what = f"connecting to Kafka at {self.params.servers}"
        try:
            with ExitStack() as closing:
                client = DriverClient(self.params, _CONNECT_S)
                closing.callback(client.close)
                member = self.params.engine.member(
                    self.params, self.topics, self.member, self._offsets, _CONNECT_S
                )
                closing.callback(self._end, member)
                what, self._is_connected = "receiving from Kafka", True
                self._serve(member, client)
        except (ClientError, PenstockError) as error:
            if not self.isStopped():
                self.restart(f"Error {what}: {error}", error)
        return False

    def _end(self, member: GroupMember) -> None:
        """Commit what is durable, then close."""
        self._offsets.await_durable(self._offsets.all_stored())
        try:
            self._commit(member)
        except ClientError as error:
            # The position of the stream has it as well; the group would only see it again.
            _log.info("The last offsets were not committed: %s", error)
        try:
            member.close()
        except ClientError as error:
            _log.info("The member could not take its leave of the group: %s", error)

    # -- records ---------------------------------------------------------------------------------

    def _serve(self, member: GroupMember, client: DriverClient) -> None:
        watch = self._watch = GroupWatch(
            self.topics, client, member, self._offsets, self.params.start, self.reportError
        )
        self._offsets.ids_now = watch.ids_now
        next_look_s = time.monotonic()
        is_polled = True
        while not self.isStopped():
            if time.monotonic() >= next_look_s:
                is_committed = self._commit(member)
                watch.look(not (is_polled and is_committed))
                next_look_s = time.monotonic() + _LOOK_EVERY_S
            try:
                polled = list(member.poll(_POLL_S))
                is_polled = True
            except RetriableError as error:
                is_polled = False
                _log.info("Kafka's brokers are asked again after: %s", error)
                time.sleep(_PAUSE_S)
                continue
            except AccessDeniedError as error:
                # The client goes on trying, and other brokers may still answer.
                self.reportError(f"Kafka at {self.params.servers} refuses: {error}", error)
                time.sleep(_REFUSED_S)
                continue
            # Asked after the records were fetched, so that they are of the topic that is known.
            anew = watch.made_anew_in({partition: chunk.start for partition, chunk in polled})
            kept = [each for each in polled if each[0].topic not in anew]
            watch.note_poll({partition: chunk.start for partition, chunk in kept})
            for partition, chunk in kept:
                self._tell_loss(client, partition, chunk)
                self._store_all(partition, chunk)
                if self.isStopped():
                    return

    def _source_lag(self) -> int | None:
        return None if self._watch is None else self._watch.lag()

    def _tell_loss(self, client: DriverClient, partition: TopicPartition, chunk: Chunk) -> None:
        """Report records that should come next and are gone: the client passes them over."""
        expected = self._offsets.stored(partition)
        if expected is None or chunk.start == expected:
            return
        place = f"{partition.topic} {partition.partition}"
        if chunk.start < expected:
            _log.warning(
                "Records of %s come from %d on, after those up to %d: they come again, or brokers "
                "without ids of topics made the partition again",
                place,
                chunk.start,
                expected,
            )
            return
        try:
            first = client.earliest([partition], _ASK_S)[partition]
        except KafkaSourceError as error:
            _log.warning("Whether %s still has offset %d is not known: %s", place, expected, error)
            return
        # Otherwise compaction or transactions left the gap.
        if first > expected:
            self.reportError(
                f"Records of {place} from offset {expected} on are lost: the first that is there "
                f"is {first}; by auto.offset.reset it goes on at {chunk.start}"
            )

    def _store_all(self, partition: TopicPartition, chunk: Chunk) -> None:
        """Store records with the position after them; halve what does not fit into a block."""
        end = chunk.end
        place = self._offsets.position_after(partition, end)
        topic_id = self._offsets.topic_id(partition.topic)
        durable = partial(
            self._offsets.note_durable, partition=partition, end=end, topic_id=topic_id
        )
        try:
            data = self._data_of(partition, chunk)
            self.store(data, position=place, ack=durable)
        except RecordTooLargeError:
            for part in chunk.parts(len(chunk) // 2):
                self._store_all(partition, part)
            return
        self._offsets.note_stored(partition, end)

    def _data_of(self, partition: TopicPartition, chunk: Chunk) -> Any:
        if self.layout is not None:
            return self.layout.batch(chunk)
        if self.convert is None and self.params.value_deserializer is None:
            return chunk.values()
        try:
            return self._made_of(chunk)
        except Exception as error:  # noqa: BLE001  # the program's function; the record is named
            if len(chunk) > 1:
                first, second = chunk.parts(len(chunk) // 2)
                return [*self._data_of(partition, first), *self._data_of(partition, second)]
            poison = _Poison(chunk.values()[0] or b"")
            poison.error = InvalidRecordError(
                f"the function of the record of {partition.topic} {partition.partition} at "
                f"{chunk.end - 1} raised {error!r}"
            )
            poison.error.__cause__ = error
            if self.validate is _raise_of_poison:
                return [poison]
            # A subclass has a `validate` of its own, which knows nothing of poison.
            self.reportError(f"1 record was dropped: {poison.error}", poison.error)
            return []

    def _made_of(self, chunk: Chunk) -> list[Any]:
        records = as_records(self.params, chunk)
        if self.convert is not None:
            return list(map(self.convert, records))
        return [each.value for each in records]

    # -- offsets ---------------------------------------------------------------------------------

    def _commit(self, member: GroupMember) -> bool:
        """Commit what is durable and still this member's; return whether nothing is left."""
        offsets = self._offsets.to_commit(member.assignment())
        if offsets:
            try:
                member.commit(offsets, _ASK_S)
            except RetriableError as error:
                # The group is changing, or a broker is away: a later commit also has these.
                _log.info("Offsets are not committed yet: %s", error)
                return False
            self._offsets.note_committed(offsets)
        return True


def _raise_of_poison(record: Any) -> None:
    if type(record) is _Poison:
        raise record.error


def _check_convert(convert: object) -> None:
    if convert is not None and not callable(convert):
        accepted = "a function that makes what is stored of a KafkaRecord"
        raise TypeError(refused("convert", convert, accepted))
