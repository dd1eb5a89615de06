"""The consumers of a Python worker: kept between tasks, with what they have fetched ahead.

A consumer belongs to one partition and one task at a time. A batch's task goes on where the one
before ended, so what its consumer has fetched beyond the end of a range is not fetched twice.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.sources.kafka.engines.interface import RangeConsumer
from penstock.sources.kafka.params import KafkaParams
from penstock.sources.kafka.records import TopicPartition

__all__ = ["TaskConsumer", "lend_consumer"]

_IDLE_S = 240.0
"""How long an idle consumer is kept: less than the five minutes that Kafka allows between polls."""


@dataclass
class TaskConsumer:
    """A consumer of one partition.

    Attributes:
        client: The client's consumer.
        position: The offset that it reads next, or None for a new one.
        idle_since_s: When it was given back, on the monotonic clock.
    """

    client: RangeConsumer
    position: int | None = None
    idle_since_s: float = 0.0


# The third part tells topics of the same name apart: what is fetched ahead belongs to one.
_Key = tuple[str, TopicPartition, str]

_idle: OrderedDict[_Key, TaskConsumer] = OrderedDict()
_owner_pid = 0
_of_parents: list[TaskConsumer] = []


@contextmanager
def lend_consumer(
    params: KafkaParams, partition: TopicPartition, topic_id: str, capacity: int, timeout_s: float
) -> Iterator[TaskConsumer]:
    """Lend a consumer that is assigned to a partition; nobody else has it meanwhile.

    Args:
        params: The client's settings.
        partition: The partition.
        topic_id: Tells apart topics of the same name.
        capacity: How many idle consumers this process keeps.
        timeout_s: How long the connection of a new one may take.
    """
    _drop_those_of_a_parent()
    key = (params.identity, partition, topic_id)
    consumer = _idle.pop(key, None)
    if consumer is None:
        consumer = TaskConsumer(params.engine.range_consumer(params, partition, timeout_s))
    try:
        yield consumer
    except BaseException:
        # Also when a task ends early: what is fetched may then stand anywhere.
        consumer.client.close()
        raise
    consumer.idle_since_s = time.monotonic()
    if key in _idle or capacity == 0:
        consumer.client.close()
    else:
        _idle[key] = consumer
    oldest_s = time.monotonic() - _IDLE_S
    while _idle and (len(_idle) > capacity or next(iter(_idle.values())).idle_since_s < oldest_s):
        _idle.popitem(last=False)[1].client.close()


def _drop_those_of_a_parent() -> None:
    """Forget consumers that a fork has copied without their threads."""
    global _owner_pid
    if os.getpid() != _owner_pid:
        # Kept, because the end of such an object would wait for threads that are not there.
        _of_parents.extend(_idle.values())
        _idle.clear()
        _owner_pid = os.getpid()
