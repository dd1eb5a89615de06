"""The node of the DStream graph: makes one RDD per batch time and remembers it for a while.

A `DStream` that a program holds is a handle on a node. Nodes bear the names of Spark's DStream
classes. Links go from a node to what it is made of (`dependencies`); the graph holds the inputs
and the outputs.

Times are int milliseconds. A node with slide `s` has an RDD at ``zero + s, zero + 2s, …``, where
zero is the graph's zero time, one batch before the first.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark import RDD, StorageLevel

from penstock.errors import IllegalStateError, StreamGraphError
from penstock.streaming._call_site import made_by
from penstock.streaming.dstream.states.rdd_files import (
    NO_RECORDS,
    RDDFile,
    checkpoint_file,
    save_copy,
)
from penstock.streaming.kernels.deferred import Content, content_of
from penstock.streaming.kernels.encrypted_rdds import encrypted

if TYPE_CHECKING:
    from pyspark import SparkContext

    from penstock.streaming.dstream.graph import DStreamGraph

_DEFAULT_CHECKPOINT_MS = 10_000

_MANY = 1000
"""A longer list is saved once, as an RDD, and not with each checkpoint."""


class DStreamNode(ABC):
    """One node: a rule that makes an RDD for each of its times.

    The graph's lock guards what nodes remember: the job generator and a program's `slice` may
    both ask a node for an RDD.

    Args:
        graph: The graph it belongs to.
        dependencies: The nodes it is made of.
        slide_ms: The time between two of its RDDs.

    Attributes:
        storage_level: The level with which its RDDs are persisted, or None.
        checkpoint_ms: How often one of its RDDs is checkpointed, or None.
        remember_ms: How long its RDDs are remembered, once the graph has started.
        made_by: The operation that made it, and where in the program.
        rdd_checkpoints: Where its checkpointed RDDs are, by time.
        needed_ms: The oldest time for which it may be asked after a restart; None when not known.
    """

    must_checkpoint = False
    """Whether its RDDs' lineage grows with each batch, so that it must be cut by checkpoints."""

    transient: ClassVar[tuple[str, ...]] = ("generated", "_without", "_asked_of_parents")
    """Attributes that are no part of a checkpoint; base classes' need not be repeated."""

    given_rdds: ClassVar[tuple[str, ...]] = ()
    """Attributes that may hold an RDD of the program, or a list; it is saved for checkpoints."""

    def __init__(
        self, graph: DStreamGraph, dependencies: Iterable[DStreamNode], slide_ms: int
    ) -> None:
        self.graph = graph
        self.dependencies = tuple(dependencies)
        self.slide_ms = slide_ms
        self.storage_level: StorageLevel | None = None
        self.checkpoint_ms: int | None = None
        self.remember_ms: int | None = None
        self.zero_ms: int | None = None
        self._begin_ms: int | None = None
        self.generated: dict[int, RDD[Any]] = {}
        # The times that were asked for and have none.
        self._without: set[int] = set()
        self._asked_of_parents: tuple[int | None] | None = None
        self.made_by = made_by()
        self.rdd_checkpoints: dict[int, RDDFile] = {}
        self.needed_ms: int | None = None
        self._saved_rdds: dict[str, RDDFile] = {}

    # -- what a kind of node is ------------------------------------------------------------

    @abstractmethod
    def compute(self, time_ms: int) -> RDD[Any] | None:
        """Make the RDD of a valid time, or return None when there is none at that time."""

    @property
    def parent_remember_ms(self) -> int | None:
        """How long this node needs its dependencies to remember their RDDs."""
        return self.remember_ms

    def first_asked(self, time_ms: int) -> int:
        """Return the oldest time that dependencies are asked for when that of `time_ms` is made."""
        return time_ms

    # -- what a program may set before the start ---------------------------------------------

    def persist(self, level: StorageLevel) -> None:
        """Persist this node's RDDs with `level`."""
        self.graph.check_not_started(
            "Cannot change storage level of a DStream after streaming context has started"
        )
        self.storage_level = level

    def checkpoint(self, interval_ms: int) -> None:
        """Checkpoint an RDD of this node every `interval_ms`; its RDDs are also persisted."""
        self.graph.check_not_started(
            "Cannot change checkpoint interval of a DStream after streaming context has started"
        )
        if self.storage_level is None:
            self.persist(StorageLevel.MEMORY_ONLY)
        self.checkpoint_ms = interval_ms

    @property
    def is_materialised(self) -> bool:
        """Whether its RDDs are kept, so that they must not be fused into other nodes' RDDs."""
        return self.storage_level is not None or self.checkpoint_ms is not None

    # -- the graph's start -------------------------------------------------------------------

    def initialize(self, zero_ms: int) -> None:
        """Fix the zero time and what follows from the slide and the checkpoint interval."""
        if self.zero_ms is not None and self.zero_ms != zero_ms:
            raise IllegalStateError(
                f"zero time is {self.zero_ms} already, cannot initialize it again with {zero_ms}"
            )
        if self.zero_ms == zero_ms:
            return
        self.zero_ms = zero_ms
        if self.must_checkpoint and self.checkpoint_ms is None:
            self.checkpoint_ms = self.slide_ms * math.ceil(_DEFAULT_CHECKPOINT_MS / self.slide_ms)
        least = self.slide_ms
        if self.checkpoint_ms is not None and least <= self.checkpoint_ms:
            # An RDD must outlive the next checkpoint, which may still need it.
            least = self.checkpoint_ms * 2
        if self.remember_ms is None or self.remember_ms < least:
            self.remember_ms = least
        for dependency in self.dependencies:
            dependency.initialize(zero_ms)

    def remember(self, duration_ms: int | None) -> None:
        """Remember RDDs for at least `duration_ms`, and make the dependencies fit."""
        if duration_ms is not None and (self.remember_ms is None or duration_ms > self.remember_ms):
            self.remember_ms = duration_ms
        if self._asked_of_parents == (self.parent_remember_ms,):
            return
        self._asked_of_parents = (self.parent_remember_ms,)
        for dependency in self.dependencies:
            dependency.remember(self.parent_remember_ms)

    def validate(self, has_checkpoint_directory: bool) -> None:
        """Check, before the start, that this node can run.

        Raises:
            StreamGraphError: A checkpoint directory is missing, or an interval does not fit.
        """
        if (self.must_checkpoint or self.checkpoint_ms is not None) and (
            not has_checkpoint_directory
        ):
            raise StreamGraphError(
                "The checkpoint directory has not been set. Please set it by "
                f"StreamingContext.checkpoint(). {type(self).__name__} needs it."
            )
        if self.checkpoint_ms is not None:
            told = f"The checkpoint interval for {type(self).__name__} ({self.checkpoint_ms} ms) is"
            slide = f"its slide time ({self.slide_ms} ms); set a multiple of that"
            if self.checkpoint_ms < self.slide_ms:
                raise StreamGraphError(f"{told} lower than {slide}")
            if self.checkpoint_ms % self.slide_ms:
                raise StreamGraphError(f"{told} not a multiple of {slide}")

    # -- one batch -----------------------------------------------------------------------------

    def is_time_valid(self, time_ms: int) -> bool:
        """Return whether this node has an RDD at that time.

        Raises:
            IllegalStateError: The graph has not started.
        """
        if self.zero_ms is None:
            raise IllegalStateError(f"{type(self).__name__} has not been initialized")
        begin_ms = self.zero_ms if self._begin_ms is None else self._begin_ms
        return time_ms > begin_ms and (time_ms - self.zero_ms) % self.slide_ms == 0

    @property
    def first_valid_ms(self) -> int:
        """The first time at which it has an RDD."""
        assert self.zero_ms is not None
        return (self.zero_ms if self._begin_ms is None else self._begin_ms) + self.slide_ms

    def begin_after(self, time_ms: int) -> None:
        """Have no RDDs up to a time of it, in place of the zero time."""
        self._begin_ms = time_ms

    def get_or_compute(self, time_ms: int) -> RDD[Any] | None:
        """Return the RDD of that time; a time has one RDD, however often it is asked for."""
        with self.graph.lock:
            known = self.generated.get(time_ms)
            if known is not None or time_ms in self._without:
                return known
            if not self.is_time_valid(time_ms):
                return None
            if self.must_checkpoint:
                self._make_earlier(time_ms)
            rdd = self.compute(time_ms)
            is_due = self.checkpoint_ms is not None and self._is_checkpoint_time(time_ms)
            if rdd is None:
                self._without.add(time_ms)
                if is_due and self.must_checkpoint:
                    # Or an idle stream's states would have to be made from the first batch on.
                    self.rdd_checkpoints[time_ms] = NO_RECORDS
                return None
            known_empty = content_of(rdd) is not Content.UNKNOWN
            if is_due and not known_empty and self.graph.encryption is not None:
                rdd = encrypted(rdd, self.graph.encryption)
            if self.storage_level is not None and not rdd.is_cached and not known_empty:
                rdd.persist(self.storage_level)
            if is_due and not known_empty:
                rdd.checkpoint()
            self.generated[time_ms] = rdd
            return rdd

    def _make_earlier(self, time_ms: int) -> None:
        """Make the missing RDDs before that time, the oldest first.

        Each would ask for the one before it, and so use the stack for as many as there are.
        """
        missing = []
        earlier_ms = time_ms - self.slide_ms
        while (
            earlier_ms not in self.generated
            and earlier_ms not in self._without
            and self.is_time_valid(earlier_ms)
        ):
            missing.append(earlier_ms)
            earlier_ms -= self.slide_ms
        for missing_ms in reversed(missing):
            self.get_or_compute(missing_ms)

    def _is_used(self, rdd: RDD[Any]) -> bool:
        """Return whether an RDD is also that of a later time, or of a node that this is made of."""
        return any(
            rdd is other for node in (self, *self.dependencies) for other in node.generated.values()
        )

    def _is_checkpoint_time(self, time_ms: int) -> bool:
        assert self.zero_ms is not None
        assert self.checkpoint_ms is not None
        return (time_ms - self.zero_ms) % self.checkpoint_ms == 0

    def slice(self, from_ms: int, to_ms: int) -> list[RDD[Any]]:
        """Return the RDDs from one time to another, both included and floored to the slide.

        Raises:
            IllegalStateError: The graph has not started.
        """
        if self.zero_ms is None:
            raise IllegalStateError(f"{type(self).__name__} has not been initialized")
        first = self._floor(from_ms)
        last = self._floor(to_ms)
        rdds = []
        for time_ms in range(first, last + 1, self.slide_ms):
            if time_ms > self.zero_ms:
                rdd = self.get_or_compute(time_ms)
                if rdd is not None:
                    rdds.append(rdd)
        return rdds

    def _floor(self, time_ms: int) -> int:
        assert self.zero_ms is not None
        return (time_ms - self.zero_ms) // self.slide_ms * self.slide_ms + self.zero_ms

    def clear_metadata(self, time_ms: int, unpersist: bool) -> None:
        """Forget RDDs that are no longer remembered when the batch of `time_ms` is done."""
        assert self.remember_ms is not None
        old_ms = time_ms - self.remember_ms
        self._without = {time for time in self._without if time > old_ms}
        for time in [time for time in self.generated if time <= old_ms]:
            rdd = self.generated.pop(time)
            # Asking an RDD that was never cached would first make it in the JVM.
            if unpersist and rdd.is_cached and not self._is_used(rdd):
                rdd.unpersist()

    # -- checkpoints ---------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        for name in self._transient_names():
            state.pop(name, None)
        for name, file in self._saved_rdds.items():
            state[name] = file
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for name in self._transient_names():
            setattr(self, name, None)
        self.generated = {}
        self._without = set()

    @classmethod
    def _transient_names(cls) -> set[str]:
        return {name for base in cls.__mro__ for name in base.__dict__.get("transient", ())}

    def own_state(self) -> dict[str, Any]:
        """Return what a checkpoint has of this node alone."""
        return {
            name: value
            for name, value in self.__getstate__().items()
            if name not in ("graph", "dependencies") and not isinstance(value, DStreamNode)
        }

    def save_given_rdds(self) -> None:
        """Save the program's RDDs that this node needs, so that checkpoints can refer to them."""
        for name in self.given_rdds:
            value = getattr(self, name)
            if isinstance(value, list) and len(value) > _MANY:
                value = self.graph.spark_context.parallelize(value, 1)
                setattr(self, name, value)
            if isinstance(value, RDD) and name not in self._saved_rdds:
                self._saved_rdds[name] = save_copy(value, self.graph.encryption)

    def note_checkpoints(self) -> None:
        """Note which RDDs have been checkpointed by now."""
        for time_ms, rdd in self._due().items():
            file = checkpoint_file(rdd) if rdd.is_checkpointed else None
            if file is None and content_of(rdd) is not Content.UNKNOWN:
                file = NO_RECORDS
            if file is not None:
                self.rdd_checkpoints[time_ms] = file

    def _due(self) -> dict[int, RDD[Any]]:
        """Return its RDDs that are to be checkpointed and are not noted as such."""
        if self.checkpoint_ms is None:
            return {}
        return {
            time_ms: rdd
            for time_ms, rdd in self.generated.items()
            if self._is_checkpoint_time(time_ms) and time_ms not in self.rdd_checkpoints
        }

    def newest_due(self) -> RDD[Any] | None:
        """Return the newest of its RDDs that is to be checkpointed, if that is not noted yet."""
        due = self._due()
        if not due or max(due) < max(self.rdd_checkpoints, default=0):
            return None
        rdd = due[max(due)]
        return rdd if content_of(rdd) is Content.UNKNOWN else None

    def first_made(self, needed_ms: int) -> int:
        """Return the first time that must be made again after a restart that asks for `needed_ms`.

        What carries a state goes on from the newest saved one at or before that time.
        """
        if not self.must_checkpoint:
            return needed_ms
        saved = (time_ms for time_ms in self.rdd_checkpoints if time_ms <= needed_ms)
        return max(saved, default=self.first_valid_ms - self.slide_ms) + self.slide_ms

    def begin_anew(self, needed_ms: int) -> None:
        """Go back no further than to the time that is needed, when it follows from nothing saved.

        For a node of another version of the program, whose earlier batches it does not know.
        """
        if self.must_checkpoint and not self.rdd_checkpoints:
            self.begin_after(self._floor(needed_ms - 1))

    def need(self, needed_ms: int) -> None:
        """Keep what a restart that asks for the RDD of `needed_ms` and later ones has to read."""
        self.needed_ms = needed_ms
        oldest_ms = self.first_made(needed_ms) - (self.slide_ms if self.must_checkpoint else 0)
        for time_ms in [known for known in self.rdd_checkpoints if known < oldest_ms]:
            del self.rdd_checkpoints[time_ms]

    def saved_files(self) -> list[str]:
        """Return where all that was saved of it is."""
        files = [*self.rdd_checkpoints.values(), *self._saved_rdds.values()]
        return [file.path for file in files if file.path]

    def restore(self, spark_context: SparkContext) -> None:
        """Read back what a checkpoint refers to.

        These RDDs have no partitioner: a node that relies on one places their records again.

        Raises:
            PenstockError: A part of it is missing or was cut.
            Py4JJavaError: It cannot be read.
        """
        for name, file in self._saved_rdds.items():
            setattr(self, name, file.read(spark_context))
        for time_ms, file in self.rdd_checkpoints.items():
            self.generated[time_ms] = file.read(spark_context)
