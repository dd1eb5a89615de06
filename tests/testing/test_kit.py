"""The kit of receivers' authors: what it shows of a right receiver, and of wrong ones."""

from __future__ import annotations

import contextlib
import os
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from penstock.errors import IllegalStateError, PenstockError, SettingError
from penstock.receiver import Receiver, ReceiverFailedError, receiver
from penstock.testing import (
    CRASH_POINTS,
    ClaimNotHeldError,
    ReceiverTestError,
    RunningReceiver,
    crash_test,
    run_receiver,
)
from penstock.testing.attempts import Attempts
from penstock.testing.crashes import STOPPED, _more_of, _Outcome, _told, _Trial
from penstock.testing.driver import TestDriver
from penstock.tracker.errors import ReceiverPickleError
from penstock.wire.messages import AddBlock, Refused
from tests.bounds import HANG_S

pytestmark = pytest.mark.timeout(1200)

SMALL = {"spark.streaming.blockInterval": "10ms"}
SOON = {**SMALL, "spark.streaming.receiverRestartDelay": "10"}
COUNT = 60


class Feed:
    """A server that gives numbered lines from a number on, and forgets what is acknowledged.

    A client says ``from N``, gets lines, and may answer ``ack N`` for all before N.
    """

    def __init__(self) -> None:
        self.first = 0
        self.has_given_all = threading.Event()
        feed = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError, ValueError):
                    wanted = int(self.rfile.readline().split()[1])
                    taking = threading.Thread(target=self.take)
                    taking.start()
                    with contextlib.suppress(OSError):
                        for number in range(max(wanted, feed.first), COUNT):
                            self.wfile.write(b"%d\n" % number)
                            time.sleep(0.003)  # So that there are several blocks.
                        feed.has_given_all.set()
                    taking.join()

            def take(self) -> None:
                with contextlib.suppress(OSError):
                    while line := self.rfile.readline():
                        feed.first = max(feed.first, int(line.split()[1]))

        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.block_on_close = False
        self.address = self.server.server_address
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def expected(self) -> list[Any]:
        return [str(number) for number in range(COUNT)]


def until(holds: Callable[[], bool]) -> None:
    """Wait until the source has read what was sent to it."""
    end_s = time.monotonic() + HANG_S
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.01)


@contextlib.contextmanager
def feed() -> Iterator[Feed]:
    opened = Feed()
    try:
        yield opened
    finally:
        opened.server.shutdown()
        opened.server.server_close()


class Lines(Receiver):
    """Reads a feed from its last position on."""

    def __init__(self, address: Any) -> None:
        super().__init__()
        self.address = address

    def onStart(self) -> None:
        self.connection = socket.create_connection(self.address, HANG_S)
        self.file = self.connection.makefile("rwb")
        self.thread = threading.Thread(target=self.receive)
        self.thread.start()

    def onStop(self) -> None:
        self.connection.shutdown(socket.SHUT_RDWR)
        self.thread.join(5)

    def first(self) -> int:
        return int(self.lastPosition or 0)

    def receive(self) -> None:
        self.say(b"from %d\n" % self.first())
        with contextlib.suppress(OSError):
            for line in self.file:
                self.take(line.decode().strip())

    def take(self, line: str) -> None:
        self.store(line, position=int(line) + 1)

    def say(self, words: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):
            self.file.write(words)
            self.file.flush()


class Acknowledging(Lines):
    """Keeps no position: what it acknowledged is not given again."""

    def first(self) -> int:
        return 0

    def take(self, line: str) -> None:
        self.store(line, ack=lambda: self.say(b"ack %d\n" % (int(line) + 1)))


class AcknowledgesEarly(Acknowledging):
    def take(self, line: str) -> None:
        self.say(b"ack %d\n" % (int(line) + 1))
        self.store(line)


class ForgetsItsPosition(Lines):
    def first(self) -> int:
        return 0

    def take(self, line: str) -> None:
        self.store(line, position={"next": int(line) + 1})


