"""Several receivers in one slot: one Spark task, and one process for those that behave.

What must hold
--------------

* What a user sees of a receiver is the same as with a task of its own: each has its supervisor,
  gate, log, connection and attempts, and its states, errors, restarts and addresses.
* A receiver that is stopped, restarted or fails alone does not touch its slot mates.
* One that ends the process takes its mates down, which start again from their positions, as after
  any other death of a process. It is in a process of its own from then on. Where no one can say
  which one it was (a signal, or memory that ran short), half of them move to another process, so
  that after some more such ends it is alone.
* A receiver that has left threads behind, which may spin or hang, starts again in a process of its
  own, where it cannot disturb its mates; and so does one whose coroutine does not end.
* One that holds the event loop of the async sources, or all of the process, while others need it
  ends the process, as if it had done so itself.
* One that burns CPU or lets the process grow (`slot_load`) is stopped, and starts
  again in a process of its own; its mates go on. If what it leaves behind goes on like that, the
  process ends.
* No process outlives the Spark task: the system kills it with the task's own process, or it ends
  itself within `LOOK_S`.

Layout
------

The Spark task is a *keeper* (`run_slot`): it has one thread, forks the processes, and watches
them, also whether they watch their receivers; no code of an author runs in it. A *slot process*
(`_SlotProcess`) is connected to the tracker. It says whose receivers it runs, is sent the attempts
to start, runs each by `receiver_steps` and says how it ended. The driver's half is
`penstock.tracker.receivers.slots`, behind which nothing knows that receivers share a task.

A receiver has one thread of ours in it, which moves its blocks (``one_thread`` of
`penstock.receiver.blocks.block_generator`). The rest are for all receivers of the process
(`penstock.receiver.threads`): one for the code of async sources, and those for what waits; a
supervisor has one of these while it starts, stops or restarts its receiver.

Life of a slot process: forked with its streams → registered, with what the process before it died
of, whose attempts fail by that → attempts, one at a time for each stream → asked to end when none
of the slot's receivers has another start. It reports to its keeper, through a pipe, which receiver
called `os._exit`, which moves to another process, and that it ends as it was asked to.

Threads say whose they are by a mark that each thread hands on to those that it starts.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import stat
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from penstock.blockstore.process_log import ProcessLogs
from penstock.errors import PenstockError, encodable
from penstock.files.addresses import is_on_hdfs
from penstock.receiver.attempts.launch import ReceiverLaunch
from penstock.receiver.attempts.slot_load import SlotLoad
from penstock.receiver.attempts.supervisor import ReceiverSupervisor
from penstock.receiver.attempts.task import LOOK_S, receiver_steps
from penstock.receiver.exit_report import ExitKind, ExitReport, ReceiverFailedError
from penstock.receiver.threads.shared_threads import SharedThreads
from penstock.receiver.threads.slot_board import Board, Silence
from penstock.receiver.threads.source_loop import running_stream
from penstock.receiver.threads.workers import Wake, run_steps
from penstock.receiver.user_calls import is_ours, mark_new_threads, stream_of
from penstock.runtime.processes import die_with
from penstock.wal import has_used_objects
from penstock.wire import AskTimeoutError, Client, WireError
from penstock.wire.messages import (
    AttemptEnded,
    Message,
    Ok,
    RegisterSlot,
    StartAttempt,
    StopReceiver,
)

_log = logging.getLogger("penstock.receiver")

_TEXT_LIMIT = 16_000
"""Characters of a traceback that travel: its end."""

_LEFT_S = 1.0
"""How long an author's threads may take to end after their attempt."""

_LOST_S = 30.0
"""How long a receiver may take to store its last blocks whose process has lost the driver."""

_MOVE_S = 10.0
"""How long a receiver that is to leave its process may take to stop."""

_STARTS = 4
"""How many receivers of a process start at a time: a driver with many processes has to keep up."""

_SHORT_LIFE_S = 1.0
"""The next process of one that ended sooner waits for as long, so that nothing spins."""


