"""Batches that could not be made take nothing: not from windows and states, nor from later ones.

Whole programs on a driven clock (`tests.streaming.restarts`). A stand-in for brokers: one that is
out of reach for long stops a real batch for as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from unittest import mock

import pytest

from penstock.sources.kafka import ConsumerStrategies, KafkaUtils, LocationStrategies
from penstock.sources.kafka.engines.interface import PartitionState
from penstock.sources.kafka.errors import KafkaUnavailableError
from penstock.sources.kafka.records import OffsetRange, TopicPartition
from tests.streaming.restarts.driven import BEGIN_MS, Driven, World

PARTITION = TopicPartition("numbers", 0)


class _Brokers:
    """One partition whose records are their offsets."""

    def __init__(self) -> None:
        self.end = 0
        self.are_away = False

    def __call__(self, *_: Any) -> _Brokers:
        return self

    def partitions(self, *_: Any) -> dict[TopicPartition, PartitionState]:
        if self.are_away:
            raise KafkaUnavailableError("brokers:9092", 1000.0, "nobody answers")
        return {PARTITION: PartitionState("id", "")}

    def earliest(self, partitions: Iterable[TopicPartition], _: float) -> dict[Any, int]:
        return dict.fromkeys(partitions, 0)

    def latest(self, partitions: Iterable[TopicPartition], _: float) -> dict[Any, int]:
        return dict.fromkeys(partitions, self.end)

    def committed(self, *_: Any) -> dict[Any, int]:
        return {}

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def brokers() -> Iterator[_Brokers]:
    found = _Brokers()

    def offsets_of(context: Any, _: Any, ranges: tuple[OffsetRange, ...], *__: Any) -> Any:
        rdd = context.parallelize(
            [offset for each in ranges for offset in range(each.fromOffset, each.untilOffset)], 1
        )
        rdd.offsetRanges = ranges
        return rdd

    where = "penstock.sources.kafka.direct_stream"
    with (
        mock.patch(f"{where}.DriverClient", found),
        mock.patch(f"{where}.KafkaRDD", offsets_of),
        mock.patch(f"{where}.places", return_value=[]),
    ):
        yield found


def numbers(ssc: Any) -> Any:
    given = {"bootstrap.servers": "brokers:9092", "auto.offset.reset": "earliest"}
    return KafkaUtils.createDirectStream(
        ssc,
        LocationStrategies.PreferConsistent,
        ConsumerStrategies.Subscribe(["numbers"], given),
    )


def total(values: Iterable[int], state: int | None) -> int:
    return sum(values) + (state or 0)


def results(program: Driven, sink: str) -> dict[int, list[Any]]:
    """Return what a sink was given last for each batch, counted from 1."""
    found = program.world.results.get(sink, {})
    return {(ms - BEGIN_MS) // 1000: each[-1] for ms, each in found.items()}


def run(program: Driven, brokers: _Brokers, batches: Iterable[int]) -> None:
    """Let ten records come before each batch; those of the batches named below find no broker."""
    for number in batches:
        brokers.end += 10
        brokers.are_away = number in (2, 3)
        program.advance(1000)


def test_a_state_goes_on_once_brokers_answer_again(brokers: _Brokers) -> None:
    def build(ssc: Any, world: World) -> None:
        pairs = numbers(ssc).map(lambda offset: ("all", 1))
        world.keep(pairs.updateStateByKey(total), "state")

    with Driven(build) as program:
        program.start()
        run(program, brokers, range(1, 7))
        assert len(program.world.errors) == 2
        assert results(program, "state") == {
            1: [("all", 10)],
            4: [("all", 40)],
            5: [("all", 50)],
            6: [("all", 60)],
        }


@pytest.mark.parametrize("restarts", [False, True])
def test_what_failed_batches_did_not_take_is_seen_by_every_operation(
    brokers: _Brokers, restarts: bool
) -> None:
    def build(ssc: Any, world: World) -> None:
        stream = numbers(ssc).map(lambda offset: offset)
        # The window first: it asks for the batches that failed before the others ask for theirs.
        world.keep(stream.window(3, 1), "window")
        world.keep(stream, "each")

    with Driven(build) as program:
        program.start()
        run(program, brokers, range(1, 4))
        if restarts:
            program.crash()
            brokers.are_away = False
            program.start()
        run(program, brokers, range(4, 7))
        each = results(program, "each")
        window = results(program, "window")
    seen = [offset for number in sorted(each) for offset in each[number]]
    assert seen == list(range(60))
    for number in (4, 5, 6):
        assert window[number] == sorted(
            offset for known in range(number - 2, number + 1) for offset in each.get(known, [])
        )
