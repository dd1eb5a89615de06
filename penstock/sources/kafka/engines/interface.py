"""What a Kafka client must be able to do for the driver, for tasks and for receivers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from penstock.sources.kafka.records import KafkaRecord, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.sources.kafka._ledger import OffsetLedger


class ClientParams(Protocol):
    """What a client is set up with; explained in `penstock.sources.kafka.params.KafkaParams`."""

    servers: str
    group_id: str | None
    start: str
    values: dict[str, Any]


class ClientError(Exception):
    """A client's error that asking again does not mend; the client's own is its cause."""


class RetriableError(ClientError):
    """There is no answer yet: a broker is away, a leader moves, a group changes."""


class OffsetOutOfRangeError(ClientError):
    """The partition does not have the offset that should come next."""


class AccessDeniedError(ClientError):
    """TLS or the log-in fails, or the user may not do what is asked.

    At the first connection the text names the broker, and the settings to look at.
    """

    @classmethod
    def of_log_in(cls, mechanism: str, told: str) -> AccessDeniedError:
        """Return the error of a log-in.

        Args:
            mechanism: That of SASL.
            told: What was said of it, with the broker's address.
        """
        return cls(
            f"the log-in by {mechanism} failed: {told}; check sasl.mechanism, sasl.username and "
            "sasl.password (of kafka-python: sasl_mechanism, sasl_plain_username, "
            "sasl_plain_password)"
        )

    @classmethod
    def of_tls(cls, told: str) -> AccessDeniedError:
        """Return the error of a connection whose TLS fails.

        Args:
            told: What was said of it, with the broker's address.
        """
        return cls(
            f"TLS failed: {told}; check ssl.ca.location (of kafka-python: ssl_cafile) and the "
            "settings of the client's own certificate"
        )


class UnknownMemberError(RetriableError):
    """The group has members, and the one that commits is not, or not any more, one of them."""


@dataclass(frozen=True)
class PartitionState:
    """What the brokers report of a partition.

    Attributes:
        topic_id: Another one for each topic, also for one of the same name; "" on old brokers.
        leader: The host of its leader, or "" when it is not known or was not asked for.
    """

    topic_id: str
    leader: str


class Chunk(ABC):
    """Records of one partition in their order, in the form that the client has them in.

    Args:
        found: The records, at least one.
    """

    def __init__(self, found: list[Any]) -> None:
        self._found = found

    @staticmethod
    @abstractmethod
    def _offset(record: Any) -> int:
        """Return the offset of a record of the client."""

    def __len__(self) -> int:
        return len(self._found)

    @property
    def start(self) -> int:
        """The offset of the first record."""
        return self._offset(self._found[0])

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self._offset(self._found[-1]) + 1

    def before(self, offset: int) -> Chunk:
        """Return those with lower offsets."""
        if self.end <= offset:
            return self
        return type(self)(self._found[: bisect_left(self._found, offset, key=self._offset)])

    def parts(self, count: int) -> tuple[Chunk, Chunk]:
        """Return the first `count` records, and the others."""
        return type(self)(self._found[:count]), type(self)(self._found[count:])

    @abstractmethod
    def values(self) -> list[bytes | None]:
        """Return the records' values."""

    @abstractmethod
    def records(self) -> list[KafkaRecord]:
        """Return them as `KafkaRecord`, with keys and values as bytes."""

    @abstractmethod
    def columns(self) -> Mapping[str, pa.Array]:
        """Return arrays by the names of the columns of Spark's Kafka source, headers among them."""


class RangeConsumer(ABC):
    """Reads one partition from a place, in a task. Used by one thread at a time."""

    @abstractmethod
    def seek(self, offset: int) -> None:
        """Go on from an offset."""

    @abstractmethod
    def poll(self, wait_s: float, most: int) -> tuple[Chunk | None, int | None]:
        """Return what comes within a time.

        Returns:
            Records, if any, and the offset from which the next call goes on, if it is known.
            Markers of transactions and compaction leave gaps, so that it may be past the last
            record's by more than one, or move without a record.

        Raises:
            OffsetOutOfRangeError: The partition does not have the next offset.
            RetriableError: A broker does not answer as it should, for now.
            ClientError: It never will.
        """

    @abstractmethod
    def bounds(self, timeout_s: float) -> tuple[int, int]:
        """Return the first offset of the partition and the one after its last.

        Raises:
            RetriableError: There is no answer in time.
        """

    @abstractmethod
    def close(self) -> None:
        """Close it without waiting."""


