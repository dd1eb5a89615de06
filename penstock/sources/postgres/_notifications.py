"""`PostgresNotifyReceiver`: what is sent to a channel by ``NOTIFY``."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel

from penstock._arguments import refused
from penstock.receiver.door import acknowledge_nothing
from penstock.sources._common import Messages, Reconnecting
from penstock.sources.formats import ValueFormat
from penstock.sources.postgres._connection import STEP_S, Link, PostgresBase, identifier

_NOTIFIED_AT_ONCE = 100
"""Of up to 8,000 bytes each: that many fit into the smallest block."""
_NOTIFIED = pa.schema([("channel", pa.string()), ("pid", pa.int64())])


class PostgresNotifyReceiver(PostgresBase):
    """Stores the payloads of notifications (``NOTIFY``) as bytes.

    A notification goes to those who listen when it is committed, and to no one later: what is sent
    while this receiver is away or restarts is lost, and what was not durable when it was killed.
    That it was away is reported. Use `PostgresReceiver` where that matters.

    Args:
        conninfo: How to connect, as libpq takes it.
        channels: The names of the channels, as they are (not folded to lower case).
        columns: Whether records have the columns ``channel``, ``pid`` (of the server's process
            that notified) and ``value``.
        values: Makes typed values of payloads, such as `JsonFormat`.
        timeout_s: A server that does not answer for this long is left and connected again.
        storageLevel: Which copies of a block must exist.

    Raises:
        MissingPackageError: psycopg is not installed.
        ValueError: An argument is not accepted.
    """

    def __init__(
        self,
        conninfo: str,
        channels: str | Iterable[str],
        *,
        columns: bool = False,
        values: ValueFormat | None = None,
        timeout_s: float = 60.0,
        storageLevel: StorageLevel | str | None = None,
    ) -> None:
        super().__init__(conninfo, storageLevel, timeout_s)
        self._channels = [channels] if isinstance(channels, str) else list(channels)
        if not self._channels or not all(map(_is_channel, self._channels)):
            accepted = "names of channels, of 1 to 63 bytes each"
            raise ValueError(refused("channels", channels, accepted))
        self._messages = Messages(_NOTIFIED, columns=columns, values=values)
        self.schema = self._messages.schema

    def _serve(self, link: Link, outage: Reconnecting) -> None:
        for channel in self._channels:
            link.ask(f"LISTEN {identifier(channel)}", self._timeout_s, self)
        outage.connected()
        asked_s = time.monotonic()
        notified: list[Any] = []
        while not self.isStopped():
            link.readable(0 if notified else STEP_S)
            if time.monotonic() > asked_s + self._timeout_s / 2:
                # A connection that is dead is only noticed by asking.
                link.ask("SELECT 1", self._timeout_s, self)
                asked_s = time.monotonic()
            notified = []
            with link.lock:
                while len(notified) < _NOTIFIED_AT_ONCE and (each := link.pg.notifies()):
                    notified.append(each)
            if notified:
                columns: dict[str, list[Any]] = {
                    "channel": [each.relname.decode(errors="replace") for each in notified],
                    "pid": [each.be_pid for each in notified],
                }
                payloads = [each.extra for each in notified]
                self._messages.store(self, payloads, columns, ack=acknowledge_nothing)


def _is_channel(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name.encode()) < 64
