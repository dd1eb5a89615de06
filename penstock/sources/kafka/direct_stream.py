"""`DirectKafkaInputDStream`: decides in the driver which offsets each batch takes.

Nothing is received between batches: a batch is a range of offsets of each partition, fixed when
the batch is made, and its tasks read it from the brokers. The ranges of a batch never change, so
a task that runs again reads the same records.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark import RDD

from penstock.listeners.input_info import BatchInput
from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.sources.kafka._driver_client import CommitCallback, DriverClient
from penstock.sources.kafka._reading import Reading
from penstock.sources.kafka.columns import Layout
from penstock.sources.kafka.engines import package_of
from penstock.sources.kafka.engines.interface import PartitionState
from penstock.sources.kafka.errors import (
    KafkaCommitError,
    KafkaDataLossError,
    KafkaSourceError,
    KafkaUnavailableError,
)
from penstock.sources.kafka.params import KafkaParams
from penstock.sources.kafka.rdd import KafkaRDD, places
from penstock.sources.kafka.records import OffsetRange, TopicPartition, is_another, topic_id_of
from penstock.sources.kafka.strategies import (
    ConsumerStrategy,
    LocationStrategy,
    PerPartitionConfig,
)
from penstock.streaming.dstream.inputs.input_streams import DirectInputDStream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.streaming.dstream.graph import DStreamGraph

_ASK_S = 3.0
"""How long a batch waits for the brokers' answers before it goes without new records."""

_CONFIRM_S = 0.5
_ANEW = "the topic was deleted, and another one has its name"

_log = logging.getLogger("penstock.sources.kafka")
_limited_log = RateLimitedLog(_log)


@dataclass(frozen=True)
class DirectOptions:
    """How a stream goes on, beside what it reads.

    Attributes:
        location: Where partitions are read.
        limits: The limits of each partition.
        broker_timeout_s: How long brokers may be out of reach before that is an error.
        reading: How tasks read.
        layout: The columns of DataFrames.
    """

    location: LocationStrategy
    limits: PerPartitionConfig
    broker_timeout_s: float
    reading: Reading
    layout: Layout


