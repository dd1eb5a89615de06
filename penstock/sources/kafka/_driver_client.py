"""What is asked of the brokers: partitions, offsets, commits; every question is bounded."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from penstock.sources.kafka.engines.interface import (
    ClientError,
    PartitionState,
    RetriableError,
    UnknownMemberError,
)
from penstock.sources.kafka.errors import KafkaCommitError, as_source_error
from penstock.sources.kafka.params import KafkaParams
from penstock.sources.kafka.records import TopicPartition

T = TypeVar("T")

CommitCallback = Callable[[Mapping[TopicPartition, int], BaseException | None], None]

_PAUSE_S = 0.1
_PROBE_S = 2.0

_log = logging.getLogger("penstock.sources.kafka")


class DriverClient:
    """Connections to the brokers by which a driver, or a receiver, asks them.

    For one thread at a time, but for `partitions`: a receiver asks for the ids of topics also where
    partitions are taken from it, which in kafka-python is another thread.

    Args:
        params: The client's settings.
        timeout_s: How long the first connection may take.
        setting: What says how long to try, for the texts of errors.

    Raises:
        KafkaRefusedError: TLS or the log-in fails.
        KafkaUnavailableError: No broker answered within `timeout_s`.
    """

    def __init__(self, params: KafkaParams, timeout_s: float, setting: str = "") -> None:
        self._params = params
        self._setting = setting
        self._closed = threading.Event()
        begin_s = time.monotonic()
        try:
            self._connection = params.engine.driver_connection(
                params, timeout_s, self._closed.is_set
            )
        except ClientError as error:
            waited_s = time.monotonic() - begin_s
            raise as_source_error(error, params.servers, waited_s, setting) from error

    def partitions(
        self, topics: Iterable[str] | None, timeout_s: float, with_leaders: bool
    ) -> dict[TopicPartition, PartitionState]:
        """Return the partitions of topics, or of all; topics that do not exist have none."""
        wanted = None if topics is None else list(topics)
        return self._ask(
            lambda left_s: self._connection.partitions(wanted, left_s, with_leaders), timeout_s
        )

    def earliest(
        self, partitions: Iterable[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, int]:
        """Return the first offset that each partition still has."""
        return self._offsets(partitions, timeout_s, False)

    def latest(
        self, partitions: Iterable[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last that can be read, by the isolation level."""
        return self._offsets(partitions, timeout_s, True)

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, int]:
        """Return the offsets that the group has committed; none without a group."""
        wanted = list(partitions)
        if self._params.group_id is None or not wanted:
            return {}
        part = (
            f"the coordinator of the group {self._params.group_id!r}, which keeps its members and "
            "its offsets; look at the topic __consumer_offsets, which a cluster of fewer brokers "
            "than its offsets.topic.replication.factor cannot make"
        )
        return self._ask(lambda left_s: self._connection.committed(wanted, left_s), timeout_s, part)

    def commit(self, offsets: Mapping[TopicPartition, int], timeout_s: float) -> None:
        """Commit offsets to the group and wait for the answer.

        Raises:
            KafkaCommitError: They are not committed.
        """
        group = self._params.group_id or ""
        try:
            self._connection.commit(offsets, timeout_s)
        except UnknownMemberError as error:
            what = (
                f"{error}. It has members now, which are consumers that subscribed with the same "
                "group.id, and Kafka takes commits of these only. Give the stream a group.id that "
                "no one else has"
            )
            raise KafkaCommitError(group, what) from error
        except ClientError as error:
            raise KafkaCommitError(group, str(error)) from error

    def close(self) -> None:
        """Close the connections."""
        self._closed.set()
        self._connection.close()

    def _offsets(
        self, partitions: Iterable[TopicPartition], timeout_s: float, latest: bool
    ) -> dict[TopicPartition, int]:
        wanted = list(partitions)
        if not wanted:
            return {}
        names = ", ".join(sorted({each.topic for each in wanted}))
        part = f"the leader of a partition of {names}; look at the brokers that have its copies"
        return self._ask(
            lambda left_s: self._connection.offsets(wanted, left_s, latest), timeout_s, part
        )

    def _ask(self, ask: Callable[[float], T], timeout_s: float, part: str = "") -> T:
        """Ask until there is an answer; `ask` gets the seconds that are left.

        Args:
            ask: Asks.
            timeout_s: How long.
            part: What answers, if not every broker can.
        """
        begin_s = time.monotonic()
        while True:
            left_s = max(0.001, begin_s + timeout_s - time.monotonic())
            try:
                return ask(left_s)
            except RetriableError as error:
                _log.debug("asking the brokers again after %s", error)
                waited_s = time.monotonic() - begin_s
                if waited_s + _PAUSE_S >= timeout_s or self._closed.wait(_PAUSE_S):
                    missing = part if part and self._any_answers() else ""
                    raise as_source_error(
                        error, self._params.servers, waited_s, self._setting, missing
                    ) from error
            except ClientError as error:
                waited_s = time.monotonic() - begin_s
                raise as_source_error(error, self._params.servers, waited_s) from error

    def _any_answers(self) -> bool:
        try:
            self._connection.partitions(None, _PROBE_S, False)
        except ClientError:
            return False
        return True
