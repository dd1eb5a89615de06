"""Rates of direct streams: set by the program, found by backpressure, divided by lag."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.sources.kafka import PerPartitionConfig
from penstock.streaming import RateSource, StreamGraphError
from tests.services.kafka import Kafka
from tests.sources.kafka.running import Direct, numbers, subscribe
from tests.streaming.batches import batches
from tests.system.running import settings

pytestmark = pytest.mark.slow


def counts(direct: Direct) -> list[list[int]]:
    return [[each.count() for each in ranges] for ranges in direct.ranges]


@pytest.mark.long
def test_a_rate_is_divided_by_lag_and_holds_from_the_next_batch_on(sc: Any, started: Kafka) -> None:
    topic = started.create_topic(2)
    started.send(topic, 0, numbers(0, 900))
    started.send(topic, 1, numbers(900, 1200))
    receivers = {"spark.streaming.receiver.maxRate": "10"}
    with settings(sc, receivers), batches(sc) as run:
        direct = Direct(run, subscribe(started, topic))
        direct.stream.set_rate("100/second")
        run.run(1)
        found = run.ssc.rates()[direct.stream.stream_id]
        assert found == direct.stream.rate
        assert (found.asked, found.effective, found.source) == (100, 100, RateSource.USER)
        assert found.is_confirmed
        direct.stream.set_rate(400)
        run.run(1)
        direct.stream.set_rate(None)
        assert direct.stream.rate.source is RateSource.UNLIMITED
        run.run(1)
        with pytest.raises(StreamGraphError, match="has no receiver"):
            run.ssc.rateGroup(100, [direct.stream])  # type: ignore[list-item]
    assert counts(direct) == [[75, 25], [300, 100], [525, 175]]
    assert sorted(direct.values()) == list(range(1200))


def test_backpressure_begins_slowly_and_then_follows_the_batches(sc: Any, started: Kafka) -> None:
    topic = started.create_topic()
    started.send(topic, 0, numbers(0, 20_000))
    on = {"spark.streaming.backpressure.enabled": "true"}
    with settings(sc, on), batches(sc) as run:
        direct = Direct(run, subscribe(started, topic))
        run.run(1)
        assert counts(direct) == [[1000]]
        run.run(1)
        # The clock of this context stands still while a batch runs: it tells nothing of speed.
        assert direct.stream.rate.source is RateSource.SLOW_START
        assert counts(direct) == [[1000], [2000]]
        run.ssc._rates.publish(direct.stream.stream_id, 500.0)
        assert direct.stream.rate.source is RateSource.ESTIMATOR
        run.run(1)
        assert counts(direct)[-1] == [500]


def test_limits_per_partition_stand_beside_backpressure(sc: Any, started: Kafka) -> None:
    topic = started.create_topic(2)
    started.send(topic, 0, numbers(0, 3000))
    started.send(topic, 1, numbers(3000, 4000))
    on = {"spark.streaming.backpressure.enabled": "true"}
    with settings(sc, on), batches(sc) as run:
        limits = PerPartitionConfig(max_rate=1500, min_rate=20)
        direct = Direct(run, subscribe(started, topic), perPartitionConfig=limits)
        run.run(1)
        run.ssc._rates.publish(direct.stream.stream_id, 100.0)
        run.run(2)
    # The last batch has what is left of the second partition: none. The least is taken in any case.
    assert counts(direct) == [[1500, 1000], [100, 0], [100, 0]]
