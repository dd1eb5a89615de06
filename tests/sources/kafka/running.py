"""Runs direct streams of a real broker, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.sources.kafka import (
    ConsumerStrategies,
    ConsumerStrategy,
    KafkaDStream,
    KafkaRecord,
    KafkaUtils,
    LocationStrategies,
    OffsetRange,
)
from tests.services.kafka import Kafka
from tests.streaming.batches import Batches


def params(broker: Kafka, **settings: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.address,
        "auto.offset.reset": "earliest",
        "penstock.engine": broker.engine,
        **settings,
    }


def numbers(begin: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(begin, end)]


class Direct:
    """A direct stream whose records and ranges are kept, batch by batch."""

    def __init__(
        self,
        run: Batches,
        strategy: ConsumerStrategy,
        *,
        reads_once: bool = False,
        **options: Any,
    ) -> None:
        self.run = run
        self._reads_once = reads_once
        self.batches: list[list[KafkaRecord]] = []
        self.ranges: list[tuple[OffsetRange, ...]] = []
        self.stream: KafkaDStream = KafkaUtils.createDirectStream(
            run.ssc, LocationStrategies.PreferConsistent, strategy, **options
        )
        self.stream.foreachRDD(self._keep)

    def _keep(self, rdd: Any) -> None:
        self.ranges.append(rdd.offsetRanges)
        records = rdd.collect()
        assert self._reads_once or rdd.count() == len(records)
        self.batches.append(records)

    def values(self) -> list[int]:
        return [int(record.value) for batch in self.batches for record in batch]


def subscribe(
    broker: Kafka,
    topic: str,
    offsets: Mapping[tuple[str, int], int] | None = None,
    **settings: Any,
) -> ConsumerStrategy:
    return ConsumerStrategies.Subscribe([topic], params(broker, **settings), offsets)


Make = Callable[..., Direct]