class StoresAfterStop(Acknowledging):
    """Each call returns when its line is durable; but its thread is not ended by a stop."""

    def onStop(self) -> None:
        pass

    def take(self, line: str) -> None:
        try:
            self.store([line])
        finally:
            self.say(b"ack %d\n" % (int(line) + 1))


def test_records_positions_and_errors_of_a_receiver_are_seen() -> None:
    with feed() as source, run_receiver(Lines(source.address), settings=SOON) as running:
        assert running.wait_for_records(COUNT) == source.expected()
        assert running.position == COUNT
        running.restart()
        running.wait_for_event("registered", 2)
        assert running.records == source.expected()
        running.stop()
        assert running.events[-1] == "deregistered: Stopped by driver"


def test_an_error_of_the_receiver_is_seen_with_its_traceback() -> None:
    with contextlib.ExitStack() as opened:
        running = opened.enter_context(run_receiver(Lines(("127.0.0.1", 1)), settings=SMALL))
        error = running.wait_for_error("ConnectionRefusedError", HANG_S)
        assert "in onStart" in error
        with pytest.raises(ReceiverTestError, match="no 1 records"):
            running.wait_for_records(1, 0.1)
        with pytest.raises(ReceiverFailedError):
            opened.close()


def test_nothing_is_acknowledged_while_the_driver_does_not_answer() -> None:
    with feed() as source, run_receiver(Acknowledging(source.address), settings=SMALL) as running:
        running.hold()
        running.wait_for_records(1)
        assert source.has_given_all.wait(HANG_S)
        assert source.first == 0
        running.go_on()
        running.wait_for_records(COUNT)
        running.stop()
        until(lambda: source.first == COUNT)


def test_nothing_is_acknowledged_while_the_disk_is_full() -> None:
    with feed() as source, run_receiver(Acknowledging(source.address), settings=SMALL) as running:
        running.fill_disk()
        assert "no space left" in running.wait_for_error("no space left", HANG_S)
        assert source.has_given_all.wait(HANG_S)
        assert source.first == 0
        assert not running.records
        running.free_disk()
        running.wait_for_records(COUNT)
        running.stop()
        until(lambda: source.first == COUNT)


def test_a_wait_ends_with_the_receiver() -> None:
    class Ends(Lines):
        def onStart(self) -> None:
            raise TypeError("cannot begin")

    with contextlib.ExitStack() as opened:
        running = opened.enter_context(run_receiver(Ends(None), settings=SMALL))
        with pytest.raises(ReceiverTestError, match=r"1 records before the receiver ended.*begin"):
            running.wait_for_records(1, 10 * HANG_S)
        with pytest.raises(ReceiverTestError, match="no address before the receiver ended"):
            running.wait_for_addresses(10 * HANG_S)
        with pytest.raises(ReceiverTestError, match="cannot work"):
            opened.close()


def test_an_attempt_is_started_when_the_last_one_has_ended() -> None:
    def records(ctx: Any) -> Iterator[Any]:
        yield "one"
        ctx.stopped.wait()

    with run_receiver(records, settings=SMALL) as running:
        with pytest.raises(IllegalStateError, match="stop"):
            running.start()
        assert running.wait_for_records(1) == ["one"]
        running.stop()
        assert running.records == ["one"]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"blockInterval": "20ms"}, "begin with spark"),
        ({"spark.penstock.none": 1}, "no such key"),
        ({"spark.streaming.blockInterval": "soon"}, "soon"),
    ],
)
def test_a_setting_that_there_is_not_is_refused(settings: Any, told: str) -> None:
    with pytest.raises(SettingError, match=told), run_receiver(Lines(None), settings=settings):
        pass


def test_what_cannot_be_sent_to_an_executor_is_named() -> None:
    receiver = Lines(None)
    receiver.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(ReceiverPickleError, match="lock"), run_receiver(receiver):
        pass


@pytest.mark.parametrize("arguments", [{"kills": 0}, {"kills": "3"}, {"idle_s": 0}, {"claim": "1"}])
def test_a_crash_test_that_would_test_nothing_is_refused(arguments: dict[str, Any]) -> None:
    given = {"claim": "at least once", **arguments}
    with pytest.raises(PenstockError, match=next(iter(arguments))):
        crash_test(lambda source: Lines(None), feed, **given)


