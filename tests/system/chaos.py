"""Hurts a running program in every way that is known, and checks that its results are exact.

``make chaos`` runs `tests.system.hurt_program` in mounts of its own: a small disk for checkpoints
and logs, a small memory for blocks. Each cycle does one thing to it, or two at once, drawn from
`FAULTS`, and waits until records flow again; some end the driver, which is started again on its
folder. At the end the program stops gracefully. Then

- each number of the stream with positions is in exactly one batch, in order;
- the state after each batch is the sum of the batches up to it, the window that of its batches;
- each acknowledged number of the stream without positions is in a batch (what was not acknowledged
  may be there twice: the source sent it again);
- no process, memory file, lock or scratch folder is left.

With ``--no-folder`` nothing survives the driver, so only its receivers, executors and block servers
are hurt.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.system.driver_process import DriverProcess, driver_process
from tests.system.feeder import Feeder
from tests.system.hurt_program import WINDOW_S
from tests.system.leftovers import (
    MARK,
    await_that,
    block_servers,
    command_of,
    is_running,
    parent_of,
)
from tests.system.mounts import in_own_mounts
from tests.system.recoverable import MOMENTS, word_of

BATCH_S = 2
LEASE_S = 3.0
STOPS_S = 900.0
"""How long a graceful stop may take: after a long pause there are many batches to make."""
FLOWS_S = 150.0
"""How long it may take until records flow again."""

_DISK = (
    "truncate -s 1g {0}/image && mkfs.ext4 -q {0}/image && mount -o loop {0}/image {0}/disk"
    " || mount -t tmpfs -o size=1g tmpfs {0}/disk"
)
_MEMORY = "mount -t tmpfs -o size=1g tmpfs {0}/memory"


class Life:
    """One run of the driver."""

    def __init__(self, soak: Chaos, driver: DriverProcess) -> None:
        self.soak = soak
        self.driver = driver
        self.chance = soak.chance
        self.ended = False

    def await_identity(self) -> None:
        self.identity = self.driver.wait_for("identity", timeout_s=120)
        self.application = str(self.identity["application"])
        self.driver.wait_until_started()

    # -- who is hurt -------------------------------------------------------------------------------

    def receivers(self) -> list[int]:
        pids = [feeder.pids[-1] for feeder in self.soak.feeders if feeder.pids]
        return [pid for pid in pids if is_running(pid)]

    def executors(self) -> list[int]:
        found = set()
        for pid in self.receivers():
            with suppress(OSError, IndexError):
                while pid > 1 and "CoarseGrainedExecutorBackend" not in command_of(pid):
                    pid = parent_of(pid)
                if pid > 1:
                    found.add(pid)
        return sorted(found)

    def servers(self) -> list[int]:
        return block_servers(self.application)

    def drivers(self) -> list[int]:
        return [self.driver.process.pid]

    # -- how ---------------------------------------------------------------------------------------

    def kill(self, pids: list[int]) -> None:
        if pids:
            with suppress(ProcessLookupError):
                os.kill(self.chance.choice(pids), signal.SIGKILL)

    @contextmanager
    def paused(self, pids: list[int]) -> Iterator[None]:
        """Stop one of them until the end."""
        pid = self.chance.choice(pids) if pids else 0
        if pid:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            if pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    @contextmanager
    def all_paused(self) -> Iterator[None]:
        """Press Ctrl-Z: everything that belongs to the program stops."""
        group = self.driver.process.pid
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGSTOP)
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGCONT)

    @contextmanager
    def full(self, folder: Path) -> Iterator[None]:
        """Take all the space there is, again and again, until the end."""
        done = threading.Event()

        def fill() -> None:
            with open(folder / "filler", "ab", buffering=0) as filler:
                while not done.wait(0.02):
                    for size in (1 << 20, 4096, 1):
                        with suppress(OSError):
                            while filler.write(bytes(size)) and not done.is_set():
                                pass

        thread = threading.Thread(target=fill, name="chaos-filler")
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join(30)
            (folder / "filler").unlink()

    def for_a_while(self, least_s: float, most_s: float) -> None:
        with suppress(subprocess.TimeoutExpired):
            self.driver.process.wait(self.chance.uniform(least_s, most_s))


# -- faults ----------------------------------------------------------------------------------------


def kill_receiver(life: Life) -> None:
    life.kill(life.receivers())


def kill_executor(life: Life) -> None:
    life.kill(life.executors())


def kill_block_server(life: Life) -> None:
    life.kill(life.servers())


def pause_receiver(life: Life) -> None:
    with life.paused(life.receivers()):
        life.for_a_while(LEASE_S, 2 * LEASE_S)


def pause_executor(life: Life) -> None:
    with life.paused(life.executors()):
        life.for_a_while(LEASE_S, 2 * LEASE_S)


def pause_block_server(life: Life) -> None:
    with life.paused(life.servers()):
        life.for_a_while(LEASE_S, 2 * LEASE_S)


def pause_driver(life: Life) -> None:
    with life.paused(life.drivers()):
        life.for_a_while(LEASE_S, 3 * LEASE_S)


def pause_all(life: Life) -> None:
    with life.all_paused():
        life.for_a_while(LEASE_S, 3 * LEASE_S)


def fill_disk(life: Life) -> None:
    with life.full(life.soak.disk):
        life.for_a_while(0.5, 4)


def fill_memory(life: Life) -> None:
    with life.full(life.soak.memory):
        life.for_a_while(0.5, 4)


def kill_driver(life: Life) -> None:
    life.for_a_while(0, 4)
    life.driver.kill()
    life.ended = True


def kill_everything(life: Life) -> None:
    """Kill the driver, its JVM, executors, workers and block servers."""
    life.for_a_while(0, 4)
    for pid in [life.driver.process.pid, *life.driver.processes()]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    life.driver.process.wait(30)
    life.ended = True


def kill_stopping_driver(life: Life) -> None:
    """Kill the driver in the middle of a graceful stop."""
    ask_to_stop(life)
    life.for_a_while(0, 6)
    life.driver.kill()
    life.ended = True


def stop(life: Life) -> None:
    """Stop gracefully."""
    ask_to_stop(life)
    assert life.driver.wait_until_ended(STOPS_S + 60) == 0, life.driver.report()
    life.ended = True


def ask_to_stop(life: Life) -> None:
    pipe = life.driver.process.stdin
    assert pipe is not None
    pipe.write("stop\n")
    pipe.flush()


PASSING: tuple[Callable[[Life], None], ...] = (
    kill_receiver,
    kill_executor,
    kill_block_server,
    pause_receiver,
    pause_executor,
    pause_block_server,
    pause_driver,
    pause_all,
    fill_disk,
    fill_memory,
)
ENDING = (kill_driver, kill_everything, kill_stopping_driver, stop)
EARLY = ("in recovery", *MOMENTS)
FAULTS = (*(fault.__name__ for fault in (*PASSING, *ENDING)), *EARLY)
"""What is done to the program; those of `MOMENTS` and "in recovery" kill a driver that starts."""


class Chaos:
    """One program, hurt many times.

    Args:
        folder: Holds `disk`, `memory`, and what the program writes.
        seed: Decides about everything.
        recoverable: Whether it has a checkpoint directory.
        master: Where it runs.
        tell: Takes a line about each cycle.
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        *,
        recoverable: bool = True,
        master: str = "local-cluster[2,3,1024]",
        tell: Callable[[str], object] = print,
    ) -> None:
        self.folder = folder
        self.disk = folder / "disk"
        self.memory = folder / "memory"
        self.recoverable = recoverable
        self.master = master
        self.chance = random.Random(seed)
        self.tell = tell
        self.outputs = {name: folder / name for name in ("batches", "states", "windows", "plain")}
        for path in self.outputs.values():
            path.mkdir()
        self.numbers, self.plain = Feeder(), Feeder()
        self.feeders = (self.numbers, self.plain)
        self.done: Counter[str] = Counter()
        self.mark = ""

    def run(self, cycles: int) -> None:
        """Hurt it so many times, let it end, and check."""
        with ExitStack() as open_feeders:
            for feeder in self.feeders:
                open_feeders.enter_context(feeder)
            number = 0
            while number < cycles:
                number = self._live(number, cycles)
            with self._driver({}) as driver:
                life = Life(self, driver)
                life.await_identity()
                sent = [feeder.finish(FLOWS_S) for feeder in self.feeders]
                stop(life)
                driver.assert_no_process_left(30)
            self.check(*sent)
            self._check_leftovers()
        told = ", ".join(f"{name} {count}" for name, count in sorted(self.done.items()))
        self.tell(f"{number} cycles ({told}); {sent[0]} + {sent[1]} numbers: exact")

    # -- lives -------------------------------------------------------------------------------------

    def _live(self, number: int, cycles: int) -> int:
        """Run a driver until something ends it; return the number of cycles that are done."""
        early = self.recoverable and self.chance.random() < 0.25
        moment = self.chance.choice(EARLY) if early else None
        more = {}
        if moment in MOMENTS:
            more = {"moment": moment, "occasion": self.chance.randint(1, 8)}
        with self._driver(more) as driver:
            life = Life(self, driver)
            if moment is not None:
                self._end_early(life, moment)
                self._told(number, moment)
                return number + 1
            life.await_identity()
            self._await_flow(driver)
            while number < cycles and not life.ended:
                fault = self._choose()
                began_s = time.monotonic()
                fault(life)
                if not life.ended and self.chance.random() < 0.15:
                    other = self.chance.choice(PASSING)
                    self.done["two at once"] += 1
                    other(life)
                if not life.ended:
                    self._await_flow(driver)
                number += 1
                self._told(number - 1, fault.__name__, time.monotonic() - began_s)
            if not life.ended:
                # The end of the run: what is left to do is done by the last driver.
                if not self.recoverable:
                    sent = [feeder.finish(FLOWS_S) for feeder in self.feeders]
                    stop(life)
                    driver.assert_no_process_left(30)
                    self.check(*sent)
                else:
                    stop(life)
        return number

    def _choose(self) -> Callable[[Life], None]:
        if self.recoverable and self.chance.random() < 0.2:
            return self.chance.choice(ENDING)
        return self.chance.choice(PASSING)

    def _end_early(self, life: Life, moment: str) -> None:
        process = life.driver.process
        patience_s = self.chance.uniform(0.5, 14) if moment == "in recovery" else 60
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            life.driver.kill()
        assert process.returncode == -9, life.driver.report()
        with suppress(FileNotFoundError):
            (self.folder / "trigger").unlink()

    def _await_flow(self, driver: DriverProcess) -> None:
        """Wait until both streams flow, and batches are made of them."""
        before = [feeder.acknowledged for feeder in self.feeders]
        batches = len(os.listdir(self.outputs["plain"]))

        def flows() -> bool:
            assert driver.process.poll() is None, driver.report()
            return (
                all(
                    feeder.acknowledged > seen + 300
                    for feeder, seen in zip(self.feeders, before, strict=True)
                )
                and len(os.listdir(self.outputs["plain"])) > batches
            )

        def told() -> str:
            return f"{self.numbers}; {self.plain}; {driver.report()}"

        await_that("records flow", flows, FLOWS_S, told)

    def _told(self, number: int, what: str, took_s: float = 0.0) -> None:
        self.done[what] += 1
        acknowledged = [feeder.acknowledged for feeder in self.feeders]
        self.tell(f"cycle {number + 1}: {what}, {took_s:.1f} s, acknowledged {acknowledged}")

    def _driver(self, more: dict[str, Any]) -> Any:
        config = {
            "master": self.master,
            "recoverable": self.recoverable,
            "batch_s": BATCH_S,
            "state_s": 2 * BATCH_S,
            "checkpoint": str(self.disk / "checkpoint"),
            **{name: str(path) for name, path in self.outputs.items()},
            "trigger": str(self.folder / "trigger"),
            "feeder": self.numbers.address,
            "plain_feeder": self.plain.address,
            "settings": {
                "spark.penstock.memory.dir": str(self.memory),
                "spark.penstock.blockServer.lease": f"{LEASE_S:g}s",
                "spark.streaming.gracefulStopTimeout": f"{STOPS_S:g}s",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                # Executors are killed for as long as it runs.
                "spark.deploy.maxExecutorRetries": "-1",
                "spark.task.maxFailures": "20",
                "spark.stage.maxConsecutiveAttempts": "20",
            },
            **more,
        }
        return driver_process(self.folder, config, module="tests.system.hurt_program")

    # -- checks ------------------------------------------------------------------------------------

    def check(self, sent: int, plain_sent: int) -> None:
        """Check all results against what was sent.

        Raises:
            AssertionError: They are not exact.
        """
        assert [path.name for path in self.folder.glob("*/*.other")] == []
        batches = self._results("batches")
        counts: Counter[str] = Counter()
        sums: Counter[str] = Counter()
        states = self._results("states")
        for time_ms in sorted(batches):
            counts.update(batches[time_ms]["counts"])
            sums.update(batches[time_ms]["sums"])
            if self.recoverable:
                state = states[time_ms]
                assert state["counts"] == +counts, (time_ms, state["counts"], counts)
                assert {word: state["sums"][word] for word in counts} == sums, time_ms
        assert counts == Counter(map(word_of, range(sent))), (sent, counts.total())
        expected: Counter[str] = Counter()
        for number in range(sent):
            expected[word_of(number)] += number
        assert sums == expected
        self._check_windows(batches)
        seen: Counter[int] = Counter()
        for found in self._results("plain").values():
            for first, end in found["runs"]:
                seen.update(range(first, end))
        lost = set(range(plain_sent)) - set(seen)
        assert not lost, f"{len(lost)} acknowledged numbers are in no batch, from {min(lost)}"
        doubles = seen.total() - len(seen)
        self.tell(f"the stream without positions has {doubles} doubles")

    def _check_windows(self, batches: dict[int, Any]) -> None:
        for time_ms, found in self._results("windows").items():
            expected: Counter[str] = Counter()
            for other, result in batches.items():
                if time_ms - WINDOW_S * 1000 < other <= time_ms:
                    expected.update(result["counts"])
            assert found["counts"] == expected, (time_ms, found["counts"], expected)

    def _check_leftovers(self) -> None:
        await_that("no memory file is left", lambda: not os.listdir(self.memory), 90)
        logs = self.disk / "checkpoint"
        left = [path.name for path in logs.rglob("block-server-*")]
        assert left == [], left
        scratch = glob.glob(f"{os.environ['TMPDIR']}/penstock-*")
        assert scratch == [], scratch

    def _results(self, name: str) -> dict[int, Any]:
        return {
            int(path.name): json.loads(path.read_text())
            for path in self.outputs[name].iterdir()
            if path.name.isdigit()
        }


