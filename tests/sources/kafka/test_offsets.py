"""Which offsets a receiver stores, commits and forgets, and of which topic they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pytest

from penstock.runtime.clock import ManualClock
from penstock.sources.kafka import KafkaUnavailableError
from penstock.sources.kafka._driver_client import DriverClient
from penstock.sources.kafka._group_watch import GroupWatch
from penstock.sources.kafka._ledger import OffsetLedger
from penstock.sources.kafka.engines.interface import GroupMember, PartitionState
from penstock.sources.kafka.errors import KafkaSourceError
from penstock.sources.kafka.records import TopicPartition

MINE = TopicPartition("lines", 0)
OTHER = TopicPartition("words", 0)


class Cluster:
    """Brokers with a topic of two partitions, and a member that has the first of them."""

    def __init__(self) -> None:
        self.topic_id = "old"
        self.knows_first = True
        self.sought: list[tuple[TopicPartition, int]] = []

    def partitions(self, *_: Any) -> dict[TopicPartition, PartitionState]:
        return {
            TopicPartition("lines", number): PartitionState(self.topic_id, "") for number in (0, 1)
        }

    def earliest(self, partitions: Iterable[TopicPartition], _: float) -> dict[TopicPartition, int]:
        if not self.knows_first:
            raise KafkaUnavailableError("here:9092", 5.0, "no answer")
        return dict.fromkeys(partitions, 3)

    def latest(self, partitions: Iterable[TopicPartition], _: float) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 600)

    def assignment(self) -> set[TopicPartition]:
        return {MINE}

    def position(self, _: TopicPartition) -> int | None:
        return None

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.sought.append((partition, offset))


def watch_over(
    cluster: Cluster, offsets: OffsetLedger, told: list[str], start: str = "earliest"
) -> GroupWatch:
    watch = GroupWatch(
        ["lines"],
        cast(DriverClient, cluster),
        cast(GroupMember, cluster),
        offsets,
        start,
        told.append,
        ManualClock(0).monotonic_s,
    )
    # Each question is asked.
    watch._known_until_s = cast(dict[str, float], _Forgetful())
    offsets.ids_now = watch.ids_now
    return watch


class _Forgetful(dict[str, float]):
    def __setitem__(self, topic: str, until_s: float) -> None:
        pass


def store(offsets: OffsetLedger, end: int) -> tuple[dict[str, dict[str, Any]], str]:
    """Store records up to an offset; return their position, and the id of their topic."""
    position, topic_id = offsets.position_after(MINE, end), offsets.topic_id(MINE.topic)
    offsets.note_stored(MINE, end)
    return position, topic_id


def test_what_is_known_of_a_topic_is_not_taken_for_another_one_of_its_name() -> None:
    cluster, offsets, told = Cluster(), OffsetLedger(0.0), list[str]()
    watch = watch_over(cluster, offsets, told)
    assert watch.made_anew(["lines"]) == set()
    position, of_old = store(offsets, 500)
    assert position == {"lines": {"0": 500, "id": "old"}}
    cluster.topic_id = "new"
    assert watch.made_anew(["lines"]) == {"lines"}
    assert cluster.sought == [(MINE, 3)]
    (text,) = told
    assert "another one has its name" in text
    assert "0 from 500" in text
    # Now, as it took the disk so long.
    offsets.note_durable(MINE, 500, of_old)
    assert offsets.to_commit([MINE]) == {MINE: 3}
    assert offsets.stored(TopicPartition("lines", 1)) == 3, "another member may give it back"
    position, of_new = store(offsets, 10)
    assert position == {"lines": {"0": 10, "1": 3, "id": "new"}}
    offsets.note_durable(MINE, 10, of_new)
    assert offsets.to_commit([MINE]) == {MINE: 10}
    # The next start: by the position it is known whose it is.
    again = OffsetLedger(0.0)
    again.restore(position)
    assert watch_over(cluster, again, told).made_anew(["lines"]) == set()
    assert again.stored(MINE) == 10
    cluster.topic_id = "newest"
    assert watch_over(cluster, again, told).made_anew(["lines"]) == {"lines"}
    assert again.stored(MINE) == 3


def test_offsets_that_go_back_make_it_ask_whether_it_is_still_the_topic_that_it_knows() -> None:
    told: list[str] = []
    cluster, offsets = Cluster(), OffsetLedger(0.0)
    watch = watch_over(cluster, offsets, told)
    watch._known_until_s = {}
    assert watch.made_anew_in({MINE: 0}) == set()
    store(offsets, 500)
    cluster.topic_id = "new"
    assert watch.made_anew_in({MINE: 500}) == set()
    assert watch.made_anew_in({MINE: 0}) == {"lines"}
    assert len(told) == 1


def test_offsets_are_not_committed_for_a_topic_that_took_the_name_in_that_moment() -> None:
    cluster, offsets = Cluster(), OffsetLedger(0.0)
    watch = watch_over(cluster, offsets, [])
    watch.made_anew(["lines"])
    _, topic_id = store(offsets, 500)
    offsets.note_durable(MINE, 500, topic_id)
    cluster.topic_id = "new"
    assert offsets.to_commit([MINE]) == {}
    cluster.topic_id = "old"
    assert offsets.to_commit([MINE]) == {MINE: 500}
    offsets.note_committed({MINE: 500})
    assert offsets.to_commit([MINE]) == {}


def test_a_new_topic_that_cannot_be_read_yet_gives_nothing_until_it_can() -> None:
    cluster, offsets, told = Cluster(), OffsetLedger(0.0), list[str]()
    watch = watch_over(cluster, offsets, told)
    watch.made_anew(["lines"])
    store(offsets, 500)
    cluster.topic_id, cluster.knows_first = "new", False
    assert watch.made_anew(["lines"]) == {"lines"}, "what came is of it, and begins too late"
    assert (told, cluster.sought, offsets.stored(MINE)) == ([], [], 500)
    cluster.knows_first = True
    assert watch.made_anew(["lines"]) == {"lines"}
    assert (cluster.sought, offsets.stored(MINE)) == ([(MINE, 3)], 3)


def test_without_a_place_to_start_a_new_topic_is_an_error() -> None:
    cluster, offsets = Cluster(), OffsetLedger(0.0)
    watch = watch_over(cluster, offsets, [], "none")
    watch.made_anew(["lines"])
    cluster.topic_id = "new"
    with pytest.raises(KafkaSourceError, match="set it to earliest or latest"):
        watch.made_anew(["lines"])


def test_markers_of_transactions_are_committed_past_and_no_record_is() -> None:
    offsets = OffsetLedger(0.0)
    store(offsets, 10)
    offsets.note_durable(MINE, 9, "")
    offsets.note_passed(MINE, 12)
    assert offsets.stored(MINE) == 12
    assert offsets.to_commit([MINE]) == {MINE: 9}, "the record at 9 is not durable"
    offsets.note_durable(MINE, 10, "")
    assert offsets.to_commit([MINE]) == {MINE: 12}
    offsets.note_passed(OTHER, 7)
    assert offsets.stored(OTHER) is None, "where nothing was stored the client knows where to begin"
    store(offsets, 20)
    assert offsets.stored(MINE) == 20
