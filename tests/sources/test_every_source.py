"""What holds for every source that comes with the project, each on its real server."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.testing import RunningReceiver, crash_test, run_receiver
from tests.bounds import HANG_S
from tests.services.proxy import Proxy
from tests.sources.cases import SECRET, Source, SourceCase

pytestmark = pytest.mark.slow

WRONG_SECRET = "battery-staple-wrong"
SETTINGS = {
    "spark.streaming.blockInterval": "20ms",
    "spark.streaming.receiverRestartDelay": "50",
}
NARROW = {**SETTINGS, "spark.streaming.blockQueueSize": "2"}
CASES: list[SourceCase] = [
    case
    for file in sorted(Path(__file__).parent.glob("case_*.py"))
    for case in importlib.import_module(f"tests.sources.{file.stem}").CASES
]


_tests = itertools.count()


def cases(
    *, connects: bool = False, refuses: bool = False, keeps: bool = False, each: str = ""
) -> Any:
    """Parametrise a test by the cases that have what it is about.

    With some hundred tests that wait for servers, CI runs a tenth of them, another one of each
    source; those for which `each` names a mark, or "make test", run with all.
    """
    fitting = [
        case
        for case in CASES
        if (case.connects or not connects)
        and (case.refusal is not None or not refuses)
        and (case.claim is not None or not keeps)
    ]
    test = next(_tests)

    def marks(number: int) -> list[Any]:
        name = each or ("long" if (number + test) % 10 == 0 else "exhaustive")
        return [] if name == "make test" else [getattr(pytest.mark, name)]

    found = [
        pytest.param(case, id=case.name, marks=marks(number)) for number, case in enumerate(fitting)
    ]
    return pytest.mark.parametrize("case", found)


class Feed:
    """A source, a proxy before its server, and what was sent."""

    def __init__(self, case: SourceCase, source: Source, proxy: Proxy) -> None:
        self.case = case
        self.source = source
        self.proxy = proxy
        self.sent: list[bytes] = []
        self._pool = ThreadPoolExecutor(1, "sends")
        self._sending: list[Future[None]] = []

    def receiver(self, secret: str = SECRET) -> object:
        """Return a receiver that goes through the proxy."""
        port = self.proxy.port if self.case.connects else self.source.port
        return self.source.receiver(port, secret)

    def send(self, payloads: Sequence[bytes]) -> None:
        """Send messages in a thread of their own, after those before."""
        self.sent += payloads
        self._sending.append(self._pool.submit(self.source.send, payloads))

    def wait_until_sent(self) -> None:
        """Wait until the source has all that was sent."""
        for sending in self._sending:
            sending.result(HANG_S)

    def numbered(self, count: int) -> list[bytes]:
        """Return new messages."""
        return [b"message %d" % (len(self.sent) + number) for number in range(count)]

    def expected(self) -> list[Any]:
        """Return what is stored of all that was sent."""
        return [self.source.stored(payload) for payload in self.sent]

    def wait_until_stored(self, running: RunningReceiver) -> None:
        """Wait until all that was sent is stored, and nothing else, as it is claimed."""
        expected = Counter(map(repr, self.expected()))
        found: Counter[str] = Counter()
        while expected - found:
            found = Counter(map(repr, running.wait_for_records(found.total() + 1, HANG_S)))
        self.wait_until_sent()
        doubled = found - expected
        assert not (set(doubled) - set(expected)), "what was never sent is stored"
        if self.case.claim != "at least once":
            assert not doubled

    def close(self) -> None:
        self._pool.shutdown()


@contextlib.contextmanager
def opened(case: SourceCase, folder: Path) -> Iterator[Feed]:
    with contextlib.ExitStack() as kept:
        source = kept.enter_context(case.open(folder))
        proxy = Proxy(source.port)
        kept.callback(proxy.close)
        feed = Feed(case, source, proxy)
        kept.callback(feed.close)
        yield feed


@contextlib.contextmanager
def running_with(
    case: SourceCase, folder: Path, settings: dict[str, str] = SETTINGS
) -> Iterator[tuple[Feed, RunningReceiver]]:
    with opened(case, folder) as feed, run_receiver(feed.receiver(), settings=settings) as running:
        feed.source.wait_until_heard()
        yield feed, running


def wait_for_errors(running: RunningReceiver, count: int) -> list[str]:
    """Wait until that many errors were reported, and return all."""
    end_s = time.monotonic() + HANG_S
    while len(errors := running.errors) < count:
        assert time.monotonic() < end_s, f"{errors}, and not {count} errors"
        time.sleep(0.01)
    return errors


@cases(each="make test")
def test_all_that_is_sent_is_stored_as_it_was_sent(case: SourceCase, tmp_path: Path) -> None:
    with running_with(case, tmp_path) as (feed, running):
        feed.send(feed.numbered(50))
        feed.wait_until_stored(running)
        if case.claim is not None:
            assert not running.errors


@cases(keeps=True)
def test_what_was_sent_before_a_receiver_runs_is_stored(case: SourceCase, tmp_path: Path) -> None:
    with opened(case, tmp_path) as feed:
        feed.send(feed.numbered(50))
        if case.connects:
            feed.wait_until_sent()
        with run_receiver(feed.receiver(), settings=SETTINGS) as running:
            feed.wait_until_stored(running)


@cases()
def test_an_empty_and_a_large_message_are_stored(case: SourceCase, tmp_path: Path) -> None:
    with running_with(case, tmp_path) as (feed, running):
        large = b"x" * (case.largest_bytes - 6) + b"large."
        feed.send([*([b""] if case.takes_empty else []), large, b"small"])
        feed.wait_until_stored(running)


@cases(connects=True)
def test_a_killed_server_is_reported_once_and_asked_again(case: SourceCase, tmp_path: Path) -> None:
    with running_with(case, tmp_path) as (feed, running):
        feed.send(feed.numbered(10))
        feed.wait_until_stored(running)
        feed.source.kill()
        wait_for_errors(running, 1)
        feed.proxy.wait_for_refusals(feed.proxy.refused + 3)
        feed.source.start()
        feed.source.wait_until_heard()
        feed.send(feed.numbered(10))
        feed.wait_until_stored(running)
        reported = [error.splitlines()[0] for error in running.errors]
        assert len(set(reported)) == len(reported), "an outage is reported again and again"


@cases(connects=True)
def test_a_stop_does_not_wait_for_a_server_that_is_away(case: SourceCase, tmp_path: Path) -> None:
    with running_with(case, tmp_path) as (feed, running):
        feed.source.kill()
        wait_for_errors(running, 1)
        running.stop()
        assert not [error for error in running.errors if "left behind" in error]


@cases(connects=True, keeps=True)
def test_a_message_that_is_cut_is_not_stored_before_it_came_whole(
    case: SourceCase, tmp_path: Path
) -> None:
    with running_with(case, tmp_path) as (feed, running):
        feed.send(feed.numbered(1))
        feed.wait_until_stored(running)
        before = feed.proxy.connections
        feed.proxy.cut_after(case.largest_bytes // 2)
        feed.send([b"y" * case.largest_bytes])
        feed.proxy.wait_for_connections(before + 1)
        feed.wait_until_stored(running)


@cases(connects=True, keeps=True)
def test_a_connection_that_is_stalled_is_given_up_or_goes_on(
    case: SourceCase, tmp_path: Path
) -> None:
    with running_with(case, tmp_path) as (feed, running):
        feed.send(feed.numbered(10))
        feed.wait_until_stored(running)
        before = feed.proxy.connections
        feed.proxy.stall()
        feed.send(feed.numbered(10))
        if case.notices_stalls:
            feed.proxy.wait_for_connections(before + 1)
        else:
            feed.proxy.go_on()
        feed.wait_until_stored(running)


@cases(refuses=True, each="make test")
def test_a_wrong_secret_is_an_error_that_does_not_show_it(
    case: SourceCase, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert case.refusal is not None
    with opened(case, tmp_path) as feed, caplog.at_level(logging.DEBUG, "penstock"):
        receiver = feed.receiver(WRONG_SECRET)
        assert WRONG_SECRET not in repr(receiver)
        with contextlib.ExitStack() as kept:
            running = kept.enter_context(run_receiver(receiver, settings=SETTINGS))
            feed.send(feed.numbered(1))
            error = wait_for_errors(running, 1)[0]
            assert re.search(case.refusal, error), error
            assert not running.records
            with contextlib.suppress(Exception):  # An attempt may end by it.
                kept.close()
            assert WRONG_SECRET not in "\n".join(running.errors)
        assert WRONG_SECRET not in caplog.text


@cases(keeps=True)
def test_a_full_queue_lets_the_source_wait_and_keeps_the_connection(
    case: SourceCase, tmp_path: Path
) -> None:
    with running_with(case, tmp_path, NARROW) as (feed, running):
        running.hold()
        feed.send(feed.numbered(1000))
        running.wait_for_records(1, HANG_S)
        before = feed.proxy.connections
        _see_bound(case, feed, 4.0)
        if case.keeps_connection:
            assert feed.proxy.connections == before, "the connection did not hold"
        running.go_on()
        feed.wait_until_stored(running)


@cases(keeps=True)
def test_a_full_disk_lets_the_source_wait(case: SourceCase, tmp_path: Path) -> None:
    with running_with(case, tmp_path, NARROW) as (feed, running):
        running.fill_disk()
        feed.send(feed.numbered(200))
        running.wait_for_error("no space left", HANG_S)
        assert not running.records
        running.free_disk()
        feed.wait_until_stored(running)


@cases(connects=True, keeps=True)
def test_many_reconnects_without_an_acknowledgement_keep_the_bound(
    case: SourceCase, tmp_path: Path
) -> None:
    with running_with(case, tmp_path, NARROW) as (feed, running):
        running.hold()
        feed.send(feed.numbered(500))
        running.wait_for_records(1, HANG_S)
        for _ in range(5):
            before = feed.proxy.connections
            feed.proxy.cut()
            feed.proxy.wait_for_connections(before + 1)
            _see_bound(case, feed, 0.0)
        running.go_on()
        feed.wait_until_stored(running)


@cases(keeps=True)
def test_a_graceful_stop_loses_nothing(case: SourceCase, tmp_path: Path) -> None:
    with running_with(case, tmp_path) as (feed, running):
        feed.send(feed.numbered(300))
        for count in (20, 100):
            running.wait_for_records(count, HANG_S)
            running.stop()
            running.start()
        feed.wait_until_stored(running)


class _Fed:
    def __init__(self, feed: Feed) -> None:
        self.feed = feed

    def expected(self) -> list[Any]:
        return self.feed.expected()


@cases(keeps=True)
def test_the_claim_holds_at_kills(case: SourceCase, tmp_path: Path) -> None:
    _kill(case, tmp_path, 3, 1)


@pytest.mark.timeout(1800)
@cases(keeps=True, each="exhaustive")
def test_the_claim_holds_at_many_kills(case: SourceCase, tmp_path: Path) -> None:
    _kill(case, tmp_path, 27, 2)


def _kill(case: SourceCase, folder: Path, kills: int, seed: int) -> None:
    rounds = iter(range(10_000))

    @contextlib.contextmanager
    def source() -> Iterator[_Fed]:
        fresh = folder / f"round-{next(rounds)}"
        fresh.mkdir()
        with opened(case, fresh) as feed:
            feed.send(feed.numbered(60))
            yield _Fed(feed)

    assert case.claim is not None
    crash_test(
        lambda fed: fed.feed.receiver(),
        source,
        claim=case.claim,
        kills=kills,
        seed=seed,
        # So slow that there are several blocks.
        settings={"spark.streaming.receiver.maxRate": "100"},
    )


def _see_bound(case: SourceCase, feed: Feed, seconds: float) -> None:
    """See for some time that no more messages are unacknowledged than the receiver's own bound."""
    end_s = time.monotonic() + seconds
    while True:
        if case.most_unacknowledged is not None:
            assert feed.source.unacknowledged() <= case.most_unacknowledged
        if time.monotonic() >= end_s:
            return
        threading.Event().wait(0.05)
