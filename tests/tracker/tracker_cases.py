"""A tracker over real sockets whose receivers are played by the test instead of Spark tasks."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from penstock.receiver import BlockLogs, Receiver, ReceiverLaunch
from penstock.runtime.clock import SystemClock
from penstock.settings import Settings
from penstock.tracker import (
    ExecutorLocation,
    KeptStreamSettings,
    ReceivedBlockTracker,
    ReceiverTracker,
    ReceiverTrackingInfo,
    SharedSource,
    TaskEnd,
    TaskLocation,
    open_ledger,
)
from penstock.wire import Client
from penstock.wire.messages import (
    AddBlock,
    DeregisterReceiver,
    Message,
    ReceivedBlockInfo,
    RegisterReceiver,
    ReportAddresses,
    ReportDropped,
    ReportError,
    ReportRateStatus,
    StopReceiver,
)
from tests.bounds import HANG_S

WAIT_S = HANG_S
"""Bounds every wait; none is expected to take nearly so long."""

QUICK = Settings(restart_max_delay_s=0.01, graceful_stop_timeout_ms=2000)


class Source(Receiver):
    """A receiver that is never run: the tests speak for it."""

    def __init__(self, place: str | None = None) -> None:
        super().__init__()
        self.place = place

    def preferredLocation(self) -> str | None:
        return self.place


class Events:
    """Keeps what listeners are told, in order, and lets a test wait for it."""

    def __init__(self) -> None:
        self._told: queue.Queue[tuple[str, Any]] = queue.Queue()
        self.rates: queue.Queue[ReportRateStatus] = queue.Queue()

    def receiver_started(self, info: ReceiverTrackingInfo) -> None:
        self._told.put(("started", info))

    def receiver_error(self, info: ReceiverTrackingInfo) -> None:
        self._told.put(("error", info))

    def receiver_stopped(self, info: ReceiverTrackingInfo) -> None:
        self._told.put(("stopped", info))

    def permanent_error(self, stream_id: int, message: str, error: str) -> None:
        self._told.put(("permanent", (stream_id, message, error)))

    continuous_error = permanent_error

    def rate_status(self, report: ReportRateStatus) -> None:
        self.rates.put(report)

    def next(self, kind: str) -> Any:
        """Return the next event, which must be of this kind."""
        found, content = self._told.get(timeout=WAIT_S)
        assert found == kind, (found, content)
        return content

    def until(self, kind: str) -> Any:
        """Return the next event of this kind, passing over others."""
        while True:
            found, content = self._told.get(timeout=WAIT_S)
            if found == kind:
                return content

    def rest(self) -> list[str]:
        found = []
        while not self._told.empty():
            found.append(self._told.get()[0])
        return found


class Attempt:
    """One launched attempt, as its executor would act: a connection and what came over it."""

    def __init__(self, launch: ReceiverLaunch, locations: Sequence[TaskLocation]) -> None:
        self.launch = launch
        self.locations = locations
        self.messages: queue.Queue[Message] = queue.Queue()
        self.end: Future[TaskEnd] = Future()
        self.client: Client | None = None
        self.first = 0
        self.host, self.executor_id = "127.0.0.1", "driver"
        self.log = ""

    def connect(self) -> Client:
        self.client = Client(
            self.launch.link,
            on_message=self.messages.put,
            on_reconnect=lambda: [self.registration()],
        )
        self.client.connect()
        return self.client

    def registration(self) -> RegisterReceiver:
        stream, attempt = self.launch.stream_id, self.launch.attempt
        return RegisterReceiver(
            stream, attempt, "Source", self.host, self.executor_id, 1, log=self.log
        )

    def ask(self, message: Message) -> Message:
        client = self.client or self.connect()
        return client.ask(message, WAIT_S)

    def register(self) -> Any:
        answer = self.ask(self.registration())
        self.first = getattr(answer, "first_block_number", 0)
        return answer

    def add(self, *blocks: ReceivedBlockInfo) -> Message:
        return self.ask(AddBlock(self.launch.stream_id, self.launch.attempt, blocks))

    def deregister(self, message: str = "done", error: str = "") -> Message:
        return self.ask(
            DeregisterReceiver(self.launch.stream_id, self.launch.attempt, message, error)
        )

    def report(self, message: str, error: str, *, permanent: bool = False) -> None:
        client = self.client or self.connect()
        client.send(
            ReportError(self.launch.stream_id, self.launch.attempt, message, error, permanent)
        )

    def listen(self, *addresses: str) -> Message:
        return self.ask(ReportAddresses(self.launch.stream_id, self.launch.attempt, addresses))

    def drop(self, records: int) -> Message:
        return self.ask(ReportDropped(self.launch.stream_id, self.launch.attempt, records))

    def next_message(self) -> Message:
        return self.messages.get(timeout=WAIT_S)

    def fail(self, error: Exception | None = None) -> None:
        """Die: the connection is gone and the task has failed."""
        self.close()
        self.end.set_exception(error or RuntimeError("the worker died"))

    def finish(self, end: TaskEnd = TaskEnd.ENDED) -> None:
        self.close()
        self.end.set_result(end)

    def close(self) -> None:
        if self.client is not None:
            self.client.close()

    def obey(self) -> None:
        """Stop when told to, as a good receiver does."""
        assert isinstance(self.next_message(), StopReceiver)
        self.deregister("Stopped by driver")
        self.finish()


class ThreadCluster:
    """Runs no task: hands each launch to the test, and waits until the test has ended it."""

    def __init__(
        self,
        *,
        is_local: bool = True,
        executors: Sequence[ExecutorLocation] = (ExecutorLocation("127.0.0.1", "driver"),),
    ) -> None:
        self.is_local = is_local
        self.is_stopped = False
        self.up = list(executors)
        self.leaving_ids: frozenset[str] = frozenset()
        self.task_slots = 4
        self.cancelled: list[str] = []
        self.ignores_cancel = False
        self._attempts: queue.Queue[Attempt] = queue.Queue()
        self._running: dict[str, Attempt] = {}
        self._jobs: list[threading.Thread] = []

    def addresses(self, wanted: str | None) -> tuple[str, str | None]:
        return wanted or "127.0.0.1", None

    def wait_for_executors(self, tasks: int) -> None:
        pass

    def executors(self) -> list[ExecutorLocation]:
        return [one for one in self.up if one.executor_id not in self.leaving_ids]

    def most_tries(self) -> int:
        return 4

    @property
    def decommissions(self) -> bool:
        return not self.is_local

    def leaving(self) -> Mapping[str, str]:
        return {one.executor_id: one.host for one in self.up if one.executor_id in self.leaving_ids}

    def slots(self) -> int:
        return self.task_slots

    def run_task(
        self,
        streams: str,
        tag: str,
        task: Callable[[], None],
        locations: Sequence[TaskLocation],
    ) -> TaskEnd:
        assert isinstance(task, partial)
        attempt = Attempt(task.args[0], locations)
        self._running[tag] = attempt
        self._attempts.put(attempt)
        return attempt.end.result()

    def racks(self) -> Mapping[str, str]:
        return {}

    def run_on_hosts(self, tag: str, task: Callable[[], None], hosts: Sequence[str]) -> None:
        pass

    def cancel(self, tag: str) -> None:
        self.cancelled.append(tag)
        # As with Spark, what is submitted just after this is not cancelled by it.
        attempt = self._running.get(tag)
        if attempt is not None and not self.ignores_cancel:
            with suppress(InvalidStateError):
                attempt.fail(RuntimeError("the job was cancelled"))

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        made = threading.Thread(target=target, name=name, daemon=True)
        if "receiver-job" in name:
            self._jobs.append(made)
        return made

    def next_attempt(self) -> Attempt:
        return self._attempts.get(timeout=WAIT_S)

    def has_more(self) -> bool:
        return not self._attempts.empty()

    def ended_for_good(self) -> bool:
        """Tell whether no receiver is started again, also not after a pause."""
        for job in self._jobs:
            job.join(WAIT_S)
        return not self.has_more() and not any(job.is_alive() for job in self._jobs)

    def ended_all(self) -> bool:
        return all(attempt.end.done() for attempt in self._running.values())

    def close(self) -> None:
        for attempt in self._running.values():
            attempt.close()


@contextmanager
def running_tracker(
    folder: Path,
    *,
    cluster: ThreadCluster | None = None,
    receivers: dict[int, tuple[Receiver, str]] | None = None,
    settings: Settings = QUICK,
    remove_files: bool = False,
    keep_batches: bool = False,
    kept: Mapping[int, KeptStreamSettings] | None = None,
) -> Iterator[tuple[ReceiverTracker, ThreadCluster, Events]]:
    cluster = cluster or ThreadCluster()
    events = Events()
    tracker = make_tracker(
        folder,
        cluster,
        events,
        receivers=receivers,
        settings=settings,
        remove_files=remove_files,
        kept=kept,
    )
    tracker.start(keep_batches=keep_batches)
    try:
        yield tracker, cluster, events
    finally:
        tracker.stop(graceful=False, timeout_s=0.0)
        cluster.close()


def make_tracker(
    folder: Path,
    cluster: Any,
    events: Events,
    *,
    receivers: dict[int, tuple[Receiver, str]] | None = None,
    settings: Settings = QUICK,
    remove_files: bool = False,
    kept: Mapping[int, KeptStreamSettings] | None = None,
    shared: Sequence[SharedSource] = (),
) -> ReceiverTracker:
    receivers = receivers or {0: (Source(), "Source")}
    return ReceiverTracker(
        cluster,
        receivers,
        settings,
        ledger=open_in(folder, receivers) if kept is None else _with_places(folder, kept),
        logs=BlockLogs(
            str(folder / "receivedData"), "none", are_removed=remove_files, application_id="app-1"
        ),
        events=events,
        kept=kept,
        shared=shared,
    )


def open_in(folder: str | Path, streams: Iterable[int], sync: str = "none") -> ReceivedBlockTracker:
    """Open the ledger of an application whose logs are in a folder."""
    return open_ledger(
        streams,
        os.path.join(folder, "receivedBlockMetadata"),
        Settings(),
        sync=sync,
        clock=SystemClock(),
    )


def _with_places(folder: Path, kept: Mapping[int, KeptStreamSettings]) -> ReceivedBlockTracker:
    ledger = ReceivedBlockTracker.recover((), str(folder / "receivedBlockMetadata"))
    ledger.register_streams({found.name: number for number, found in kept.items()}, are_kept=True)
    return ledger
