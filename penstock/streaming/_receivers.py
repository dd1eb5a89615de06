"""The receivers of a context: the tracker, if there are any, and what it tells of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.clock import Clock
from penstock.settings import Settings
from penstock.streaming._durability import Durability
from penstock.streaming.errors import PermanentReceiverError
from penstock.streaming.graph import DStreamGraph
from penstock.streaming.input_streams import ReceiverInputDStream
from penstock.streaming.listener_bus import StreamingListenerBus
from penstock.streaming.received_blocks import NoReceivedBlocks, ReceivedBlocks

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["ReceiverSide"]


class ReceiverSide:
    """Starts and stops the tracker of a context; without receivers there is none.

    Attributes:
        blocks: What batches ask for received blocks.
    """

    def __init__(
        self,
        spark_context: SparkContext,
        graph: DStreamGraph,
        settings: Settings,
        durability: Durability,
        *,
        clock: Clock,
        bus: StreamingListenerBus,
        on_error: Callable[[BaseException], None],
    ) -> None:
        nodes = [node for node in graph.inputs if isinstance(node, ReceiverInputDStream)]
        self.blocks: ReceivedBlocks = NoReceivedBlocks()
        self._tracker: Any = None
        if nodes:
            raise NotImplementedError

    def start(self) -> None:
        """Start the tracker, which starts the receivers."""
        if self._tracker is not None:
            self._tracker.start()

    def stop_receiving(self, graceful: bool, timeout_s: float) -> None:
        """Stop the receivers; when graceful, their last blocks are stored and reported first."""

    def stop(self, timeout_s: float) -> None:
        """Stop the tracker."""


_ = (os, PermanentReceiverError)
