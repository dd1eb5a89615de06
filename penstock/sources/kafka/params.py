"""The settings of the Kafka client: checked once, carried to tasks, never shown."""

from __future__ import annotations

import difflib
import hashlib
import pickle
from collections.abc import Callable, Mapping
from typing import Any

from penstock.sources.kafka.errors import MissingKafkaClientError

__all__ = ["KafkaParams", "kafka_client"]

_ADMIN_REQUEST_MS = 5000
_SECRET_PREFIXES = ("sasl_", "ssl_")
_PYTHON_DESERIALIZERS: dict[str, Callable[[bytes], Any] | None] = {
    "org.apache.kafka.common.serialization.ByteArrayDeserializer": None,
    "org.apache.kafka.common.serialization.StringDeserializer": bytes.decode,
}

_DEFAULTS = {
    # Its default lets a client stay away for half a minute after a broker is back.
    "reconnect_backoff_max_ms": 1000,
}
_FETCH_DEFAULTS = {
    # The client's own defaults, 500 records and 1 MiB, read at a third of this speed.
    "max_poll_records": 20_000,
    "max_partition_fetch_bytes": 4 << 20,
}


def kafka_client() -> Any:
    """Return the module of the client.

    Raises:
        MissingKafkaClientError: It is not installed.
    """
    try:
        import kafka
    except ImportError as error:
        raise MissingKafkaClientError from error
    return kafka


class _Secret(str):
    """Text that a client can use and that no `repr`, and so no log of a `dict`, shows."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"

    def __reduce__(self) -> tuple[type[_Secret], tuple[str]]:
        return _Secret, (str.__str__(self),)


class KafkaParams:
    """Settings of the client, by Kafka's names or kafka-python's (``.`` and ``_`` are the same).

    Security settings pass through to the client. They are in no `repr`, and no log has them.

    Args:
        params: The settings. `bootstrap.servers` is needed. `key.deserializer` and
            `value.deserializer` are functions of bytes; None is left as it is.

    Attributes:
        servers: The addresses of the brokers, for messages.
        group_id: The group whose offsets are read and committed, or None.
        start: ``earliest``, ``latest`` or ``none``: where partitions without offsets begin.
        key_deserializer: Makes keys of bytes, or None.
        value_deserializer: Makes values of bytes, or None.
        identity: The same for the same settings of a connection, and tells nothing of them.

    Raises:
        MissingKafkaClientError: kafka-python is not installed.
        ValueError: A name is unknown, or a value cannot be.
    """

    def __init__(self, params: Mapping[str, Any]) -> None:
        known = kafka_client().KafkaConsumer.DEFAULT_CONFIG
        values: dict[str, Any] = {}
        for given, value in params.items():
            name = given.replace(".", "_")
            if name not in known and not name.endswith("_deserializer"):
                closest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
                raise ValueError(
                    f"kafka-python has no setting {given!r}; the closest is {closest!r}. Those of "
                    "Kafka's Java client that name files or classes have other names there"
                )
            hide = name.startswith(_SECRET_PREFIXES) and isinstance(value, str)
            values[name] = _Secret(value) if hide else value
        if not values.get("bootstrap_servers"):
            raise ValueError("bootstrap.servers is needed: the addresses of the brokers")
        self.key_deserializer = _deserializer(values.pop("key_deserializer", None))
        self.value_deserializer = _deserializer(values.pop("value_deserializer", None))
        if values.pop("enable_auto_commit", False) not in (False, "false"):
            raise ValueError(
                "enable.auto.commit must be false: it would commit offsets before their batch is "
                "done; call commitAsync in an output operation"
            )
        self.start = values.pop("auto_offset_reset", "latest")
        if self.start not in ("earliest", "latest", "none"):
            raise ValueError(
                f"auto.offset.reset is earliest, latest or none, and not {self.start!r}"
            )
        self.group_id: str | None = values.pop("group_id", None)
        servers = values["bootstrap_servers"]
        self.servers = servers if isinstance(servers, str) else ",".join(servers)
        self._values = values
        self.identity = _digest(values)

    def __repr__(self) -> str:
        return f"KafkaParams({self.servers!r}, group_id={self.group_id!r}, …)"

    def consumer(self, **settings: Any) -> Any:
        """Return a consumer that commits nothing and resets nothing by itself."""
        fixed = {"enable_auto_commit": False, "auto_offset_reset": "none", "group_id": None}
        defaults = {**_DEFAULTS, **_FETCH_DEFAULTS, "metrics_enabled": False}
        return kafka_client().KafkaConsumer(**{**defaults, **self._values, **fixed, **settings})

    def admin(self, **settings: Any) -> Any:
        """Return a client for metadata, with those of the settings that it has."""
        client = kafka_client().KafkaAdminClient
        shared = {
            name: self._values[name] for name in self._values if name in client.DEFAULT_CONFIG
        }
        return client(
            **{**_DEFAULTS, "request_timeout_ms": _ADMIN_REQUEST_MS, **shared, **settings}
        )


def _deserializer(given: Any) -> Callable[[bytes], Any] | None:
    if isinstance(given, str) and given in _PYTHON_DESERIALIZERS:
        return _PYTHON_DESERIALIZERS[given]
    if given is not None and not callable(given):
        raise ValueError(f"a deserializer is a function of bytes, and not {given!r}")
    return given  # type: ignore[no-any-return]  # what it makes is the program's


def _digest(values: dict[str, Any]) -> str:
    try:
        data = pickle.dumps(sorted(values.items()))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ValueError(f"the settings of a Kafka stream must be picklable: {error}") from error
    return hashlib.sha256(data).hexdigest()
