"""Each place that makes a thread: what becomes of an error there, and who hears of it.

A place that is not in `PLACES` fails a test: whoever adds one says here who hears of its errors.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import faulthandler
import gc
import http.client
import logging
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.continuous import FunctionSink
from penstock.runtime.clock import SystemClock
from penstock.runtime.event_loop import EventLoop
from penstock.runtime.threads import OwnedThread, Repeated
from penstock.wire.messages import StopReceiver
from tests.bounds import HANG_S
from tests.receiver.running import Running, Tracker

_ROOT = Path(__file__).parents[1] / "penstock"
_MAKERS = {
    "OwnedThread",
    "Repeated",
    "Thread",
    "Timer",
    "InheritableThread",
    "ThreadPoolExecutor",
    "start_new_thread",
    "to_thread",
}
WAIT_S = HANG_S
SAID = "made to raise"


def broken(*_: object, **__: object) -> Any:
    raise MemoryError(SAID)


class Heard(logging.Handler):
    """What reaches somebody: a line of the log, an owner's callback, the hook of threads."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._changed = threading.Condition()
        self.said: list[str] = []
        self.told: list[BaseException] = []
        self.died: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        with self._changed:
            self.said.append(logging.Formatter().format(record))
            self._changed.notify_all()

    def tell(self, error: BaseException) -> None:
        with self._changed:
            self.told.append(error)
            self._changed.notify_all()

    def hook(self, arguments: threading.ExceptHookArgs) -> None:
        with self._changed:
            assert arguments.thread is not None
            self.died.append(f"{arguments.thread.name}: {arguments.exc_value}")
            self._changed.notify_all()

    def wait_for(self, holds: Callable[[], object]) -> None:
        with self._changed:
            assert self._changed.wait_for(holds, WAIT_S), (self.said, self.told, self.died)

    def wait_for_log(self) -> None:
        self.wait_for(lambda: any(SAID in line for line in self.said))

    def wait_for_owner(self) -> None:
        self.wait_for(lambda: any(SAID in str(error) for error in self.told))

    def wait_for_hook(self, name: str) -> None:
        self.wait_for(lambda: f"{name}: {SAID}" in self.died)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Heard]:
    found = Heard()
    monkeypatch.setattr(threading, "excepthook", found.hook)
    monkeypatch.setattr("penstock.runtime.threads._PAUSE_S", 0.001)
    logger = logging.getLogger("penstock")
    logger.addHandler(found)
    yield found
    logger.removeHandler(found)


class Hurried(SystemClock):
    """No pause is longer than a moment."""

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        return event.wait(min(timeout_s, 0.001))


class Once:
    """Raises when it is called first; then it says that it is called again."""

    def __init__(self) -> None:
        self.count = 0
        self.again = threading.Event()

    def __call__(self, *_: object, **__: object) -> None:
        self.count += 1
        if self.count == 1:
            broken()
        self.again.set()

    def wait_for_second(self) -> None:
        assert self.again.wait(WAIT_S)


@pytest.fixture
def once() -> Once:
    return Once()


Case = Callable[[Heard, Once, pytest.MonkeyPatch, Path], object]


# -- the mechanism ---------------------------------------------------------------------------------


def test_a_loop_is_entered_again_and_its_owner_is_told(heard: Heard, once: Once) -> None:
    thread = OwnedThread(once, "test", on_error=heard.tell, again=True)
    thread.start()
    heard.wait_for_owner()
    heard.wait_for_log()
    once.wait_for_second()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert once.count == 2
    assert "penstock-test" in heard.said[0]
    assert "goes on" in heard.said[0]


def test_a_thread_that_ends_tells_its_owner(heard: Heard, once: Once) -> None:
    thread = OwnedThread(once, "test", on_error=heard.tell)
    thread.start()
    thread.join(WAIT_S)
    assert [str(error) for error in heard.told] == [SAID]
    assert once.count == 1
    assert "has ended" in heard.said[0]


def test_without_an_owner_who_can_be_told_the_hook_of_threads_hears_of_it(heard: Heard) -> None:
    OwnedThread(broken, "test").start()
    heard.wait_for_hook("penstock-test")


def test_an_owner_who_raises_keeps_no_loop_from_going_on(heard: Heard, once: Once) -> None:
    OwnedThread(once, "test", on_error=broken, again=True).start()
    once.wait_for_second()
    assert any("could not be told" in line for line in heard.said)


