"""`ReceiverSlot`: several receivers in one Spark task, seen as if each had one of its own.

The executor's half, and what must hold, is `penstock.receiver.attempts.slot`. A `ReceiverJob` runs
an attempt by `ReceiverSlot.run`, as it would by a Spark job. The slot's own job runs while one of
its receivers may have another start: it begins with the first attempt, and again with the next one
after it has failed. Which streams share a process is kept from one job to the next. All its jobs
are run by one thread, the only one of a slot that also has a thread of the JVM.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from penstock.errors import PenstockError
from penstock.receiver import Receiver, ReceiverLaunch
from penstock.receiver.attempts.slot import SlotLaunch, run_slot
from penstock.runtime.threads import wait_for
from penstock.tracker.cluster import Cluster, ExecutorLocation, TaskEnd, TaskLocation
from penstock.wire import Peer
from penstock.wire.messages import (
    AttemptEnded,
    Message,
    Ok,
    Refused,
    RegisterSlot,
    StartAttempt,
    StopReceiver,
)

_log = logging.getLogger("penstock.tracker")

_IDLE_S = 60.0
"""The longest single wait; a bound in case a wake-up is missed."""

_ROUNDING = 1e-6
"""A thousand shares of 0.001 are more than 1 by less than that."""

MakeLaunch = Callable[[str, Mapping[str, str]], ReceiverLaunch]
"""Makes a launch of an attempt, given its name and the hosts of the executors by id."""


def share_of(receiver: Receiver, per_slot: int) -> float:
    """Return how much of a slot a receiver takes; 1: it has a task of its own.

    Args:
        receiver: The receiver.
        per_slot: How many share one that do not say it.
    """
    return 1 / per_slot if receiver.slots is None else receiver.slots


def slots_of(
    shares: Sequence[float], wishes: Sequence[str | None] | None = None
) -> list[tuple[int, ...]]:
    """Return which receivers share a slot: in their order, with others of the same wish.

    Args:
        shares: How much of a slot each takes; those that take a whole one are in none.
        wishes: The preferred location of each; None: there are no wishes.
    """
    slots: list[list[int]] = []
    open_slots: dict[str | None, tuple[list[int], float]] = {}
    for number, share in enumerate(shares):
        if share >= 1:
            continue
        wish = None if wishes is None else wishes[number]
        slot, used = open_slots.get(wish, ([], 1.0))
        if used + share > 1 + _ROUNDING:
            slots.append(slot := [])
            used = 0.0
        slot.append(number)
        open_slots[wish] = slot, used + share
    return [tuple(slot) for slot in slots]


@dataclass
class _Run:
    attempt: str
    process: int = 0
    """The process that it was sent to; 0: none yet."""
    end: Future[TaskEnd] = field(default_factory=Future)


class ReceiverSlot:
    """One slot. Safe to use from any thread; its owner calls `start`, `cancel` and `join`.

    `_changed` guards all below it.

    Attributes:
        streams: The streams whose receivers it has.
        tag: The tag of its Spark jobs; no other jobs have it.
    """

    def __init__(
        self,
        number: int,
        launches: Mapping[int, MakeLaunch],
        cluster: Cluster,
        place: Callable[[Sequence[int], Sequence[ExecutorLocation]], Sequence[TaskLocation]],
    ) -> None:
        """Make it; no job runs before the first attempt.

        Args:
            number: Its number.
            launches: By stream, what makes its launches.
            cluster: Where it runs.
            place: Says where, given its streams and the executors that are up.
        """
        self.streams = tuple(launches)
        self.tag = f"penstock-receiver-slot-{number}-{uuid.uuid4().hex}"
        self._number = number
        self._launches = launches
        self._cluster = cluster
        self._place = place
        self._thread = cluster.thread(self._run_jobs, f"penstock-receiver-slot-{number}")
        self._changed = threading.Condition()
        self._task = ""  # the Spark task; empty: none
        self._runs: dict[int, _Run] = {}
        self._peers: dict[int, tuple[Peer, int]] = {}  # and the numbers of their processes
        self._groups: list[tuple[int, ...]] = [self.streams]
        self._left: set[int] = set()
        self._moves = False  # its processes are to end, and what starts waits for its next job

    # -- for the jobs of its receivers -----------------------------------------------------------

    def run(self, stream_id: int, attempt: str) -> TaskEnd:
        """Run an attempt and return when it has ended.

        Raises:
            Exception: It failed, its process or the slot's job did, or it was cancelled.
        """
        run = _Run(attempt)
        with self._changed:
            if not self._task:
                self._task = uuid.uuid4().hex
                self._changed.notify_all()
            self._runs[stream_id] = run
            if stream_id in self._peers and not self._moves:
                peer, run.process = self._peers[stream_id]
                # Should it be lost, the process is sent it again when it registers again.
                peer.send(StartAttempt(stream_id, attempt))
        return run.end.result()

    def cancel_attempt(self, stream_id: int) -> None:
        """End the running attempt, for the driver; with the last one the job is cancelled."""
        with self._changed:
            run = self._runs.pop(stream_id, None)
            is_last = not self._runs
            self._end_if_moved()
        if run is not None:
            run.end.set_exception(PenstockError("it was cancelled"))
        if is_last:
            self.cancel()

    def leave(self, stream_id: int) -> None:
        """Take note that a receiver has no other start; with the last one the slot ends."""
        with self._changed:
            self._left.add(stream_id)
            self._changed.notify_all()
            peers = set(self._peers.values()) if self._is_over() else set()
        for peer, _ in peers:
            peer.send(StopReceiver())

    def move(self) -> None:
        """Have its job end when its receivers have, and start them again in another one.

        Others ask them to end.
        """
        with self._changed:
            self._moves = self._moves or any(run.process for run in self._runs.values())

    def _end_if_moved(self) -> None:
        """End its processes when none of them runs a receiver any more; needs `_changed`."""
        if self._moves and not any(run.process for run in self._runs.values()):
            for peer, _ in set(self._peers.values()):
                peer.send(StopReceiver())

    # -- for its owner ---------------------------------------------------------------------------

    def start(self) -> None:
        """Start its thread, whose jobs have the local properties of the caller's."""
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether its job runs."""
        with self._changed:
            return bool(self._task)

    def cancel(self) -> None:
        """Cancel its job."""
        self._cluster.cancel(self.tag)

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of its job; return whether it has ended."""
        end_s = time.monotonic() + timeout_s
        with self._changed:
            if not wait_for(self._changed, lambda: not self._task, timeout_s):
                return False
            is_over = self._is_over()
        if is_over and self._thread.ident is not None:
            self._thread.join(max(0.0, end_s - time.monotonic()))
        return True

    # -- for its processes -----------------------------------------------------------------------

    def registered(self, peer: Peer, message: RegisterSlot) -> Message:
        """A process says whose receivers it runs: fail what its predecessor ran, start the rest."""
        with self._changed:
            if message.task != self._task or self._is_over():
                return Refused("the slot has another task, or has ended")
            streams = message.streams
            rest = [tuple(one for one in group if one not in streams) for group in self._groups]
            self._groups = [group for group in (*rest, streams) if group]
            self._peers.update(dict.fromkeys(streams, (peer, message.process)))
            runs = {one: self._runs[one] for one in streams if one in self._runs}
            failed = {
                one: run for one, run in runs.items() if run.process not in (0, message.process)
            }
            for stream_id, run in runs.items():
                if stream_id in failed:
                    del self._runs[stream_id]
                elif run.process or not self._moves:
                    run.process = message.process
                    peer.send(StartAttempt(stream_id, run.attempt))
            self._end_if_moved()
        for run in failed.values():
            run.end.set_exception(PenstockError(message.ended))
        return Ok()

    def ended(self, message: AttemptEnded) -> Message:
        """A process says that an attempt has ended."""
        with self._changed:
            run = self._runs.get(message.stream_id)
            if run is None or run.attempt != message.attempt:
                return Ok()
            del self._runs[message.stream_id]
            self._end_if_moved()
        if message.error:
            run.end.set_exception(PenstockError(message.error))
        else:
            run.end.set_result(TaskEnd.ENDED)
        return Ok()

    def disconnected(self, peer: Peer) -> bool:
        """Take note that a connection is gone; return whether it was one of a process of its."""
        with self._changed:
            lost = [stream_id for stream_id, (known, _) in self._peers.items() if known is peer]
            for stream_id in lost:
                del self._peers[stream_id]
        return bool(lost)

    def _is_over(self) -> bool:
        return self._left.issuperset(self.streams)

    def _run_jobs(self) -> None:
        while True:
            with self._changed:
                while not (self._task or self._is_over()):
                    self._changed.wait(_IDLE_S)
                if not self._task:
                    return
            self._run_job()

    def _run_job(self) -> None:
        failure: BaseException | None = None
        try:
            launch, locations = self._prepare()
            ended = self._cluster.run_task(
                _named(self.streams), self.tag, partial(run_slot, launch), locations
            )
            if ended is TaskEnd.ENDED and not self._is_over():
                failure = PenstockError("the task of its slot has ended")
        except BaseException as error:  # noqa: BLE001 - who waits for an attempt gets it
            failure = _with_text(error)
        with self._changed:
            waits, self._moves = self._moves, False
            runs = {one: run for one, run in self._runs.items() if run.process or not waits}
            for stream_id in runs:
                del self._runs[stream_id]
            self._peers.clear()
            self._task = uuid.uuid4().hex if self._runs else ""
            self._changed.notify_all()
        for run in runs.values():
            if failure is None:
                run.end.set_result(TaskEnd.RETRY)
            else:
                run.end.set_exception(failure)

    def _prepare(self) -> tuple[SlotLaunch, Sequence[TaskLocation]]:
        executors = self._cluster.executors()
        hosts = {executor.executor_id: executor.host for executor in executors}
        with self._changed:
            streams = [one for one in self.streams if one not in self._left]
            groups = [tuple(one for one in group if one in streams) for group in self._groups]
        launch = SlotLaunch(
            self._number,
            self._task,
            {stream_id: self._launches[stream_id]("", hosts) for stream_id in streams},
            [group for group in groups if group],
        )
        return launch, self._place(self.streams, executors)


def _with_text(error: BaseException) -> BaseException:
    """Return what Spark raised with its text, which is asked of the JVM.

    There each thread that asks has a thread, and a connection, until it ends: that of a receiver.
    """
    if not isinstance(error, (Py4JJavaError, PySparkException)):
        return error
    try:
        return PenstockError(f"{type(error).__name__}: {error}")
    except Exception as gone:  # noqa: BLE001 - it shows that there is no JVM any more
        return gone


def _named(streams: Iterable[int]) -> str:
    return ",".join(map(str, streams))
