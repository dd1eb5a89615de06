"""The graph: what a program's streams are made of, and the jobs of a batch."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark import RDD

from penstock._arguments import check_stored_name
from penstock.errors import IllegalStateError, StreamGraphError
from penstock.runtime.clock import Clock, SystemClock
from penstock.streaming.dstream.states.state_saver import StateSaver
from penstock.streaming.errors import StateSavingError
from penstock.streaming.kernels.deferred import Content, content_of

if TYPE_CHECKING:
    from pyspark import SparkContext

    from penstock.listeners.input_info import InputInfoTracker
    from penstock.streaming.dstream.inputs.input_streams import InputDStream
    from penstock.streaming.dstream.job import Job
    from penstock.streaming.dstream.node import DStreamNode
    from penstock.streaming.dstream.output import ForEachDStream
    from penstock.streaming.kernels.dead_letters import LettersOfRun
    from penstock.streaming.received_blocks import ReceivedBlocks
    from penstock.wal import EncryptionKey

_log = logging.getLogger("penstock.streaming")

_STEP = 4
"""How many states are computed at a time while a graph catches up."""


@dataclass(frozen=True)
class BatchRuntime:
    """What nodes need to make RDDs. It is not part of the graph's description.

    Attributes:
        spark_context: The Spark context.
        received_blocks: Which blocks of a stream belong to a batch.
        input_info: Where inputs report how many records a batch has.
        clock: Says how far wall time and batch time differ.
        state_saver: Saves states in the checkpoint directory.
        letters: Where the dead letters of functions go; None: they are not kept.
        partition_bytes: How large the partitions of small blocks may be; 0: one block each.
    """

    spark_context: SparkContext
    received_blocks: ReceivedBlocks
    input_info: InputInfoTracker
    clock: Clock = field(default_factory=SystemClock)
    state_saver: StateSaver = field(default_factory=StateSaver)
    letters: LettersOfRun | None = None
    partition_bytes: int = 0


class DStreamGraph:
    """Inputs, outputs and time of one streaming program.

    `lock` guards the two lists, the start, and what all nodes remember. It is reentrant, because
    a node asks others for their RDDs.

    Args:
        spark_context: The Spark context of the program.
        batch_ms: The batch interval.

    Attributes:
        encryption: The key that saved RDDs are encrypted with; known at the start.
        last_made_ms: The last batch that was made; before the first, the one before it.
    """

    def __init__(self, spark_context: SparkContext, batch_ms: int) -> None:
        self.lock = threading.RLock()
        self.spark_context = spark_context
        self.batch_ms = batch_ms
        self.inputs: list[InputDStream] = []
        self.outputs: list[ForEachDStream] = []
        self.zero_ms: int | None = None
        self.start_ms: int | None = None
        self.remember_ms: int | None = None
        self.last_made_ms = 0
        self._states = 0
        self.encryption: EncryptionKey | None = None
        self._runtime: BatchRuntime | None = None
        self._closed: str | None = None
        # Each before those that it is made of.
        self._nodes: tuple[DStreamNode, ...] = ()

    # -- building ------------------------------------------------------------------------------

    def add_input(self, node: InputDStream) -> int:
        """Take an input; return its stream id, counted from 0."""
        with self.lock:
            self.check_can_grow()
            self.inputs.append(node)
            return len(self.inputs) - 1

    def add_state(self) -> int:
        """Count a stream with a state; return its place among them, from 0."""
        with self.lock:
            self._states += 1
            return self._states - 1

    def add_output(self, node: ForEachDStream) -> None:
        """Take an output; outputs of a batch run in the order in which they came."""
        with self.lock:
            self.check_can_grow()
            self.outputs.append(node)

    def close(self, state: str) -> None:
        """Take no more streams; `state` is ``starting`` or ``stopping``, for the error."""
        # Without the lock, which a function of `transform` has while it runs: a stop must not wait.
        self._closed = state

    def check_can_grow(self) -> None:
        """Raise when the context was started or stopped already."""
        if self._closed is not None:
            raise IllegalStateError(
                "Adding new inputs, transformations, and output operations after "
                f"{self._closed} a context is not supported"
            )

    def check_not_started(self, message: str) -> None:
        """Raise `IllegalStateError` with `message` when the context was started already."""
        if self._closed is not None:
            raise IllegalStateError(message)

    def check_new_name(self, name: object, what: str) -> None:
        """Check that a stream or state can be given a name.

        Raises:
            IllegalStateError: The context was started already.
            TypeError, ValueError: See `check_stored_name`.
        """
        self.check_not_started(
            "Cannot change the name of a DStream after streaming context has started"
        )
        check_stored_name(name, what)

    def remember(self, duration_ms: int) -> None:
        """Set how long every stream remembers its RDDs at least; once only."""
        with self.lock:
            if self.remember_ms is not None:
                raise IllegalStateError(
                    f"Remember duration already set as {self.remember_ms} ms. Cannot set it again."
                )
            self.remember_ms = duration_ms

    def validate(self, has_checkpoint_directory: bool) -> None:
        """Check that the graph can run.

        Raises:
            StreamGraphError: There is nothing to do, or a stream cannot run as it is.
        """
        continuous = [node for node in self.inputs if getattr(node, "continuous", None) is not None]
        if not (self.outputs or continuous):
            raise StreamGraphError(
                "No output operations registered, so nothing to execute; call foreachRDD, "
                "foreachBatch, pprint or another output operation on a stream before start()"
            )
        nodes = self.nodes()
        for node in nodes:
            node.validate(has_checkpoint_directory)
        for given in continuous:
            if given in nodes:
                raise StreamGraphError(
                    f"the stream {getattr(given, 'name', '')!r} has a continuous function, so that "
                    "no batch has its records; receive it a second time for the other operations"
                )

    def nodes(self) -> list[DStreamNode]:
        """Return every node that an output is made of, each once, outputs first."""
        return nodes_behind(*self.outputs)

    # -- running -------------------------------------------------------------------------------

    def start(self, zero_ms: int, runtime: BatchRuntime) -> None:
        """Fix the zero time, one batch before the first, and start the inputs."""
        with self.lock:
            if self.zero_ms is not None:
                raise IllegalStateError("the DStream graph has been started already")
            self._runtime = runtime
            self.zero_ms = self.last_made_ms = zero_ms
            self.start_ms = zero_ms
            for output in self.outputs:
                output.initialize(zero_ms)
            for output in self.outputs:
                output.remember(self.remember_ms)
            self._nodes = tuple(reversed(self._in_order()))
            for node in self.inputs:
                node.start()

    def restart(self, runtime: BatchRuntime, first_ms: int) -> None:
        """Go on with a graph that was recovered; the zero time stays.

        Args:
            runtime: What nodes need from now on.
            first_ms: The first batch that is made, for the first time or again.
        """
        with self.lock:
            self._runtime = runtime
            self.last_made_ms = first_ms - self.batch_ms
            self._nodes = tuple(reversed(self._in_order()))
            self._find_needs(first_ms)
            for node in self.inputs:
                node.start()

    def take_over(self, zero_ms: int, last_ms: int, first_ms: int, received_ms: int) -> None:
        """Take the place of the graph of another version of the program; `restart` comes next.

        Batches keep their times and received blocks. States that were resumed go on from that
        batch; what has no state of that version begins with the first batch that it is needed for,
        and other inputs with the first one that is new.

        Args:
            zero_ms: The zero time.
            last_ms: The last batch that was made.
            first_ms: The first batch that is made, for the first time or again.
            received_ms: The first batch whose received blocks are kept.
        """
        with self.lock:
            self.zero_ms = zero_ms
            self.start_ms = zero_ms
            for output in self.outputs:
                output.initialize(zero_ms)
            for output in self.outputs:
                output.remember(self.remember_ms)
            for node in self.inputs:
                node.begin_after(received_ms - self.batch_ms if node.is_received else last_ms)
            self._nodes = tuple(reversed(self._in_order()))
            self._find_needs(first_ms, begins=True)

    def catch_up(self, first_ms: int) -> None:
        """Make the states of the batches before `first_ms` that follow from the last saved ones.

        They are made in order. The batch of `first_ms` would ask for them as well, each for the
        one before, and so use the stack for as many batches as there are between. They are also
        computed by steps, and those that are due are saved: a task has a Python worker for each
        of the RDDs behind each other, and where no state could be made for long there are many.
        """
        with self.lock:
            for given in self._asked_inputs():
                assert given.needed_ms is not None
                for time_ms in range(given.needed_ms, first_ms, self.batch_ms):
                    given.ask(time_ms)
            for node in reversed(self._nodes):
                if node.must_checkpoint:
                    assert node.needed_ms is not None
                    begin_ms = node.first_made(node.needed_ms)
                    self._make_states(node, range(begin_ms, first_ms, node.slide_ms))

    def _make_states(self, node: DStreamNode, times: Iterable[int]) -> None:
        can_run = True
        for number, time_ms in enumerate(times, start=1):
            try:
                rdd = node.get_or_compute(time_ms)
            except Exception as error:  # noqa: BLE001  # an operation that needs it reports its own
                _log.warning("The state of the batch of %d ms cannot be made: %s", time_ms, error)
                return
            if rdd is None or content_of(rdd) is not Content.UNKNOWN:
                continue
            if not can_run or self._closed == "stopping":
                continue
            try:
                if node.newest_due() is rdd:
                    self.runtime.state_saver.save(rdd, time_ms)
                    node.note_checkpoints()
                elif number % _STEP == 0:
                    rdd._jrdd.count()
            except Exception as error:  # noqa: BLE001  # an operation that needs it reports its own
                can_run = False
                _log.warning("The state of the batch of %d ms cannot be made: %s", time_ms, error)

    def stop(self) -> None:
        """Stop the inputs, each of them whatever another one raises.

        Raises:
            Exception: What the first one raised that did.
        """
        errors = []
        with self.lock:
            for node in self.inputs:
                try:
                    node.stop()
                except Exception as error:  # noqa: BLE001  # the program's; raised when all are done
                    errors.append(error)
        if errors:
            raise errors[0]

    @property
    def runtime(self) -> BatchRuntime:
        """What nodes need to make RDDs; set once the graph has started."""
        if self._runtime is None:
            raise IllegalStateError("the DStream graph has not been started")
        return self._runtime

    def generate_jobs(self, time_ms: int) -> list[Job]:
        """Make the jobs of a batch, one per output that is due at that time.

        The functions of `transform` run here. An output whose streams fail to make their RDD
        gets a job that fails with that error, so that the others still run.
        """
        with self.lock:
            self.last_made_ms = max(self.last_made_ms, time_ms)
            for node in self._asked_inputs():
                node.ask(time_ms)
            jobs = []
            for index, output in enumerate(self.outputs):
                job = output.generate_job(time_ms, index)
                if job is not None:
                    jobs.append(self._saving_states(job, output))
            return jobs

    def _asked_inputs(self) -> list[InputDStream]:
        """Return the inputs that must be asked for each batch at its time, and in order.

        What they have for it depends on when they are asked. A window of ten batches would ask for
        all ten with the last of them, and one behind a batch that failed for an old one last.
        """
        used = set(map(id, self._nodes))
        return [node for node in self.inputs if id(node) in used and node.is_asked_each_batch]

    def _saving_states(self, job: Job, output: ForEachDStream) -> Job:
        """Let a job save the states behind an output that are due, whatever its function does."""
        behind = {id(node) for node in nodes_behind(output)}
        saved = [node for node in reversed(self._nodes) if id(node) in behind]
        due = [rdd for node in saved if (rdd := node.newest_due()) is not None]
        if not due:
            return job
        saver = self.runtime.state_saver
        return replace(job, run=SavingJob(job.run, tuple(due), saver, job.time_ms))

    def clear_metadata(self, time_ms: int, unpersist: bool) -> None:
        """Forget the RDDs that no one needs when all batches up to `time_ms` are done."""
        with self.lock:
            for node in self._nodes:
                node.clear_metadata(time_ms, unpersist)

    def saves_rdds(self) -> bool:
        """Return whether a stream has RDDs that are to be checkpointed."""
        return any(node.must_checkpoint or node.checkpoint_ms is not None for node in self.nodes())

    def input_remember_ms(self) -> int:
        """Return how long blocks of received data are needed after their batch."""
        known = (node.remember_ms for node in self.inputs)
        return max((ms for ms in known if ms is not None), default=self.batch_ms)

    def oldest_needed_ms(self) -> int | None:
        """Return the oldest batch that inputs may be asked for after a restart.

        It is what `note_checkpoints` found last; None before.
        """
        with self.lock:
            known = (node.needed_ms for node in self.inputs)
            return min((ms for ms in known if ms is not None), default=None)

    def _find_needs(self, first_ms: int, *, begins: bool = False) -> None:
        """Find what each node may be asked for after a restart, and forget what was saved for less.

        Where the graph `begins`, nodes begin with that.

        A node is asked for the batches that are made from `first_ms` on; for those before that
        are in a window of one of them; and for all since the saved state that a state which is
        asked for follows from.
        """
        needed = {id(output): first_ms for output in self.outputs}
        for node in self._nodes:
            needed_ms = needed[id(node)]
            if begins:
                node.begin_anew(needed_ms)
            node.need(needed_ms)
            asked_ms = node.first_asked(node.first_made(needed_ms))
            for dependency in node.dependencies:
                known_ms = needed.get(id(dependency), asked_ms)
                needed[id(dependency)] = min(known_ms, asked_ms)

    # -- checkpoints ---------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        for name in ("lock", "spark_context", "encryption", "_runtime", "_closed", "_nodes"):
            del state[name]
        # Each node after those that it is made of, so that a long chain is not pickled as deep.
        return {"in_order": self._in_order(), **state}

    def _in_order(self) -> list[DStreamNode]:
        found: dict[int, DStreamNode] = {}
        entered: set[int] = set()
        waiting: list[DStreamNode] = list(reversed(self.outputs))
        while waiting:
            node = waiting[-1]
            if id(node) not in entered:
                entered.add(id(node))
                waiting.extend(node.dependencies)
            else:
                found[id(waiting.pop())] = node
        return list(found.values())

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({name: part for name, part in state.items() if name != "in_order"})
        self.lock = threading.RLock()
        self.encryption = None
        self._runtime = None
        self._closed = "recovering"
        self._nodes = ()

    def save_given_rdds(self) -> None:
        """Save the program's RDDs that nodes need; runs Spark jobs."""
        for node in self.nodes():
            node.save_given_rdds()

    def note_checkpoints(self, first_ms: int) -> list[str]:
        """Note which RDDs have been checkpointed; return the files that the graph needs.

        Args:
            first_ms: The first batch that a restart would make.
        """
        with self.lock:
            for node in self._nodes:
                node.note_checkpoints()
            self._find_needs(first_ms)
            return [path for node in self._nodes for path in node.saved_files()]

    def restore(self, spark_context: SparkContext) -> None:
        """Make a graph that was unpickled belong to a Spark context, and read its RDDs back."""
        self.spark_context = spark_context
        for node in self.nodes():
            node.restore(spark_context)

    def refusal(self) -> str:
        """Return why the graph cannot be recovered from a checkpoint; empty when it can."""
        return next((node.refusal for node in self.inputs if node.refusal), "")

    def must_be_saved_before(self, time_ms: int) -> bool:
        """Return whether a checkpoint must be on the disk before the jobs of that batch run."""
        return any(node.must_be_saved_before(time_ms) for node in self.inputs)

    def needs_empty_batches(self) -> bool:
        """Return whether a batch without received records may matter to another one.

        It does to windows and states, which see it; to inputs that are no receivers, which may have
        records then; and to `slice`, as far back as the program has RDDs remembered.
        """
        return (
            self.remember_ms is not None
            or not all(node.is_received for node in self.inputs)
            or any(
                node.must_checkpoint
                or node.checkpoint_ms is not None
                or node.slide_ms != self.batch_ms
                or node.first_asked(0) < 0
                for node in self._nodes
            )
        )

    def last_time_needed(self, time_ms: int) -> int:
        """Return the first time from `time_ms` on at which every output has seen that batch."""
        return max(self.times_that_see(time_ms), default=time_ms)

    def times_that_see(self, time_ms: int) -> set[int]:
        """Return the times from `time_ms` on at which the outputs first see that batch."""
        assert self.zero_ms is not None
        slides = {output.slide_ms for output in self.outputs}
        return {_round_up(time_ms, self.zero_ms, slide) for slide in slides}