def test_a_step_is_repeated_after_one_that_raised_until_it_is_stopped(
    heard: Heard, once: Once
) -> None:
    repeated = Repeated(once, 60.0, "test", Hurried())
    repeated.start()
    once.wait_for_second()
    assert repeated.stop(WAIT_S)
    heard.wait_for_log()
    count = once.count
    assert repeated.stop(WAIT_S)
    assert once.count == count


# -- the places ------------------------------------------------------------------------------------


def event_loop(heard: Heard, once: Once, *_: object) -> None:
    loop = EventLoop("test", broken)
    loop.start()
    loop.post(once)
    loop.post(once)
    once.wait_for_second()
    heard.wait_for_log()
    assert loop.stop(WAIT_S)


def repeated(heard: Heard, once: Once, *_: object) -> None:
    test_a_step_is_repeated_after_one_that_raised_until_it_is_stopped(heard, once)


def run_bounded(*_: object) -> None:
    from penstock.host.spark.ending import run_bounded

    with pytest.raises(MemoryError, match=SAID):
        run_bounded("test", broken, WAIT_S)


def stop_watch(heard: Heard, once: Once, monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    from penstock.host.spark import ending

    monkeypatch.setattr(ending, "run_bounded", broken)
    gateway = SimpleNamespace(proc=None)
    ending.tell_of_silence(SimpleNamespace(_jsc=None, _gateway=gateway))  # type: ignore[arg-type]
    heard.wait_for_hook("penstock-stop-watch")


def monitor(heard: Heard, once: Once, *_: object) -> None:
    from penstock.monitor.monitor import Monitor

    found = Monitor(SimpleNamespace(tick=once), Hurried())  # type: ignore[arg-type]
    found.start()
    once.wait_for_second()
    heard.wait_for_log()
    found.stop(WAIT_S)


def otel(heard: Heard, once: Once, monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    from penstock.monitor.otel import sender

    monkeypatch.setattr(sender, "_LOOK_S", 0.001)
    monkeypatch.setattr(sender.OtelSender, "_send_spans", once)
    # Nothing is sent to where no one is.
    monkeypatch.setattr(sender.OtelSender, "_send_figures", lambda *_: None)
    from penstock.settings import Settings
    from tests.monitor.feeding import Program

    found = sender.OtelSender(Program().start(), Settings(otel_enabled=True), {})
    found.start()
    once.wait_for_second()
    heard.wait_for_log()
    found.stop(WAIT_S)


def spark_views(heard: Heard, once: Once, monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    from penstock.monitor import monitor

    class Model:
        application = SimpleNamespace(batch_ms=None)
        changes = property(once)

    spark = SimpleNamespace(_jvm=None, _jsc=SimpleNamespace(sc=lambda: None))
    found = monitor.SparkViews(spark, Model(), None)  # type: ignore[arg-type]
    found.start()
    once.wait_for_second()
    heard.wait_for_log()
    found.stop(WAIT_S)


def splits(
    heard: Heard, once: Once, monkeypatch: pytest.MonkeyPatch, folder: Path, *_: object
) -> None:
    from penstock.tracker.receivers import splits as module
    from tests.tracker.test_splits import OFTEN, Shared, sharing

    monkeypatch.setattr(module.SplitStream, "_move", once)
    with sharing(folder, Shared("a"), 1, 1, settings=OFTEN):
        once.wait_for_second()
        heard.wait_for_log()


def leaving(
    heard: Heard, once: Once, monkeypatch: pytest.MonkeyPatch, folder: Path, *_: object
) -> None:
    from penstock.tracker import receiver_tracker
    from tests.tracker.tracker_cases import ThreadCluster, running_tracker

    monkeypatch.setattr(receiver_tracker, "_LEAVING_S", 0.01)
    cluster = ThreadCluster(is_local=False)
    monkeypatch.setattr(cluster, "leaving", once)
    with running_tracker(folder, cluster=cluster):
        once.wait_for_second()
        heard.wait_for_log()


def splits_call(heard: Heard, _once: Once, _monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    from tests.tracker.test_splits import OFTEN, Shared, sharing

    source = Shared("a")
    with sharing(folder, source, 1, 1, settings=OFTEN):
        source.answer = MemoryError(SAID)
        heard.wait_for_log()


def page(heard: Heard, once: Once, monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    from penstock.monitor.web import server

    serve = server._Server.serve_forever

    def serve_forever(self: Any, poll_s: float) -> None:
        once()
        serve(self, poll_s)

    monkeypatch.setattr(server._Server, "serve_forever", serve_forever)
    found = server.WebServer("127.0.0.1", iter([0]), broken)
    found.start()
    once.wait_for_second()
    heard.wait_for_log()
    found.stop(WAIT_S)


def page_connection(heard: Heard, *_: object) -> None:
    from penstock.monitor.web.server import WebServer

    found = WebServer("127.0.0.1", iter([0]), broken)
    found.start()
    for _ in range(2):
        asking = http.client.HTTPConnection("127.0.0.1", found.port, timeout=WAIT_S)
        with contextlib.suppress(OSError, http.client.HTTPException):
            asking.request("GET", "/")
            asking.getresponse()
        asking.close()
    heard.wait_for_log()
    found.stop(WAIT_S)


def spark_watch(heard: Heard, once: Once, monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    from penstock.sql import host_cli

    monkeypatch.setattr(host_cli, "_LOOK_S", 0.001)
    spark = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=broken)))
    watch = host_cli._SparkWatch(spark)  # type: ignore[arg-type]
    end_s = time.monotonic() + WAIT_S
    while not watch.ended and time.monotonic() < end_s:
        time.sleep(0.001)
    assert SAID in watch.ended
    watch.end()


def retention(heard: Heard, once: Once, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    from pyspark.sql import SparkSession

    from penstock.sql import ReceiverHost, host
    from tests.sql.sources import numbers

    monkeypatch.setattr(host, "_RELEASE_S", 0.001)
    monkeypatch.setattr(host.ReceiverHost, "_tell_of_removal", once)
    spark = SparkSession.builder.getOrCreate()
    found = ReceiverHost(spark, str(folder))
    found.stream("numbers", numbers(10))
    found.start()
    try:
        once.wait_for_second()
    finally:
        found.stop()
    heard.wait_for_log()


def host_stop(heard: Heard, *_: object) -> None:
    from penstock.sql.host import ReceiverHost

    ReceiverHost._ask_to_stop(SimpleNamespace(stop=broken), False)  # type: ignore[arg-type]
    heard.wait_for_hook("penstock-host-stop")


def live_view(heard: Heard, *_: object) -> None:
    from penstock.streaming._live_view import LiveView

    LiveView(SimpleNamespace(value=""), broken, 0.001).close()  # type: ignore[arg-type]
    heard.wait_for_log()


def signals(heard: Heard, once: Once, monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    from penstock.streaming import _running

    monkeypatch.setattr(_running, "_calls_jvm", lambda frame: True)
    monkeypatch.setattr(_running._Signals, "_take_later", broken)
    found = _running._Signals()
    found.interrupt_at, found._interrupt_by_s = 0, float("inf")
    found._interrupt(2, None)
    heard.wait_for_hook("penstock-signal")


def checkpoints(heard: Heard, once: Once, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    from penstock.streaming.checkpoint import checkpointer
    from penstock.streaming.checkpoint.checkpointer import CheckpointRequest, CheckpointWriter

    kept: Any = SimpleNamespace(write_checkpoint=once, checkpoint=b"")
    header = SimpleNamespace(rdd_files=(), program="p", last_batch_ms=1, rdd_folder="")
    checkpoint: Any = SimpleNamespace(header=header, encode=bytes)
    done = threading.Event()
    monkeypatch.setattr(checkpointer, "_RETRY_S", 0.001)
    found = CheckpointWriter(
        kept, "f", kept, on_error=heard.tell, patience_s=0.0, clock=SystemClock()
    )
    found.start()
    # Neither an error of the write nor one of what waited for it ends the thread.
    found.submit(CheckpointRequest(checkpoint, (broken, done.set)))
    assert done.wait(WAIT_S)
    heard.wait_for(lambda: len(heard.told) == 2)
    done.clear()
    found.submit(CheckpointRequest(checkpoint, (done.set,)))
    assert done.wait(WAIT_S)
    assert found.stop(WAIT_S)
    assert all(SAID in str(error) for error in heard.told)


def console(heard: Heard, once: Once, *_: object) -> None:
    from penstock.streaming.console import Console

    facts = SimpleNamespace(introduction="", statistics=once, receivers=broken)
    found = Console(facts, "on", Hurried(), SimpleNamespace(isatty=lambda: False))  # type: ignore[arg-type]
    found.start()
    once.wait_for_second()
    heard.wait_for_log()
    found.stop(WAIT_S)


def context_stop(heard: Heard, *_: object) -> None:
    from penstock.streaming.context import StreamingContext

    context: Any = SimpleNamespace(stop=broken)
    StreamingContext._stop_soon(context, True, True)
    heard.wait_for_hook("penstock-stop")


def listener_bus(heard: Heard, once: Once, monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    from penstock.listeners.bus import StreamingListenerBus
    from penstock.listeners.events import StreamingStarted

    monkeypatch.setattr(StreamingListenerBus, "_call", once)
    bus = StreamingListenerBus()
    bus._listeners = (SimpleNamespace(),)  # type: ignore[assignment]
    bus.start()
    bus.post(StreamingStarted(1))
    bus.post(StreamingStarted(2))
    once.wait_for_second()
    heard.wait_for_log()
    bus.stop(WAIT_S)


def jobs(heard: Heard, once: Once, monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    from penstock.streaming.scheduler.job_scheduler import JobScheduler

    # Not what a program's job raises, but the scheduler itself.
    monkeypatch.setattr(JobScheduler, "_begin", once)
    nothing: Any = None
    found = JobScheduler(
        nothing,
        batch_ms=1000,
        concurrent_jobs=1,
        clock=SystemClock(),
        bus=nothing,
        on_error=heard.tell,
    )
    found.start(broken)
    found._queue.put(nothing or SimpleNamespace())
    heard.wait_for_owner()
    found._queue.put(nothing or SimpleNamespace())
    once.wait_for_second()
    found.stop(WAIT_S)


def timer(heard: Heard, once: Once, *_: object) -> None:
    from penstock.streaming.scheduler.recurring_timer import RecurringTimer

    found = RecurringTimer(SystemClock(), 1, once, "test", on_error=heard.tell)
    found.start(found.first_time())
    heard.wait_for_owner()
    once.wait_for_second()
    found.stop(WAIT_S)


def additions(heard: Heard, once: Once, *_: object) -> None:
    from penstock.tracker._endpoint import BatchedAdditions
    from penstock.wire.messages import AddBlock

    ledger: Any = SimpleNamespace(add_many=lambda messages: [None] * len(messages))
    found: BatchedAdditions[int] = BatchedAdditions(ledger, once)
    found.start()
    found.submit(1, AddBlock(0, "a", ()))
    heard.wait_for_log()
    found.submit(2, AddBlock(0, "a", ()))
    once.wait_for_second()
    found.stop(WAIT_S)


def cluster(heard: Heard, once: Once, monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    from penstock.tracker.receivers.jobs import ReceiverJob

    told: Any = SimpleNamespace(
        next_launch=broken, job_thread_died=lambda stream_id, error: heard.tell(error)
    )
    threads: Any = SimpleNamespace(
        thread=lambda target, name: threading.Thread(target=target, name=name)
    )
    nothing: Any = None
    ReceiverJob(0, threads, told, nothing, SystemClock()).start()
    heard.wait_for_owner()


def job_of_a_slot(heard: Heard, once: Once, monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    from penstock.tracker.receivers.jobs import ReceiverJob

    told: Any = SimpleNamespace(
        next_launch=broken, job_thread_died=lambda stream_id, error: heard.tell(error)
    )
    left: list[int] = []
    slot: Any = SimpleNamespace(leave=left.append)
    nothing: Any = None
    job = ReceiverJob(3, nothing, told, nothing, SystemClock(), slot)
    job.start()
    heard.wait_for_owner()
    assert job.join(WAIT_S)
    assert left == [3]


def server(heard: Heard, once: Once, monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    from penstock.wire import ApplicationLink, Server

    nothing: Any = None
    found = Server(ApplicationLink(bytes(32)), nothing, on_died=heard.tell)
    found.start()

    def end() -> None:
        raise KeyboardInterrupt(SAID)

    found.call(end)
    heard.wait_for_owner()
    found.stop(WAIT_S)


def client_loop(heard: Heard, once: Once, monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    from penstock.wire import ApplicationLink, Client, ClientLoop, ConnectionLostError

    async def end() -> None:
        raise SystemExit(SAID)

    loop = ClientLoop("clients")
    loop.start()
    tracker = Tracker()
    told: list[BaseException] = []
    link = ApplicationLink(tracker.secret, tracker.address)
    found = [Client(link, on_closed=told.append, loop=loop) for _ in range(2)]
    for one in found:
        one.connect(WAIT_S)
    loop.run(end())
    heard.wait_for_hook("penstock-clients")
    # Whoever shares it hears of it, and waits for nothing.
    assert len(told) == 2
    for one in found:
        with pytest.raises(ConnectionLostError):
            one.ask(StopReceiver(), WAIT_S)
        one.close()
    tracker.server.stop()
    gc.collect()


def client(heard: Heard, once: Once, monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    from penstock.wire import ApplicationLink, Client, ConnectionLostError

    def end(items: Any) -> None:
        take(items)
        raise SystemExit(SAID)

    tracker = Tracker()
    told: list[BaseException] = []
    found = Client(ApplicationLink(tracker.secret, tracker.address), on_closed=told.append)
    take = found._take
    monkeypatch.setattr(found, "_take", end)
    found.connect(WAIT_S)
    with pytest.raises(ConnectionLostError):
        found.ask(StopReceiver(), WAIT_S)
    heard.wait_for_log()
    assert len(told) == 1
    found.close()
    # Else it would die, or asyncio would complain of its tasks, in the midst of another test.
    assert found._thread is not None
    found._thread.join(WAIT_S)
    del found
    gc.collect()
    tracker.server.stop()


def log_sync(heard: Heard, once: Once, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    from penstock.wal import LogOptions, LogWriteError, LogWriter, SyncPolicy, _writer

    monkeypatch.setattr(_writer.LogWriter, "_note_synced", once)
    options = LogOptions(sync=SyncPolicy.INTERVAL, sync_interval_s=0.001)
    writer = LogWriter.create(str(folder / "log"), options=options)
    writer.append(0, b"one")
    end_s = time.monotonic() + WAIT_S

    def append() -> None:
        while time.monotonic() < end_s:
            writer.append(0, b"more")

    with pytest.raises((LogWriteError, MemoryError)):
        append()  # Who appends hears of it.
    writer.close()


def copies(heard: Heard, once: Once, monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    from penstock.blockstore.replicator import IllegalStateError, Replicator
    from penstock.wire import ApplicationLink

    monkeypatch.setattr(Replicator, "_take", broken)
    nothing: Any = None
    link = ApplicationLink(bytes(32), ("127.0.0.1", 1))
    found = Replicator(3, uuid.uuid4().hex, link=link, find=nothing, on_error=nothing)
    copying = found.begin("b", memoryview(b""), 0)
    heard.wait_for_hook("penstock-copy-3")
    with pytest.raises(IllegalStateError):
        found.wait(copying)
    found.close()


def attempt_ends(where: str, name: str, receiver: Callable[[], Any] | None = None) -> Case:
    """A thread of a receiver's process: its end is that of the attempt, whose driver hears why."""

    def case(_: Heard, __: Once, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        from tests.receiver.conftest import SETTINGS

        monkeypatch.setattr(where, broken)
        tracker = Tracker()
        settings = replace(SETTINGS, memory_dir=str(folder))
        running = Running((receiver or _counting)(), tracker, folder, settings)
        try:
            error = running.join()
            told = [str(error), *map(str, tracker.messages)]
            assert any(SAID in each for each in told), told
            assert any(name in each for each in told), told
        finally:
            tracker.server.stop()

    return case


def starts_again(where: str, receiver: Callable[[], Any]) -> Case:
    """A thread of a source: the driver hears of its error, and the receiver is started again."""

    def case(_: Heard, __: Once, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        from tests.receiver.conftest import SETTINGS

        monkeypatch.setattr(where, broken)
        tracker = Tracker()
        running = Running(receiver(), tracker, folder, replace(SETTINGS, memory_dir=str(folder)))
        try:
            tracker.wait_for(lambda: sum(SAID in str(each) for each in tracker.messages) > 1)
            tracker.send(StopReceiver())
            running.join()
        finally:
            tracker.server.stop()

    return case


def _counting() -> Any:
    def count(context: Any) -> Iterator[int]:
        number = 0
        while not context.stopped.wait(0.001):
            number += 1
            yield number

    return count


def _dropping() -> Any:
    from penstock.receiver import receiver

    return receiver(whenFull="dropNew")(_counting())


def counting_async() -> Any:
    async def count(context: Any) -> AsyncIterator[int]:
        while True:
            yield 1
            await asyncio.sleep(0.001)

    return count


def failing() -> Any:
    def fail(context: Any) -> Iterator[int]:
        yield 1
        broken()

    return fail


def client_session(heard: Heard, once: Once, monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    from penstock.sources.mqtt import MqttReceiver
    from penstock.sources.mqtt._session import MqttSession

    monkeypatch.setattr(MqttSession, "_taken", broken)
    monkeypatch.setattr(MqttReceiver, "reportError", lambda self, message, error: None)
    monkeypatch.setattr(MqttReceiver, "restart", lambda self, message, error: heard.tell(error))
    receiver = MqttReceiver("mqtt://127.0.0.1:1", "topic", qos=0)
    receiver.onStart()
    heard.wait_for_owner()
    receiver.onStop()


def http_server() -> Any:
    from penstock.sources.http import HttpReceiver

    return HttpReceiver(0, "127.0.0.1")


def postgres() -> Any:
    from penstock.sources.postgres import PostgresReceiver

    return PostgresReceiver("host=127.0.0.1 port=1", "slot", "publication")


def postgres_status(heard: Heard, once: Once, monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    from penstock.sources.postgres import _replication as source

    monkeypatch.setattr(source, "_STATUS_S", 0.001)
    monkeypatch.setattr(source, "_report_status", once)
    monkeypatch.setattr(source, "_end_copy", lambda *_: None)
    receiver = postgres()
    receiver._is_begun = True
    receiver._prepare = receiver._ask = lambda *_: None
    receiver._read = lambda *_: once.wait_for_second()
    receiver._serve(None, SimpleNamespace(connected=lambda: None))
    heard.wait_for_log()


def redis_stream() -> Any:
    from penstock.sources.redis import RedisStreamReceiver

    class Joined(RedisStreamReceiver):
        def _join(self) -> None:
            """As if there were a server."""

    return Joined("redis://127.0.0.1:1/0", "stream", "group")


def sqs_receiver() -> Any:
    from penstock.sources.sqs import SqsReceiver

    keys = {"accessKeyId": "a", "secretKey": "b"}
    return SqsReceiver("q", region="eu-west-1", endpointUrl="http://127.0.0.1:1", **keys)


def kinesis_receiver() -> Any:
    from penstock.sources.kinesis import KinesisReceiver

    keys = {"accessKeyId": "a", "secretKey": "b"}
    return KinesisReceiver("s", region="eu-west-1", endpointUrl="http://127.0.0.1:1", **keys)


def compression(*_: object) -> None:
    from penstock.blockstore._compression import BlockCompression

    found = BlockCompression("lz4")
    found._piece = broken  # type: ignore[method-assign]
    compressing = found.begin(memoryview(bytes(100)))
    with pytest.raises(MemoryError, match=SAID):
        compressing.pieces[0].result(WAIT_S)
    found.close()


def block_server_pool(heard: Heard, *_: object) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from penstock.blockstore.server.block_server import BlockServer

    with ThreadPoolExecutor(1) as worker:
        BlockServer._submit(SimpleNamespace(_worker=worker), "do it", broken)  # type: ignore[arg-type]
    heard.wait_for_log()


def awaited_stores() -> None:
    from concurrent.futures import ThreadPoolExecutor

    from penstock.receiver.forms.function_receivers import AwaitedStores, ReceiverContext

    def store(*_: object) -> None:
        raise SystemExit(SAID)

    async def main(context: Any) -> None:
        with pytest.raises(SystemExit, match=SAID):
            await context.store(1)

    nothing: Any = None
    context = ReceiverContext(
        stream_id=0,
        last_position=None,
        stopped=threading.Event(),
        store=store,
        storeFrom=nothing,
        reportError=nothing,
    )
    with AwaitedStores(context, ThreadPoolExecutor(1)) as stores:
        asyncio.run(main(stores.context))


def storer(*arguments: Any) -> None:
    starts_again(
        "penstock.receiver.forms.function_receivers.AsyncStoring._store_in_hand", counting_async
    )(*arguments)
    awaited_stores()


def sources(heard: Heard, once: Once, patched: pytest.MonkeyPatch, _: Path) -> None:
    from penstock.receiver.threads import source_loop
    from penstock.receiver.threads.workers import Workers

    def run(loop: Any) -> None:
        once()
        threading.Event().wait()

    async def nothing() -> None:
        pass

    patched.setattr(source_loop._Loop, "run_forever", run)
    work = nothing()
    source_loop.SourceLoop("test", Workers("test")).begin(3, work, broken)
    once.wait_for_second()
    heard.wait_for_log()
    work.close()


def workers(heard: Heard, *others: Any) -> None:
    from penstock.receiver.threads.workers import Workers

    Workers("test").post(broken, "named", 3)
    heard.wait_for_hook("penstock-named")
    slot_process(heard, *others)


def slot_process(_heard: Heard, _once: Once, patched: pytest.MonkeyPatch, folder: Path) -> None:
    from penstock.receiver.attempts import slot
    from penstock.receiver.threads.slot_board import Board
    from tests.receiver.conftest import SETTINGS
    from tests.receiver.running import make_launch

    tracker = Tracker()
    try:
        launch = slot.SlotLaunch(0, "t", {3: make_launch(b"", tracker, folder, SETTINGS)}, [(3,)])
        process = slot._SlotProcess(launch, 1, [3], "", words=-1, keeper=0, board=Board())
        patched.setattr(slot, "receiver_steps", lambda launch: None)
        patched.setattr(process, "_tell_end", broken)
        process._start(3, "a")
        # It ends, and by that all that it runs.
        assert process._over.wait(WAIT_S)
        assert isinstance(process.failure, MemoryError)
    finally:
        tracker.server.stop()


def continuous_task(heard: Heard, _: Once, patched: pytest.MonkeyPatch, folder: Path) -> None:
    from penstock.continuous.task import ContinuousLaunch, _Attempt
    from penstock.wire.messages import Subscribed, TaskFailed
    from tests.receiver.conftest import SETTINGS
    from tests.receiver.running import make_launch

    tracker = Tracker()
    try:
        access: Any = SimpleNamespace(link=make_launch(b"", tracker, folder, SETTINGS).link)
        attempt = _Attempt(ContinuousLaunch(0, 0, 1, "a", b"", access, 60.0, 60.0, 60.0, 1 << 20))
        sent: list[Any] = []
        patched.setattr(attempt._client, "ask", lambda message: Subscribed("source"))
        patched.setattr(attempt._client, "send", sent.append)
        patched.setattr(attempt, "_call_function", broken)
        (called, _) = attempt._begin(lambda batch: batch, FunctionSink(print), None)
        called.join(WAIT_S)
        assert not called.is_alive()
        # The driver hears of it, and the attempt ends.
        assert isinstance(sent[0], TaskFailed)
        assert SAID in sent[0].message
        assert attempt._ended.wait(WAIT_S)
        attempt._sink_work.put(None)
    finally:
        # It would end this process a minute later, in the midst of another test.
        faulthandler.cancel_dump_traceback_later()
        tracker.server.stop()
        gc.unfreeze()


# None: what is handed to it is awaited where it was handed over, or is over with the command, or
# keeps its error for the test.
PLACES: dict[str, Case | None] = {
    "blockstore/_compression.py:BlockCompression.__init__": compression,
    "blockstore/server/replica_service.py:ReplicaService.__init__": None,
    "blockstore/server/_serving.py:BlockService.__init__": None,
    "blockstore/replicator.py:Replicator.__init__": copies,
    "blockstore/server/block_server.py:BlockServer.__init__": block_server_pool,
    "blockstore/server/block_server.py:BlockServer._register": None,
    "continuous/task.py:_Attempt._begin": continuous_task,
    "runtime/event_loop.py:EventLoop.__init__": event_loop,
    "host/spark/ending.py:run_bounded": run_bounded,
    "host/spark/ending.py:tell_of_silence": stop_watch,
    "monitor/doctor/cluster.py:_ask": None,
    "monitor/monitor.py:Monitor.__init__": monitor,
    "monitor/otel/sender.py:OtelSender.__init__": otel,
    "monitor/monitor.py:SparkViews.__init__": spark_views,
    "monitor/web/server.py:WebServer.__init__": page,
    "monitor/web/server.py:_Server.process_request": page_connection,
    "receiver/blocks/block_generator.py:BlockGenerator.__init__": attempt_ends(
        "penstock.receiver.blocks.block_generator.BlockGenerator._tick_loop", "penstock-tick-3"
    ),
    "receiver/forms/function_receivers.py:ShortFormReceiver._storer": storer,
    "receiver/blocks/intake.py:IntakeStoring.__init__": attempt_ends(
        "penstock.receiver.blocks.intake.IntakeStoring._pass_all", "penstock-intake-3", _dropping
    ),
    "receiver/blocks/pipeline.py:BlockPipeline.start": attempt_ends(
        "penstock.receiver.blocks.pipeline.BlockPipeline._push_loop", "penstock-push-3"
    ),
    "receiver/threads/source_loop.py:SourceLoop.__init__": sources,
    "receiver/attempts/supervisor.py:ReceiverSupervisor.__init__": attempt_ends(
        "penstock.receiver.attempts.supervisor.ReceiverSupervisor._open", "receiver 3"
    ),
    "receiver/user_calls.py:UserCall.__init__": attempt_ends(
        "penstock.receiver.forms.threaded.ThreadedReceiver._failed", "receiver-3", failing
    ),
    "receiver/threads/workers.py:Workers.post": workers,
    "sources/_client_session.py:ClientSession.__init__": client_session,
    "sources/http/_server.py:HttpServer.__init__": attempt_ends(
        "penstock.sources.http._server.HttpServer._store_all", "penstock-http-store-3", http_server
    ),
    "sources/_on_loop.py:Batches.__init__": None,
    "sources/postgres/_replication.py:PostgresReceiver._serve": postgres_status,
    "sources/redis/_stream.py:RedisStreamReceiver._serve": attempt_ends(
        "penstock.sources.redis.RedisStreamReceiver._keep", "penstock-redis-acks-3", redis_stream
    ),
    "sources/kinesis/_reading.py:Reading.run": starts_again(
        "penstock.sources.kinesis._reading.Reading._read", kinesis_receiver
    ),
    "sources/sqs.py:_Taking.__init__": attempt_ends(
        "penstock.sources.sqs._Taking._receive", "penstock-sqs-3-0", sqs_receiver
    ),
    "sources/sqs.py:_Taking._keep": starts_again("penstock.sources.sqs._Taking._due", sqs_receiver),
    "sql/host.py:ReceiverHost._ask_to_stop": host_stop,
    "sql/host.py:ReceiverHost._start": retention,
    "sql/host_cli.py:_SparkWatch.__init__": spark_watch,
    "streaming/_live_view.py:LiveView.__init__": live_view,
    "streaming/_running.py:_Signals._interrupt": signals,
    "streaming/checkpoint/checkpointer.py:CheckpointWriter.__init__": checkpoints,
    "streaming/console.py:Console.__init__": console,
    "streaming/context.py:StreamingContext._stop_soon": context_stop,
    "listeners/bus.py:StreamingListenerBus.__init__": listener_bus,
    "streaming/scheduler/job_scheduler.py:JobScheduler.__init__": jobs,
    "streaming/scheduler/recurring_timer.py:RecurringTimer.__init__": timer,
    "testing/running.py:RunningReceiver.start": None,
    "testing/sinks.py:_Process._step": None,
    "runtime/threads.py:Repeated.__init__": repeated,
    "tracker/_endpoint.py:BatchedAdditions.__init__": additions,
    "tracker/receivers/jobs.py:ReceiverJob.__init__": job_of_a_slot,
    "tracker/receivers/splits.py:SplitStream.__init__": splits,
    "tracker/receivers/splits.py:SplitStream._ask": splits_call,
    "tracker/cluster.py:SparkCluster.thread": cluster,
    "blockstore/reading/_readahead.py:_read": None,
    "tracker/receiver_tracker.py:ReceiverTracker.__init__": leaving,
    "wal/_objects/filesystem.py:ObjectAppendFile._make": None,
    "wal/_objects/filesystem.py:ObjectReadFile._read_all": None,
    "wal/_writer.py:LogWriter._start": log_sync,
    "wire/client.py:Client.connect": client,
    "wire/client.py:ClientLoop.__init__": client_loop,
    "wire/server.py:Server.start": server,
}

_WITH_SPARK = {"sql/host.py:ReceiverHost._start"}


def places() -> Iterator[str]:
    """Yield where the product makes a thread, as ``file:function``."""

    def within(node: ast.AST, scope: tuple[str, ...]) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                yield from within(child, (*scope, child.name))
                continue
            if isinstance(child, ast.Call):
                made = child.func
                name = made.attr if isinstance(made, ast.Attribute) else getattr(made, "id", "")
                if name in _MAKERS:
                    yield ".".join(scope)
            yield from within(child, scope)

    for path in sorted(_ROOT.rglob("*.py")):
        for found in within(ast.parse(path.read_text(encoding="utf-8")), ()):
            yield f"{path.relative_to(_ROOT)}:{found}"


def test_each_place_that_makes_a_thread_says_who_hears_of_its_errors() -> None:
    assert sorted(set(places())) == sorted(PLACES)


@pytest.mark.long
@pytest.mark.parametrize(
    "place",
    [
        pytest.param(place, marks=pytest.mark.slow) if place in _WITH_SPARK else place
        for place, case in PLACES.items()
        if case is not None
    ],
)
def test_an_error_in_a_thread_is_heard_of(
    place: str,
    heard: Heard,
    once: Once,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    case = PLACES[place]
    assert case is not None
    if place in _WITH_SPARK:
        request.getfixturevalue("sc")
    case(heard, once, monkeypatch, tmp_path)
