"""`ReceiverStatus`: a receiver as it is at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock._html import table_of
from penstock.host.receiver_readings import ReceiverWaits


@dataclass(frozen=True)
class ReceiverStatus:
    """A receiver as it is at one moment.

    Attributes:
        stream_id: Its stream.
        name: ``<type>-<stream id>``.
        state: ``starting``, ``running`` or ``stopped``.
        host: Where it runs, or last ran; empty before.
        executor_id: The executor there.
        address: Where its connection to the driver comes from; empty while there is none.
        attempts: How often its job was started in this run.
        records: Records of it that are durable and known to the driver, in this run.
        blocks: The blocks that they are in.
        position: The place in the source after the last of them, or None.
        last_error: What it last complained of, or empty.
        last_error_ms: When that was, ms since the epoch, or -1.
        waits: What it waited for in the last second; None while it is not known.
        addresses: Where it listens; empty for one that does not, or does not run.
    """

    stream_id: int
    name: str
    state: str
    host: str
    executor_id: str
    address: str
    attempts: int
    records: int
    blocks: int
    position: Any
    last_error: str
    last_error_ms: int
    waits: ReceiverWaits | None = None
    addresses: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        return table_of("Receiver", [self])
