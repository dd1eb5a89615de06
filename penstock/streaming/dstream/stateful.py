"""`StatefulDStream`: what nodes with a state for each key have in common for later versions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark import RDD

from penstock.streaming.dstream.names import check_new_name
from penstock.streaming.dstream.node import DStreamNode

if TYPE_CHECKING:
    from penstock.streaming.dstream.graph import DStreamGraph

__all__ = ["StatefulDStream"]


class StatefulDStream(DStreamNode):
    """A node with a state for each key, which another version of the program can take up.

    An *entry* is ``(key, state, time in ms of the key's last value or None)``.
    """

    must_checkpoint = True
    kind: ClassVar[str]
    """The operation, which is the state's name when it has none."""

    is_named = False

    def __init__(
        self, graph: DStreamGraph, dependencies: Iterable[DStreamNode], slide_ms: int
    ) -> None:
        super().__init__(graph, dependencies, slide_ms)
        self.state_name = self.kind
        # Its place among the program's states.
        self.order = graph.add_state()

    def set_name(self, name: str) -> None:
        """Name the state.

        Raises:
            IllegalStateError: The context was started already.
            ValueError: It is empty.
        """
        check_new_name(self.graph, name, "state")
        self.state_name = name
        self.is_named = True

    @abstractmethod
    def entries(self, rdd: RDD[Any]) -> RDD[Any]:
        """Return the entries of one of its RDDs."""

    @abstractmethod
    def given_entries(self) -> RDD[Any]:
        """Return the entries that it begins with."""

    @abstractmethod
    def seed(self, entries: RDD[Any]) -> None:
        """Begin with these entries; call before the start."""

    def last_time(self, last_ms: int) -> int:
        """Return its own last time up to the batch of `last_ms`; the zero time before the first."""
        return self._floor(last_ms)

    def entries_at(self, time_ms: int) -> RDD[Any] | None:
        """Return the entries after its time `time_ms`; None when they were never made."""
        assert self.zero_ms is not None
        if time_ms <= self.zero_ms:
            return self.given_entries()
        rdd = self.generated.get(time_ms)
        return None if rdd is None else self.entries(rdd)