class DriverConnection(ABC):
    """What the driver asks. Each question may raise `RetriableError` or `ClientError`."""

    @abstractmethod
    def partitions(
        self, topics: Sequence[str] | None, timeout_s: float, with_leaders: bool
    ) -> dict[TopicPartition, PartitionState]:
        """Return the partitions of topics, or of all; topics that do not exist have none."""

    @abstractmethod
    def offsets(
        self, partitions: Sequence[TopicPartition], timeout_s: float, latest: bool
    ) -> dict[TopicPartition, int]:
        """Return the first offsets, or those after the last that the isolation level lets read."""

    @abstractmethod
    def committed(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> dict[TopicPartition, int]:
        """Return what the group has committed; partitions without are left out."""

    @abstractmethod
    def commit(self, offsets: Mapping[TopicPartition, int], timeout_s: float) -> None:
        """Commit offsets to the group, as no one's member, and wait for the answer.

        Raises:
            UnknownMemberError: The group has members; the broker takes commits of these only.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""


class GroupMember(ABC):
    """A member of a consumer group, in a receiver. Used by one thread at a time.

    When partitions are taken away, it lets what is stored become durable and commits it first.
    When some come, it reads each from what is stored or from what the group has, whichever is
    later; without either, as the settings say.
    """

    @abstractmethod
    def poll(self, wait_s: float) -> Iterable[tuple[TopicPartition, Chunk]]:
        """Return what comes within a time.

        Raises:
            RetriableError: A broker does not answer as it should, for now.
            AccessDeniedError: A broker refuses; the member goes on trying.
            ClientError: It never will.
        """

    @abstractmethod
    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from an offset in one of this member's partitions.

        Raises:
            ClientError: The client cannot do it now.
        """

    @abstractmethod
    def position(self, partition: TopicPartition) -> int | None:
        """Return the offset from which it goes on, past markers of transactions, if it is known.

        All that it gave before has lower offsets. A client may know it only at the end of a
        partition; then it is where the partition was begun, or was at its end last.
        """

    @abstractmethod
    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that are this member's."""

    @abstractmethod
    def commit(self, offsets: Mapping[TopicPartition, int], timeout_s: float) -> None:
        """Commit and wait for the answer.

        Raises:
            RetriableError: The group changes, or a broker is away.
            ClientError: It never will.
        """

    @abstractmethod
    def close(self) -> None:
        """Close it; as a static member it stays in the group until its session is over."""


class Engine(ABC):
    """A client.

    Attributes:
        name: Its name, as in `penstock.engine`.
    """

    name: str

    @abstractmethod
    def accept(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings by the client's own names.

        Args:
            given: By the program's names, with underscores for dots.

        Raises:
            ValueError: It has no such setting.
        """

    @abstractmethod
    def check(self, values: Mapping[str, Any]) -> None:
        """Refuse what the client would refuse later.

        Raises:
            ValueError: A setting or its value is not accepted.
        """

    @abstractmethod
    def range_consumer(
        self, params: ClientParams, partition: TopicPartition, timeout_s: float
    ) -> RangeConsumer:
        """Return a consumer of one partition, which stands nowhere yet.

        Raises:
            RetriableError: No broker answered in time.
            AccessDeniedError: TLS or the log-in fails.
        """

    @abstractmethod
    def driver_connection(
        self, params: ClientParams, timeout_s: float, on_close: Callable[[], bool]
    ) -> DriverConnection:
        """Return the driver's connection.

        Raises:
            RetriableError: No broker answered in time.
            AccessDeniedError: TLS or the log-in fails; raised without waiting for the time to pass.
        """

    @abstractmethod
    def member(
        self,
        params: ClientParams,
        topics: Sequence[str],
        instance: str,
        offsets: OffsetLedger,
        timeout_s: float,
    ) -> GroupMember:
        """Join a group.

        Args:
            params: The settings.
            topics: What is read.
            instance: The member's own name: the next one of that name takes its place.
            offsets: Notified of partitions that move.
            timeout_s: How long the connection may take.

        Raises:
            RetriableError: No broker answered in time.
            AccessDeniedError: TLS or the log-in fails; raised without waiting for the time to pass.
        """