class Plain:
    def __init__(self, number: int) -> None:
        self.number = number


def test_records_are_compared_by_what_they_are() -> None:
    some = [{"a": 1, "b": {"c": 2, "d": 3}}, Plain(1), 1, float("nan"), ["x"]]
    same = [{"b": {"d": 3, "c": 2}, "a": 1}, Plain(1), 1, float("nan"), ["x"]]
    assert _more_of(some, same) == _more_of(same, some) == []
    others = [{"a": 1, "b": {"c": 2, "d": 4}}, Plain(2), 1.0, True, "1", b"1", ("x",)]
    assert _more_of(others, some) == others
    assert _more_of([1, 1, 2], [1, 2]) == [1]


class Listens(Receiver):
    def onStart(self) -> None:
        self.listening("tcp://127.0.0.1:1")

    def onStop(self) -> None:
        pass


def test_where_a_receiver_listens_is_seen_while_it_does() -> None:
    with run_receiver(Listens()) as running:
        assert running.wait_for_addresses() == running.addresses == ("tcp://127.0.0.1:1",)
        running.stop()
        assert running.addresses == ()


def test_a_receiver_that_has_ended_listens_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also before its connection is known to be gone."""
    monkeypatch.setattr(TestDriver, "on_disconnect", lambda driver, peer: None)
    with run_receiver(Listens()) as running:
        running.wait_for_addresses()
        running.stop()
        assert running.addresses == ()


def test_a_receiver_whose_connection_is_gone_listens_nowhere() -> None:
    """As after a kill."""
    with run_receiver(Listens()) as running:
        running.wait_for_addresses()
        driver: Any = running._driver
        driver.on_disconnect(object())
        assert running.addresses
        peer = driver._peer
        driver.on_disconnect(peer)
        assert running.addresses == ()
        driver._peer = peer


@pytest.mark.parametrize("stand", [RunningReceiver.hold, RunningReceiver.fill_disk])
def test_what_is_held_or_full_at_the_end_goes_on_so_that_the_receiver_can_end(stand: Any) -> None:
    with feed() as source:
        with run_receiver(Acknowledging(source.address), settings=SMALL) as running:
            stand(running)
            assert source.has_given_all.wait(HANG_S)
        count = running._driver.count
        assert count > 0
        until(lambda: source.first == count)
        with pytest.raises(ReceiverTestError, match="within the with"):
            _ = running.records


def test_one_that_does_not_end_is_told_with_what_it_reported() -> None:
    with run_receiver(Listens()) as running:
        driver: Any = running._driver
        driver.errors.append("the disk is full")
        try:
            with pytest.raises(ReceiverTestError, match="within 0 s; it reported the disk is full"):
                driver.stop(lambda wait_s: False, 0)
        finally:
            driver.errors.clear()


def test_a_block_that_is_reported_again_counts_once() -> None:
    """As after an answer that was lost."""
    with feed() as source, run_receiver(Lines(source.address), settings=SMALL) as running:
        running.wait_for_records(COUNT)
        driver: Any = running._driver
        driver.on_message(driver._peer, AddBlock(0, driver._attempt, tuple(driver.blocks)))
        assert running.records == source.expected()


def test_a_block_of_a_killed_attempt_does_not_count_once_the_next_one_is_registered() -> None:
    """As its driver refuses it: what it has was stored again by the next one."""
    with feed() as source, run_receiver(Lines(source.address), settings=SMALL) as running:
        running.wait_for_records(COUNT)
        driver: Any = running._driver
        late = msgspec.structs.replace(driver.blocks[-1], block_id="late")
        answer = driver.on_message(driver._peer, AddBlock(0, "killed", (late,)))
        assert isinstance(answer, Refused)
        assert running.records == source.expected()


def test_a_full_disk_is_that_of_one_receiver() -> None:
    with (
        feed() as source,
        run_receiver(Lines(source.address), settings=SMALL) as full,
        run_receiver(Lines(source.address), settings=SMALL) as running,
    ):
        full.fill_disk()
        assert running.wait_for_records(COUNT) == source.expected()


def test_a_block_is_sealed_by_call() -> None:
    hour = {"spark.streaming.blockInterval": "1h"}

    def records(ctx: Any) -> Iterator[Any]:
        yield "one"
        ctx.stopped.wait()

    with run_receiver(records, settings=hour) as running:
        running.seal()  # It may have no connection yet.
        assert running.events[:1] == ["registered"]
        while not running.records:
            running.seal()
            with contextlib.suppress(ReceiverTestError):
                running.wait_for_records(1, 0.1)
        running.stop()
        with pytest.raises(ReceiverTestError, match="before the receiver ended"):
            running.seal()


def test_another_attempt_goes_on_where_the_last_one_stopped() -> None:
    with feed() as source, run_receiver(Lines(source.address), settings=SMALL) as running:
        running.wait_for_records(1)
        running.stop()
        running.start()
        assert running.wait_for_records(COUNT) == source.expected()


def test_what_a_schema_does_not_take_is_seen_as_discarded() -> None:
    def records(ctx: Any) -> Iterator[Any]:
        yield from ("one", "two")
        ctx.stopped.wait()

    def is_one(record: str) -> bool:
        return record == "one"

    taken = receiver(validate=is_one)(records)
    with run_receiver(taken, settings=SMALL) as running:
        assert running.wait_for_records(1) == ["one"]
        running.stop()
        assert [data for data, _ in running.discarded] == [b"two"]


def test_a_receiver_is_restarted_in_its_process_before_it_is_stopped() -> None:
    """What it has left of the start before may double or lose records."""
    with feed() as source, run_receiver(Lines(source.address), settings=SOON) as running:
        trial: _Trial[Any] = _Trial(Attempts(""), Lines, feed, {}, idle_s=HANG_S)
        given: Any = SimpleNamespace(expected=lambda: map(str, range(COUNT)))
        driver, has_ended = running._driver, running._has_ended.wait
        trial._await_end(driver, given, has_ended, (STOPPED, 1))
        assert driver.starts == 2
        trial._await_end(driver, given, has_ended, ("", 0))
        assert (driver.starts, running.records) == (2, source.expected())


@pytest.mark.parametrize(
    ("plan", "shown"),
    [
        (("stored", 3), "killed at 'stored', the time no. 3"),
        ((STOPPED, 3), "restarted, and stopped gracefully, after 3 records or more each time"),
    ],
)
def test_a_story_tells_what_happened(plan: Any, shown: str) -> None:
    assert _told(plan, was_killed=True) == shown
    assert "killed" not in _told(plan, was_killed=False)


def test_what_is_reported_was_forced_to_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    write, sync = os.pwritev, os.fdatasync
    forced: list[bool] = []

    def writing(file: int, parts: Any, offset: int, flags: int = 0) -> int:
        forced.append(bool(flags & os.RWF_DSYNC))
        return write(file, parts, offset, flags)

    def syncing(file: int) -> None:
        forced.append(True)
        sync(file)

    def records(ctx: Any) -> Iterator[Any]:
        yield "one"
        ctx.stopped.wait()

    with run_receiver(records, settings={"spark.streaming.blockInterval": "1h"}) as running:
        running.wait_for_event("registered")
        monkeypatch.setattr(os, "pwritev", writing)
        monkeypatch.setattr(os, "fdatasync", syncing)
        while not running.records:
            running.seal()
            with contextlib.suppress(ReceiverTestError):
                running.wait_for_records(1, 0.1)
        assert any(forced)


def test_what_a_process_says_that_cannot_begin_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no such module >&2\nexit 3\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    large = Lines(bytes(1 << 20))
    with pytest.raises(ReceiverTestError, match="cannot begin: no such module"):
        crash_test(lambda source: large, feed, claim="exactly once", kills=1)


@pytest.mark.long
@pytest.mark.slow
def test_a_right_receiver_holds_what_it_claims_at_every_step() -> None:
    report = crash_test(
        lambda source: Lines(source.address), feed, claim="exactly once", kills=4, seed=1
    )
    assert sum(report.kills.values()) >= 4
    assert set(report.kills) <= set(CRASH_POINTS)
    assert report.records == report.rounds * COUNT


class RefusesOne(Lines):
    """Cannot take a line, and says so."""

    def take(self, line: str) -> None:
        if line == "7":
            self.reportError("the line 7 is refused")
        else:
            super().take(line)


@pytest.mark.long
def test_a_claim_that_does_not_hold_is_shown_with_what_the_receiver_reported() -> None:
    with pytest.raises(ClaimNotHeldError, match="it reported: the line 7 is refused") as raised:
        crash_test(
            lambda source: RefusesOne(source.address),
            feed,
            claim="exactly once",
            kills=1,
            seed=1,
            idle_s=1,
        )
    assert raised.value.missing == ("7",)


def test_rounds_that_come_to_no_step_are_followed_by_more_patient_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A step may be reached once only, and late."""
    asked: list[tuple[int, int]] = []

    class Barren(_Trial[Any]):
        def run(self, plan: list[Any]) -> _Outcome:
            asked.append((self.patience, max(no for point, no in plan if point != STOPPED)))
            return _Outcome((), [], 0, [], [], ())

    monkeypatch.setattr("penstock.testing.crashes._Trial", Barren)
    with pytest.raises(ReceiverTestError, match="comes to no step"):
        crash_test(Lines, feed, claim="at least once", kills=1)
    assert [patience for patience, _ in asked] == list(range(1, 12))
    assert all(no <= max(1, 5 - patience) for patience, no in asked)