class DirectKafkaInputDStream(DirectInputDStream):
    """The records of Kafka's partitions; a batch's RDD has one partition for each of theirs.

    While no broker answers, batches have no new records, with a warning each; that goes on for
    `broker_timeout_s`, then each batch fails until one answers. Nothing is lost by either: a
    later batch takes what they did not.

    Args:
        graph: The graph.
        strategy: Which partitions, and from where.
        options: How.

    Attributes:
        current_offsets: The next offset of each partition.
        ranges: The ranges of the batches that are remembered, by batch time in milliseconds.
        topic_ids: The ids of the topics by name, to find one that was created again. Ranges also
            have them.
        rate_limit: The most records per second of all partitions together, divided by their lag;
            None for no limit.
    """

    transient = ("_client", "_last_rdd", "_callbacks", "_unavailable_since_s")

    def __init__(
        self, graph: DStreamGraph, strategy: ConsumerStrategy, options: DirectOptions
    ) -> None:
        super().__init__(graph, options.limits.is_bounded)
        self._strategy = strategy
        self._options = options
        self.current_offsets: dict[TopicPartition, int] = {}
        self.ranges: dict[int, tuple[OffsetRange, ...]] = {}
        self.topic_ids: dict[str, str] = {}
        self._ids_now: dict[str, str] = {}
        self.rate_limit: float | None = None
        self._leaders: dict[TopicPartition, str] = {}
        self._has_started = False
        self._unavailable_since_s: float | None = None
        self._asked_ms = 0
        self._commits: dict[TopicPartition, int] = {}
        self._refused: set[str] = set()
        # None after a recovery: what a program handed over is no part of a checkpoint.
        self._callbacks: list[CommitCallback] | None = None
        self._client: DriverClient | None = None
        self._last_rdd: KafkaRDD | None = None

    @property
    def params(self) -> KafkaParams:
        """The client's settings."""
        return self._strategy.params

    @property
    def requires(self) -> tuple[str, ...]:
        """What executors must be able to import."""
        return (package_of(self.params.engine_name),)

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect, and find where to start, unless that is known.

        Raises:
            KafkaRefusedError: TLS or the log-in fails, or the user may not read a topic.
            KafkaUnavailableError: No broker answered.
            KafkaSourceError: A partition has no offset to start from.
        """
        timeout_s = self._options.broker_timeout_s
        setting = "spark.penstock.kafka.brokerTimeout"
        self._client = DriverClient(self._strategy.params, timeout_s, setting)
        # A checkpoint may have them as an earlier client wrote them.
        self.topic_ids = {name: topic_id_of(each) for name, each in self.topic_ids.items()}
        self._refused = set()
        found = self._find(self._client, timeout_s)
        if self._has_started:
            return
        self._adopt(self._client, found, timeout_s)
        missing = set(self._strategy.topics or ()) - set(self.topic_ids)
        if missing:
            names = ", ".join(sorted(missing))
            _log.warning("There is no topic %s yet; it is read when it comes", names)
        self._has_started = True

    def stop(self) -> None:
        """Commit what waits to be committed, and close the connections."""
        client, self._client = self._client, None
        if client is None:
            return
        if self._commits:
            try:
                self._forget_commits(self._anew(self._find(client, _ASK_S)))
            except KafkaSourceError as error:
                _log.debug("Who has the topics' names now is not known: %s", error)
            self._send_commits(client)
        client.close()

    # -- a batch ---------------------------------------------------------------------------------

    def compute(self, time_ms: int) -> RDD[Any] | None:
        ranges = self.ranges.get(time_ms)
        if ranges is None:
            if time_ms < self._asked_ms:
                # It failed. What it did not take belongs to a later one, which outputs will see.
                return None
            self._asked_ms = time_ms
            ranges = self._choose(time_ms)
        else:
            ranges = self.ranges[time_ms] = tuple(map(self._still_there, ranges))
        return self._rdd_of(ranges)

    def dataframe(self, time_ms: int) -> DataFrame:
        """Return the records of a batch as a DataFrame; it has `offsetRanges`."""
        ranges = self.ranges[time_ms]
        frame = self._rdd_of(ranges).dataframe(self._options.layout)
        frame.offsetRanges = ranges  # type: ignore[attr-defined]  # as the RDDs have them
        return frame

    def update_rate(self, records_per_second: float | None) -> None:
        """See `DirectInputDStream.update_rate`."""
        self.rate_limit = records_per_second

    def must_be_saved_before(self, time_ms: int) -> bool:
        """A batch that is made again must have the same ranges, also if they are empty."""
        return time_ms in self.ranges

    def clear_metadata(self, time_ms: int, unpersist: bool) -> None:
        """Forget old RDDs, and their ranges."""
        super().clear_metadata(time_ms, unpersist)
        assert self.remember_ms is not None
        done_ms = time_ms - self.remember_ms
        if self.needed_ms is not None:
            # A restart may have to make states again from batches that are long done.
            done_ms = min(done_ms, self.needed_ms - 1)
        for old_ms in [ms for ms in self.ranges if ms <= done_ms]:
            del self.ranges[old_ms]

    def commit_async(
        self, ranges: Iterable[OffsetRange], callback: CommitCallback | None = None
    ) -> None:
        """Commit the ends of ranges to the group, with the next batch or at the stop."""
        with self.graph.lock:
            for each in ranges:
                partition = each.topicPartition()
                if is_another(each.topic_id, self.topic_ids.get(each.topic, "")):
                    # Of a topic that is gone: for the one that has its name now it means nothing.
                    self._refused.add(each.topic)
                    continue
                last = self._commits.get(partition, 0)
                self._commits[partition] = max(last, each.untilOffset)
            if callback is not None:
                self._callbacks = [*(self._callbacks or ()), callback]

    def _still_there(self, wanted: OffsetRange) -> OffsetRange:
        """Return a range of a batch that is made again, or without its records if they are gone."""
        now = self._ids_now.get(wanted.topic, "")
        if not is_another(wanted.topic_id, now) or not wanted.count():
            return wanted
        topic, partition, first, _ = wanted
        self._tell_loss(TopicPartition(topic, partition), first, _ANEW)
        return OffsetRange(topic, partition, first, first).of(wanted.topic_id)

    def _rdd_of(self, ranges: tuple[OffsetRange, ...]) -> KafkaRDD:
        last = self._last_rdd
        if (
            last is not None
            and last.offsetRanges == ranges
            and not any(each.count() for each in ranges)
        ):
            # An idle stream: nothing to make again.
            return last
        partitions = [each.topicPartition() for each in ranges]
        context = self.graph.spark_context
        found = places(
            context, self._options.location, partitions, lambda each: self._leaders.get(each, "")
        )
        rdd = KafkaRDD(context, self._options.reading, ranges, found)
        self._last_rdd = rdd
        return rdd

    def _choose(self, time_ms: int) -> tuple[OffsetRange, ...]:
        """Fix the ranges of a batch, remember them, and report them to the listeners."""
        client = self._client
        assert client is not None
        try:
            latest = self._latest(client)
            self._unavailable_since_s = None
        except KafkaUnavailableError as error:
            self._tolerate(error)
            latest = {}
        finally:
            # Not before it is known whether topics are still the ones whose offsets they are.
            self._send_commits(client)
        until = self._clamp(latest, time_ms)
        ranges = tuple(
            OffsetRange(*each, at, until.get(each, at)).of(self.topic_ids.get(each.topic, ""))
            for each, at in sorted(self.current_offsets.items())
        )
        self.current_offsets.update(until)
        self.ranges[time_ms] = ranges
        behind = {each: end - until[each] for each, end in latest.items() if end > until[each]}
        lines = [
            f"topic: {each.topic}\tpartition: {each.partition}\t"
            f"offsets: {each.fromOffset} to {each.untilOffset}"
            + (f"\tbehind: {left}" if (left := behind.get(each.topicPartition(), 0)) else "")
            for each in ranges
            if each.count()
        ]
        metadata = {"offsets": list(ranges), "Description": "\n".join(lines)}
        records = sum(each.count() for each in ranges)
        info = BatchInput(self.stream_id, records, metadata)
        self.graph.runtime.input_info.report_info(time_ms, info)
        return ranges

    def _tolerate(self, error: KafkaUnavailableError) -> None:
        """Warn of brokers that do not answer; raise when that goes on for too long."""
        now_s = time.monotonic()
        if self._unavailable_since_s is None:
            self._unavailable_since_s = now_s - error.waited_s
        if now_s - self._unavailable_since_s >= self._options.broker_timeout_s:
            raise error
        _limited_log.log(f"A batch takes nothing from Kafka: {error}", like="batch")

    # -- offsets ---------------------------------------------------------------------------------

    def _latest(self, client: DriverClient) -> dict[TopicPartition, int]:
        """Return the ends of all partitions, with new ones adopted and lost ones dealt with."""
        found = self._find(client, _ASK_S)
        if any(each not in found for each in self.current_offsets):
            # A cluster that has just come up may not know all its topics at once.
            time.sleep(_CONFIRM_S)
            found = self._find(client, _ASK_S)
        gone = [each for each in self.current_offsets if each not in found]
        anew = self._anew(found)
        self._forget_commits([*gone, *anew])
        for each in gone:
            self._lose(each, "the topic or partition was deleted")
            del self.current_offsets[each]
            self.topic_ids.pop(each.topic, None)
        for each in anew:
            self._lose(each, _ANEW)
        for each in anew:
            del self.current_offsets[each]
            self.topic_ids.pop(each.topic, None)
        self._adopt(client, found, _ASK_S)
        latest = client.latest(self.current_offsets, _ASK_S)
        earliest = client.earliest(self.current_offsets, _ASK_S)
        for each, at in list(self.current_offsets.items()):
            if not earliest[each] <= at <= latest[each]:
                now = f"the partition now has offsets {earliest[each]} to {latest[each]}"
                self._lose(each, now)
                self.current_offsets[each] = earliest[each]
        return latest

    def _find(self, client: DriverClient, timeout_s: float) -> dict[TopicPartition, PartitionState]:
        with_leaders = self._options.location.kind == "PreferBrokers"
        found = client.partitions(self._strategy.topics, timeout_s, with_leaders)
        wanted = {each: state for each, state in found.items() if self._strategy.wants(each)}
        self._leaders = {each: state.leader for each, state in wanted.items()}
        self._ids_now = {each.topic: state.topic_id for each, state in wanted.items()}
        return wanted

    def _anew(self, found: Mapping[TopicPartition, PartitionState]) -> list[TopicPartition]:
        """Return the partitions that are another topic's now."""
        return [
            each
            for each, state in found.items()
            if each in self.current_offsets
            and is_another(self.topic_ids.get(each.topic, ""), state.topic_id)
        ]

    def _lose(self, partition: TopicPartition, what: str) -> None:
        self._tell_loss(partition, self.current_offsets[partition], what)

    def _tell_loss(self, partition: TopicPartition, at: int, what: str) -> None:
        if self._options.reading.fail_on_data_loss:
            raise KafkaDataLossError(partition.topic, partition.partition, at, what)
        _log.warning("Records of %s %d from offset %d on are lost: %s", *partition, at, what)

    def _adopt(
        self,
        client: DriverClient,
        found: Mapping[TopicPartition, PartitionState],
        timeout_s: float,
    ) -> None:
        """Give partitions that are not known yet an offset to start from."""
        new = [each for each in found if each not in self.current_offsets]
        if new:
            self.current_offsets.update(self._start_offsets(client, new, timeout_s))
            for each in new:
                self.topic_ids[each.topic] = found[each].topic_id

    def _start_offsets(
        self, client: DriverClient, new: list[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, int]:
        if self._has_started:
            # It came while the stream runs: all its records are new.
            return client.earliest(new, timeout_s)
        given = self._strategy.offsets
        offsets = {each: given[each] for each in new if each in given}
        left = [each for each in new if each not in offsets]
        if left:
            offsets.update(client.committed(left, timeout_s))
            left = [each for each in new if each not in offsets]
        start = self._strategy.params.start
        if left and start == "none":
            raise KafkaSourceError(
                f"there is no offset to start from for {left[0].topic} {left[0].partition}: none "
                "is given, the group has committed none, and auto.offset.reset is none; set it to "
                "earliest or latest"
            )
        ask = client.earliest if start == "earliest" else client.latest
        return {**offsets, **ask(left, timeout_s)}

    def _clamp(
        self, latest: Mapping[TopicPartition, int], time_ms: int
    ) -> dict[TopicPartition, int]:
        """Return the ends of a batch's ranges: the partitions' ends, or what limits allow."""
        limits = self._options.limits
        lags = {each: max(0, end - self.current_offsets[each]) for each, end in latest.items()}
        shares: dict[TopicPartition, int] = {}
        if self.rate_limit is not None and any(lags.values()):
            shares = divided(allowed(self.rate_limit, time_ms, self.slide_ms), lags)
        until = {}
        for each, end in latest.items():
            # Where records were lost, the next offset may be past the end that was seen.
            end = max(end, self.current_offsets[each])
            counts = [shares[each]] if shares else []
            most = limits.maxRatePerPartition(each)
            if most > 0:
                counts.append(allowed(most, time_ms, self.slide_ms))
            if counts:
                count = max(min(counts), limits.minRatePerPartition(each))
                end = min(end, self.current_offsets[each] + count)
            until[each] = end
        return until

    # -- commits ---------------------------------------------------------------------------------

    def _forget_commits(self, partitions: Iterable[TopicPartition]) -> None:
        with self.graph.lock:
            for each in partitions:
                if self._commits.pop(each, None) is not None:
                    self._refused.add(each.topic)

    def _send_commits(self, client: DriverClient) -> None:
        """Commit what waits to be committed, and call the callbacks."""
        with self.graph.lock:
            offsets, callbacks = self._commits, self._callbacks or []
            refused = sorted(self._refused)
            self._commits, self._callbacks, self._refused = {}, None, set()
        if not offsets and not refused:
            return
        failure: BaseException | None = None
        try:
            if offsets:
                client.commit(offsets, _ASK_S)
            if refused:
                raise KafkaCommitError(self.params.group_id or "", f"{', '.join(refused)}: {_ANEW}")
        except Exception as error:  # noqa: BLE001  # travels to the callbacks
            _limited_log.log(f"Offsets could not be committed: {error}")
            failure = error
        for callback in callbacks:
            try:
                callback(offsets, failure)
            except Exception as error:  # noqa: BLE001  # the program's function; the log has it
                # It must harm neither the batch that is made, nor the stop.
                _limited_log.log("A callback of commitAsync raised", error=error)


# How many records a rate allows a batch, and each of its partitions, in whole records.
#
# A rate is a real number, and so is each partition's part of it. Rounded by partition and batch, a
# hundred partitions could take twice what was asked, or nothing at all. So a batch is allowed what
# the rate allows until its time, less what it allowed until the time of the one before; and of that
# the partitions get the whole parts, and those with the largest fractions one more (the
# largest-remainder method). Both depend on nothing but their arguments: nothing has to be
# remembered over a restart.

_Key = TypeVar("_Key")


def allowed(rate: float, time_ms: int, span_ms: int) -> int:
    """Return the records that a batch may take; the sum over batches is exact to one record.

    Args:
        rate: Records per second.
        time_ms: The batch's time.
        span_ms: The time since the batch before.
    """
    per_ms = Fraction(rate) / 1000
    return int(per_ms * time_ms) - int(per_ms * (time_ms - span_ms))


def divided(total: int, lags: Mapping[_Key, int]) -> dict[_Key, int]:
    """Divide a number of records in proportion to what there is to catch up on.

    Args:
        total: The records.
        lags: What each partition has; at least one has something.

    Returns:
        What each may take. The sum is `total`.
    """
    whole = sum(lags.values())
    shares = {each: divmod(total * lag, whole) for each, lag in lags.items()}
    left = total - sum(share for share, _ in shares.values())
    by_rest = sorted(shares, key=lambda each: shares[each][1], reverse=True)
    more = set(by_rest[:left])
    return {each: share + (each in more) for each, (share, _) in shares.items()}