def nodes_behind(*outputs: DStreamNode) -> list[DStreamNode]:
    """Return the nodes that some are made of, and these, each once."""
    found: dict[int, DStreamNode] = {}
    waiting: list[DStreamNode] = list(reversed(outputs))
    while waiting:
        node = waiting.pop()
        if id(node) not in found:
            found[id(node)] = node
            waiting.extend(node.dependencies)
    return list(found.values())


def first_input(node: DStreamNode) -> tuple[int, str]:
    """Return number and name of the stream that a node is made of; of several the lowest."""
    inputs = (
        (number, getattr(found, "name", "") or type(found).__name__)
        for found in nodes_behind(node)
        if (number := getattr(found, "stream_id", None)) is not None
    )
    return min(inputs, default=(0, ""))


def _round_up(time_ms: int, zero_ms: int, slide_ms: int) -> int:
    return -(-(time_ms - zero_ms) // slide_ms) * slide_ms + zero_ms


def common_slide(slides: Iterable[int], message: str) -> int:
    """Return the one slide of streams that are put together, or raise with `message`."""
    found = set(slides)
    if len(found) != 1:
        raise ValueError(message)
    return found.pop()


# Jobs that save the states that are due, whatever the program's own operation does.
#
# Spark checkpoints an RDD when a job has run on it. An operation that fails before its job, or
# looks at no record, would so leave a state unsaved: with each batch there would be more RDDs
# behind it, and more received blocks to be kept, for as long as what it writes to is down. And
# where the disk is full, the operation would fail that has just written its results.


@dataclass(frozen=True)
class SavingJob:
    """The body of a job, and the states that are saved before it.

    Attributes:
        run: The program's operation.
        due: The states, each after those that it is made of.
        saver: Saves them.
        time_ms: The batch.
    """

    run: Callable[[], None]
    due: tuple[RDD[Any], ...]
    saver: StateSaver
    time_ms: int

    def __call__(self) -> None:
        failure = self._save()
        try:
            self.run()
        except Exception:
            if failure is not None:
                # Mostly both have one cause; the operation's own error is reported.
                self.saver.tell(failure)
            raise
        if failure is not None:
            raise failure

    def _save(self) -> Exception | None:
        """Save what is due; return why it cannot be saved."""
        failure = None
        for rdd in self.due:
            try:
                self.saver.save(rdd, self.time_ms)
            except StateSavingError:
                raise
            except Exception as error:  # noqa: BLE001  # raised after the operation
                failure = error
        return failure
