"""Receivers that share a process: real processes, and a tracker that a test plays."""

from __future__ import annotations

import os
import pickle
import queue
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark import StorageLevel

from penstock.receiver import ReceiverLaunch
from penstock.receiver.attempts import task
from penstock.receiver.attempts.slot import SlotLaunch, _how, _SlotProcess, run_slot
from penstock.receiver.exit_report import ExitKind, ExitReport, ReceiverFailedError
from penstock.receiver.threads.slot_board import Board
from penstock.receiver.threads.workers import Wake
from penstock.testing.driver import read_back
from penstock.wire import Peer, Reply
from penstock.wire.messages import (
    AddBlock,
    AttemptEnded,
    Message,
    RegisterReceiver,
    RegisterSlot,
    ReportError,
    StartAttempt,
    StopReceiver,
)
from tests.receiver.conftest import SETTINGS
from tests.receiver.running import WAIT_S, Shared, Tracker, make_launch
from tests.receiver.test_life_cycle import Quiet
from tests.services.proxy import Proxy
from tests.system.leftovers import await_that, is_running

MODULE = """
import asyncio, os, signal, threading, time
from penstock.receiver import Receiver, as_receiver, receiver
from penstock.receiver.forms.threaded import ThreadedReceiver

class Plain(Receiver):
    def onStart(self): pass
    def onStop(self): pass

class InThread(Plain):
    def onStart(self): threading.Thread(target=self.run, name="author", daemon=True).start()

class Exits(InThread):
    def run(self): os._exit(7)

class Forks(Plain):
    def onStart(self):
        # A process of its own, as libraries fork them, that ends at once.
        pid = os.fork()
        if not pid:
            os._exit(0)
        os.waitpid(pid, 0)
        self.reportError("forked")

class Kills(InThread):
    def run(self): os.kill(os.getpid(), signal.SIGKILL)

class Fails(InThread):
    def run(self): raise ValueError("no such thing")

class Names(InThread):
    def run(self):
        while not self.isStopped():
            self.reportError(" ".join(each.name for each in threading.enumerate()))
            time.sleep(0.1)

class Counts(InThread):
    def run(self):
        while not self.isStopped():
            self.store(b"counted")
            time.sleep(0.01)

class Fills(InThread):
    def run(self):
        while True:
            self.store(b"x" * 8000)

class AckHangs(Fills):
    def run(self):
        self.store(b"x", ack=threading.Event().wait)
        super().run()

class StartHangs(Plain):
    def onStart(self): threading.Event().wait()

class Unpickled(Plain):
    def __setstate__(self, state): threading.Event().wait()

class Stays(InThread):
    def run(self):
        self.stop("it has had enough")
        threading.Event().wait()

@receiver(positions=True)
async def numbers(ctx):
    for number in range((ctx.last_position or 0) + 1, 1_000_000):
        yield b"%d" % number, number
        await asyncio.sleep(0.005)

async def named(ctx):
    yield b"x"
    while True:
        ctx.reportError(" ".join(each.name for each in threading.enumerate()))
        await asyncio.sleep(0.1)

async def blocking(ctx):
    await ctx.store(b"before")
    time.sleep(60)

class Stubborn(ThreadedReceiver):
    def _receive(self, context):
        return self.stay()

    async def stay(self):
        self.stop("it has had enough")
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                pass

async def exiting(ctx):
    await asyncio.sleep(0)
    os._exit(7)

async def spawning(ctx):
    def die(): raise ValueError("in a thread of its own")
    threading.Thread(target=die).start()
    await asyncio.sleep(60)

def on_loop(source):
    return lambda: as_receiver(source)

Numbers, Named, Blocking, Exiting, Spawning = map(
    on_loop, (numbers, named, blocking, exiting, spawning)
)
"""


