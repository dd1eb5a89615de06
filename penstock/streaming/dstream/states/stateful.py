"""`StatefulDStream`: what nodes with a state for each key have in common for later versions.

Another version of the program takes up a state's *entries*: ``(key, state, time in ms of the key's
last value or None)``, whichever operation keeps it. RDDs hold them in one of four *forms*:

=================  ================================================================================
``entries``        as they are
``pairs``          key and state
``records``        a `StateRecord` for each partition
``timed records``  the same, with the times
=================  ================================================================================
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark import RDD

from penstock.streaming.dstream.node import DStreamNode
from penstock.streaming.dstream.states.rdd_files import RDDFile, save_copy

if TYPE_CHECKING:
    from penstock.streaming.dstream.graph import DStreamGraph


class StatefulDStream(DStreamNode):
    """A node with a state for each key, which another version of the program can take up."""

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
        self.graph.check_new_name(name, "state")
        self.state_name = name
        self.is_named = True

    # -- what a kind of state is -----------------------------------------------------------------

    @property
    @abstractmethod
    def form(self) -> str:
        """How its RDDs hold the entries."""

    @abstractmethod
    def given(self) -> tuple[str, RDDFile | RDD[Any] | list[Any]]:
        """Return what it begins with, and in which form: saved, where it is an RDD and was."""

    @abstractmethod
    def seed(self, entries: RDD[Any] | None) -> None:
        """Begin with these entries, or with none; call before the start."""

    @abstractmethod
    def of_entries(self, entries: RDD[Any], time_ms: int) -> RDD[Any]:
        """Return the RDD that it would have, had it these entries after its time `time_ms`."""

    # -- going on in another version -------------------------------------------------------------

    def last_time(self, last_ms: int) -> int:
        """Return its own last time up to the batch of `last_ms`; the zero time before the first."""
        return self._floor(last_ms)

    def entries_at(self, time_ms: int) -> RDD[Any] | None:
        """Return the entries after its time `time_ms`; None when they were never made."""
        assert self.zero_ms is not None
        rdd = self.generated.get(time_ms)
        if rdd is not None:
            return entries_of(self.form, rdd)
        context = self.graph.spark_context
        if time_ms in self._without:
            # No key has come yet.
            return context.parallelize([], 1)
        if time_ms > self.first_valid_ms - self.slide_ms:
            return None
        form, begun = self.given()
        if isinstance(begun, RDDFile):
            begun = begun.read(context)
        return entries_of(form, begun if isinstance(begun, RDD) else context.parallelize(begun, 1))

    def saved(self) -> tuple[int, str, RDDFile | RDD[Any] | list[Any]]:
        """Return what a restart goes on from: the state's time, and the entries in their form."""
        assert self.needed_ms is not None
        time_ms = self.first_made(self.needed_ms) - self.slide_ms
        file = self.rdd_checkpoints.get(time_ms)
        return (time_ms, *self.given()) if file is None else (time_ms, self.form, file)

    def resume(self, entries: RDD[Any], time_ms: int) -> None:
        """Have these entries after one of its times, and go on from it; runs a Spark job.

        Raises:
            Py4JJavaError: They cannot be read.
        """
        self.seed(None)
        rdd = self.of_entries(entries, time_ms)
        self.rdd_checkpoints[time_ms] = save_copy(rdd, self.graph.encryption)
        self.begin_after(time_ms)


def entries_of(form: str, rdd: RDD[Any]) -> RDD[Any]:
    """Return the entries that an RDD holds in that form."""
    if form == "entries":
        return rdd
    return rdd.mapPartitions(_FORMS[form])


def _of_pairs(pairs: Iterable[Any]) -> Iterable[Any]:
    return ((key, state, None) for key, state in pairs)


def _of_records(records: Iterable[Any]) -> Iterable[Any]:
    return ((key, state, None) for record in records for key, state in record.states.items())


def _of_timed_records(records: Iterable[Any]) -> Iterable[Any]:
    return ((key, *timed) for record in records for key, timed in record.states.items())


_FORMS: dict[str, Callable[[Iterable[Any]], Iterable[Any]]] = {
    "pairs": _of_pairs,
    "records": _of_records,
    "timed records": _of_timed_records,
}
