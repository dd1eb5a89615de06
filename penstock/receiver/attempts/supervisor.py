"""`ReceiverSupervisor`: runs one attempt of one receiver, from registration to the last block."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from itertools import chain, repeat

import msgspec

from penstock.blockstore import BlockStore, SealedBlock
from penstock.dead_letters import DeadLetterBudgetError
from penstock.errors import IllegalStateError, PenstockError, SettingError
from penstock.files.addresses import is_on_objects
from penstock.receiver.attempts.attempt_state import (
    AttemptState,
    Bounds,
    Failures,
    RestartRequest,
    SupervisorState,
)
from penstock.receiver.attempts.launch import ReceiverLaunch
from penstock.receiver.attempts.rate_status import RateStatus
from penstock.receiver.attempts.tracker_client import TrackerClient
from penstock.receiver.base import NOT_ATTACHED, Receiver
from penstock.receiver.blocks.block_generator import (
    BlockGenerator,
    BlockNotStoredError,
    BlocksRefusedError,
    RateUsage,
)
from penstock.receiver.blocks.letters_again import LettersInHand, send_again
from penstock.receiver.blocks.pipeline import CALLBACK_S
from penstock.receiver.door import (
    AsyncSources,
    EarlierStarts,
    ReceiverStoppedError,
    Start,
    StoreDoor,
)
from penstock.receiver.exit_report import ExitKind, ExitReport, ReceiverFailedError, described
from penstock.receiver.listening import reachable
from penstock.receiver.splits import PositionError
from penstock.receiver.threads.workers import Wake
from penstock.receiver.user_calls import Author, UserCall, blocked_at, is_ours, threads_of
from penstock.runtime.clock import Clock, SystemClock
from penstock.runtime.event_loop import EventLoop
from penstock.runtime.threads import OwnedThread
from penstock.wal import LogFullError
from penstock.wire import WireError
from penstock.wire.messages import (
    CleanupOldBlocks,
    EnsureBlockServer,
    Message,
    ReceivedBlockInfo,
    Refused,
    Registered,
    RegisterReceiver,
    RestartReceiver,
    SealBlock,
    SendLetters,
    StopReceiver,
    UpdateRateLimit,
)

__all__ = ["ReceiverSupervisor", "SupervisorState"]

logger = logging.getLogger("penstock.receiver")

IDLE_S = 60.0
"""The longest single wait; a bound in case a wake-up is missed."""

_BLOCK_SERVER_PAUSES_S = (0.5, 2.0, 10.0, 60.0)
"""Pauses between the tries to start the host's block server."""

_SHOWN_BYTES = 256 << 10
"""The largest block that is shown to a function before it is logged."""

_STEP_S = 1.0
_MAX_FAILURES = 10
_MAX_DELAY_MS = 60_000

_OUT_OF_REACH = (ExitKind.LOST, ExitKind.REFUSED)
"""After these no one takes the last blocks; their source was not acknowledged."""


