"""What the supervisor is built from: the other rooms' parts, as far as it uses them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.blockstore.replicator import FindReplicaHost
from penstock.receiver.block_generator import BlockGeneratorStatistics, RateUsage
from penstock.receiver.door import StoreDoor
from penstock.wire import WireError
from penstock.wire.messages import Message, ReceivedBlockInfo

__all__ = [
    "BlockPipe",
    "BlockStorage",
    "Bounds",
    "Connect",
    "OnError",
    "Parts",
    "ReportBlocks",
    "TrackerConnection",
]

ReportBlocks = Callable[[tuple[ReceivedBlockInfo, ...]], "Future[None]"]
"""Reports blocks to the tracker. The future is done once they are in the driver log. It fails with
`RefusedError` when asking again does not help, and with anything else when it may."""
OnError = Callable[[str, BaseException], None]


class TrackerConnection(Protocol):
    """What is used of `penstock.wire.Client`."""

    def ask_async(self, message: Message) -> Future[Message]: ...

    def send(self, message: Message) -> None: ...

    def close(self) -> None: ...


class Connect(Protocol):
    """Makes a connected client of the tracker, with these callbacks of `penstock.wire.Client`."""

    def __call__(
        self,
        *,
        on_message: Callable[[Message], None],
        on_reconnect: Callable[[], Sequence[Message]],
        on_hello_answer: Callable[[Message, Message], None],
        on_closed: Callable[[WireError], None],
    ) -> TrackerConnection: ...


class BlockPipe(Protocol):
    """What is used of `BlockGenerator`."""

    def start(self) -> None: ...

    def open_door(self) -> StoreDoor: ...

    def flush(self, stored: Callable[[], None]) -> None: ...

    def is_over(self) -> bool: ...

    def acknowledging_s(self) -> float: ...

    def statistics(self) -> BlockGeneratorStatistics: ...

    def stop(self, timeout_s: float) -> bool: ...

    def give_up_within(self, timeout_s: float) -> None: ...

    def update_rate(self, records_per_second: float | None, *, is_paused: bool = False) -> None: ...

    def update_byte_rate(self, bytes_per_second: float | None) -> None: ...

    def read_rate_usage(self, *, with_pipe: bool = False) -> RateUsage: ...


class BlockStorage(Protocol):
    """What is used of `BlockStore`."""

    def release(self, block_ids: Iterable[str], segments: Iterable[tuple[str, int]]) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Parts:
    """How the supervisor gets its parts; `launch` fills this in with the real ones.

    Attributes:
        connect: Makes a connected client of the tracker; it gives up when the driver cannot be
            reached for long.
        open_storage: Opens the attempt's block store, from the way to ask for a host of second
            copies, and the way to report that there is none.
        make_generator: Makes the block generator, not started, from the first block number, the
            storage, the way to report blocks, and the way to report errors.
        ensure_block_server: Makes sure that this host's block server runs. May be called again.
    """

    connect: Connect
    open_storage: Callable[[FindReplicaHost, OnError], BlockStorage]
    make_generator: Callable[[int, Any, ReportBlocks, OnError], BlockPipe]
    ensure_block_server: Callable[[], None]


@dataclass(frozen=True)
class Bounds:
    """How long the supervisor waits for what it does not control, in seconds.

    Attributes:
        user_call_s: For `onStop`, with an `onStart` that still runs, at a restart; and what they
            have at a stop at least.
        drain_s: For a stop, if the driver does not say: `onStop`, and the last blocks to be stored
            and reported.
        ask_s: For the driver to answer a registration or a deregistration.
        abandon_s: For each thing that ends by itself, and for the last blocks when nobody takes
            them or the time for the stop is over.
        close_s: For the block store to close.
    """

    user_call_s: float = 5.0
    drain_s: float = 30.0
    ask_s: float = 30.0
    abandon_s: float = 2.0
    close_s: float = 15.0

    @property
    def overrun_s(self) -> float:
        """How long after the time for a stop an attempt has ended, unless something hangs."""
        return 2 * self.user_call_s + self.ask_s + self.close_s + 5 * self.abandon_s
