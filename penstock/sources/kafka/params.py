"""The settings of the Kafka client: checked once, carried to tasks, never shown."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Mapping
from typing import Any

from penstock.sources.kafka.engines import engine_of, installed_engine
from penstock.sources.kafka.engines.interface import Engine

_SECRET_PREFIXES = ("sasl", "ssl", "proxy", "socks5")
"""An address of a proxy may have a password in it."""
_PYTHON_DESERIALIZERS: dict[str, Callable[[bytes], Any] | None] = {
    "org.apache.kafka.common.serialization.ByteArrayDeserializer": None,
    "org.apache.kafka.common.serialization.StringDeserializer": bytes.decode,
}


class _Secret(str):
    """Text that a client can use and that no `repr`, and so no log of a `dict`, shows."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"

    def __reduce__(self) -> tuple[type[_Secret], tuple[str]]:
        return _Secret, (str.__str__(self),)


class KafkaParams:
    """Settings of the client, by Kafka's names or the client's (``.`` and ``_`` are the same).

    Security settings pass through to the client. They are in no `repr`, and no log has them.

    Args:
        params: The settings. `bootstrap.servers` is needed. `key.deserializer` and
            `value.deserializer` are functions of bytes; None is left as it is. `penstock.engine`
            names the client: ``kafka-python`` or ``confluent-kafka``; without it, the latter is
            taken where it is installed.

    Attributes:
        engine_name: The client.
        servers: The addresses of the brokers.
        values: The client's other settings, by its own names.
        group_id: The group whose offsets are read and committed, or None.
        start: ``earliest``, ``latest`` or ``none``: where partitions without offsets begin.
        key_deserializer: Makes keys of bytes, or None.
        value_deserializer: Makes values of bytes, or None.
        identity: The same for the same settings of a connection, and reveals nothing of them.

    Raises:
        MissingPackageError: The client is not installed.
        TypeError: They are no mapping of text, or `bootstrap.servers` or `group.id` are no text.
            What they are is not shown: it may have secrets.
        ValueError: A name is unknown, or a value cannot be.
    """

    def __init__(self, params: Mapping[str, Any]) -> None:
        if not isinstance(params, Mapping):
            raise TypeError(
                f"kafkaParams of type {type(params).__name__} are not accepted: a dict of the "
                'client\'s settings, such as {"bootstrap.servers": "broker-1:9092"}'
            )
        for name in params:
            if not isinstance(name, str):
                raise TypeError(f"kafkaParams have the key {name!r:.100}: keys are names as text")
        given = {name.replace(".", "_"): value for name, value in params.items()}
        self.engine_name: str = given.pop("penstock_engine", None) or installed_engine()
        engine = engine_of(self.engine_name)
        self.key_deserializer = _deserializer(given.pop("key_deserializer", None))
        self.value_deserializer = _deserializer(given.pop("value_deserializer", None))
        if given.pop("enable_auto_commit", False) not in (False, "false"):
            raise ValueError(
                "enable.auto.commit must be false: it would commit offsets before their batch is "
                "done; call commitAsync in an output operation"
            )
        self.start = given.pop("auto_offset_reset", "latest")
        if self.start not in ("earliest", "latest", "none"):
            raise ValueError(
                f"auto.offset.reset is earliest, latest or none, and not {self.start!r}"
            )
        self.group_id: str | None = given.pop("group_id", None)
        if self.group_id is not None and not isinstance(self.group_id, str):
            raise TypeError(f"group.id={self.group_id!r:.100} is not accepted: a name as text")
        servers = given.pop("bootstrap_servers", "")
        listed = [servers] if isinstance(servers, str) else servers
        if not isinstance(listed, (list, tuple)) or not all(isinstance(at, str) for at in listed):
            raise TypeError(
                f"bootstrap.servers={servers!r:.100} is not accepted: brokers as text, such as "
                '"broker-1:9092,broker-2:9092", or a list of them'
            )
        self.servers = ",".join(listed)
        _check_ports(self.servers)
        self.values = {
            name: _Secret(value) if _is_secret(name, value) else value
            for name, value in engine.accept(given).items()
        }
        self.identity = _digest([self.engine_name, self.servers, sorted(self.values.items())])
        engine.check(self.values)
        if not self.servers:
            raise ValueError("bootstrap.servers is needed: the addresses of the brokers")

    @property
    def engine(self) -> Engine:
        """The client.

        Raises:
            MissingPackageError: It is not installed here.
        """
        return engine_of(self.engine_name)

    def __repr__(self) -> str:
        return f"KafkaParams({self.servers!r}, group_id={self.group_id!r}, …)"


def _is_secret(name: str, value: Any) -> bool:
    return name.startswith(_SECRET_PREFIXES) and isinstance(value, str)


def _check_ports(servers: str) -> None:
    for server in servers.split(","):
        place = server.strip().rpartition("/")[2]
        port = place.rpartition(":")[2] if place.count(":") == 1 or "]:" in place else "0"
        if not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
            raise ValueError(
                f"bootstrap.servers has {server.strip()!r:.100}: a port is a number, such as "
                "broker-1:9092"
            )


def _deserializer(given: Any) -> Callable[[bytes], Any] | None:
    if isinstance(given, str) and given in _PYTHON_DESERIALIZERS:
        return _PYTHON_DESERIALIZERS[given]
    if given is not None and not callable(given):
        raise ValueError(f"a deserializer is a function of bytes, and not {given!r}")
    return given  # type: ignore[no-any-return]  # what it makes is the program's


def _digest(values: list[Any]) -> str:
    try:
        data = pickle.dumps(values)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ValueError(f"the settings of a Kafka stream must be picklable: {error}") from error
    return hashlib.sha256(data).hexdigest()
