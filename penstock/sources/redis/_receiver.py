"""What the receivers of Redis and Valkey have in common: a thread that receives, and asks again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pyspark import StorageLevel

from penstock._arguments import refused
from penstock.errors import text_of
from penstock.receiver import ReceiverContext, ReceiverStoppedError
from penstock.sources._common import Messages, Reconnecting, SourceReceiver

BLOCK_S = 0.5
"""How long the server may let one command wait: a stop waits for that."""
READ_BYTES = 1 << 19
"""About what one answer should have: the number of entries asked for follows their size."""
MOST_AT_ONCE = 1000
_ANSWER_S = 10.0
_CONNECT_S = 10.0
_PATIENCE_S = 3.0
_URL = (
    "an address such as redis://host:6379/0, rediss://…, valkey://… or unix:///path; what a "
    "password has of : / ? # @ is written as %3A and so on"
)
_SCHEMES = {"redis", "rediss", "valkey", "valkeys", "unix"}


class RedisReceiver(SourceReceiver):
    """Connects, receives, and connects again."""

    requires = ("redis",)
    extra = "redis"
    _client: Any = None

    def __init__(
        self,
        url: str,
        messages: Messages,
        options: Mapping[str, Any] | None,
        storageLevel: StorageLevel | str | None,
    ) -> None:
        super().__init__(storageLevel)
        name = type(self).__name__
        try:
            at = _shown(str(url))
        except ValueError:
            # Not shown: it may have a password in it.
            raise ValueError(f"the url of a {name} is not accepted: {_URL}") from None
        self._url = url.replace("valkey", "redis", 1) if url[0] == "v" else url
        self._options = dict(options or {})
        self._answer_s: float = self._options.setdefault("socket_timeout", _ANSWER_S) or _ANSWER_S
        self._block_s = min(BLOCK_S, self._answer_s / 2)
        self._server = f"Redis server at {at}"
        self._messages = messages
        self.schema = messages.schema
        try:
            self._make_client().connection_pool.make_connection()
        except TypeError as error:
            raise TypeError(
                f"options of a {name} are not accepted: {error}. Those of TLS need rediss://"
            ) from None

    def onStart(self) -> None:
        """Start the thread that connects and receives."""
        self._client = self._make_client()
        super().onStart()

    def onStop(self) -> None:
        """Wait for the thread; all that was stored is durable, and what came of it is reported."""
        super().onStop()
        self._client.connection_pool.disconnect()

    def _stop_bound_s(self, took_s: float) -> float:
        if took_s >= _PATIENCE_S:
            # One that still waits for an answer wakes from that, with an error.
            self._client.connection_pool.disconnect()
        return super()._stop_bound_s(took_s)

    def _make_client(self) -> Any:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        client = redis.Redis.from_url(  # type: ignore[no-untyped-call, unused-ignore]
            self._url, **{"socket_connect_timeout": _CONNECT_S, **self._options}
        )
        # Also where the address has others. Where an answer is lost, nothing is asked for twice.
        client.connection_pool.connection_kwargs |= {
            "retry": Retry(NoBackoff(), 0),  # type: ignore[no-untyped-call, unused-ignore]
            "protocol": 2,
            "decode_responses": False,
        }
        client.response_callbacks.clear()
        return client

    def _command(self, *parts: Any) -> Any:
        return self._client.execute_command(*parts)

    def _receive(self, context: ReceiverContext) -> bool:
        import redis

        reconnecting = Reconnecting(self.reportError, self._server)
        while not self.isStopped():
            try:
                self._serve(reconnecting)
            except ReceiverStoppedError:
                break
            except (redis.RedisError, OSError) as error:
                if self.isStopped():
                    break
                if is_gone(error):
                    self.restart(f"{self._what_is_gone()}: {text_of(error)}", error)
                    break
                # Also where it is one of the server: its name may lead to another one by now. A
                # connection that another thread uses is that thread's, which meets its own error.
                self._client.connection_pool.disconnect(inuse_connections=False)
                context.stopped.wait(reconnecting.failed(error))
        return False

    def _serve(self, reconnecting: Reconnecting) -> None:
        """Receive until it is stopped, or the connection ends by an error."""
        raise NotImplementedError

    def _what_is_gone(self) -> str:
        return f"What is read at the {self._server} is gone"


def _shown(url: str) -> str:
    parts = urlsplit(url)
    _ = parts.port  # Raises where it is no number.
    if parts.scheme not in _SCHEMES or "@" in parts.path + parts.fragment:
        raise ValueError
    return parts.path if parts.scheme == "unix" else parts.netloc.rpartition("@")[2] or "localhost"


def check_names(**names: object) -> None:
    """Check that each is a name.

    Raises:
        ValueError: One is none.
    """
    for name, value in names.items():
        if not isinstance(value, str) or not value:
            raise ValueError(refused(name, value, "a name"))


def is_gone(error: BaseException) -> bool:
    """Return whether the server says that there is no such key or group."""
    return str(error).startswith(("NOGROUP", "UNBLOCKED", "no such key"))