class SlotTracker(Tracker):
    """Keeps the processes of a slot, by their numbers, and the receivers by their streams.

    Attributes:
        unanswered: A stream whose blocks get no answer.
    """

    def __init__(self) -> None:
        self.processes: dict[int, Peer] = {}
        self.receivers: dict[int, Peer] = {}
        self.unanswered = -1
        super().__init__()

    def on_message(self, peer: Peer, message: Message) -> Reply:
        if isinstance(message, RegisterSlot):
            with self.changed:
                self.processes[message.process] = peer
        if isinstance(message, RegisterReceiver):
            with self.changed:
                self.receivers[message.stream_id] = peer
                blocks = [one for one in self.blocks if one.stream_id == message.stream_id]
                self.position = blocks[-1].position if blocks else None
        if isinstance(message, AddBlock) and message.stream_id == self.unanswered:
            return None
        return super().on_message(peer, message)

    def process(self, number: int) -> Peer:
        self.wait_for(lambda: number in self.processes)
        return self.processes[number]


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (7 << 8, "ended with exit code 7"),
        (9, "was killed by SIGKILL (is memory short?)"),
        (34 + 1, "was killed by signal 35 (is memory short?)"),
    ],
)
def test_how_a_process_ended_is_said_of_each_status(status: int, said: str) -> None:
    assert _how(status) == said


class Slot:
    """A slot's keeper in a process of its own, and its processes as they registered."""

    def __init__(
        self,
        tracker: SlotTracker,
        folder: Path,
        *kinds: str,
        lease_s: float = 60.0,
        level: StorageLevel = StorageLevel.MEMORY_AND_DISK,
        is_apart: bool = False,
        more: str = "",
        setup: str = "",
        **changes: Any,
    ) -> None:
        (folder / "authors.py").write_text(MODULE + more)
        self.tracker = tracker
        environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{os.getcwd()}"}
        launches = {}
        storage_level = ReceiverLaunch.storage_level_tuple(level)
        for stream_id, kind in enumerate(kinds):
            pickled = (
                "import authors, pickle, sys\n"
                f"sys.stdout.buffer.write(pickle.dumps(authors.{kind}()))"
            )
            receiver = subprocess.run(
                [sys.executable, "-c", pickled],
                env=environment,
                capture_output=True,
                check=True,
                timeout=WAIT_S,
            ).stdout
            settings = replace(SETTINGS, memory_dir=str(folder), block_server_lease_s=lease_s)
            settings = replace(settings, **changes)
            launch = make_launch(receiver, tracker, folder, settings)
            launches[stream_id] = replace(launch, stream_id=stream_id, storage_level=storage_level)
        self.cut: Callable[[], None] = lambda: None
        if is_apart:
            # The process itself goes by the first one.
            link = launches[0].link
            proxy = Proxy(link.tracker[1])
            self.cut = proxy.close
            launches[0] = replace(
                launches[0], link=replace(link, tracker=("127.0.0.1", proxy.port))
            )
        launch = SlotLaunch(5, "t" * 32, launches, [tuple(launches)])
        (folder / "launch").write_bytes(pickle.dumps(launch))
        script = (
            "import pathlib, pickle, sys\n"
            "from penstock.receiver.attempts import slot, slot_load, task\n"
            "task.start_block_server = lambda launch: None\n"
            "task.receiver_steps.__kwdefaults__['ensure_block_server'] = lambda launch: None\n"
            "slot._SHORT_LIFE_S = slot._LEFT_S = 0.2\n"
            f"{setup}\n"
            "slot.run_slot(pickle.loads(pathlib.Path(sys.argv[1]).read_bytes()))\n"
        )
        self.keeper = subprocess.Popen(
            [sys.executable, "-c", script, str(folder / "launch")], env=environment
        )

    def registered(self, count: int) -> list[RegisterSlot]:
        """Wait for the first processes; return what they said, in the order of their forks."""
        self.tracker.wait_for_count(RegisterSlot, count)
        return sorted(self.tracker.of(RegisterSlot), key=lambda one: one.process)

    def start(self, peer: Peer, *streams: int) -> dict[int, str]:
        attempts = {stream_id: os.urandom(16).hex() for stream_id in streams}
        for stream_id, attempt in attempts.items():
            peer.send(StartAttempt(stream_id, attempt))
        return attempts

    def await_running(self, attempts: dict[int, str]) -> list[RegisterReceiver]:
        def found() -> list[RegisterReceiver]:
            all_of_them = self.tracker.of(RegisterReceiver)
            return [one for one in all_of_them if one.attempt in attempts.values()]

        self.tracker.wait_for(lambda: len(found()) == len(attempts))
        return found()

    def close(self) -> None:
        self.cut()
        self.keeper.kill()
        self.keeper.wait(WAIT_S)


MakeSlot = Callable[..., Slot]


