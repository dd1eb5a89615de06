"""`SharedThreads`: what the receivers of a process have one thread for, and not one each.

All that runs on them is Penstock's own and waits for no single receiver, so that none holds up its
neighbours: what calls an author's code, or waits for a receiver's queue, has a thread of that one.
Async sources alone run the author's code on one loop for all.
"""

from __future__ import annotations

import logging

from penstock.receiver.threads.slot_board import Board
from penstock.receiver.threads.source_loop import SourceLoop
from penstock.receiver.threads.workers import Workers
from penstock.runtime.event_loop import EventLoop
from penstock.wire import ClientLoop

_log = logging.getLogger("penstock.receiver")


class SharedThreads:
    """The threads of a process for all of its receivers; they end with the process.

    Args:
        name: Of the process, such as ``slot-0``.
        board: Shows for which source the loop runs; None: no one looks.

    Attributes:
        connections: Runs their connections with the driver.
        releasing: Frees what the driver releases.
        reporting: Reports how their rates are used.
        workers: Do what waits.
        sources: Runs their async sources; begins with the first one.
    """

    def __init__(self, name: str, board: Board | None = None) -> None:
        self.connections = ClientLoop(f"receiver-{name}")
        self.releasing = EventLoop(f"release-{name}", _failed)
        self.reporting = EventLoop(f"rate-status-{name}", _failed)
        self.workers = Workers(name)
        self.sources = SourceLoop(name, self.workers, board)

    def start(self) -> None:
        """Start them."""
        for loop in (self.connections, self.releasing, self.reporting):
            loop.start()


def _failed(error: BaseException) -> None:
    # What is posted to it reports to its own receiver what it raises.
    _log.error("an error of no receiver", exc_info=error)
