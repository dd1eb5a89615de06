"""Whole streaming programs on a driven clock: a run, a crash and a restart take milliseconds.

Real are the graph, job generator, scheduler, checkpoints with their files, driver log and ledger,
and the engine that starts and stops them. Driven by the test are the clock and what their threads
do: whatever could happen next happens here, one step at a time, in an order of the test's choice.
Stood in for are Spark's execution (`spark_stand_in`), and receivers with their blocks: a block is
a number, and its records lie in the `World`, which outlives every run of the program.

::

    def build(ssc, world):
        world.keep(world.stream(ssc).map(...).window(3, 1), "out")

    with Driven(build) as program:
        program.start()
        program.receive([("a", 1)])
        program.advance(1000)
        program.crash()
        program.start()
        assert program.world.results["out"] == {...}

A `crash` drops everything in memory. `crash_at(n)` lets that happen in the midst of things: the
nth time from now that the program comes by a point (a call to the disk, an answer of the ledger,
a job's begin and end), it and all later ones raise `CrashError`, so that nothing more has an
effect; the next call of `Driven` then notices.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from typing import Any, cast
from unittest import mock

from pyspark import SparkContext

from penstock.streaming import StreamingContext
from penstock.streaming.recovery import recover_context
from penstock.streaming.waiter import ContextWaiter
from tests.streaming.restarts.spark_stand_in import (
    LocalContext,
    LocalRDDFiles,
    stand_in_for_spark,
)
from tests.streaming.restarts.threads import (
    DrivenBus,
    DrivenGenerator,
    DrivenLoop,
    DrivenScheduler,
    DrivenTimer,
    DrivenWriter,
)
from tests.streaming.restarts.world import (
    BEGIN_MS,
    CrashError,
    LedgerSide,
    SinkError,
    World,
    block_rdd,
    enter_world,
)

__all__ = ["BEGIN_MS", "Driven", "World"]

_SUBSTITUTES: dict[str, Any] = {
    "penstock.streaming._engine.ReceiverSide": LedgerSide,
    "penstock.streaming._engine.StreamingEngine._start_monitor": lambda _: None,
    "penstock.streaming._engine.JobScheduler": DrivenScheduler,
    "penstock.streaming._engine.JobGenerator": DrivenGenerator,
    "penstock.streaming.scheduler.job_generator.EventLoop": DrivenLoop,
    "penstock.streaming.scheduler.job_generator.RecurringTimer": DrivenTimer,
    "penstock.streaming.checkpoint.checkpointer.CheckpointWriter": DrivenWriter,
    "penstock.streaming.context.StreamingListenerBus": DrivenBus,
    "penstock.streaming.recovery.SparkRDDFiles": LocalRDDFiles,
    "penstock.streaming.recovery.saved_conf": LocalContext.pairs,
    "penstock.blockstore.BlockRDD": block_rdd,
    "penstock.tracker.ledger.opening._SEGMENT_BYTES": 1 << 16,
}

Build = Callable[[StreamingContext, World], None]


class Driven:
    """A program and its runs, one after the other, in one world.

    Use it as a context manager; its folder is removed at the end.

    Args:
        build: Registers the streams of a new context; not called at a restart.
        batch_s: The batch interval.
        conf: Spark's settings.
        chance: Chooses what happens next where several things may; None: always the same.

    Attributes:
        world: What outlives the runs.
        ssc: The context that runs, or None.
        sc: Its Spark.
        version: The version of its code, as `StreamingContext.getOrCreate` is given it.
    """

    def __init__(
        self,
        build: Build,
        *,
        batch_s: float = 1,
        conf: dict[str, str] | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self._build = build
        self._batch_s = batch_s
        self._conf = conf or {}
        self._chance = chance
        self.version: str | None = None
        self._patches = ExitStack()
        self.ssc: StreamingContext | None = None
        self.sc: LocalContext | None = None

    def __enter__(self) -> Driven:
        memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
        folder = tempfile.mkdtemp(prefix="penstock-driven-", dir=memory)
        self._patches.callback(shutil.rmtree, folder, ignore_errors=True)
        self.world = World(folder, round(self._batch_s * 1000), self._chance)
        enter_world(self.world)
        # A SparkContext sets it, and grouping asks for it.
        hashing = {"PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0")}
        self._patches.enter_context(mock.patch.dict(os.environ, hashing))
        self._patches.enter_context(stand_in_for_spark())
        for name, substitute in _SUBSTITUTES.items():
            self._patches.enter_context(mock.patch(name, substitute))
        recover = partial(recover_context, clock=self.world.clock)
        self._patches.enter_context(
            mock.patch("penstock.streaming.context.recover_context", recover)
        )
        self._patches.enter_context(mock.patch.object(SparkContext, "_active_spark_context", None))
        for room in ("tracker.ledger.opening", "streaming.checkpoint.record"):
            self._patches.enter_context(
                mock.patch(f"penstock.{room}.locate", lambda path: (self.world.disk, path))
            )
        self._patches.enter_context(mock.patch.object(StreamingContext, "_active", None))
        return self

    def __exit__(self, *_: object) -> None:
        self.crash()
        self._patches.close()

    # -- life ------------------------------------------------------------------------------------

    def start(self, *, settle: bool = True) -> None:
        """Start the program: the first time anew, then from its checkpoints.

        Args:
            settle: Whether all that follows from it happens now.
        """
        assert self.ssc is None, "it runs already"
        self.sc = LocalContext(self._conf)
        self.sc.on_save = lambda _: self.world.point()
        SparkContext._active_spark_context = self.sc
        try:
            self.ssc = StreamingContext.getOrCreate(
                self.world.checkpoint, self._new_context, self.version
            )
            self.ssc._waiter = _Waiter(self.world)
            self.ssc.start()
        except CrashError:
            self.crash()
            return
        except BaseException:
            if not self.world.is_dead:
                self.crash()
                raise
        if settle:
            self.settle()
        self._notice_crash()

    def upgrade(self, version: str, build: Build) -> None:
        """Let the program be another version of itself from its next start on."""
        assert self.ssc is None, "it runs"
        self.version = version
        self._build = build

    def _new_context(self) -> StreamingContext:
        ssc = StreamingContext(cast("Any", self.sc), self._batch_s, clock=self.world.clock)
        ssc.checkpoint(self.world.checkpoint)
        self._build(ssc, self.world)
        return ssc

    @property
    def is_running(self) -> bool:
        return self.ssc is not None

    def crash(self) -> None:
        """Drop all that is in memory; only what is in the world stays."""
        ssc, self.ssc = self.ssc, None
        self.world.disk.end_process()
        self.world.revive()
        StreamingContext._active = None
        if ssc is not None:
            atexit.unregister(ssc._stop_at_exit)

    def crash_at(self, count: int) -> None:
        """Crash at the nth point from here."""
        self.world.crash_at(count)

    def stop(self, *, graceful: bool = True) -> None:
        """Stop the context, which then is gone."""
        ssc = self._running()
        try:
            ssc.stop(stopSparkContext=False, stopGraceFully=graceful)
        except BaseException:
            if not self.world.is_dead:
                raise
        self.crash()

    # -- what happens while it runs --------------------------------------------------------------

    def receive(self, records: Iterable[Any], stream_id: int = 0) -> None:
        """Let a block of records come in."""
        self._running()
        assert self.world.side is not None
        with contextlib.suppress(CrashError):
            self.world.side.receive(stream_id, records)
        self._notice_crash()

    def put_file(self, name: str, lines: Iterable[str]) -> None:
        """Let a file appear in the folder ``world.files``, modified now."""
        path = os.path.join(self.world.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
        now_ns = self.world.clock.time_ms() * 1_000_000
        os.utime(path, ns=(now_ns, now_ns))
        os.rename(path, os.path.join(self.world.files, name))

    def advance(self, milliseconds: int, *, settle: bool = True) -> None:
        """Let time pass; also while the program does not run."""
        self.world.clock.wall_ms += milliseconds
        self.world.clock.elapsed_ms += milliseconds
        self._poll()
        if settle:
            self.settle()

    def set_wall_time(self, time_ms: int, *, settle: bool = True) -> None:
        """Set wall time alone, as an administrator can."""
        self.world.clock.wall_ms = time_ms
        self._poll()
        if settle:
            self.settle()

    def settle(self) -> None:
        """Let everything happen that can, until nothing is left to do."""
        while self.step():
            pass

    def step(self) -> bool:
        """Let one thing happen; False when there is nothing to do."""
        if self.ssc is None:
            return False
        able = [actor for actor in self._actors() if actor.has_work()]
        if not able:
            return False
        actor = able[0] if self._chance is None else self._chance.choice(able)
        with contextlib.suppress(CrashError):
            actor.step()
        return not self._notice_crash()

    def _running(self) -> StreamingContext:
        assert self.ssc is not None, "it does not run"
        return self.ssc

    def _actors(self) -> list[Any]:
        engine: Any = self._running()._engine
        return [engine._generator._loop, engine._scheduler, engine._writer]

    def _poll(self) -> None:
        if self.ssc is not None:
            engine: Any = self.ssc._engine
            engine._generator._timer.poll()

    def _notice_crash(self) -> bool:
        if self.world.is_dead:
            self.crash()
        return self.ssc is None


class _Waiter(ContextWaiter):
    """Takes errors for the world."""

    def __init__(self, world: World) -> None:
        super().__init__(lambda: None)
        self._world = world

    def notify_error(self, error: BaseException) -> None:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, (SinkError, CrashError)):
                return
            cause = cause.__cause__
        if not self._world.is_dead:
            self._world.errors.append(error)

    def notify_stop(self) -> None:
        """Nobody waits."""
