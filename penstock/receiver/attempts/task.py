"""`run_receiver`: the body of the Spark task that is a receiver.

PySpark's `TaskContext` has neither the executor's id nor its host as Spark names it. The command
line of the executor's JVM does, on every cluster manager
(`CoarseGrainedExecutorBackend.parseArguments`), and that JVM is a parent of the Python worker.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import pickle
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from penstock.blockstore.server import launch as block_server
from penstock.errors import text_of
from penstock.receiver.attempts.launch import ReceiverLaunch
from penstock.receiver.attempts.supervisor import ReceiverSupervisor
from penstock.receiver.attempts.tracker_client import TrackerClient
from penstock.receiver.base import Receiver
from penstock.receiver.exit_report import ExitKind, ExitReport, ReceiverFailedError
from penstock.receiver.threads.workers import Wake
from penstock.receiver.user_calls import UncaughtErrors
from penstock.runtime.processes import stat_of
from penstock.wire.messages import RegisterReceiver

LOCAL_EXECUTOR = "driver"
"""Spark's name for the only executor of a local master."""

_PARENTS = 5
"""Parent processes that are searched for the executor: keeper of a slot, worker, PySpark's daemon,
wrapper, JVM."""


def executor_command() -> tuple[str, ...]:
    """Return the command line of the executor above this process.

    Returns:
        The words; none where there is no such process (a local master) or no ``/proc``.
    """
    found = os.getpid()
    for _ in range(_PARENTS):
        try:
            found = int(stat_of(f"/proc/{found}")[1])
            with open(f"/proc/{found}/cmdline", encoding="utf-8", errors="replace") as file:
                words = tuple(file.read().split("\0"))
        except OSError:
            return ()
        if "--executor-id" in words:
            return words
    return ()


def executor_id(
    environment: Mapping[str, str] = os.environ, command: Sequence[str] | None = None
) -> str:
    """Return the id of the executor that this Python worker belongs to.

    Kubernetes sets ``SPARK_EXECUTOR_ID``; a standalone worker has it in the address of the
    executor's log (`ExecutorRunner.scala`); the executor's own command line is asked last. Where
    none says it there is one executor (a local master), or the id is not known to Python.

    Args:
        environment: This process's.
        command: The executor's command line; looked for when None.
    """
    found = environment.get("SPARK_EXECUTOR_ID")
    if found:
        return found
    match = re.search(r"[?&]executorId=([^&]+)", environment.get("SPARK_LOG_URL_STDOUT", ""))
    if match:
        return match.group(1)
    return _option("--executor-id", command) or LOCAL_EXECUTOR


def host_name(
    executor: str, executor_hosts: Mapping[str, str], command: Sequence[str] | None = None
) -> str:
    """Return the host of `executor` under the name that Spark's scheduler knows.

    An executor that came up after the driver looked is not among those it knows. Then its own
    command line gives the name; that all others are on one host says nothing of this one.

    Args:
        executor: From `executor_id`.
        executor_hosts: What the driver knows: executor id to host.
        command: The executor's command line; looked for when None.
    """
    known = executor_hosts.get(executor) or _option("--hostname", command)
    if known:
        return known
    if len(set(executor_hosts.values())) == 1:
        return next(iter(executor_hosts.values()))
    return os.environ.get("SPARK_LOCAL_HOSTNAME") or socket.gethostname()


def _option(name: str, command: Sequence[str] | None) -> str | None:
    words = executor_command() if command is None else command
    for word, value in pairwise(words):
        if word == name:
            return value
    return None


class Watchdog:
    """Ends this process, with a traceback of each thread on stderr, when a time is over.

    It needs neither a free interpreter nor a living thread: the C code of an author may hold the
    interpreter's lock for ever. Only where the receiver has the process for itself, as in Spark's
    Python worker, whose main thread runs the task.
    """

    def __init__(self) -> None:
        self._owns_process = threading.current_thread() is threading.main_thread()
        self._armed = False

    def arm(self, timeout_s: float) -> None:
        """End the process in `timeout_s` seconds; once set, the time stands."""
        if self._owns_process and not self._armed:
            self._armed = True
            stderr = sys.__stderr__ or sys.stderr
            faulthandler.dump_traceback_later(timeout_s, exit=True, file=stderr)

    def disarm(self) -> None:
        """Let the process live."""
        if self._armed:
            self._armed = False
            faulthandler.cancel_dump_traceback_later()


logger = logging.getLogger("penstock.receiver")

LOOK_S = 1.0
"""How often the receiver checks that its executor still exists."""

_LAST_RESORT_S = 10.0
"""How long after an attempt is given up the process ends, whatever hangs in it."""


def start_block_server(launch: ReceiverLaunch) -> None:
    """Make sure that this host has a block server of the application.

    Raises:
        PenstockError: It could not be started.
    """
    host = host_name(executor_id(), launch.executor_hosts)
    block_server.ensure_block_server(launch.block_server(host))


