"""How kafka-python is set up, and what its errors are to us."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import kafka
from kafka import errors
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from penstock.sources.kafka.engines.interface import (
    AccessDeniedError,
    ClientError,
    OffsetOutOfRangeError,
    RetriableError,
    UnknownMemberError,
)

if TYPE_CHECKING:
    from penstock.sources.kafka.engines.interface import ClientParams

_ADMIN_REQUEST_MS = 5000
_DEFAULTS = {
    # Its default lets a client stay away for half a minute after a broker is back.
    "reconnect_backoff_max_ms": 1000,
}
_FETCH_DEFAULTS = {
    # The client's own defaults, 500 records and 1 MiB, read at a third of this speed.
    "max_poll_records": 20_000,
    "max_partition_fetch_bytes": 4 << 20,
}
_LOG_IN_ERRORS = (
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedSaslMechanismError,
    errors.IllegalSaslStateError,
)
_UNKNOWN_MEMBER_ERRORS = (errors.UnknownMemberIdError, errors.IllegalGenerationError)


class _NoPasswords(logging.Filter):
    """Drops what the client logs of its log-in: at the level DEBUG it writes out what it sends."""

    def filter(self, record: logging.LogRecord) -> bool:
        told = record.getMessage()
        return "auth_bytes" not in told and not (record.name.endswith("parser") and "Send" in told)


for _name in ("kafka.protocol.parser", "kafka.net.connection"):
    logging.getLogger(_name).addFilter(_NoPasswords())


class _Manager(KafkaConnectionManager):  # type: ignore[misc]  # the client is untyped
    """Ends a bootstrap that is refused, and says why one without an answer had none.

    The client's own tries again until its time is over, also with a wrong password, and then names
    only the addresses (kafka-python 3.0).
    """

    def __init__(self, net: Any, **configs: Any) -> None:
        super().__init__(net, **configs)
        self._last_failure: BaseException | None = None
        self._refusals: dict[Any, AccessDeniedError] = {}

    def get_connection(self, node_id: Any, *arguments: Any, **named: Any) -> Any:
        refusal = self._refusals.pop(node_id, None)
        if refusal is not None:
            raise refusal
        connection = super().get_connection(node_id, *arguments, **named)
        if self.cluster.is_bootstrap(node_id):
            connection.init_future.add_errback(partial(self._note, node_id))
            connection.close_future.add_errback(self._keep)
        return connection

    async def _build_transport(self, *arguments: Any, **named: Any) -> Any:
        transport = await super()._build_transport(*arguments, **named)
        transport._sock_recv = _DataBeforeClose(transport._sock_recv)
        return transport

    def bootstrap(self, *arguments: Any, **named: Any) -> None:
        try:
            super().bootstrap(*arguments, **named)
        except errors.KafkaTimeoutError as error:
            if self._last_failure is None:
                raise
            raise errors.KafkaTimeoutError(
                f"{error.args[0] if error.args else 'no answer'}: {_told(self._last_failure)}"
            ) from self._last_failure

    def _keep(self, failure: BaseException) -> None:
        self._last_failure = failure

    def _note(self, node_id: Any, failure: BaseException) -> None:
        self._keep(failure)
        broker = self.cluster.broker_metadata(node_id)
        told = f"{broker.host}:{broker.port}: {_told(failure)}"
        if _is_of_tls(failure):
            refusal = AccessDeniedError.of_tls(told)
        elif _is_of_log_in(failure):
            refusal = AccessDeniedError.of_log_in(self.config["sasl_mechanism"], told)
        elif isinstance(failure, errors.KafkaError) and not failure.retriable:
            refusal = AccessDeniedError(f"{told}; check security.protocol")
        else:
            return
        refusal.__cause__ = failure
        self._refusals[node_id] = refusal


class _DataBeforeClose:
    """What a broker says before it closes is heard, and the close comes after it.

    The client's own reading throws away what came together with the close, which is how a broker
    answers to a log-in that it refuses (kafka-python 3.0).
    """

    def __init__(self, receive: Callable[[], tuple[bytes, Any]]) -> None:
        self._receive = receive
        self._close: Any = None

    def __call__(self) -> tuple[bytes, Any]:
        if self._close is not None:
            return b"", self._close
        data, self._close = self._receive()
        return (data, None) if data else (b"", self._close)


def _is_of_tls(failure: BaseException) -> bool:
    if isinstance(failure, errors.KafkaConnectionError):
        # It is made of what TLS raised, as text.
        return isinstance(failure.__context__, ssl.SSLCertVerificationError)
    # TLS could not be set up: a file is missing, or is not what it should be.
    return isinstance(failure, FileNotFoundError | PermissionError | ssl.SSLError)


def _is_of_log_in(failure: BaseException) -> bool:
    if isinstance(failure, _LOG_IN_ERRORS):
        return True
    # What a mechanism raises that misses a setting, or the broker's proof.
    is_other = isinstance(failure, errors.KafkaError | OSError)
    return isinstance(failure, Exception) and not is_other


def _told(failure: BaseException) -> str:
    if isinstance(failure, _LOG_IN_ERRORS):
        return str(failure.args[0]) if failure.args else failure.description
    return str(failure) or type(failure).__name__


@contextmanager
def _clients() -> Iterator[Any]:
    """Give what makes the client below a consumer, and close it when the consumer comes to nothing.

    By itself it would stay, with its thread.
    """
    made = []

    def make(**configs: Any) -> Any:
        net = NetworkSelector(**configs)
        made.append(KafkaNetClient(net=net, manager=_Manager(net, **configs)))
        return made[-1]

    try:
        yield make
    except BaseException:
        for each in made:
            each.close()
        raise


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turn the client's errors into ours."""
    try:
        yield
    except (errors.OffsetOutOfRangeError, errors.LogTruncationError) as error:
        raise OffsetOutOfRangeError(str(error)) from error
    except errors.CommitFailedError as error:
        if isinstance(error.args[0], _UNKNOWN_MEMBER_ERRORS):
            raise UnknownMemberError(_told(error.args[0])) from error
        raise RetriableError(str(error)) from error
    except (*_LOG_IN_ERRORS, errors.AuthorizationError) as error:
        raise AccessDeniedError(_told(error)) from error
    except (errors.RetriableError, errors.RebalanceInProgressError) as error:
        raise RetriableError(_told(error)) from error
    except errors.KafkaError as error:
        raise ClientError(_told(error)) from error


def consumer(params: ClientParams, **settings: Any) -> Any:
    """Return a consumer that commits nothing and resets nothing by itself."""
    fixed = {"enable_auto_commit": False, "auto_offset_reset": "none", "group_id": None}
    given = {"bootstrap_servers": params.servers, **params.values, **fixed, **settings}
    defaults = {**_DEFAULTS, **_FETCH_DEFAULTS, "metrics_enabled": False}
    with _clients() as make:
        return kafka.KafkaConsumer(**{**defaults, "kafka_client": make, **given})


def admin(params: ClientParams, **settings: Any) -> Any:
    """Return a client for metadata, with the settings that it knows."""
    kind = kafka.KafkaAdminClient
    given = {"bootstrap_servers": params.servers, **params.values}
    shared = {name: value for name, value in given.items() if name in kind.DEFAULT_CONFIG}
    defaults = {**_DEFAULTS, "request_timeout_ms": _ADMIN_REQUEST_MS}
    with _clients() as make:
        return kind(**{**defaults, "kafka_client": make, **shared, **settings})