@pytest.fixture
def tracker() -> Iterator[SlotTracker]:
    made = SlotTracker()
    yield made
    made.server.stop()


@pytest.fixture
def slot(tracker: SlotTracker, tmp_path: Path) -> Iterator[MakeSlot]:
    made: list[Slot] = []

    def make(*kinds: str, **options: Any) -> Slot:
        made.append(Slot(tracker, tmp_path, *kinds, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.slow
def test_a_worker_that_has_used_object_storage_forks_no_receivers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.receiver.attempts.slot.has_used_objects", lambda: True)
    # One that is no reason to give a receiver up, however often it comes.
    with pytest.raises(ReceiverFailedError, match="the receivers start in another worker"):
        run_slot(SlotLaunch(0, "task", {}, [(0,)]))


def test_a_receiver_fails_and_starts_again_alone(slot: MakeSlot, tracker: SlotTracker) -> None:
    shared = slot("Plain", "Fails", "Forks")
    peer = tracker.process(1)
    attempts = shared.start(peer, 0, 1, 2)
    pids = {one.pid for one in shared.await_running(attempts)}
    assert len(pids) == 1
    # It tells whose thread it was, and is started again by its own supervisor.
    tracker.wait_for(lambda: any("no such thing" in one.error for one in tracker.of(ReportError)))
    assert {one.stream_id for one in tracker.of(ReportError) if "no such" in one.error} == {1}
    # A child of the author's own that ends harms nobody.
    tracker.wait_for(lambda: any(one.message == "forked" for one in tracker.of(ReportError)))
    peer.send(StopReceiver())
    assert shared.keeper.wait(WAIT_S) == 0
    assert shared.registered(1) == [RegisterSlot(5, "t" * 32, 1, (0, 1, 2))]


@pytest.mark.parametrize(
    ("kind", "more"),
    [("Names", ["author"] * 5), ("Named", ["penstock-sources-slot-5"])],
    ids=["in a thread", "on the loop"],
)
def test_a_receiver_has_one_thread_of_ours_and_the_rest_are_for_all(
    slot: MakeSlot, tracker: SlotTracker, kind: str, more: list[str]
) -> None:
    shared = slot(*[kind] * 5)
    shared.start(tracker.process(1), *range(5))
    expected = ["MainThread", *(f"penstock-move-{one}" for one in range(5)), *more]
    expected += [f"penstock-{name}-slot-5" for name in ("receiver", "release", "rate-status")]

    def are_all(told: ReportError) -> bool:
        # Beside them there are those that have started the receivers, for some seconds.
        found = Counter(told.message.split())
        others = found - Counter(expected)
        return not Counter(expected) - found and others.keys() == {"penstock-worker-slot-5"}

    tracker.wait_for(lambda: any(are_all(one) for one in tracker.of(ReportError)))


@pytest.mark.slow
def test_who_blocks_the_loop_is_moved_and_the_others_lose_nothing(
    slot: MakeSlot, tracker: SlotTracker
) -> None:
    shared = slot("Numbers", "Blocking", "Counts")
    shared.start(tracker.process(1), 0, 2)

    def last() -> int:
        with tracker.changed:
            blocks = [one for one in tracker.blocks if one.stream_id == 0]
        return int(msgspec.msgpack.decode(blocks[-1].position or b"\x00")) if blocks else 0

    tracker.wait_for(lambda: last() > 20)
    shared.start(tracker.process(1), 1)
    alone, others = shared.registered(3)[1:]
    assert (alone.streams, others.streams) == ((1,), (0, 2))
    assert alone.ended.startswith("Receiver 1 has held the event loop for ")
    assert "authors.py" in alone.ended
    assert "in blocking" in alone.ended
    seen = last()
    shared.start(tracker.process(3), 0, 2)
    shared.start(tracker.process(2), 1)
    tracker.wait_for(lambda: last() > seen + 20)
    with tracker.changed:
        blocks = [one for one in tracker.blocks if one.stream_id == 0]
    found = [int(record) for record in read_back(blocks)]
    assert found == list(range(1, len(found) + 1))


@pytest.mark.slow
def test_what_runs_on_the_loop_is_known_as_its_receivers(
    slot: MakeSlot, tracker: SlotTracker
) -> None:
    shared = slot("Numbers", "Spawning", "Exiting")
    shared.start(tracker.process(1), 0, 1)
    died = "in a thread of its own"
    tracker.wait_for(lambda: any(died in one.error for one in tracker.of(ReportError)))
    assert {one.stream_id for one in tracker.of(ReportError) if died in one.error} == {1}
    shared.start(tracker.process(1), 2)
    alone, others = shared.registered(3)[1:]
    assert (alone.streams, others.streams) == ((2,), (0, 1))
    assert alone.ended.startswith("Receiver 2 called os._exit(7)")


@pytest.mark.slow
@pytest.mark.parametrize(
    "stuck", ["AckHangs", "Fills", "without an answer", "StartHangs", "Unpickled"]
)
def test_a_receiver_that_is_stuck_stops_no_neighbour(
    slot: MakeSlot, tracker: SlotTracker, stuck: str
) -> None:
    """In its acknowledgement, for want of memory or of the driver, or in its own start."""
    level = StorageLevel.MEMORY_ONLY if stuck == "Fills" else StorageLevel.MEMORY_AND_DISK
    kind = "Fills" if stuck == "without an answer" else stuck
    # More than start at a time.
    shared = slot(*[kind] * 5, "Counts", level=level)
    peer = tracker.process(1)
    tracker.unanswered = 0 if stuck == "without an answer" else -1
    shared.start(peer, *range(5))
    if kind in ("AckHangs", "Fills"):
        # What it waits for is told all the same.
        tracker.wait_for(
            lambda: any(
                one.stream_id == 0 and one.queue_fill == 1.0 for one in tracker.rate_reports[-20:]
            )
        )
    attempts = shared.start(peer, 5)

    def has_stored(blocks: int) -> bool:
        return sum(one.stream_id == 5 for one in tracker.blocks) >= blocks

    tracker.wait_for(lambda: has_stored(20))
    tracker.wait_for(lambda: any(one.stream_id == 5 for one in tracker.rate_reports))
    tracker.receivers[5].send(StopReceiver())
    ended = AttemptEnded(5, 5, attempts[5], "")
    tracker.wait_for(lambda: ended in tracker.of(AttemptEnded))


def test_an_attempt_that_hangs_at_its_end_is_given_up_and_told_once(
    tracker: SlotTracker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches = {3: make_launch(b"", tracker, tmp_path, SETTINGS)}
    launch = SlotLaunch(0, "t", launches, [(3,)])
    process = _SlotProcess(launch, 1, [3], "", words=-1, keeper=0, board=Board())
    told: queue.Queue[AttemptEnded] = queue.Queue()
    goes_on, begun = threading.Event(), threading.Event()

    class Hanging:
        def seconds_to_end(self) -> float:
            return 0.0

        def give_up(self) -> ExitReport:
            return ExitReport(ExitKind.FAILED, "it hangs")

    def run(
        launch: ReceiverLaunch, *, watch: Any, on_registered: Callable[[], None]
    ) -> Iterator[Wake]:
        watch(Hanging())
        begun.set()
        assert goes_on.wait(WAIT_S)
        return iter(())

    monkeypatch.setattr("penstock.receiver.threads.workers._IDLE_S", 0.1)
    monkeypatch.setattr("penstock.receiver.attempts.slot.receiver_steps", run)
    monkeypatch.setattr(process, "_tell_end", told.put)
    process._start(3, "a")
    assert begun.wait(WAIT_S)
    process._give_up_hanging()
    process._give_up_hanging()
    assert "it hangs" in told.get(timeout=WAIT_S).error
    (hanging,) = [one for one in threading.enumerate() if one.name == "penstock-supervisor-3"]
    goes_on.set()
    hanging.join(WAIT_S)
    assert told.empty()
    assert process.failure is None


@pytest.mark.slow
def test_who_ends_the_process_is_in_one_of_its_own_from_then_on(
    slot: MakeSlot, tracker: SlotTracker
) -> None:
    shared = slot("Plain", "Exits", "Plain")
    shared.start(tracker.process(1), 0, 1, 2)
    alone, others = shared.registered(3)[1:]
    assert (alone.streams, others.streams) == ((1,), (0, 2))
    said = "Receiver 1 called os._exit(7) in the process of receivers 0, 1, 2; it is in"
    assert alone.ended.startswith(said)
    assert others.ended == alone.ended
    attempts = shared.start(tracker.process(3), 0, 2)
    (pid,) = {one.pid for one in shared.await_running(attempts)}
    shared.start(tracker.process(2), 1)
    again = shared.registered(4)[3]
    assert again.streams == (1,)
    assert again.ended == "Receiver 1 called os._exit(7), in a process of its own"
    os.kill(pid, 0)


@pytest.mark.slow
def test_of_a_process_that_was_killed_half_moves_to_another(
    slot: MakeSlot, tracker: SlotTracker
) -> None:
    shared = slot("Plain", "Plain", "Kills")
    shared.start(tracker.process(1), 0, 1, 2)
    first, second = shared.registered(3)[1:]
    assert (first.streams, second.streams) == ((0,), (1, 2))
    assert "was killed by SIGKILL (is memory short?)" in second.ended
    shared.start(tracker.process(3), 1, 2)
    assert [one.streams for one in shared.registered(5)[3:]] == [(1,), (2,)]


def test_an_attempt_that_is_given_up_has_no_connection_any_more(
    tracker: SlotTracker, tmp_path: Path, shared: Shared
) -> None:
    """Its process lives on with others, and its splits would wait until it has ended, too."""
    launch = make_launch(Quiet(shared), tracker, tmp_path, SETTINGS)
    supervisor = task._supervisor(launch, lambda launch: None)
    assert supervisor is not None
    supervisor.start()
    tracker.wait_for(lambda: 3 in tracker.receivers)
    assert "hangs at" in supervisor.give_up().message
    await_that("no connection", lambda: not tracker.receivers[3].is_connected, WAIT_S)
    assert "hangs at" in tracker.of(ReportError)[-1].message
    supervisor.stop("it goes on")
    assert supervisor.await_termination(WAIT_S) is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mate", "kind", "left"),
    [("Plain", "Stays", "author"), ("Numbers", "Stubborn", "a coroutine at .* in stay")],
)
def test_who_leaves_something_behind_is_started_in_a_process_of_its_own(
    slot: MakeSlot, tracker: SlotTracker, mate: str, kind: str, left: str
) -> None:
    shared = slot(mate, kind)
    attempts = shared.start(tracker.process(1), 0, 1)
    (pid,) = {one.pid for one in shared.await_running(attempts)}
    moved = shared.registered(2)[1]
    assert moved.streams == (1,)
    why = rf".*\(it left {left} behind, so it starts in a process of its own\)"
    assert re.fullmatch(why, moved.ended, re.DOTALL)
    os.kill(pid, 0)
    again = shared.start(tracker.process(2), 1)
    (other,) = {one.pid for one in shared.await_running(again)}
    assert other != pid
    assert tracker.of(AttemptEnded) == []


@pytest.mark.slow
def test_the_task_fails_when_a_process_has_lost_its_driver(
    slot: MakeSlot, tracker: SlotTracker
) -> None:
    # Were it to end as one that the driver has ended, nothing would start its receivers again.
    shared = slot("Plain", lease_s=0.5)
    tracker.process(1)
    tracker.server.stop()
    assert shared.keeper.wait(WAIT_S) != 0


@pytest.mark.slow
def test_receivers_that_reach_the_driver_do_not_outlive_the_connection_of_their_process(
    slot: MakeSlot, tracker: SlotTracker, tmp_path: Path
) -> None:
    """As after a pause of the driver which was too long for one connection, and not for others.

    Of those that ended in such a process the driver would never hear, and start none again.
    """
    shared = slot("Plain", "Numbers", lease_s=0.5, is_apart=True)
    attempts = shared.start(tracker.process(1), 1)
    shared.await_running(attempts)
    tracker.wait_for(lambda: len(tracker.blocks) > 1)
    shared.cut()
    assert shared.keeper.wait(WAIT_S) != 0
    # It has stored what it took.
    stored = read_back(tracker.blocks)
    assert stored == [b"%d" % number for number in range(1, len(stored) + 1)]


@pytest.mark.slow
def test_no_process_outlives_the_slots_task(slot: MakeSlot, tracker: SlotTracker) -> None:
    shared = slot("Plain", "Plain")
    attempts = shared.start(tracker.process(1), 0, 1)
    (pid,) = {one.pid for one in shared.await_running(attempts)}
    shared.keeper.send_signal(signal.SIGKILL)
    shared.keeper.wait(WAIT_S)
    await_that("its end", lambda: not is_running(pid), WAIT_S)