def main() -> int:
    """Run it in mounts of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--no-folder", action="store_true", help="run without a checkpoint folder")
    parser.add_argument("--master", default="local-cluster[2,3,1024]")
    parser.add_argument("--folder", type=Path, help="is kept; default: a temporary one")
    parser.add_argument("--mounted", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.mounted:
        return _in_mounts(options)
    print(f"seed {options.seed}", flush=True)
    chaos = Chaos(
        options.folder,
        options.seed,
        recoverable=not options.no_folder,
        master=options.master,
        tell=lambda line: print(line, flush=True),
    )
    chaos.run(options.cycles)
    return 0


def _in_mounts(options: argparse.Namespace) -> int:
    with ExitStack() as stack:
        folder = options.folder
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="chaos-")))
        for name in ("disk", "memory", "tmp"):
            (folder / name).mkdir(parents=True)
        script = f"{{ {_DISK.format(folder)}; }} && {_MEMORY.format(folder)}"
        command = [
            *in_own_mounts(f"{{ {script}; }}"),
            *("-m", "tests.system.chaos", *sys.argv[1:], "--mounted"),
            *("--seed", str(options.seed), "--folder", str(folder)),
        ]
        environment = {**os.environ, "TMPDIR": str(folder / "tmp")}
        environment.pop(MARK, None)
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