@dataclass(frozen=True)
class SlotLaunch:
    """All that an executor needs to run the receivers of a slot; travels in a task's closure.

    Attributes:
        number: The slot.
        task: This Spark task of it; no other one has this name.
        launches: By stream, the launch of its attempts, whose names come later.
        groups: The streams of each process.
    """

    number: int
    task: str
    launches: Mapping[int, ReceiverLaunch]
    groups: Sequence[tuple[int, ...]]


def run_slot(launch: SlotLaunch) -> None:
    """Run the processes of a slot until all of them have ended; the body of its Spark task.

    Raises:
        PenstockError: One of them could not begin.
        ReceiverFailedError: This worker has read blocks on an object store, whose client a fork
            does not survive. Spark ends a worker that fails; no receiver is given up for that.
    """
    if has_used_objects():
        raise ReceiverFailedError(
            min(launch.launches, default=0),
            ExitKind.FAILED,
            "this Python worker has used object storage, so that no process that it forks can: "
            "the receivers start in another worker",
        )
    _Keeper(launch).run()


@dataclass
class _Child:
    pid: int
    streams: list[int]
    started_s: float
    silence: Silence
    words: bytes = b""
    is_told: bool = False
    culprit: int | None = None
    reason: str = ""
    failed: str = ""


class _Keeper:
    """Forks the processes of a slot and sees to it that each of its streams has one."""

    def __init__(self, launch: SlotLaunch) -> None:
        self._launch = launch
        self._children: dict[int, _Child] = {}  # by the end of the pipe that is read
        self._poll = select.poll()
        self._forked = 0

    def run(self) -> None:
        parent = os.getppid()
        try:
            for streams in self._launch.groups:
                self._fork(streams, "")
            while self._children and os.getppid() == parent:
                if not (heard := self._poll.poll(LOOK_S * 1000)):
                    self._look()
                for pipe, _ in heard:
                    if not self._hear(pipe):
                        # It has ended, or nearly; how, the system keeps.
                        pid = self._children[pipe].pid
                        os.kill(pid, signal.SIGKILL)
                        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
                for pipe, child in list(self._children.items()):
                    pid, status = os.waitpid(child.pid, os.WNOHANG)
                    if pid:
                        # Something that it has forked itself may hold the pipe open.
                        os.set_blocking(pipe, False)
                        while self._hear(pipe):
                            pass
                        self._ended(pipe, status)
        finally:
            for child in self._children.values():
                os.kill(child.pid, signal.SIGKILL)
                os.waitpid(child.pid, 0)

    def _look(self) -> None:
        """End processes in which something lets nothing else run."""
        for child in self._children.values():
            if len(child.streams) > 1 and (silent := child.silence.look()) is not None:
                child.culprit, child.reason = silent
                os.kill(child.pid, signal.SIGKILL)

    def _fork(self, streams: Sequence[int], ended: str) -> None:
        pipe, words = os.pipe()
        board = Board()
        self._forked += 1
        for file in (sys.stdout, sys.stderr):
            file.flush()
        keeper = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become_process(self._launch, self._forked, streams, ended, words, keeper, board)
        os.close(words)
        child = _Child(pid, list(streams), time.monotonic(), Silence(pid, board))
        self._children[pipe] = child
        self._poll.register(pipe, select.POLLIN)

    def _hear(self, pipe: int) -> bool:
        """Act on what a process reports; False: there is no more."""
        child = self._children[pipe]
        try:
            heard = os.read(pipe, 1 << 16)
        except BlockingIOError:
            return False
        *lines, child.words = (child.words + heard).split(b"\n")
        for line in lines:
            word, stream, text = json.loads(line)
            if word == "end":
                child.is_told = True
            elif word == "failed":
                child.failed = text
            elif word == "fell":
                child.culprit, child.reason = stream, text
            elif word == "move" and stream in child.streams:
                child.streams.remove(stream)
                self._fork([stream], text)
                if not child.streams:
                    child.is_told = True
                    os.kill(child.pid, signal.SIGKILL)
        return bool(heard)

    def _ended(self, pipe: int, status: int) -> None:
        child = self._children.pop(pipe)
        self._poll.unregister(pipe)
        os.close(pipe)
        if child.failed:
            raise PenstockError(child.failed)
        if child.is_told:
            return
        if time.monotonic() - child.started_s < _SHORT_LIFE_S:
            time.sleep(_SHORT_LIFE_S)
        streams, culprit = child.streams, child.culprit
        is_alone = len(streams) == 1
        whose = f"receiver{'' if is_alone else 's'} {', '.join(map(str, streams))}"
        text = f"The process of {whose} {_how(status)}"
        if culprit in streams:
            text = f"Receiver {culprit} {child.reason}"
            if is_alone:
                text += ", in a process of its own"
            else:
                text += f" in the process of {whose}; it is in a process of its own now"
            groups = [[culprit], [stream for stream in streams if stream != culprit]]
        elif child.reason and culprit is not None:
            # What was left of it when it moved to a process of its own.
            text += f": what receiver {culprit} has left there {child.reason}"
            groups = [streams]
        else:
            if child.reason:
                text = f"Something {child.reason} in the process of {whose}"
            half = len(streams) // 2
            groups = [streams[:half], streams[half:]]
            if half:
                text += (
                    "; it is not known which one ended it, so half of them are in another one now"
                )
        for group in groups:
            if group:
                self._fork(group, text)


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"ended with exit code {code}"
    # Not each number has a name.
    names = {known.value: known.name for known in signal.Signals}
    return f"was killed by {names.get(-code, f'signal {-code}')} (is memory short?)"