def run_receiver(
    launch: ReceiverLaunch,
    *,
    ensure_block_server: Callable[[ReceiverLaunch], None] = start_block_server,
) -> None:
    """Run one attempt of a receiver until it ends.

    Args:
        launch: What to run.
        ensure_block_server: Makes sure that this host's block server runs.

    Returns when the receiver has ended for good: stopped by the driver, its source ended, refused
    by the driver (which is stopping or has a newer attempt), or it can never be started (then a
    permanent `ReportError` said so to the driver).

    Raises:
        ReceiverFailedError: It ended otherwise; the driver starts another attempt.
    """
    supervisor = _supervisor(launch, ensure_block_server)
    if supervisor is not None:
        with UncaughtErrors(supervisor.thread_died, launch.stream_id):
            exit_report = _await_end(supervisor)
        _take_note(launch, exit_report)


def receiver_steps(
    launch: ReceiverLaunch,
    *,
    on_registered: Callable[[], None],
    watch: Callable[[ReceiverSupervisor], None],
    ensure_block_server: Callable[[ReceiverLaunch], None] = start_block_server,
) -> Iterator[Wake]:
    """Do the same in steps, for `penstock.receiver.threads.workers.run_steps`.

    Args:
        launch: What to run.
        on_registered: Called when the driver has answered a registration.
        watch: Takes the attempt, and gives it up if it hangs when it is to end.
        ensure_block_server: Makes sure that this host's block server runs.

    Raises:
        ReceiverFailedError: As `run_receiver`.
    """
    supervisor = _supervisor(launch, ensure_block_server, on_registered)
    if supervisor is not None:
        with UncaughtErrors(supervisor.thread_died, launch.stream_id):
            watch(supervisor)
            exit_report = yield from supervisor.steps()
        _take_note(launch, exit_report)


def _supervisor(
    launch: ReceiverLaunch,
    ensure_block_server: Callable[[ReceiverLaunch], None],
    on_registered: Callable[[], None] = lambda: None,
) -> ReceiverSupervisor | None:
    """Make the supervisor; None: the receiver cannot be made, and the driver was notified."""
    executor = executor_id()
    host = host_name(executor, launch.executor_hosts)
    try:
        receiver = _unpickle(launch)
    except Exception as error:  # noqa: BLE001 - the author's code; the driver gets it
        _report_permanent(launch, host, executor, error)
        return None
    return ReceiverSupervisor(
        receiver,
        _registration(launch, receiver._receiver_type(), host, executor),
        launch,
        lambda: ensure_block_server(launch),
        on_registered,
    )


def _take_note(launch: ReceiverLaunch, exit_report: ExitReport) -> None:
    logger.info("receiver %d %s: %s", launch.stream_id, exit_report.kind.value, exit_report.message)
    if not exit_report.kind.is_for_good:
        raise ReceiverFailedError(
            launch.stream_id, exit_report.kind, exit_report.message
        ) from exit_report.error


def _await_end(supervisor: ReceiverSupervisor) -> ExitReport:
    """Start it and wait for the end, and see to it that there is one: whatever hangs, it ends.

    It does not outlive its executor, which is the parent of this process, either.
    """
    # Before it is heard of: from then on its executor may be killed.
    parent = os.getppid()
    supervisor.start()
    watchdog = Watchdog()
    while not supervisor.await_stop(LOOK_S) and os.getppid() == parent:
        pass
    while (exit_report := supervisor.await_termination(LOOK_S)) is None:
        if os.getppid() != parent:
            text = f"The executor of receiver {supervisor.stream_id} is gone"
            supervisor.end(ExitReport(ExitKind.FAILED, text))
        left_s = supervisor.seconds_to_end()
        if left_s is None:
            continue
        watchdog.arm(max(0.0, left_s) + _LAST_RESORT_S)
        if left_s <= 0:
            return supervisor.give_up()
    watchdog.disarm()
    return exit_report


def _unpickle(launch: ReceiverLaunch) -> Receiver:
    receiver = pickle.loads(launch.receiver)
    if not isinstance(receiver, Receiver):
        raise TypeError(f"{type(receiver).__name__} is not a Receiver")
    receiver._construct()
    return receiver


def _registration(
    launch: ReceiverLaunch, receiver_type: str, host: str, executor: str
) -> RegisterReceiver:
    return RegisterReceiver(
        stream_id=launch.stream_id,
        attempt=launch.attempt,
        receiver_type=receiver_type,
        host=host,
        executor_id=executor,
        pid=os.getpid(),
        log=launch.process_folder,
    )


def _report_permanent(launch: ReceiverLaunch, host: str, executor: str, error: Exception) -> None:
    """Report to the driver that there is no point in trying again."""
    text = f"Receiver {launch.stream_id} could not be made in the executor: {text_of(error)}"
    logger.info("%s", text, exc_info=error)
    tracker = TrackerClient(_registration(launch, "", host, executor))
    tracker.connect(
        launch,
        on_message=lambda message: None,
        on_hello_answer=lambda message, answer: None,
        on_closed=lambda reason: None,
    )
    tracker.report_error(text, error, permanent=True)
    tracker.close()
