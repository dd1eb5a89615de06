"""What goes wrong between Kafka and a stream, as errors that name the way out."""

from __future__ import annotations

from penstock.errors import PenstockError
from penstock.sources.kafka.engines.interface import AccessDeniedError, ClientError, RetriableError


class KafkaSourceError(PenstockError):
    """Base class of the errors of Kafka streams."""


class KafkaUnavailableError(KafkaSourceError):
    """No broker answered in time, or not the part that was needed. The cause is what was said last.

    Args:
        servers: The addresses that were tried.
        waited_s: For how long, in seconds.
        what: What the client said last.
        setting: What says how long to try, or "".
        part: What did not answer while others did, and where to look; "" for all brokers.

    Attributes:
        servers: The addresses that were tried.
        waited_s: For how long, in seconds.
        part: What did not answer while others did; "" for all brokers.
    """

    def __init__(
        self, servers: str, waited_s: float, what: str, setting: str = "", part: str = ""
    ) -> None:
        if part:
            told = (
                f"Kafka at {servers} answers, but within {waited_s:.1f} s there was no answer of "
                f"{part}: {what}"
            )
        else:
            told = (
                f"no Kafka broker at {servers} answered within {waited_s:.1f} s: {what}; check the "
                "addresses in bootstrap.servers, those that the brokers advertise, and the "
                "security settings"
            )
        super().__init__(f"{told}. {setting} says how long to try" if setting else told)
        self.servers = servers
        self.waited_s = waited_s
        self.part = part


class KafkaRefusedError(KafkaUnavailableError):
    """TLS or the log-in fails, or the user may not read the topic or the group.

    It is raised at once, as asking again does not help. The cause is what the client said.
    """

    def __init__(self, servers: str, waited_s: float, what: str) -> None:
        KafkaSourceError.__init__(self, f"Kafka at {servers} refuses: {what}")
        self.servers = servers
        self.waited_s = waited_s
        self.part = ""


class KafkaCommitError(KafkaSourceError):
    """Offsets that were given to `commitAsync` are not committed. The cause is Kafka's error.

    Attributes:
        group: The group.
    """

    def __init__(self, group: str, what: str) -> None:
        super().__init__(f"offsets of the group {group!r} are not committed: {what}")
        self.group = group


class KafkaFencedError(KafkaSourceError):
    """Another one writes in place of this one, whose transaction is not committed.

    Args:
        name: The transactional id of both.
        timeout_ms: How long a transaction may be open.
        what: What the client said.

    Attributes:
        name: The transactional id of both.
    """

    def __init__(self, name: str, timeout_ms: int, what: str) -> None:
        super().__init__(
            f"another attempt writes as {name} now, or the brokers have ended what this one had (a "
            f"transaction for longer than transaction.timeout.ms={timeout_ms}, an id that was not "
            f"used for days): {what}. What it wrote is not committed; the next attempt writes what "
            "is missing. If this comes again and again, two programs run with copies of a folder"
        )
        self.name = name


class KafkaDataLossError(KafkaSourceError):
    """Records that should come next are gone.

    Attributes:
        topic: The topic.
        partition: The partition.
        offset: The offset that should come next.
    """

    def __init__(self, topic: str, partition: int, offset: int, what: str) -> None:
        super().__init__(
            f"records of {topic} {partition} from offset {offset} on are lost: {what}. Start the "
            "stream with other offsets, or give failOnDataLoss=False to go on with what is left"
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset


def as_source_error(
    error: ClientError, servers: str, waited_s: float, setting: str = "", part: str = ""
) -> KafkaSourceError:
    """Return what a program sees of a client's error.

    Args:
        error: The error.
        servers: The addresses of the brokers.
        waited_s: For how long they were asked, in seconds.
        setting: What says how long to try, or "".
        part: What did not answer while others did; "" for all brokers.
    """
    if isinstance(error, AccessDeniedError):
        return KafkaRefusedError(servers, waited_s, str(error))
    if isinstance(error, RetriableError):
        return KafkaUnavailableError(servers, waited_s, str(error), setting, part)
    return KafkaSourceError(f"the client of Kafka at {servers} failed: {error}")
