"""Async sources of several receivers on one event loop: what each sees of it, and of the others."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import socket
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock.receiver import Receiver, ReceiverContext
from penstock.receiver.threads.shared_threads import SharedThreads
from penstock.receiver.threads.source_loop import (
    RunningSource,
    SourceLoop,
    cancel_the_rest,
    running_stream,
)
from penstock.receiver.threads.workers import Lane, Workers
from penstock.receiver.user_calls import mark, mark_new_threads, stream_of
from penstock.wire import Peer, Reply
from penstock.wire.messages import (
    Message,
    RegisterReceiver,
    ReportError,
    RestartReceiver,
    StopReceiver,
)
from tests.receiver.running import WAIT_S, Running, Shared, Tracker

# What holds of a source on a loop of its own.
from tests.receiver.test_short_forms import (  # noqa: F401
    test_a_coroutine_is_cancelled_at_a_stop,
    test_a_coroutine_that_does_not_wait_stores_all_the_same_in_order,
    test_a_source_whose_task_someone_else_cancels_has_failed_and_not_ended,
    test_a_task_that_fails_and_that_nobody_awaits_is_told,
    test_an_async_generator_is_cancelled_where_it_waits,
    test_an_async_generator_that_raises_is_called_again,
    test_an_error_of_storing_is_raised_where_it_is_awaited_or_else_reported,
    test_i1_a_coroutine_goes_on_when_its_record_is_durable,
    test_i7_storing_never_blocks_the_event_loop_and_what_is_in_hand_is_bounded,
    test_run_may_be_a_coroutine_or_an_async_generator,
    test_waiting_for_durability_holds_up_nobody_else,
    test_what_comes_too_late_is_refused_and_not_left_waiting,
    test_what_storing_raises_is_raised_where_a_coroutine_awaits_it_whatever_it_is,
    test_who_waits_goes_on_also_when_the_acknowledgement_fails,
)
from tests.system.leftovers import await_that

Run = Callable[..., Running]


class Peers(Tracker):
    """Keeps the receivers by their streams."""

    def __init__(self) -> None:
        self.peers: dict[int, Peer] = {}
        super().__init__()

    def on_message(self, peer: Peer, message: Message) -> Reply:
        if isinstance(message, RegisterReceiver):
            with self.changed:
                self.peers[message.stream_id] = peer
        return super().on_message(peer, message)


@pytest.fixture
def tracker() -> Iterator[Peers]:
    made = Peers()
    yield made
    made.server.stop()


@pytest.fixture
def run(run: Run, tracker: Peers) -> Iterator[Run]:
    threads = SharedThreads("test")
    threads.start()

    def start(*arguments: Any, **changes: Any) -> Running:
        return run(*arguments, **{"threads": threads, **changes})

    yield start
    for peer in tracker.peers.values():
        peer.send(StopReceiver())


def test_sources_share_a_thread_and_nothing_else(run: Run, tracker: Peers, shared: Shared) -> None:
    shared.receiver = contextvars.ContextVar("name", default="no one's")

    async def source(ctx: ReceiverContext) -> None:
        loop = asyncio.get_running_loop()
        shared.say(("before", shared.receiver.get()))
        shared.receiver.set(str(ctx.stream_id))
        with ThreadPoolExecutor(1, thread_name_prefix=f"of-{ctx.stream_id}") as own:
            loop.set_default_executor(own)
            shared.say((await asyncio.to_thread(threading.current_thread)).name)
        await asyncio.gather(*(asyncio.sleep(0) for _ in range(10)))
        shared.say((ctx.stream_id, shared.receiver.get(), threading.current_thread().name))
        await asyncio.sleep(3600)

    for stream_id in (3, 4):
        run(source, stream_id=stream_id)
    for stream_id in (3, 4):
        shared.wait_for((stream_id, str(stream_id), "penstock-sources-test"))
        assert f"of-{stream_id}_0" in shared.events
    assert shared.events.count(("before", "no one's")) == 2


@pytest.mark.parametrize("how", ["raises", "exits", "stops the loop", "a task", "a callback"])
def test_an_error_of_one_is_told_as_its_own_and_no_other_has_it(
    run: Run, tracker: Peers, shared: Shared, how: str
) -> None:
    async def fail() -> None:
        raise ValueError("made to fail")

    def fail_at_once() -> None:
        raise ValueError("made to fail")

    async def failing(ctx: ReceiverContext) -> None:
        loop = asyncio.get_running_loop()
        if how == "exits":
            sys.exit("made to fail")
        if how == "stops the loop":
            loop.stop()
        if how == "a task":
            shared.receiver = asyncio.create_task(fail())
            await asyncio.sleep(3600)
        if how == "a callback":
            loop.call_soon(fail_at_once)
            await asyncio.sleep(3600)
        await fail()

    async def going_on(ctx: ReceiverContext) -> AsyncIterator[str]:
        while True:
            yield "it goes on"
            await asyncio.sleep(0.01)

    run(going_on, stream_id=4)
    tracker.wait_for(lambda: tracker.blocks)
    run(failing)
    tracker.wait_for(lambda: any("made to fail" in one.error for one in tracker.of(ReportError)))
    count = len(tracker.blocks)
    tracker.wait_for(lambda: len(tracker.blocks) > count + 5)
    assert {one.stream_id for one in tracker.of(ReportError)} == {3}


def test_the_end_of_one_ends_what_it_has_begun_and_nothing_of_the_others(
    run: Run, tracker: Peers, shared: Shared
) -> None:
    async def beat(stream_id: int) -> None:
        try:
            while True:
                shared.say(stream_id)
                await asyncio.sleep(0.01)
        finally:
            shared.say(f"end of {stream_id}")

    async def source(ctx: ReceiverContext) -> None:
        shared.receiver = asyncio.create_task(beat(ctx.stream_id))
        await asyncio.sleep(3600)

    first = run(source)
    shared.wait_for(3)
    run(source, stream_id=4)
    shared.wait_for(4)
    tracker.peers[3].send(StopReceiver())
    assert first.join() is None
    shared.wait_for("end of 3")
    shared.wait_for(4, shared.events.count(4) + 5)
    assert "end of 4" not in shared.events


def test_a_server_and_a_client_of_a_library_run_on_it(
    run: Run, tracker: Peers, shared: Shared
) -> None:
    async def served(ctx: ReceiverContext) -> None:
        from aiohttp import ClientSession, web

        async def answer(_: web.Request) -> web.Response:
            return web.Response(text=f"to {ctx.stream_id}")

        app = web.Application()
        app.router.add_get("/", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "localhost", 0)
            await site.start()
            port = runner.addresses[0][1]
            async with ClientSession() as session, session.get(f"http://localhost:{port}") as got:
                await ctx.store(await got.text())
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", "print('printed')", stdout=asyncio.subprocess.PIPE
            )
            printed, _ = await process.communicate()
            await ctx.store(printed.decode().strip())
            await asyncio.sleep(3600)
        finally:
            await runner.cleanup()

    for stream_id in (3, 4):
        run(served, stream_id=stream_id)
    found = tracker.wait_for_records(4)
    assert sorted(found) == ["printed", "printed", "to 3", "to 4"]


class CalledBack(Receiver):
    """What calls it knows the object that it was made for."""

    def __init__(self) -> None:
        super().__init__()
        self.call = self.said

    def said(self) -> None:
        self.store("said")

    def onStart(self) -> None:
        self.thread = threading.Thread(target=self.call)
        self.thread.start()

    def onStop(self) -> None:
        self.thread.join(WAIT_S)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "thread"}


@pytest.mark.usefixtures("marked")
def test_a_restart_goes_on_with_its_object_whatever_threads_its_neighbours_begin(
    run: Run, tracker: Peers, shared: Shared
) -> None:
    async def neighbour(ctx: ReceiverContext) -> None:
        threading.Thread(target=shared.wait_for, args=["over"]).start()
        await ctx.store("begun")
        await asyncio.sleep(3600)

    # As the threads of a slot's process are.
    mark(threading.current_thread(), 3)
    run(CalledBack())
    tracker.wait_for_records(1)
    mark(threading.current_thread(), 4)
    run(neighbour, stream_id=4)
    tracker.wait_for_records(2)
    mark(threading.current_thread(), None)
    tracker.peers[3].send(RestartReceiver("it was asked for"))
    tracker.wait_for_records(3)
    shared.say("over")
    assert not tracker.of(ReportError)


@pytest.fixture
def loop() -> SourceLoop:
    return SourceLoop("test", Workers("test"))


def _looks(loop: SourceLoop, until: Callable[[tuple[int, str] | None], bool]) -> Any:
    end_s = time.monotonic() + WAIT_S
    while not until(found := loop.look()):
        assert time.monotonic() < end_s
        time.sleep(0.01)
    return found


def test_who_holds_the_loop_is_found_while_others_need_it(loop: SourceLoop) -> None:
    holds, goes_on = threading.Event(), threading.Event()

    async def holding() -> None:
        holds.set()
        goes_on.wait(WAIT_S)

    async def waiting() -> None:
        await asyncio.sleep(3600)

    source = loop.begin(3, holding(), lambda task: None)
    assert holds.wait(WAIT_S)
    # No one else is there.
    assert all(loop.look() is None for _ in range(20))
    assert "in holding" in source.blocked_at()
    other = loop.begin(4, waiting(), lambda task: None)
    stream_id, why = _looks(loop, lambda found: found is not None)
    assert stream_id == 3
    assert "in holding" in why
    goes_on.set()
    assert source.join(WAIT_S)
    assert source.blocked_at() == "(ended)"
    assert _looks(loop, lambda found: found is None) is None
    assert not other.join(0)


def test_a_source_runs_that_begins_after_one_for_which_the_system_had_no_thread(
    loop: SourceLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def source() -> None:
        await asyncio.sleep(0)

    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    failed = source()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError, match="can't start"):
            loop.begin(3, failed, lambda task: None)
    failed.close()
    assert loop.begin(3, source(), lambda task: None).join(WAIT_S)


def test_who_takes_many_turns_holds_nobody_up(loop: SourceLoop) -> None:
    turns = threading.Semaphore(0)
    over = threading.Event()
    here, there = socket.socketpair()

    async def busy() -> None:
        # All turns are of one callback of the loop.
        def on_readable() -> None:
            turns.release()
            if over.wait(0.001):
                asyncio.get_running_loop().remove_reader(here)

        asyncio.get_running_loop().add_reader(here, on_readable)
        await asyncio.to_thread(over.wait)

    sources = [loop.begin(number, busy(), lambda task: None) for number in range(2)]
    with here, there:
        there.send(b"x")
        for _ in range(30):
            assert loop.look() is None
            # What was posted by one of them has had its turn by the third.
            assert all(turns.acquire(timeout=WAIT_S) for _ in range(3))
        over.set()
        assert all(one.join(WAIT_S) for one in sources)


def test_a_source_that_ends_on_the_loop_does_not_wait_for_itself(loop: SourceLoop) -> None:
    found: list[bool] = []
    sources: list[RunningSource] = []

    async def asking() -> None:
        found.append(sources[0].join(WAIT_S))

    begun = threading.Event()

    async def first() -> None:
        await asyncio.to_thread(begun.wait)
        await asking()

    sources.append(loop.begin(3, first(), lambda task: None))
    begun.set()
    assert sources[0].join(WAIT_S)
    assert found == [False]


def ended(source: RunningSource) -> None:
    assert source.join(WAIT_S)


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", threading.Thread.start)
    mark_new_threads(running_stream, lambda thread, stream_id: None)


@pytest.mark.usefixtures("marked")
def test_a_thread_is_of_whom_it_works_for_whoever_had_it_begun(loop: SourceLoop) -> None:
    found: list[Any] = []
    local = threading.local()
    workers = Workers("test")

    def look() -> None:
        thread = threading.Thread(target=lambda: None)
        thread.start()
        found.append((running_stream(), stream_of(thread), getattr(local, "of", None)))
        local.of = running_stream()

    async def source() -> None:
        await asyncio.get_running_loop().run_in_executor(None, look)
        await asyncio.wrap_future(Lane(workers, "lane", 5).submit(look))

    # The same thread works for the second one, or for a supervisor that no source has called.
    for stream_id in (3, 4):
        ended(loop.begin(stream_id, source(), lambda task: None))
    assert found == [(3, 3, None), (5, 5, None), (4, 4, None), (5, 5, 5)]


@pytest.mark.usefixtures("marked")
def test_what_a_thread_of_a_source_begins_on_the_loop_is_of_that_source(loop: SourceLoop) -> None:
    found: list[Any] = []
    begun = threading.Event()

    async def on_message() -> None:
        found.append(running_stream())
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            found.append("cancelled")

    async def client() -> None:
        running = asyncio.get_running_loop()

        def call() -> None:
            asyncio.run_coroutine_threadsafe(on_message(), running)

        await asyncio.to_thread(lambda: threading.Thread(target=call).start())
        await asyncio.to_thread(begun.wait)
        await cancel_the_rest()
        # As libraries do on the loop itself, whose thread was begun for the first source.
        running.call_soon_threadsafe(lambda: found.append(running_stream()))
        await asyncio.sleep(0)

    def first() -> None:
        mark(threading.current_thread(), 3)
        loop.begin(3, asyncio.sleep(3600), lambda task: None)

    thread = threading.Thread(target=first)
    thread.start()
    thread.join(WAIT_S)
    ended(loop.begin(4, client(), lambda task: None))
    assert found == [4, "cancelled", 4]


def test_a_source_sees_and_cancels_its_own_tasks_only(loop: SourceLoop) -> None:
    found: list[int] = []

    async def cancelling() -> None:
        mine = asyncio.create_task(asyncio.sleep(3600))
        found.append(len(asyncio.all_tasks()))
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.wait([mine])
        # On a loop that it makes itself all are its own.
        found.append(await asyncio.to_thread(asyncio.run, two()))

    async def two() -> int:
        other = asyncio.create_task(asyncio.sleep(3600))
        return len(asyncio.all_tasks()) + other.cancel()

    first = loop.begin(3, asyncio.sleep(3600), lambda task: None)
    ended(loop.begin(4, cancelling(), lambda task: None))
    assert found == [2, 3]
    assert not first.join(0.1)


def test_what_a_source_sets_of_the_loop_is_there_for_it_as_asyncio_has_it(
    loop: SourceLoop, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[Any] = []
    found: list[Any] = []

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **_: Any) -> asyncio.Task[Any]:
        assert not _
        made.append(coroutine)
        return asyncio.Task(coroutine, loop=loop)

    def handle(loop: asyncio.AbstractEventLoop, facts: dict[str, Any]) -> None:
        raise ValueError("made to fail")

    async def setting() -> None:
        running = asyncio.get_running_loop()
        found.append((running.get_task_factory(), running.get_exception_handler()))
        running.set_task_factory(make)
        running.set_exception_handler(handle)
        found.append((running.get_task_factory(), running.get_exception_handler()))
        task = running.create_task(asyncio.sleep(0), name="of 3")
        found.append(task.get_name())
        await task
        running.call_soon(made.index, "what is not there")
        await asyncio.sleep(0.01)

    for stream_id in (3, 4):
        ended(loop.begin(stream_id, setting(), lambda task: None))
    assert found == [(None, None), (make, handle), "of 3"] * 2
    assert len(made) == 2
    # What a handler raises is told, and is not the end of the loop.
    assert caplog.text.count("ValueError: made to fail") == 2
    assert "it goes on" not in caplog.text


def test_an_error_that_no_one_awaits_is_told_to_its_source_wherever_it_is_collected(
    loop: SourceLoop,
) -> None:
    told: list[Any] = []
    kept: list[Any] = []

    async def fail() -> None:
        raise ValueError("made to fail")

    async def failing() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, facts: told.append((3, facts)))
        kept.append(asyncio.create_task(fail()))
        await asyncio.wait(kept)

    async def collecting() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, facts: told.append((4, facts)))
        kept.clear()

    for stream_id, work in ((3, failing()), (4, collecting())):
        ended(loop.begin(stream_id, work, lambda task: None))
    assert [whose for whose, _ in told] == [3]


def test_a_call_that_found_no_thread_is_not_made_after_all_and_the_next_one_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    done: list[int] = []
    lane = Lane(Workers("test"), "lane", 3)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError, match="can't start"):
            lane.submit(done.append, 1)
    assert lane.submit(done.append, 2).result(WAIT_S) is None
    assert done == [2]


def test_a_call_that_is_cancelled_is_not_made_and_one_that_was_made_is_not_kept() -> None:
    lane = Lane(Workers("test"), "lane", 3)
    goes_on = threading.Event()
    done: list[Any] = []

    class Kept:
        pass

    kept = Kept()
    gone = weakref.ref(kept)
    lane.submit(goes_on.wait, WAIT_S)
    assert lane.submit(done.append, 1).cancel()
    lane.submit(repr, kept)
    del kept
    goes_on.set()
    lane.shutdown()
    await_that("its end", lambda: gone() is None, WAIT_S)
    assert done == []


def test_what_a_source_has_run_in_threads_ends_with_it_and_its_tasks_are_told_to_it(
    loop: SourceLoop,
) -> None:
    told: list[Any] = []
    pool = ThreadPoolExecutor(1)

    async def lost() -> None:
        await asyncio.get_running_loop().create_future()

    async def losing() -> None:
        running = asyncio.get_running_loop()
        running.set_default_executor(pool)
        running.set_exception_handler(lambda _, facts: told.append((3, facts["message"])))
        task = running.create_task(lost())
        await asyncio.sleep(0)
        del task

    async def collecting() -> None:
        running = asyncio.get_running_loop()
        running.set_exception_handler(lambda _, facts: told.append((4, facts["message"])))
        gc.collect()

    gc.disable()
    try:
        for stream_id, work in ((3, losing()), (4, collecting())):
            ended(loop.begin(stream_id, work, lambda task: None))
    finally:
        gc.enable()
    assert told == [(3, "Task was destroyed but it is pending!")]
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(int)


def test_a_source_has_ended_whatever_it_has_set(loop: SourceLoop) -> None:
    async def setting() -> None:
        asyncio.get_running_loop().set_default_executor(None)

    ended(loop.begin(3, setting(), lambda task: None))


def test_calls_of_a_lane_are_in_order_and_its_thread_is_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.receiver.threads.workers._IDLE_S", 0.1)
    workers = Workers("test")
    done: list[int] = []
    lane, other = Lane(workers, "one", 1), Lane(workers, "two", 2)
    for number in range(100):
        lane.submit(done.append, number)
    goes_on = threading.Event()
    stuck = other.submit(goes_on.wait, WAIT_S)
    lane.shutdown()
    assert done == list(range(100))
    with pytest.raises(RuntimeError, match="after shutdown"):
        lane.submit(done.append, 1)
    goes_on.set()
    assert stuck.result(WAIT_S)
    ours = [one for one in threading.enumerate() if one.name == "penstock-worker-test"]
    for thread in ours:
        thread.join(WAIT_S)
        assert not thread.is_alive()