class FromBytes:
    """Stores what it reads without an object for each record."""

    def __init__(self, address: Any) -> None:
        self.address = address

    def run(self, ctx: Any) -> None:
        with socket.create_connection(self.address) as self.source:
            self.source.sendall(b"from 0\n")
            ctx.storeFrom(self.source.recv_into, "lines")
            ctx.stopped.wait()

    def stop(self) -> None:
        self.source.shutdown(socket.SHUT_RDWR)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "point"),
    [
        # Those that come soonest; each kill of the others is a round more.
        *((Lines, point) for point in ("before store", "synced", "before acknowledgement")),
        # Bytes take their own way to the block only.
        (FromBytes, "stored"),
        *(
            pytest.param(kind, point, marks=pytest.mark.exhaustive)
            for kind in (Lines, FromBytes)
            for point in CRASH_POINTS
        ),
    ],
)
def test_a_kill_comes_at_each_step(kind: Any, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.testing.crashes.CRASH_POINTS", (point,))
    report = crash_test(
        lambda source: kind(source.address), feed, claim="at least once", kills=1, idle_s=2
    )
    assert report.kills == {point: 1}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "claim"),
    [
        pytest.param(AcknowledgesEarly, "at least once", marks=pytest.mark.exhaustive),
        (ForgetsItsPosition, "exactly once"),
        pytest.param(StoresAfterStop, "at least once", marks=pytest.mark.exhaustive),
    ],
)
def test_a_wrong_receiver_is_shown_by_few_kills(wrong: type[Lines], claim: Any) -> None:
    with pytest.raises(ClaimNotHeldError) as raised:
        crash_test(lambda source: wrong(source.address), feed, claim=claim, idle_s=2, seed=2)
    error = raised.value
    assert len(error.kills) <= 1, error
    if wrong is StoresAfterStop:
        assert error.kills[0].startswith("restarted, and stopped gracefully")
    assert bool(error.missing) == (claim == "at least once")
    assert bool(error.doubled) == (claim == "exactly once")


def test_a_folder_of_ones_own_keeps_the_log(tmp_path: Path) -> None:
    with feed() as source, run_receiver(Lines(source.address), folder=tmp_path) as running:
        running.wait_for_records(COUNT)
    assert list(tmp_path.glob("receivedData/0-*/segment-*.log"))
