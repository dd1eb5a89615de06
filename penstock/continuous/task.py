"""`run_task`: the body of the Spark task that calls the function of a continuous stream.

Four threads: the wire's client takes what the driver sends; ``penstock-function`` calls the
function with each block, and hands what an epoch has to ``penstock-sink``; the task's own thread
waits for the end, and sees to it that there is one. `_changed` guards what the first two share.

A record batch is the function's own: its block is copied once, so that the slot in shared memory
can be given back whatever the function keeps. That is a memcpy, beside which the rest is large.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import logging
import os
import pickle
import queue
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.blockstore import Block, BlockAccess, BlockKind, read_block, shown_block
from penstock.continuous.operation import Watermark
from penstock.continuous.sinks import Epoch, Sink, SinkError
from penstock.continuous.state import KeyedState, StateError, StatePlace, rows_of_part
from penstock.continuous.timers import NO_WATERMARK, ExpiredTimers, TimerService
from penstock.dead_letters import FunctionLetters
from penstock.errors import PenstockError, encodable, typed_text
from penstock.receiver.attempts.task import executor_id, host_name
from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.runtime.threads import OwnedThread
from penstock.wal import WalError
from penstock.wire import ApplicationLink, Client, WireError, WireOptions
from penstock.wire.messages import (
    CommitEpoch,
    EndEpoch,
    EpochCommitted,
    EpochPrepared,
    Message,
    ReceivedBlockInfo,
    ShownBlock,
    StopReceiver,
    Subscribed,
    SubscribeTask,
    TaskBlocks,
    TaskFailed,
    TaskWaits,
    TimerDue,
)

if TYPE_CHECKING:
    import pyarrow as pa

_LOOK_S = 1.0
"""How often the task looks how long calls take, while there are any."""

_REST_S = 10.0
"""How long it does not while there are none; then it looks whether its executor is alive."""

_END_S = 5.0
"""How long a call that runs may take after the attempt has ended; then the process ends."""

_HELD_S = 3600.0
"""How long a sink may be held by where it leads; then that is a failure."""

_HELD_TEXT = 300
"""Characters of what it waits for."""

_MOST_AHEAD = 128
"""How many blocks that were shown, and not sent since, are kept, or what the function made of them.
"""

_TEXT = 100_000
"""Characters of a traceback that travel to the driver."""

_limited_log = RateLimitedLog(logging.getLogger("penstock.continuous"))


class ContinuousTaskError(PenstockError):
    """An attempt of a task of a continuous stream ended otherwise than by its driver.

    Or cannot go on: a block, or what the function returned, is no record batch, and never will be.
    """


@dataclass(frozen=True)
class ContinuousLaunch:
    """All that an executor needs to run an attempt of a task; travels in a task's closure.

    Attributes:
        stream_id: The stream.
        task: The task's number, from 0.
        tasks: How many there are.
        attempt: This attempt: 32 hex digits, never used before.
        pickled: The pickled function, sink, and what is called with expired timers, or None.
        access: What reaching a block needs, and the driver.
        timeout_s: How long one call of the function or sink may take.
        ask_timeout_s: How long the driver's answer is waited for.
        give_up_after_s: After this long without the driver the task ends.
        max_frame_bytes: The largest frame.
        executor_hosts: Executor id to host, as the driver knows them.
        letters: Where records go for which the function raises; None: they fail the attempt.
        state: Where its state by key is; None: it has none.
        watermark: Where its event time comes from; None: it has none.
    """

    stream_id: int
    task: int
    tasks: int
    attempt: str
    pickled: bytes = field(repr=False)
    access: BlockAccess
    timeout_s: float
    ask_timeout_s: float
    give_up_after_s: float
    max_frame_bytes: int
    executor_hosts: dict[str, str] = field(default_factory=dict)
    letters: FunctionLetters | None = None
    state: StatePlace | None = None
    watermark: Watermark | None = None

    @property
    def link(self) -> ApplicationLink:
        """Where the driver is."""
        return self.access.link


def run_task(launch: ContinuousLaunch) -> None:
    """Run an attempt of a task until the driver stops it.

    Raises:
        ContinuousTaskError: It ended otherwise; the driver starts another.
    """
    _Attempt(launch).run()


class _Rest:
    """The pause of the watch over calls while there are none: an idle task is to cost nothing."""

    def __init__(self) -> None:
        self._is_over = threading.Event()
        self._rests = False

    def end(self) -> None:
        """End it, if there is one; from any thread. A call has noted its begin before."""
        if self._rests:
            self._is_over.set()

    def wait(self, timeout_s: float, may_rest: Callable[[], bool]) -> None:
        """Wait until it is ended, if there is still nothing to look after."""
        self._is_over.clear()
        # Before it is asked: what begins now is seen here, or sees this.
        self._rests = True
        if may_rest():
            self._is_over.wait(timeout_s)
        self._rests = False


@dataclass
class _Call:
    """A call that may hang: of what, in which thread, since when (None: none runs).

    It may take that many times as long as a call of the function or the sink.
    """

    what: str
    thread: str
    rest: _Rest
    times: int = 1
    since_s: float | None = None

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        self.since_s = time.monotonic()
        self.rest.end()
        try:
            yield
        finally:
            self.since_s = None


@dataclass(frozen=True)
class _Output:
    """What a task has of an epoch."""

    end: EndEpoch
    parts: dict[int, list[Any]]
    records: int
    letters: int
    late: int = 0
    watermark_ms: int | None = None


@dataclass(frozen=True)
class _Program:
    """What is called, and what goes with it.

    Attributes:
        function: Is given a batch.
        on_timer: Is given expired timers.
        state: What is kept by key, or None.
        timers: What time it is, and which timers there are; None: no one asks.
    """

    function: Callable[[pa.RecordBatch], Any]
    on_timer: Callable[[ExpiredTimers], Any]
    state: KeyedState | None = None
    timers: TimerService | None = None


class _Attempt:
    """One attempt of a task.

    Args:
        launch: What to run.
    """

    def __init__(self, launch: ContinuousLaunch) -> None:
        self._launch = launch
        self._me = (launch.stream_id, launch.task, launch.attempt)
        self._changed = threading.Condition()
        self._blocks: deque[tuple[int, ReceivedBlockInfo, int]] = deque()
        self._ends: deque[EndEpoch] = deque()
        # By attempt and id, in order: blocks that are not logged yet, and what the function made
        # of such ones.
        self._shown: dict[tuple[str, str], ShownBlock] = {}
        self._ahead: dict[tuple[str, str], tuple[int, list[Any]]] = {}
        # The block behind the last one that the function was called with; None: it is not known.
        self._behind: tuple[str, str] | None = None
        self._is_over = False
        self._ended = threading.Event()
        self._failure: str | None = None
        self._sink_work: queue.SimpleQueue[_Output | int | None] = queue.SimpleQueue()
        self._rest = _Rest()
        self._function_call = _Call("the function", "penstock-function", self._rest)
        self._sink_call = _Call("the sink", "penstock-sink", self._rest)
        # To write all that an epoch changed, or to read all that there is, takes its time.
        self._state_call = _Call("the file of its state", "penstock-function", self._rest, times=10)
        self._subscribed = Subscribed("")
        self._letters = launch.letters
        self._by_place: list[tuple[int, list[Any]]] = []
        self._records = 0
        self._due_ms: int | None = None
        self._told_call = ""
        self._held = ""
        self._with = ""
        self._client = Client(
            launch.link,
            on_message=self._take,
            on_reconnect=self._lost,
            on_closed=lambda error: self._end(f"the driver is gone: {error}"),
            name=f"continuous-{launch.stream_id}-{launch.task}",
            options=WireOptions(
                max_frame_bytes=launch.max_frame_bytes,
                ask_timeout_s=launch.ask_timeout_s,
                give_up_after_s=launch.give_up_after_s,
            ),
        )

    def run(self) -> None:
        launch = self._launch
        self._client.connect()
        threads: list[OwnedThread] = []
        try:
            try:
                # Nothing else would end an attempt whose code cannot be had, as its imports hang.
                self._watch(launch.timeout_s * self._state_call.times)
                function, sink, on_timer = pickle.loads(launch.pickled)
            except Exception as error:  # noqa: BLE001 - the program's code; reported
                self._fail("its function or sink cannot be made in the executor", error)
            else:
                threads = self._begin(function, sink, on_timer)
            self._supervise()
            for thread in threads:
                thread.join(_END_S)
        finally:
            try:
                if self._letters is not None:
                    with contextlib.suppress(WalError):
                        self._letters.close()  # All that counts was written.
                with contextlib.suppress(WireError):
                    self._client.close()
            finally:
                gc.unfreeze()
                # What ends this process must not outlive the attempt.
                faulthandler.cancel_dump_traceback_later()
        if any(thread.is_alive() for thread in threads):
            # A call that hangs would go on in a process that Spark uses again.
            os._exit(1)
        if self._failure is not None:
            raise ContinuousTaskError(self._failure)

    def _begin(
        self, function: Callable[..., Any], sink: Sink, on_timer: Callable[..., Any] | None
    ) -> list[OwnedThread]:
        launch = self._launch
        try:
            if launch.state is not None:
                # Nor one whose folder does not answer.
                self._watch(launch.timeout_s * self._state_call.times)
                launch.state.claim(launch.attempt)
            faulthandler.cancel_dump_traceback_later()
        except StateError as error:
            self._fail("it has no state", error, permanent=error.is_permanent)
            return []
        executor = executor_id()
        host = host_name(executor, launch.executor_hosts)
        asked = SubscribeTask(*self._me, host, os.getpid())
        # What the driver sends behind its answer is taken by the client's thread meanwhile.
        answer = self._client.ask(asked)
        if not isinstance(answer, Subscribed):
            self._end(f"the driver refused the task: {getattr(answer, 'reason', answer)}")
            return []
        self._subscribed = answer
        # A full collection would look at all that was imported, in the midst of a call.
        gc.collect()
        gc.freeze()
        threads = [
            OwnedThread(
                lambda: self._call_function(function, on_timer), "function", on_error=self._died
            ),
            OwnedThread(lambda: self._call_sink(sink), "sink", on_error=self._died),
        ]
        # Before the first call, which may not let this thread have another turn.
        self._watch(launch.timeout_s + _END_S + _REST_S)
        for thread in threads:
            thread.start()
        return threads

    # -- the task's own thread -----------------------------------------------------------------

    def _supervise(self) -> None:
        parent = os.getppid()
        timeout_s = self._launch.timeout_s
        calls = (self._state_call, self._function_call, self._sink_call)

        def may_rest() -> bool:
            runs = any(call.since_s is not None for call in calls)
            return not (runs or self._held or self._told_call or self._is_over)

        while True:
            rest_s = _REST_S if may_rest() else 0.0
            # Also for a call that begins at the end of the rest.
            self._watch(timeout_s + _END_S + rest_s)
            if rest_s:
                self._rest.wait(rest_s, may_rest)
            if self._ended.wait(_LOOK_S):
                break
            if os.getppid() != parent:
                self._end("its executor is gone")
            called = (call.what for call in calls if call.since_s is not None)
            self._tell_call(self._held or next(called, ""))
            for call in calls:
                since_s, most_s = call.since_s, timeout_s * call.times
                if since_s is not None and time.monotonic() - since_s > most_s:
                    stacks = sys._current_frames()
                    shown = "".join(
                        "".join(traceback.format_stack(stacks[thread.ident]))
                        for thread in threading.enumerate()
                        if thread.name == call.thread and thread.ident in stacks
                    )
                    self._tell(f"{call.what} has not returned for {most_s:g} s", shown)
        self._watch(4 * _END_S)
        self._sink_work.put(None)

    def _tell_call(self, what: str) -> None:
        """Report which call runs; of two the function's, which is the first to end."""
        if what != self._told_call:
            self._told_call = what
            with contextlib.suppress(WireError):
                self._client.send(TaskWaits(*self._me, what))

    def _watch(self, after_s: float) -> None:
        """Have the process end unless this is called again in time.

        Code that holds the interpreter's lock also keeps this thread from its next turn.
        """
        if threading.current_thread() is threading.main_thread():
            stderr = sys.__stderr__ or sys.stderr
            faulthandler.dump_traceback_later(after_s, exit=True, file=stderr)

    # -- the client's thread -------------------------------------------------------------------

    def _take(self, message: Message) -> None:
        if isinstance(message, StopReceiver):
            self._end(None)
        elif isinstance(message, CommitEpoch):
            self._sink_work.put(message.number)
        elif isinstance(message, TaskBlocks):
            with self._changed:
                self._blocks.extend(message.blocks)
                self._changed.notify()
        elif isinstance(message, ShownBlock):
            with self._changed:
                self._shown[message.attempt, message.block_id] = message
                if len(self._shown) > _MOST_AHEAD:
                    # Of a receiver that died before it was logged.
                    del self._shown[next(iter(self._shown))]
                self._changed.notify()
        elif isinstance(message, EndEpoch):
            with self._changed:
                self._ends.append(message)
                self._changed.notify()

    def _lost(self) -> list[Message]:
        # What was sent meanwhile is lost; another attempt begins with all of it.
        self._end("its connection to the driver was lost")
        return []

    # -- the end, from any thread --------------------------------------------------------------

    def _end(self, failure: str | None) -> None:
        with self._changed:
            if not self._is_over:
                self._is_over = True
                self._failure = failure
            self._changed.notify()
        self._ended.set()
        self._rest.end()

    def _tell(self, message: str, error: str, *, permanent: bool = False) -> None:
        if not self._is_over:
            told = TaskFailed(*self._me, encodable(message), encodable(error[-_TEXT:]), permanent)
            with contextlib.suppress(WireError):
                self._client.send(told)
        self._end(message)

    def _fail(self, message: str, error: BaseException, *, permanent: bool = False) -> None:
        trace = "".join(traceback.format_exception(error))
        self._tell(f"{message}: {typed_text(error)}", trace, permanent=permanent)

    def _died(self, error: BaseException) -> None:
        self._fail("a thread of it died", error)

    # -- the function's thread -----------------------------------------------------------------

    def _call_function(
        self, function: Callable[..., Any], on_timer: Callable[..., Any] | None
    ) -> None:
        launch, answer = self._launch, self._subscribed
        if launch.state is None:
            self._take_blocks(_Program(function, lambda expired: None))
            return
        service = None
        if on_timer is not None or launch.watermark is not None:
            service = TimerService(launch.watermark, expire=on_timer is not None)
        try:
            with self._state_call.timed():
                state = KeyedState(launch.state, launch.attempt, answer.number, answer.end, service)
        except StateError as error:
            self._fail("it has no state", error, permanent=error.is_permanent)
            return
        more = (state,) if service is None or on_timer is None else (state, service.timers)
        program = _Program(
            lambda batch: function(batch, *more),
            lambda expired: None if on_timer is None else on_timer(expired, *more),
            state,
            service,
        )
        try:
            self._tell_due(service)
            self._take_blocks(program)
        finally:
            state.close()

    def _tell_due(self, timers: TimerService | None) -> None:
        """Report when there is something to do without a block, if that has changed."""
        if timers is not None and (due_ms := timers.due_ms()) != self._due_ms:
            self._due_ms = due_ms
            try:
                self._client.send(TimerDue(*self._me, due_ms))
            except WireError as error:
                self._end(f"the driver is gone: {error}")

    def _take_blocks(self, program: _Program) -> None:
        while (work := self._next()) is not None:
            if isinstance(work, ShownBlock):
                self._see_ahead(program, work)
            elif not self._take_work(program, work):
                return

    def _take_work(
        self, program: _Program, work: tuple[int, ReceivedBlockInfo, int] | EndEpoch
    ) -> bool:
        """Fill the epoch with a block, or end it; whether the attempt goes on."""
        try:
            if isinstance(work, EndEpoch):
                place, found = work.end, self._expire(program, work.clock_ms)
            else:
                place, info, added_ms = work
                found = self._expire(program, added_ms)
                self._with = f"block {info.block_id}"
                records, more = self._output_of_block(program, place, info)
                found += more + self._expire(program)
                self._records += records
        except (ContinuousTaskError, StateError) as error:
            is_permanent = not isinstance(error, StateError) or error.is_permanent
            self._fail(f"it failed with {self._with}", error, permanent=is_permanent)
            return False
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the program's code; reported
            self._fail(f"it failed with {self._with}", error)
            return False
        if found:
            self._by_place.append((place, found))
        return not isinstance(work, EndEpoch) or self._end_epoch(program, work)

    def _end_epoch(self, program: _Program, end: EndEpoch) -> bool:
        """Keep what an epoch changed, and hand what it made to the sink's thread."""
        state, timers = program.state, program.timers
        late, watermark_ms = _event_time(timers)
        letters = self._write_letters()
        if letters is None or not self._save(state, end):
            return False
        self._tell_due(timers)
        own = range(self._launch.task, end.parts, self._launch.tasks)
        parts: dict[int, list[Any]] = {part: [] for part in own}
        for place, batches in self._by_place:
            part = place % end.parts if state is None else self._launch.task
            parts[part].extend(batches)
        output = _Output(end, parts, self._records, letters, late, watermark_ms)
        self._by_place, self._records = [], 0
        self._sink_work.put(output)
        return True

    def _expire(self, program: _Program, clock_ms: int | None = None) -> list[Any]:
        """Call `on_timer` with what has expired at a moment of processing time.

        Without one: with what the watermark passed with a block.
        """
        found: list[Any] = []
        timers = program.timers
        if timers is None:
            return found
        expired = timers.behind_block() if clock_ms is None else timers.advance(clock_ms)
        while True:
            self._with = "its timers"
            with self._state_call.timed():
                each = next(expired, None)
            if each is None:
                return found
            self._with = f"the timers of {each.time_ms} ms of keys such as {each.keys[0]!r:.100}"
            with self._function_call.timed():
                found += _checked(program.on_timer(each), "on_timer")

    def _save(self, state: KeyedState | None, end: EndEpoch) -> bool:
        """Write what an epoch changed of the state; whether the attempt goes on."""
        if state is not None:
            try:
                with self._state_call.timed():
                    state.save(end.number, end.end)
            except StateError as error:
                self._fail("its state cannot be kept", error, permanent=error.is_permanent)
                return False
        return True

    def _write_letters(self) -> int | None:
        """Write the dead letters of an epoch, before it can be logged and its blocks can go.

        Returns:
            How many they are; None: they cannot be written, and the attempt is over.
        """
        if self._letters is None:
            return 0
        try:
            self._letters.write()
        except WalError as error:
            self._fail("its dead letters cannot be written", error)
            return None
        count, self._letters.count = self._letters.count, 0
        return count

    def _see_ahead(self, program: _Program, shown: ShownBlock) -> None:
        """Call the function with a block that is not logged yet, and keep what it makes of it.

        If it fails it does so again with the block's place, and that counts.
        """
        own = (shown.attempt, shown.block_id)
        self._behind = None
        self._with = f"block {shown.block_id}, which is not logged yet"
        try:
            block = shown_block(shown, self._launch.access)
            made = self._output_of(program, block, shown.block_id, None)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the program's code
            _limited_log.log(
                f"The function failed with {self._with}; when it is, it is called again: {error!r}",
                like="shown",
                error=error,
            )
            return
        self._ahead[own] = made
        self._behind = self._follows(*own)
        if len(self._ahead) > _MOST_AHEAD:
            # Of a receiver that died before they were logged.
            del self._ahead[next(iter(self._ahead))]

    def _follows(self, attempt: str, block_id: str) -> tuple[str, str]:
        """Return the next block of the same attempt that is this task's."""
        stream, _, number = block_id.rpartition("-")
        return attempt, f"{stream}-{int(number) + self._launch.tasks}"

    def _next(self) -> tuple[int, ReceivedBlockInfo, int] | EndEpoch | ShownBlock | None:
        """Wait for the next block, or the end of an epoch behind its last one; None: it is over.

        What is not logged yet is for when there is nothing else, and in order: it waits for those
        before it.
        """
        with self._changed:
            while not (self._blocks or self._ends or self._behind in self._shown or self._is_over):
                self._changed.wait()
            if self._is_over:
                return None
            if not (self._blocks or self._ends):
                assert self._behind is not None  # For mypy: it is one of those that were shown.
                return self._shown.pop(self._behind)
            if self._ends and not (self._blocks and self._blocks[0][0] < self._ends[0].end):
                return self._ends.popleft()
            place, info, added_ms = self._blocks.popleft()
            self._shown.pop((info.attempt, info.block_id), None)
            return place, info, added_ms

    def _output_of_block(
        self, program: _Program, place: int, info: ReceivedBlockInfo
    ) -> tuple[int, list[Any]]:
        """Return how many records of a block the function was given, and what it made of them."""
        if (made := self._ahead.pop((info.attempt, info.block_id), None)) is not None:
            return made
        self._behind = self._follows(info.attempt, info.block_id)
        if not info.num_records:
            return 0, []  # It carries a position or acknowledgements.
        return self._output_of(program, self._read(info), info.block_id, place)

    def _read(self, info: ReceivedBlockInfo) -> Block:
        with read_block(info, self._launch.access) as block:
            return _own(block)

    def _output_of(
        self, program: _Program, block: Block, block_id: str, place: int | None
    ) -> tuple[int, list[Any]]:
        if not block.num_records:
            return 0, []
        if block.kind is BlockKind.PICKLED:
            raise ContinuousTaskError(
                f"block {block_id} holds pickled objects: store bytes, text or Arrow, or "
                "declare a schema on the receiver"
            )
        found: list[Any] = []
        row = 0
        launch, timers = self._launch, program.timers
        has_columns = block.kind is BlockKind.ARROW
        for batch in list(block.batches()):
            if launch.state is not None:
                if timers is not None:
                    timers.observe(batch)
                key_by = launch.state.key_by
                batch = rows_of_part(batch, key_by, launch.task, launch.tasks)
                if timers is not None:
                    batch = timers.on_time(batch)
                if not batch.num_rows:
                    continue
            found += self._results(program.function, batch, has_columns, place, row)
            row += batch.num_rows
        return row, found

    def _results(
        self,
        function: Callable[[pa.RecordBatch], pa.RecordBatch | None],
        batch: pa.RecordBatch,
        has_columns: bool,
        place: int | None,
        row: int,
    ) -> list[Any]:
        """Return what the function makes of a batch, which begins at a row of the block.

        With dead letters one that it does not take is halved, down to the records that it raises
        for; not where the block has no place yet.
        """
        try:
            with self._function_call.timed():
                result = function(batch)
        except MemoryError:
            # It says nothing of the record.
            raise
        except Exception as error:
            if self._letters is None or place is None:
                raise
            if batch.num_rows > 1:
                half = batch.num_rows // 2
                first, second = batch.slice(0, half), batch.slice(half)
                return [
                    *self._results(function, first, has_columns, place, row),
                    *self._results(function, second, has_columns, place, row + half),
                ]
            self._letters.add(_record_of(batch, has_columns), error, f"{place}:{row}")
            return []
        return _checked(result)

    # -- the sink's thread ---------------------------------------------------------------------

    def _call_sink(self, sink: Sink) -> None:
        waiting: dict[int, _Output] = {}
        try:
            with self._sink_call.timed():
                sink.open(self._subscribed.source, self._launch.task)
            while (work := self._sink_work.get()) is not None and not self._is_over:
                if isinstance(work, int):
                    self._commit(sink, waiting.pop(work))
                    continue
                for part, batches in work.parts.items():
                    with self._sink_call.timed():
                        sink.prepare(self._epoch(work, part), batches)
                if work.end.is_logged:
                    self._commit(sink, work)
                else:
                    waiting[work.end.number] = work
                    self._client.send(EpochPrepared(*self._me, work.end.number))
        except WireError as error:
            self._end(f"the driver is gone: {error}")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the program's code; reported
            is_permanent = isinstance(error, SinkError) and not error.is_held
            self._fail("the sink failed", error, permanent=is_permanent)
        finally:
            with contextlib.suppress(Exception), self._sink_call.timed():
                sink.close()

    def _commit(self, sink: Sink, output: _Output) -> None:
        for part, batches in output.parts.items():
            if not self._is_committed(sink, self._epoch(output, part), batches):
                return
        number, counts = output.end.number, (output.records, output.letters, output.late)
        self._client.send(EpochCommitted(*self._me, number, *counts, output.watermark_ms))

    def _is_committed(self, sink: Sink, epoch: Epoch, batches: list[Any]) -> bool:
        """Have the sink commit a part; False: the attempt ended while it was held."""
        held_s = time.monotonic() + _HELD_S
        while True:
            try:
                with self._sink_call.timed():
                    sink.commit(epoch, batches)
            except SinkError as error:
                if not error.is_held or time.monotonic() > held_s:
                    raise
                self._held = f"{self._sink_call.what} ({encodable(str(error))[:_HELD_TEXT]})"
                if self._ended.wait(_LOOK_S):
                    return False
            else:
                self._held = ""
                return True

    def _epoch(self, output: _Output, part: int) -> Epoch:
        return Epoch(self._subscribed.source, output.end.number, part, self._launch.attempt)


def _own(block: Block) -> Block:
    """Return a block whose memory no one else has."""
    return replace(
        block, data=memoryview(bytes(block.data)), offsets=memoryview(bytes(block.offsets))
    )


def _record_of(batch: pa.RecordBatch, has_columns: bool) -> Any:
    """Return the record of a batch that has one: its columns, or what is in the only one."""
    try:
        return batch.to_pylist()[0] if has_columns else batch.column(0)[0].as_py()
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - Python has no value for it; it is kept as Arrow has it
        return batch


def _event_time(timers: TimerService | None) -> tuple[int, int | None]:
    """Return how many rows of an epoch were late, and where the watermark is."""
    if timers is None:
        return 0, None
    now_ms = timers.timers.event_time.now_ms
    return timers.late, None if now_ms == NO_WATERMARK else now_ms


def _checked(result: Any, what: str = "the function") -> list[Any]:
    """Return what a call made: a batch, if it has rows."""
    import pyarrow as pa

    if result is None:
        return []
    if not isinstance(result, pa.RecordBatch):
        raise ContinuousTaskError(
            f"{what} must return a pyarrow.RecordBatch or None, and returned "
            f"{type(result).__name__}"
        )
    return [result] if result.num_rows else []
