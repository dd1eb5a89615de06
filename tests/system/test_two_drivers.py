"""Two drivers on one prefix, of which one was paused in the middle of a request for two minutes."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from penstock.tracker import ReceivedBlockTracker
from penstock.wal import check
from tests.bounds import HANG_S
from tests.programs import ROOT, TellingProgram
from tests.services.http_faults import FaultyHttp
from tests.services.object_stores import ObjectServer, files_of, make_server
from tests.system.driver_process import DriverProcess
from tests.system.feeder import Feeder
from tests.system.ledger_driver import contents
from tests.system.leftovers import await_that
from tests.system.mounts import on_another_host
from tests.system.recoverable import word_of

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(3600)]

SEED = int(os.environ.get("PENSTOCK_PAIRS_SEED", "1"))
PAIRS = int(os.environ.get("PENSTOCK_PAIRS", "200"))
WHOLE = int(os.environ.get("PENSTOCK_PAIRS_WHOLE", "10"))
"""How many pairs are light, and how many are of whole drivers."""
AT_ONCE = int(os.environ.get("PENSTOCK_PAIRS_AT_ONCE", "20"))
PAUSE_S = 120.0

IN_WORK = (("PUT", "segment-"), ("PUT", "%40000000000000000"), ("GET", ""), ("POST", ""), ("", ""))
"""What is held: a method, and what the path has."""
RUNS = "tests.system.recoverable"
OLD_S = 90.0
"""How long processes of a driver may live after it."""
LATE_S = 3 * HANG_S
"""How long the batches of a pause may take, of which there are two minutes for each pair."""
LET_GO = ("before the other begins", "while it begins", "when it writes", "when it goes on")


class Driver(TellingProgram):
    """A `tests.system.ledger_driver` on a host of its own, as far as Penstock sees it."""

    def __init__(self, address: str, name: str, environment: dict[str, str]) -> None:
        module = ["-m", "tests.system.ledger_driver"]
        command = [*on_another_host(), sys.executable, *module, address, name]
        super().__init__(command, ROOT, **environment)

    def await_that(self, holds: Callable[[], object]) -> None:
        self.await_said("such event", holds)

    def go(self, count: int) -> None:
        self.tell(f"go {count}")

    @property
    def added(self) -> list[int]:
        return [each["position"] for each in self.all("added")]

    @property
    def has_ended(self) -> bool:
        return bool(self.all("ended"))

    @property
    def why(self) -> str:
        return str(self.all("ended")[0]["why"])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ObjectServer]:
    made = make_server("s3", tmp_path / "store")
    made.start()
    yield made
    made.stop()


def pause_one(server: ObjectServer, number: int, pause_s: float) -> str:
    """Pause a driver in the middle of a request, let another one take the ledger, and go on.

    Returns:
        What was done, and who won.
    """
    chance = random.Random(SEED * 10_000 + number)
    address = f"{server.authority}/pair-{number}/ledger"
    fs, path = files_of(server), f"/pair-{number}/ledger"
    with ExitStack() as stack:
        way = FaultyHttp(server.client_port)
        stack.callback(way.close)

        def start(name: str, url: str = "") -> Driver:
            driver = Driver(address, f"{name}-{number}", server.environment(url))
            stack.callback(driver.close)
            return driver

        begins = chance.random() < 0.25
        is_done = chance.random() < 0.5
        method, text = ("", "") if begins else chance.choice(IN_WORK)
        let_go = chance.choice(LET_GO)
        before: list[Driver] = []
        if begins:
            earlier = start("earlier")
            earlier.go(100)
            earlier.await_that(lambda: earlier.all("done"))
            earlier.close()
            before.append(earlier)
            way.hold(text, method, is_done=is_done, after=chance.randrange(20))
        first = start("first", way.url)
        first.go(100_000)
        if not begins:
            wanted = chance.randrange(5, 80)
            first.await_that(lambda: len(first.added) >= wanted or first.has_ended)
            way.hold(text, method, is_done=is_done, after=chance.randrange(3))
        assert way.holds.wait(HANG_S), first.events[-5:]
        if chance.random() < 0.5:
            time.sleep(chance.random() * 0.05)
        first.signal(signal.SIGSTOP)
        paused_s = time.monotonic()
        if let_go == LET_GO[0]:
            way.let_go()
            time.sleep(chance.random() * 0.2)
        second = start("second")
        if let_go == LET_GO[1]:
            time.sleep(chance.uniform(0.5, 2.5))
            way.let_go()
        second.go(40)
        second.await_that(lambda: second.all("done") or second.has_ended)
        assert not second.has_ended, second.events[-5:]
        if let_go == LET_GO[2]:
            way.let_go()
        acknowledged = first.added
        time.sleep(max(0.0, paused_s + pause_s - time.monotonic()))
        second.go(40)
        first.signal(signal.SIGCONT)
        if let_go == LET_GO[3]:
            time.sleep(chance.random() * 0.1)
            way.let_go()
        both = (first, second)

        def one_ends() -> bool:
            # Who has been replaced hears it when it writes.
            second.go(1)
            return any(each.has_ended for each in both)

        await_that("one ends", one_ends, 180.0, told(both))
        second.go(10)
        winner = first if second.has_ended else second
        loser = second if winner is first else first
        if winner is second:
            goal = len(second.added) + 10
            second.await_that(lambda: len(second.added) >= goal or second.has_ended)
        else:
            assert begins, "who was replaced has replaced its successor"
            goal = len(first.added) + 30
            first.await_that(lambda: len(first.added) >= goal or first.has_ended)
            first.signal(signal.SIGTERM)
        assert "was taken over by" in loser.why or "was taken over: " in loser.why, loser.why
        assert "pair-" in loser.why, loser.why
        assert not loser.all("came back")
        loser.process.wait(HANG_S)
        assert loser.process.returncode == 1
        assert not winner.has_ended, winner.why
        winner.close()
        # Nothing acknowledged is lost, and nothing is there twice.
        drivers = [*before, first, second]
        added = [position for each in drivers for position in each.added]
        assert len(added) == len(set(added)), "acknowledged by two"
        with_all = ReceivedBlockTracker.read(path, fs=fs)
        found = contents(with_all)
        assert found == list(range(len(found))), found
        assert set(added) <= set(found), sorted(set(added) - set(found))
        # What the winner went on from it has kept.
        kept = winner.all("found")[-1]["positions"]
        assert found[: len(kept)] == kept
        if winner is second:
            assert set(acknowledged) <= set(kept)
        newest = max((each["position"] for each in winner.all("checkpoint")), default=-1)
        assert int(with_all.checkpoint or b"-1") >= newest
        assert not check(path, fs=fs).damages
        held = f"{method or 'any'} {text}{' at the begin' if begins else ''}"
        done = "done" if is_done else "not done"
        return f"{held}, {done}, let go {let_go}: {loser.why.partition(': ')[0]}, " + (
            "the second wins" if winner is second else "the first wins"
        )


def told(drivers: tuple[Driver, ...]) -> Callable[[], str]:
    return lambda: "\n".join(str(each.events[-8:]) for each in drivers)


def many(pause: Callable[[int], str], count: int, at_once: int) -> None:
    """Pause in so many pairs, each of which is told; fail when one of them did."""
    failures = []
    with ThreadPoolExecutor(at_once) as threads:
        futures = [threads.submit(pause, number) for number in range(count)]
        for number, future in enumerate(futures):
            error = future.exception()
            if error is not None:
                failures.append(f"pair {number}: {type(error).__name__}: {error}")
            print(number, failures[-1] if error else future.result(), flush=True)
    assert not failures, f"{len(failures)} of {count}, seed {SEED}: " + "\n".join(failures)


@pytest.fixture
def environment(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("environment")
def test_of_two_drivers_one_wins_and_nothing_is_doubled(server: ObjectServer) -> None:
    many(lambda number: pause_one(server, number, 1.0), 12, AT_ONCE)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("environment")
def test_of_two_drivers_one_wins_after_a_pause_of_two_minutes(server: ObjectServer) -> None:
    many(lambda number: pause_one(server, number, PAUSE_S), PAIRS, AT_ONCE)


# -- whole drivers ---------------------------------------------------------------------------------


def pause_a_whole_one(server: ObjectServer, folder: Path, number: int, pause_s: float) -> str:
    """As `pause_one`, with Spark and a receiver; the first one's host is paused, or its driver."""
    chance = random.Random(SEED * 20_000 + number)
    batches, states = folder / "batches", folder / "states"
    for path in (folder, batches, states):
        path.mkdir()
    with Feeder() as feeder, ExitStack() as stack:
        way = FaultyHttp(server.client_port)
        stack.callback(way.close)

        def start(name: str, url: str) -> DriverProcess:
            config = {
                "master": "local[3]",
                "batch_s": 1,
                "checkpoint": f"{server.authority}/whole-{number}",
                "batches": str(batches),
                "states": str(states),
                "state_s": 2,
                "trigger": str(folder / "trigger"),
                "rdd_folder": str(folder / "shared"),
                "feeder": feeder.address,
                "settings": {
                    "spark.app.name": name,
                    "spark.local.dir": str(folder / name),
                    "spark.driver.host": "127.0.0.1",
                },
            }
            command = ("env", f"AWS_ENDPOINT_URL={url}", *on_another_host(), sys.executable)
            return stack.enter_context(
                DriverProcess(folder, config, command, "tests.system.recoverable")
            )

        first = start("first", way.url)
        first.wait_until_started()
        feeder.await_acknowledged(chance.randrange(3000, 6000))
        text = chance.choice(("receivedBlockMetadata", "receivedBlockMetadata", "receivedData"))
        is_done, let_go = chance.random() < 0.5, chance.choice(LET_GO)
        whole_host = chance.random() < 0.7
        way.hold(text, is_done=is_done)
        assert way.holds.wait(HANG_S)
        paused = first.processes()
        if not whole_host:
            paused = {pid: command for pid, command in paused.items() if RUNS in command}
        for pid in paused:
            os.kill(pid, signal.SIGSTOP)
        paused_s = time.monotonic()
        if let_go == LET_GO[0]:
            way.let_go()
        second = start("second", server.url)
        if let_go == LET_GO[1]:
            time.sleep(chance.uniform(1, 8))
            way.let_go()
        second.wait_until_started()
        if let_go == LET_GO[2]:
            way.let_go()
        feeder.await_acknowledged(3000)
        time.sleep(max(0.0, paused_s + pause_s - time.monotonic()))
        for pid in paused:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        if let_go == LET_GO[3]:
            time.sleep(chance.random() * 0.1)
            way.let_go()
        resumed_s = time.monotonic()
        assert first.wait_until_ended() != 0, first.report()
        ended_s = time.monotonic() - resumed_s
        assert "was taken over by" in first.log(), first.report()
        feeder.await_acknowledged(3000)
        sent = feeder.finish()
        assert_exact(batches, sent, second)
        second.stop()
        first.assert_no_process_left(OLD_S)
        assert_exact(batches, sent, second)
        done = "done" if is_done else "not done"
        who = "host" if whole_host else "driver"
        return f"{who}, {text}, {done}, let go {let_go}: the first ended after {ended_s:.0f} s"


def assert_exact(batches: Path, sent: int, driver: DriverProcess) -> None:
    def processed() -> Counter[str]:
        counts: Counter[str] = Counter()
        for path in batches.iterdir():
            assert path.suffix != ".other", path
            if path.suffix == "":
                counts.update(json.loads(path.read_text())["counts"])
        return counts

    await_that("all is processed", lambda: processed().total() >= sent, LATE_S, driver.report)
    assert processed() == Counter(word_of(number) for number in range(sent))


@pytest.mark.usefixtures("environment")
def test_of_two_whole_drivers_one_wins(server: ObjectServer, tmp_path: Path) -> None:
    print(pause_a_whole_one(server, tmp_path / "whole", 0, 8.0))


@pytest.mark.exhaustive
@pytest.mark.usefixtures("environment")
def test_of_two_whole_drivers_one_wins_after_a_pause_of_two_minutes(
    server: ObjectServer, tmp_path: Path
) -> None:
    def pause(number: int) -> str:
        return pause_a_whole_one(server, tmp_path / f"whole-{number}", number, PAUSE_S)

    many(pause, WHOLE, 3)
