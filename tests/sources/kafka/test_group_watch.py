"""What a receiver says of a wait: for which part of Kafka, and which partition stands still."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from penstock.runtime.clock import ManualClock
from penstock.sources.kafka import KafkaReceiver, KafkaUnavailableError
from penstock.sources.kafka._driver_client import DriverClient
from penstock.sources.kafka._group_watch import GroupWatch
from penstock.sources.kafka._ledger import OffsetLedger
from penstock.sources.kafka.engines import ENGINES
from penstock.sources.kafka.engines.interface import GroupMember, PartitionState
from penstock.sources.kafka.params import KafkaParams
from penstock.sources.kafka.records import TopicPartition
from penstock.wire.messages import ReportError
from tests.receiver.conftest import run, shared, tracker
from tests.receiver.running import Running, Tracker
from tests.services.kafka import Broker

__all__ = ["run", "shared", "tracker"]

MINE = TopicPartition("lines", 0)
COORDINATOR = "no answer of the coordinator of the group 'g', which keeps its members"


class _Brokers:
    """A broker with 500 records in a partition, and a member that got up to 100."""

    def partitions(self, *_: Any) -> dict[TopicPartition, PartitionState]:
        return {MINE: PartitionState("id", "")}

    def latest(self, *_: Any) -> dict[TopicPartition, int]:
        return {MINE: 500}

    def assignment(self) -> set[TopicPartition]:
        return {MINE}

    def position(self, _: TopicPartition) -> int:
        return 100


def watch_over(
    both: _Brokers, offsets: OffsetLedger, told: list[str], clock: ManualClock
) -> GroupWatch:
    return GroupWatch(
        ["lines"],
        cast(DriverClient, both),
        cast(GroupMember, both),
        offsets,
        "earliest",
        told.append,
        clock.monotonic_s,
    )


class _NoTurn(_Brokers):
    """A member for which there is no partition, and a coordinator that may be away."""

    is_away = False

    def assignment(self) -> set[TopicPartition]:
        return set()

    def committed(self, *_: Any) -> dict[TopicPartition, int]:
        if self.is_away:
            raise KafkaUnavailableError("here:9092", 5.0, "no answer", part="the coordinator")
        return {}


def test_what_goes_away_while_a_member_waits_for_its_turn_is_told_once() -> None:
    told: list[str] = []
    clock = ManualClock(0)
    both = _NoTurn()
    watch = watch_over(both, OffsetLedger(0.0), told, clock)
    for second in range(3600):
        both.is_away = second >= 600
        watch.look(False)
        clock.advance(1000)
        if second == 599:
            assert told == [], "each member has less than one partition: nothing is wrong"
    (text,) = told
    assert "there was no answer of the coordinator" in text


def test_a_topic_that_is_missing_beside_others_is_told_once_until_it_has_been_there() -> None:
    told: list[str] = []
    clock = ManualClock(0)
    both = _Brokers()
    watch = watch_over(both, OffsetLedger(0.0), told, clock)
    watch._topics = ["lines", "words"]

    def look(seconds: int) -> None:
        for _ in range(seconds):
            watch.look(False)
            clock.advance(1000)

    look(30)
    assert told == []
    look(100)
    missing = "There is no topic words: it is read when it comes, by auto.offset.reset=earliest"
    assert told == [missing]
    words = {TopicPartition("words", 0): PartitionState("other", "")}
    all_of_them = {**both.partitions(), **words}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(both, "partitions", lambda *_: all_of_them)
        look(1)
    look(31)
    assert told == [missing, missing]


def test_a_partition_with_a_lag_that_is_not_read_for_a_minute_is_told_once() -> None:
    told: list[str] = []
    clock = ManualClock(0)
    both, offsets = _Brokers(), OffsetLedger(0.0)
    watch = watch_over(both, offsets, told, clock)
    watch.look(False)
    offsets.note_stored(MINE, 100)
    for _ in range(58):
        watch.note_poll({})
        watch.look(False)
        clock.advance(1000)
    assert told == []
    for _ in range(100):
        watch.note_poll({})
        watch.look(False)
        clock.advance(1000)
    (text,) = told
    assert text.startswith(
        "lines 0 has 400 records from offset 100 on, and none of them came for 6"
    )
    assert watch.lag() == 400
    offsets.note_stored(MINE, 200)
    for _ in range(70):
        watch.note_poll({})
        watch.look(False)
        clock.advance(1000)
    assert len(told) == 2, "it went on, and stands still again"


@pytest.fixture(scope="module")
def without_offsets(own: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker that is to keep three copies of the groups' offsets, and so cannot keep any."""
    # `own` tells whether there are jars.
    made = Broker(
        tmp_path_factory.mktemp("lonely"), more_properties="offsets.topic.replication.factor=3"
    )
    made.start()
    yield made
    made.stop()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_a_group_without_a_coordinator_is_told_and_not_said_to_be_brokers(
    run: Callable[..., Running],
    tracker: Tracker,
    without_offsets: Broker,
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
) -> None:
    monkeypatch.setattr("penstock.sources.kafka._group_watch._GROUP_S", 2.0)
    given = {
        "bootstrap.servers": without_offsets.address,
        "group.id": "g",
        "penstock.engine": engine,
    }
    topic = without_offsets.create_topic()
    run(KafkaReceiver([topic], given))
    tracker.wait_for_count(ReportError, 1)
    assert COORDINATOR in tracker.of(ReportError)[0].message
    client = DriverClient(KafkaParams(given), 20.0, "the.setting")
    try:
        with pytest.raises(KafkaUnavailableError, match=COORDINATOR) as raised:
            client.committed([TopicPartition(topic, 0)], 2.0)
    finally:
        client.close()
    assert raised.value.part.startswith("the coordinator of the group 'g'")
    assert str(raised.value).endswith("the.setting says how long to try")