class ReceiverSupervisor:
    """Runs a receiver: registers, starts and stops it, stores what it gives, reports to the driver.

    One thread, ``penstock-supervisor-<streamId>``, does everything that takes time, in order; its
    own, or where receivers share a process one that it has while there is work (`steps`). Anyone
    who calls `stop`, `restart` or `report_error` only leaves a request, so these may be called from
    any thread, the receiver's own among them. `onStart` and `onStop` run in threads of their own
    and are waited for with a bound. What the driver releases goes in another thread
    (``penstock-release-<streamId>``): a stop may also wait for memory. That one, and the one that
    reports (``penstock-rate-status-<streamId>``), it may share with others.

    The order of a stop is what I10 needs: what was stored with an acknowledgement is made durable
    and acknowledged while its source is open, the state changes, `onStop` runs while `store` still
    takes what has no acknowledgement, the generator seals, stores and reports the last block, the
    driver is notified, and only then are log and connection closed. (Spark closes its log first and
    loses that block.)

    What is shared with other threads is in an `AttemptState`, with its lock; each change of state
    is one method of it.
    """

    def __init__(
        self,
        receiver: Receiver,
        registration: RegisterReceiver,
        launch: ReceiverLaunch,
        start_block_server: Callable[[], None],
        on_registered: Callable[[], None] = lambda: None,
    ) -> None:
        """Make a supervisor; `start` runs it.

        Args:
            receiver: The author's object. It is attached to this supervisor.
            registration: What the tracker gets at each start.
            launch: Makes the block store and the generator; its settings say how long to wait.
            start_block_server: Makes sure that this host's block server runs; may be called again.
            on_registered: Called each time when the driver has answered a registration.
        """
        self.stream_id = registration.stream_id
        shared = launch.threads
        self.sources: AsyncSources | None = None if shared is None else shared.sources
        self._receiver = receiver
        self._host = registration.host
        self._launch = launch
        self._start_block_server = start_block_server
        self._on_registered = on_registered
        settings = launch.settings
        self._restart_delay_ms = settings.receiver_restart_delay_ms
        self._failures = Failures(
            settings.receiver_max_failures, int(settings.restart_max_delay_s * 1000)
        )
        self._bounds = Bounds(
            drain_s=settings.graceful_stop_timeout_ms / 1000, ask_s=settings.ask_timeout_s
        )
        self._clock: Clock = SystemClock()
        self._tracker = TrackerClient(registration)
        self._attempt = AttemptState(self.stream_id)
        threads = launch.threads
        if threads is None:
            self._reporting = EventLoop(f"rate-status-{self.stream_id}", self._thread_failed)
            self._releasing = EventLoop(f"release-{self.stream_id}", self._on_release_failed)
        else:
            self._reporting, self._releasing = threads.reporting, threads.releasing
        self._rate_status = RateStatus(
            self._reporting,
            self._report_rate_status,
            self._thread_failed,
            launch.report_interval_s,
        )
        self._author: Author | None = None
        self._door: StoreDoor | None = None
        self._earlier = EarlierStarts(self.stream_id, self.report_error, self._fail_with)
        self._storage: BlockStore | None = None
        self._generator: BlockGenerator | None = None
        self._helpers: list[UserCall] = []
        self._letters = LettersInHand()
        self._server_help: UserCall | None = None
        self._on_stop_by_s = 0.0
        self._thread: threading.Thread = OwnedThread(self._run, f"supervisor-{self.stream_id}")
        receiver.streamId = self.stream_id

    # -- from any thread -------------------------------------------------------------------------

    def start(self) -> None:
        """Begin. Returns at once; what goes wrong is in the `ExitReport`."""
        self._thread.start()

    def await_stop(self, timeout_s: float) -> bool:
        """Wait until the attempt is to end, or has; return whether it is."""
        return self._attempt.stopping.wait(timeout_s)

    def await_termination(self, timeout_s: float | None = None) -> ExitReport | None:
        """Wait until the attempt has ended and everything is closed.

        Returns:
            How it ended, or None when `timeout_s` seconds passed first.
        """
        if not self._attempt.ended.wait(timeout_s):
            return None
        if threading.current_thread() is not self._thread:
            self._thread.join(self._bounds.user_call_s)
        return self._attempt.exit_report

    @property
    def state(self) -> SupervisorState:
        """The state now."""
        return self._attempt.state

    def is_started(self) -> bool:
        """Whether the receiver runs."""
        return self.state is SupervisorState.STARTED

    def is_stopped(self) -> bool:
        """Whether a stop or restart has begun; False before the first start."""
        return self.state is SupervisorState.STOPPED

    def on_stop_left_s(self) -> float:
        """Return how long `onStop` may still take."""
        left_s = self._on_stop_by_s - time.monotonic()
        if self._attempt.stop_by_s is None:
            return left_s
        # The last blocks get some of the stop's time.
        return max(left_s, self._stop_left_s() - self._bounds.abandon_s)

    def restart(
        self, message: str, error: BaseException | None = None, delay_ms: int | None = None
    ) -> None:
        """Ask for a restart; see `Receiver.restart`. Merged with one that is under way."""
        delay = self._restart_delay_ms if delay_ms is None else max(0, delay_ms)
        request = RestartRequest(message, error, delay, may_grow=delay_ms is None)
        if not self._attempt.ask_restart(request):
            logger.info(
                "receiver %d: a stop or restart is under way already, so this is no second one: %s",
                self.stream_id,
                message,
            )

    def stop(self, message: str, error: BaseException | None = None) -> None:
        """Ask for the end of this attempt, after which the driver starts another."""
        self.end(ExitReport(ExitKind.RECEIVER, message, error))

    def finish(self, message: str) -> None:
        """Ask for the end of this attempt because the source has ended: for good."""
        self.end(ExitReport(ExitKind.FINISHED, message))

    def end(self, exit_report: ExitReport, timeout_s: float | None = None) -> None:
        """Ask for the end of this attempt; the first such request says why.

        Args:
            exit_report: Why.
            timeout_s: How long the stop may take; None: as the bounds say.
        """
        if timeout_s is None:
            out_of_reach = exit_report.kind in _OUT_OF_REACH
            timeout_s = self._bounds.abandon_s if out_of_reach else self._bounds.drain_s
        self._attempt.ask_stop(exit_report, timeout_s)
        generator = self._generator
        if exit_report.kind in _OUT_OF_REACH and generator is not None:
            # Also in the middle of a stop that has more time: no one takes what waits.
            generator.give_up_within(timeout_s)

    def seconds_to_end(self) -> float | None:
        """Return how long the attempt may still take to end; None while it is not to end."""
        stop_by_s = self._attempt.stop_by_s
        if stop_by_s is None:
            return None
        return stop_by_s + self._bounds.overrun_s - time.monotonic()

    def give_up(self) -> ExitReport:
        """Say what hangs in an attempt that was to end; it is left behind."""
        stop = self._attempt.stop
        asked = stop.message if stop is not None else "no one asked it to end"
        text = (
            f"Receiver {self.stream_id} was to end ({asked}) and hangs at "
            f"{blocked_at(self._thread, frames=5)}"
        )
        logger.error("%s", text)
        self._tracker.report_error(text, None)
        try:
            # Its process may live on, with others: what hangs is not to be taken for a receiver.
            self._tracker.close()
        except WireError as error:
            self._on_close_failed(error)
        return ExitReport(ExitKind.FAILED, text, stop.error if stop is not None else None)

    def report_error(self, message: str, error: BaseException | None = None) -> None:
        """Report an error to the driver, and go on."""
        # The driver logs it where the user looks, or else `TrackerClient` does here.
        logger.info("receiver %d: %s", self.stream_id, message, exc_info=error)
        self._tracker.report_error(message, error)

    def listening(self, addresses: tuple[str, ...]) -> None:
        """Report to the driver where the receiver listens."""
        told = tuple(reachable(address, self._host) for address in addresses)
        logger.info("receiver %d listens at %s", self.stream_id, ", ".join(told) or "no address")
        self._tracker.report_addresses(told)

    def seal(self) -> None:
        """Have the open block sealed soon; see `Receiver.seal`."""
        launch, generator = self._launch, self._generator
        is_dear = launch.settings.retains or is_on_objects(launch.logs.root)
        if generator is not None and not is_dear:
            generator.seal_when_free()

    def thread_died(self, thread: threading.Thread | None, error: BaseException) -> None:
        """A thread of this process ended with an exception: report it, and restart the receiver.

        Without a thread of ours nothing can go on, so then the attempt ends. Once a stop has begun,
        a thread of the author's that ends because it can no longer store is expected; and so is the
        end of one from before the last restart.
        """
        name = thread.name if thread is not None else "(unknown)"
        message = f"Thread {name} of receiver {self.stream_id} died: {described(error)}"
        is_older = thread in self._earlier or isinstance(error, ReceiverStoppedError)
        if is_ours(name):
            self.report_error(message, error)
            self.end(ExitReport(ExitKind.FAILED, message, error))
        elif self.is_started() and not is_older:
            self.restart(message, error)
        else:
            logger.info("%s (after the receiver was stopped)", message, exc_info=error)

    # -- the supervisor's thread -----------------------------------------------------------------

    def _run(self) -> None:
        for wake in self.steps():
            self._clock.wait(wake, IDLE_S)

    def steps(self) -> Generator[Wake, None, ExitReport]:
        """Run in the threads that ask for the next step, one at a time, in place of `start`.

        Yields where there is nothing to do, what is set when there is; returns how it ended.
        """
        self._thread = threading.current_thread()
        try:
            self._open()
            if self._register():
                self._start_receiver()
                while self._wait_for(lambda: True):
                    if self._attempt.restart is None:
                        yield self._attempt.wake
                        self._thread = threading.current_thread()
                    elif not self._restart_receiver():
                        break
        except BaseException as error:  # noqa: BLE001 - the driver hears of it, all is closed
            self._fail(f"Error starting receiver {self.stream_id}", error)
        exit_report = self._attempt.stop or ExitReport(ExitKind.FAILED, "it ended without a reason")
        try:
            exit_report = self._close(exit_report)
        except BaseException as error:  # noqa: BLE001 - waiters for the end must learn of it
            exit_report = ExitReport(
                ExitKind.FAILED, f"Error stopping receiver: {described(error)}", error
            )
        finally:
            self._attempt.become_ended(exit_report)
        return exit_report

    def _open(self) -> None:
        self._tracker.connect(
            self._launch,
            on_message=self._on_message,
            on_hello_answer=self._on_hello_answer,
            on_closed=self._on_driver_lost,
        )
        self._ensure_block_server()
        if self._launch.threads is None:
            self._releasing.start()
            self._reporting.start()

    def _ensure_block_server(self) -> None:
        """Start it without waiting: blocks can be stored, and read on this host, without it.

        It is tried until there is one: it may be killed, or the host be short of memory for now.
        """
        if self._server_help is not None and not self._server_help.join(0):
            return  # It is tried.

        def start() -> None:
            for pause_s in chain(_BLOCK_SERVER_PAUSES_S, repeat(_BLOCK_SERVER_PAUSES_S[-1])):
                try:
                    self._start_block_server()
                except PenstockError as error:
                    self._on_block_server_failed(error)
                else:
                    return
                if self._clock.wait(self._attempt.stopping, pause_s):
                    return

        self._server_help = self._help("block-server", start, self._on_block_server_failed)

    def _on_block_server_failed(self, error: BaseException) -> None:
        self.report_error(f"No block server for other hosts: {error}", error)

    def _help(
        self, name: str, work: Callable[[], object], on_error: Callable[[BaseException], None]
    ) -> UserCall:
        """Do in a thread what may take long or wait, so that a stop is not held up."""
        call = UserCall(f"receiver-{self.stream_id}-{name}", work, on_error)
        self._helpers = [helper for helper in self._helpers if not helper.join(0)]
        self._helpers.append(call)
        call.start()
        return call

    def _register(self) -> bool:
        """Register; make the generator the first time. False: the attempt is to end."""
        future = self._tracker.register()
        future.add_done_callback(lambda _: self._attempt.wake.set())
        if not self._wait_for(future.done, self._bounds.ask_s):
            if self._attempt.stop is None:
                raise ReceiverFailedError(
                    self.stream_id,
                    ExitKind.FAILED,
                    f"the driver did not answer its registration within {self._bounds.ask_s:g} s",
                )
            return False
        answer = future.result()
        self._on_registered()
        if isinstance(answer, Refused):
            self._tracker.was_refused()
            text = (
                "Registered unsuccessfully because Driver refused to start receiver "
                f"{self.stream_id}: {answer.reason}"
            )
            self.end(ExitReport(ExitKind.REFUSED, text))
            return False
        if not isinstance(answer, Registered):
            raise ReceiverFailedError(
                self.stream_id, ExitKind.FAILED, f"the driver answered {answer!r}"
            )
        self._take_rates(answer)
        if self._generator is None:
            self._make_generator(answer)
        self._receiver._take_position(answer.last_position, answer.splits)
        # The store may have taken long to open.
        return self._attempt.stop is None

    def _open_storage(self) -> BlockStore:
        """Open the block store: once the driver knows the attempt, so that its files are let go."""
        try:
            storage = self._launch.open_storage(
                self._host, self._tracker.find_replica_host, self.report_error
            )
        except LogFullError as error:
            # What is only retained may be in the way: the driver lets it go for the next attempt.
            self._tracker.report_full_log(error.free_bytes)
            raise
        self._storage = storage
        return storage

    def _make_generator(self, registered: Registered) -> None:
        generator = self._launch.make_generator(
            self._receiver,
            self._host,
            first_block_number=registered.first_block_number,
            splits=registered.splits,
            storage=self._open_storage(),
            report=self._add_blocks,
            show=self._show_block,
            on_error=self._push_error,
        )
        generator.start()
        self._generator = generator
        self._rate_status.start(generator)

    def _start_receiver(self) -> None:
        """Start the object, with a door of its own into the generator."""
        door = self._running_generator().open_door(self._receiver.lastPosition)
        door.late = lambda: self._used_late(door)
        # A copy that is made by a `__reduce__` of the author's has only what that names.
        self._receiver.streamId = self.stream_id
        self._receiver._attach(Start(self, door))
        self._receiver._bind_store(door.store, door.store_from)
        self._door = door
        self._author = Author(
            self._receiver,
            on_start_failed=self._on_start_failed,
            on_stop_failed=self._on_stop_failed,
            report=self.report_error,
        )
        self._earlier.note_start(threads_of(self.stream_id))
        self._attempt.become_started()
        self._author.start()

    def _stop_receiver(self) -> bool:
        """Drain what is to be acknowledged, then stop the object.

        Returns:
            Whether its `onStart` has returned, so that it can be called again.
        """
        self._on_stop_by_s = time.monotonic() + self._bounds.user_call_s
        door, author = self._door, self._author
        if door is None or author is None:
            raise IllegalStateError(f"receiver {self.stream_id} was not started")
        stop = self._attempt.stop
        if stop is None or stop.kind not in _OUT_OF_REACH:
            self._drain_acknowledged(door)
        self._take_no_more(door)
        self._on_stop_by_s = time.monotonic() + self._bounds.user_call_s
        return author.stop(self.on_stop_left_s)

    def _take_no_more(self, door: StoreDoor) -> None:
        """Refuse what is to be acknowledged, also that which waits in `store`. Or it is so."""
        if not self.is_stopped():
            self._attempt.become_stopped()
            door.refuse_acknowledged()

    def _drain_acknowledged(self, door: StoreDoor) -> None:
        """Make durable and acknowledge what was taken, while its source is still open.

        Meanwhile no more is taken that is to be acknowledged, or there would be no end to it.
        """
        # At least half of the time is for the author's own way to stop.
        by_s = time.monotonic() + max(0.0, self.on_stop_left_s() / 2)

        def left_s() -> float:
            return min(by_s - time.monotonic(), self.on_stop_left_s())

        durable = threading.Event()
        generator = self._running_generator()
        # Where nothing passes, a call inside would wait in vain, and is refused below.
        if door.hold(lambda: left_s() if generator.passes_soon else 0.0) or left_s() > 0:
            if not door.was_acknowledged:
                return
            self._help("drain", lambda: generator.flush(durable.set), self._on_flush_failed)
            while left_s() > 0 and not generator.is_over():
                if durable.wait(min(_STEP_S, max(0.0, left_s()))):
                    return
                if door.has_waiting and generator.acknowledging_s() > CALLBACK_S:
                    # Which frees its lock: what was taken is still acknowledged before `onStop`.
                    self._take_no_more(door)
                    self.report_error(
                        f"An acknowledgement callback of receiver {self.stream_id} has not "
                        f"returned for {CALLBACK_S:g} s while a thread waits in store: let no "
                        "lock be held around store that the callback takes"
                    )
        if not durable.is_set():
            self.report_error(
                f"Not all that receiver {self.stream_id} took was acknowledged before it is "
                "stopped: it is not durable yet. The source may give it again"
            )

    def _on_flush_failed(self, error: BaseException) -> None:
        logger.info("receiver %d was not flushed", self.stream_id, exc_info=error)

    def _restart_receiver(self) -> bool:
        """Do the restart that was asked for. False: the attempt is to end."""
        request = self._attempt.restart
        if request is None:
            raise IllegalStateError(f"no restart of receiver {self.stream_id} was asked for")
        request = self._after_failures(request)
        if request is None:
            return False
        may_start_again = self._stop_receiver()
        self._tracker.deregister(
            f"Restarting receiver with delay {request.delay_ms} ms: {request.message}",
            request.error,
        )
        if not may_start_again:
            raise ReceiverFailedError(
                self.stream_id,
                ExitKind.FAILED,
                "it cannot be restarted in this process, because its onStart still runs",
            ) from request.error
        self._wait_for(lambda: False, request.delay_ms / 1000)
        if self._attempt.stop is not None:
            return False
        # What the old start still has to store is too late from here on.
        if self._door is not None:
            self._door.close()
        self._earlier.note_restart(threads_of(self.stream_id))
        if not self._flush():
            return False
        if self._earlier.has_left_threads() or (self.sources and self.sources.left(self.stream_id)):
            # The object stays with what the last start has left behind.
            self._receiver = self._receiver._for_another_start()
        if not self._register():
            return False
        self._start_receiver()
        return True

    def _after_failures(self, request: RestartRequest) -> RestartRequest | None:
        """Report the error that made a restart necessary; the same again takes longer, or ends it.

        Returns:
            The request with the delay that is due; None: there is no point in it.
        """
        error = request.error
        if error is None:
            return request
        records = self._running_generator().statistics().records
        self._failures.note(error, records)
        is_new = records == 0 and self._receiver.lastPosition in (None, {})
        if self._failures.is_enough(error, is_new=is_new):
            times = f", {self._failures.count} times in a row" if self._failures.count > 1 else ""
            self.end(ExitReport(ExitKind.PERMANENT, f"{request.message}{times}", error))
            return None
        if request.may_grow:
            request = replace(request, delay_ms=self._failures.delay_ms(request.delay_ms))
        self.report_error(f"{request.message}; restarting in {request.delay_ms} ms", error)
        return request

    def _flush(self) -> bool:
        """Wait until all that was stored is durable, so that `lastPosition` is behind nothing.

        It waits for as long as it takes: until then the receiver could store nothing more anyway.
        What is in the way was reported by the generator. False: the attempt is to end.
        """
        generator = self._running_generator()
        durable = threading.Event()

        def stored() -> None:
            durable.set()
            self._attempt.wake.set()

        self._help(
            "flush",
            lambda: generator.flush(stored),
            lambda error: self._fail(f"Error restarting receiver {self.stream_id}", error),
        )
        return self._wait_for(durable.is_set)

    def _close(self, exit_report: ExitReport) -> ExitReport:
        """End the attempt, in the order that loses nothing; returns how it ended after all."""
        if self.is_started():
            self._stop_receiver()
        self._rate_status.stop(self._bounds.abandon_s)
        drain_error = self._drain(exit_report)
        self._report_dropped()
        if drain_error is not None and exit_report.kind not in _OUT_OF_REACH:
            text = f"The last blocks of receiver {self.stream_id} could not be stored"
            self.report_error(text, drain_error)
            exit_report = ExitReport(ExitKind.FAILED, text, drain_error)
        self._tracker.report_exit(exit_report, self._bounds.ask_s)
        for helper in self._helpers:
            helper.join(self._bounds.abandon_s)
        if self._launch.threads is None:
            is_released = self._releasing.stop(self._bounds.abandon_s)
            self._reporting.stop(self._bounds.abandon_s)
        else:
            is_released = self._releasing.drain(self._bounds.abandon_s)
        if not is_released:
            self.report_error(
                f"The release of old blocks of receiver {self.stream_id} hangs and was left "
                f"behind; it stands at {blocked_at(self._releasing.thread, frames=5)}"
            )
        closing = UserCall(
            f"receiver-{self.stream_id}-close", self._close_storage, self._on_close_failed
        )
        closing.start()
        if not closing.join(self._bounds.close_s):
            self.report_error(
                f"The block store of receiver {self.stream_id} did not close within "
                f"{self._bounds.close_s:g} s and was left behind; it stands at "
                f"{closing.blocked_at()}"
            )
        try:
            self._tracker.close()
        except Exception as error:  # noqa: BLE001 - nothing is left that would need it
            self._on_close_failed(error)
        return exit_report

    def _on_close_failed(self, error: BaseException) -> None:
        logger.warning("receiver %d: closing failed", self.stream_id, exc_info=error)

    def _stop_left_s(self) -> float:
        """Return how much of the stop's time is left; negative when it is over."""
        stop_by_s = self._attempt.stop_by_s
        return self._bounds.drain_s if stop_by_s is None else stop_by_s - time.monotonic()

    def _drain(self, exit_report: ExitReport) -> BaseException | None:
        """Seal, store and report the last blocks; return the error that prevented it."""
        if self._generator is None:
            return None
        bound_s = self._bounds.abandon_s
        if exit_report.kind not in _OUT_OF_REACH:
            bound_s = max(min(bound_s, self._bounds.drain_s), self._stop_left_s())
        try:
            drained = self._generator.stop(bound_s)
        except Exception as error:  # noqa: BLE001 - it becomes the attempt's exit report
            return error
        if drained:
            return None
        return BlockNotStoredError(
            self.stream_id,
            "within the time for the stop they were not all stored and in the driver's log "
            "(they were not acknowledged; errors reported before this say what was in the way)",
        )

    def _close_storage(self) -> None:
        if self._storage is not None:
            self._storage.close()

    def _wait_for(self, condition: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Do what arrives until `condition` holds. False: time is over, or a stop was asked for."""
        end_s = None if timeout_s is None else self._clock.monotonic_s() + timeout_s
        while True:
            self._attempt.wake.clear()
            self._do_work()
            if self._attempt.stop is not None:
                return False
            if condition():
                return True
            wait_s = IDLE_S
            if end_s is not None:
                wait_s = min(wait_s, end_s - self._clock.monotonic_s())
                if wait_s <= 0:
                    return False
            self._clock.wait(self._attempt.wake, wait_s)

    def _do_work(self) -> None:
        """Act on messages that take time."""
        while (message := self._attempt.take_work()) is not None:
            try:
                if isinstance(message, EnsureBlockServer):
                    self._ensure_block_server()
                elif isinstance(message, SendLetters):
                    self._send_letters(message)
            except Exception as error:  # noqa: BLE001 - the receiver goes on; the driver knows
                name = type(message).__name__
                self.report_error(f"{name} failed on receiver {self.stream_id}", error)

    def _send_letters(self, asked: SendLetters) -> None:
        """Store dead letters again, in a thread: it may wait, as `store` does."""
        report = partial(self._tracker.report_letters, asked.request)

        def send() -> None:
            place, door = self._launch.letters_place(self._receiver, self._host), self._door
            if place is None:
                report(0, error="spark.penstock.deadLetters.enabled is false")
            elif asked.attempt != self._launch.attempt:
                report(0, error="the receiver was replaced meanwhile; ask again")
            elif door is None or not self.is_started():
                report(0, error="the receiver is not started")
            else:
                sent, left = send_again(
                    place,
                    asked.letters,
                    door.store_at_once,
                    self._running_generator().refused,
                    self._letters,
                    even_sent=asked.even_sent,
                )
                report(sent, left)

        self._help("letters", send, lambda error: report(0, error=described(error)))

    def _release(self, message: CleanupOldBlocks) -> None:
        try:
            if self._storage is not None:
                self._storage.release(message.block_ids, message.segments)
        except BaseException as error:  # noqa: BLE001 - the receiver goes on; the driver knows
            self._on_release_failed(error)

    def _fail(self, text: str, error: BaseException) -> None:
        """Let `error` end the attempt; a bad setting or position ends it for good."""
        permanent = isinstance(error, SettingError) or (
            isinstance(error, PositionError) and error.is_foreign
        )
        kind = ExitKind.PERMANENT if permanent else ExitKind.FAILED
        message = f"{text}: {described(error)}"
        if not permanent:
            self.report_error(message, error)
        self.end(ExitReport(kind, message, error))

    # -- callbacks of other threads --------------------------------------------------------------

    def _on_start_failed(self, error: BaseException) -> None:
        if not self.is_started():
            logger.info("onStart of receiver %d, after stop: %s", self.stream_id, error)
            return
        text = f"Error starting receiver {self.stream_id}"
        generator = self._running_generator()
        is_new = generator.statistics().records == 0 and self._receiver.lastPosition is None
        if Failures(_MAX_FAILURES, _MAX_DELAY_MS).is_enough(error, is_new=is_new):
            self.end(ExitReport(ExitKind.PERMANENT, f"{text}: {described(error)}", error))
        else:
            self._fail(text, error)

    def _used_late(self, door: StoreDoor) -> None:
        """A thread still uses the object of a start that is over."""
        if door is self._door or not self.is_started() or self._attempt.stop is not None:
            return  # reported already, or of no concern any more
        self._earlier.used_late(threading.current_thread())

    def _on_release_failed(self, error: BaseException) -> None:
        # The receiver goes on; the driver knows.
        self.report_error(f"CleanupOldBlocks failed on receiver {self.stream_id}", error)

    def _thread_failed(self, error: BaseException) -> None:
        self.thread_died(threading.current_thread(), error)

    def _fail_with(self, text: str) -> None:
        self.report_error(text)
        self.end(ExitReport(ExitKind.FAILED, text))

    def _on_stop_failed(self, error: BaseException) -> None:
        self.report_error(f"Error stopping receiver {self.stream_id}: {described(error)}", error)

    def _report_rate_status(self, usage: RateUsage, version: int, is_held: bool) -> None:
        if usage.pipe is not None:
            pipe = msgspec.structs.replace(
                usage.pipe,
                source_lag=self._receiver._source_lag(),
                source_lag_ms=self._receiver._source_lag_ms(),
            )
            usage = replace(usage, pipe=pipe)
        self._report_dropped()
        self._tracker.report_rate_status(usage, version, self._clock.monotonic_s(), is_held=is_held)

    def _report_dropped(self) -> None:
        if self._generator is not None and (dropped := self._generator.dropped):
            self._tracker.report_dropped(dropped)

    def _add_blocks(self, blocks: tuple[ReceivedBlockInfo, ...]) -> None:
        # First: what is missing before a block is known when the block is.
        self._report_dropped()
        self._tracker.add_blocks(blocks)

    def _show_block(self, block: SealedBlock) -> None:
        # What is larger takes longer to be sent and called with than to become durable.
        if block.payload_length <= _SHOWN_BYTES and self._storage is not None:
            self._tracker.show_block(block.block_id, self._storage.payload_of(block))

    def _push_error(self, message: str, error: BaseException) -> None:
        """The generator has trouble; it goes on by itself, but for two troubles."""
        if isinstance(error, DeadLetterBudgetError):
            if not error.pauses:
                # The end reports it. Another attempt would discard the same again.
                self.end(ExitReport(ExitKind.PERMANENT, message, error))
                return
            self._rate_status.hold()
        self.report_error(message, error)
        if isinstance(error, BlocksRefusedError):
            self.end(ExitReport(ExitKind.REFUSED, str(error), error))

    def _on_message(self, message: Message) -> None:
        """On the client's thread, which must not be blocked."""
        if isinstance(message, StopReceiver):
            self.end(ExitReport(ExitKind.DRIVER, message.reason), message.timeout_s)
        elif isinstance(message, UpdateRateLimit):
            self._rate_status.update(
                message.records_per_second,
                message.bytes_per_second,
                message.version,
                is_paused=message.is_paused,
                taken_over_version=message.taken_over_version,
            )
        elif isinstance(message, RestartReceiver):
            self.restart(message.reason)
        elif isinstance(message, SealBlock):
            if self._generator is not None:
                self._generator.seal_soon()
        elif isinstance(message, CleanupOldBlocks):
            self._releasing.post(partial(self._release, message))
        elif isinstance(message, (EnsureBlockServer, SendLetters)):
            self._attempt.add_work(message)
        else:
            logger.warning("receiver %d: unexpected %r", self.stream_id, message)

    def _on_hello_answer(self, _message: Message, answer: Message) -> None:
        """After a reconnect, a newer attempt may have taken this one's place."""
        if isinstance(answer, Refused):
            self.end(ExitReport(ExitKind.REFUSED, f"Driver refused receiver: {answer.reason}"))
        elif isinstance(answer, Registered):
            # An update that was sent while there was no connection is lost; this makes up for it.
            self._take_rates(answer)

    def _on_driver_lost(self, error: PenstockError) -> None:
        text = f"Receiver {self.stream_id} ends because its driver cannot be reached"
        self.end(ExitReport(ExitKind.LOST, text, error))

    def _take_rates(self, answer: Registered) -> None:
        self._rate_status.update(
            answer.records_per_second,
            answer.bytes_per_second,
            answer.rate_version,
            is_paused=answer.is_paused,
            taken_over_version=answer.taken_over_version,
        )

    def _running_generator(self) -> BlockGenerator:
        if self._generator is None:
            raise IllegalStateError(NOT_ATTACHED)
        return self._generator