def _become_process(
    launch: SlotLaunch,
    number: int,
    streams: Sequence[int],
    ended: str,
    words: int,
    keeper: int,
    board: Board,
) -> None:
    """Be the slot process; never returns."""
    code = 1
    leave = os._exit
    try:
        try:
            _SlotProcess(launch, number, streams, ended, words, keeper, board).run()
            code = 0
        except BaseException:  # noqa: BLE001 - the keeper has it reported to the driver
            _say(words, "failed", text=traceback.format_exc())
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        leave(code)


def _say(words: int, word: str, stream: int = -1, text: str = "") -> None:
    """Report something to the keeper."""
    line = json.dumps([word, stream, encodable(text)[-_TEXT_LIMIT:]])
    os.write(words, line.encode() + b"\n")


class _SlotProcess:
    """Runs the attempts that it is sent, beside one another.

    `_lock` guards the streams and what runs.

    Attributes:
        failure: What it is to end of, or None.
    """

    def __init__(
        self,
        launch: SlotLaunch,
        number: int,
        streams: Sequence[int],
        ended: str,
        words: int,
        keeper: int,
        board: Board,
    ) -> None:
        self._launch = launch
        self._number = number
        self._ended = ended
        self._words = words
        self._keeper = keeper
        self._board = board
        self._pid = os.getpid()
        self._saying = threading.RLock()
        self._lock = threading.Lock()
        self._streams = list(streams)
        self._attempts: dict[int, str] = {}  # the newest of each stream
        self._running: dict[str, tuple[int, ReceiverSupervisor | None]] = {}  # until it is reported
        self._logs = ProcessLogs()
        self._over = threading.Event()
        self._lost: WireError | None = None
        self.failure: BaseException | None = None
        self._threads = SharedThreads(f"slot-{launch.number}", board)
        self._starting = threading.Semaphore(_STARTS)
        one = next(iter(launch.launches.values()))
        self._load = SlotLoad(self._threads.sources, one.settings.slot_memory_bytes)
        self._leaving: set[int] = set()
        self._client = Client(
            one.link,
            on_message=self._on_message,
            on_reconnect=lambda: [self._registration()],
            on_hello_answer=lambda _, answer: self._take(answer),
            on_closed=self._on_closed,
            name=f"receiver-slot-{launch.number}",
            options=one.wire_options,
            loop=self._threads.connections,
        )

    def _say(self, word: str, stream: int = -1, text: str = "") -> None:
        with self._saying:
            _say(self._words, word, stream, text)

    def run(self) -> None:
        die_with(self._keeper)
        _forget_sockets()
        mark_new_threads(running_stream, self._board.show_thread)
        self._tell_of_exits()
        self._threads.start()
        self._client.connect()
        self._take(self._client.ask(self._registration()))
        self._board.show_look()
        while not self._over.wait(LOOK_S):
            self._board.show_look()
            if self._lost is not None:
                # Its receivers are to start again, also if other processes' go on.
                self._end_all(self._lost)
            if os.getppid() != self._keeper:
                return
            self._give_up_hanging()
            with self._lock:
                streams = list(self._streams)
            if (held := self._threads.sources.look()) is not None:
                self._fall(*held)
            elif (found := self._load.look(streams)) is not None:
                self._send_away(*found)
        if self.failure is not None:
            raise self.failure
        self._say("end")

    def _fall(self, stream_id: int, reason: str) -> None:
        self._say("fell", stream_id, reason)
        os._exit(1)

    def _send_away(self, stream_id: int, reason: str) -> None:
        """Have a receiver start again in a process of its own."""
        with self._lock:
            is_here = stream_id in self._streams
            running = [one for number, one in self._running.values() if number == stream_id]
            if is_here and (stream_id in self._leaving or not running):
                return
            self._leaving.add(stream_id)
        _log.warning("receiver %d %s", stream_id, reason)
        if not is_here or running[0] is None:
            # What it left behind goes on, or it does not come so far that it can be stopped.
            self._fall(stream_id, reason)
        else:
            running[0].end(ExitReport(ExitKind.FAILED, f"it {reason}"), _MOVE_S)

    def _registration(self) -> RegisterSlot:
        with self._lock:
            streams = tuple(self._streams)
        return RegisterSlot(
            self._launch.number, self._launch.task, self._number, streams, self._ended
        )

    def _take(self, answer: Message) -> None:
        if not isinstance(answer, Ok):
            _log.info("the slot's process ends: %s", answer)
            self._over.set()

    def _on_message(self, message: Message) -> None:
        if isinstance(message, StartAttempt):
            self._start(message.stream_id, message.attempt)
        elif isinstance(message, StopReceiver):
            self._over.set()
        else:
            _log.warning("slot %d: unexpected %r", self._launch.number, message)

    def _on_closed(self, error: WireError) -> None:
        _log.info("the slot's process ends because its driver cannot be reached: %s", error)
        self._lost = error

    def _end_all(self, lost: WireError) -> None:
        """End the receivers, also those that reach the driver: it hears of no attempt's end.

        Raises:
            WireError: None of them runs any more.
        """
        with self._lock:
            running = list(self._running.values())
        if not running:
            raise lost
        for stream_id, supervisor in running:
            if supervisor is not None and supervisor.seconds_to_end() is None:
                text = f"The process of receiver {stream_id} cannot reach its driver"
                supervisor.end(ExitReport(ExitKind.FAILED, text, lost), _LOST_S)

    def _start(self, stream_id: int, attempt: str) -> None:
        """Start an attempt; the driver may send it again after a reconnect."""
        with self._lock:
            if stream_id not in self._streams or self._attempts.get(stream_id) == attempt:
                return
            self._attempts[stream_id] = attempt
            self._running[attempt] = stream_id, None
        run_steps(
            self._run_attempt(stream_id, attempt),
            lambda step: self._do(stream_id, step, f"supervisor-{stream_id}"),
        )

    def _do(self, stream_id: int, work: Callable[[], object], name: str) -> None:
        def do() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - it ends the process
                self._fail(error)

        try:
            self._threads.workers.post(do, name, stream_id)
        except RuntimeError as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """End the process: no one would hear how an attempt has ended."""
        self.failure = error
        self._over.set()

    def _run_attempt(self, stream_id: int, attempt: str) -> Iterator[Wake]:
        error = ""
        try:
            with contextlib.ExitStack() as stack, contextlib.ExitStack() as starting:
                launch = replace(
                    self._launch.launches[stream_id], attempt=attempt, threads=self._threads
                )
                settings = launch.settings
                # On HDFS a segment is read once it is closed; a function's blocks wait for no one.
                alone = is_on_hdfs(launch.logs.root) or launch.seals_early or settings.retains
                if not alone:
                    interval_s = settings.block_interval_ms / 1000
                    log = stack.enter_context(self._logs.use(launch.logs.root, interval_s))
                    launch = replace(launch, process_log=log)

                def watch(supervisor: ReceiverSupervisor) -> None:
                    with self._lock:
                        self._running[attempt] = stream_id, supervisor
                    starting.enter_context(self._starting)

                yield from receiver_steps(launch, on_registered=starting.close, watch=watch)
        except BaseException:  # noqa: BLE001 - the driver hears of it
            error = traceback.format_exc()[-_TEXT_LIMIT:]
        with self._lock:
            is_given_up = self._running.pop(attempt, None) is None
        if not is_given_up:
            self._end(stream_id, attempt, error)

    def _give_up_hanging(self) -> None:
        """Leave attempts behind that were to end and hang."""
        with self._lock:
            running = list(self._running.items())
        for attempt, (stream_id, supervisor) in running:
            left_s = None if supervisor is None else supervisor.seconds_to_end()
            if supervisor is None or left_s is None or left_s > 0:
                continue
            with self._lock:
                if self._running.pop(attempt, None) is None:
                    continue
            report = supervisor.give_up()
            error = str(ReceiverFailedError(stream_id, report.kind, report.message))
            end = partial(self._end, stream_id, attempt, error)
            self._do(stream_id, end, f"given-up-{stream_id}")

    def _end(self, stream_id: int, attempt: str, error: str) -> None:
        """Report how an attempt has ended."""
        left = _threads_of(stream_id) + self._threads.sources.left(stream_id) if error else []
        with self._lock:
            moves = bool(error) and (bool(left) or stream_id in self._leaving)
            if moves:
                self._streams.remove(stream_id)
            else:
                self._leaving.discard(stream_id)
        if moves:
            why = f"it left {', '.join(left)} behind, so " if left else ""
            text = f"{error.rstrip()} ({why}it starts in a process of its own)"
            self._say("move", stream_id, text)
            return
        self._tell_end(AttemptEnded(self._launch.number, stream_id, attempt, encodable(error)))

    def _tell_end(self, message: AttemptEnded) -> None:
        while True:
            try:
                self._client.ask(message)
            except AskTimeoutError:
                continue  # Until the client gives up.
            except WireError as error:
                _log.info("the driver was not told of the end of an attempt: %s", error)
            return

    def _tell_of_exits(self) -> None:
        leave = os._exit

        def tell(status: int) -> None:
            stream_id = running_stream()
            # A process that was forked off by an author's code ends itself alone.
            if os.getpid() == self._pid and stream_id is not None:
                self._say("fell", stream_id, f"called os._exit({status})")
            leave(status)

        os._exit = tell  # type: ignore[assignment]


def _threads_of(stream_id: int) -> list[str]:
    """Return the threads that an attempt's author has left behind."""
    end_s = time.monotonic() + _LEFT_S

    def is_there(thread: threading.Thread) -> bool:
        in_call = thread.name.startswith(f"penstock-receiver-{stream_id}-")
        is_its = stream_of(thread) == stream_id and (in_call or not is_ours(thread.name))
        return is_its and thread.is_alive()

    there = list(filter(is_there, threading.enumerate()))
    for thread in there:
        thread.join(max(0.0, end_s - time.monotonic()))
    # A thread of the workers may do something else by now.
    return [thread.name for thread in filter(is_there, there)]


def _forget_sockets() -> None:
    """Leave the connection with Spark to the keeper, or it would stay open when that has died."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/dev/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                os.dup2(nothing, int(name), inheritable=False)
        except OSError:
            continue  # It was the folder's own.
    os.close(nothing)
