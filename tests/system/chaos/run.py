"""`Run`: one program, hurt many times: ``python -m tests.system.chaos.run JSON``, in its mounts."""

from __future__ import annotations

import glob
import json
import os
import random
import shutil
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.host.orphans import remove_scratch_folders
from tests.bounds import HANG_S
from tests.services.hdfs import Hdfs
from tests.services.http_faults import FaultyHttp
from tests.services.kafka import Broker
from tests.services.versitygw import VersityServer, make_server
from tests.system.chaos.faults import (
    ENDING,
    LEASE_S,
    MOMENT_S,
    STOPS_S,
    Fault,
    Life,
    Victims,
    passing,
)
from tests.system.chaos.kafka_source import KafkaSource
from tests.system.chaos.program import BATCH_S
from tests.system.chaos.results import Results
from tests.system.driver_process import DriverProcess
from tests.system.feeder import Feeder
from tests.system.leftovers import await_that
from tests.system.recoverable import MOMENTS

MODES = ("folder", "no folder", "hdfs", "kafka", "s3")
"""Where checkpoints and logs lie, and with ``kafka``: on the disk, and brokers send the records."""

RATE = 1000
"""Records per second that each receiver takes; it catches up on brokers' topics with half of it."""

FLOWS_S = HANG_S
"""How long it may take until what came after a fault is in a batch."""

OLD_S = 90.0
"""How long processes of a driver may live after it."""

CLEARED_S = HANG_S
"""How long memory files of an application may stay whose block server was killed with it: the next
one's block server removes them, when nobody has had them for a minute."""

ENDING_SHARE = 1 / 6
ENDING_SHARE_S3 = 1 / 3
LOST_SHARE = 2 / 3
TWO_SHARE = 1 / 6
IN_RECOVERY_SHARE = 1 / 3
"""How many cycles end the driver (on an object store: of how many ends the host is lost with all
that it has, and not only the driver), hurt two at once, and kill the driver again that is started.
"""


@dataclass(frozen=True)
class Piece:
    """One program, from its first start to its last stop.

    Attributes:
        mode: One of `MODES`.
        seed: Decides which faults there are, and about their details.
        cycles: How many there are.
        master: Where it runs.
        folder: Holds `disk`, `memory`, `tmp` and what the program writes.
        until_s: When no other cycle begins, as `time.time` has it; None for no bound.
    """

    mode: str
    seed: int
    cycles: int
    master: str
    folder: str
    until_s: float | None = None


class Run:
    """One program, hurt many times.

    Args:
        piece: What is to be done.
        tell: Takes a line about each cycle.
    """

    def __init__(self, piece: Piece, tell: Callable[[str], object]) -> None:
        self.piece = piece
        self.tell = tell
        self.folder = Path(piece.folder)
        self.disk = self.folder / "disk"
        self.memory = self.folder / "memory"
        self.recoverable = piece.mode != "no folder"
        self.results = Results(self.folder, self.recoverable)
        self.faults: Counter[str] = Counter()
        self.cycles = 0
        self.drivers = 0
        self._chance = random.Random(piece.seed)
        self._details = random.Random(piece.seed + 1)
        self._old: list[tuple[DriverProcess, float]] = []
        self._checkpoint = str(self.disk / "checkpoint")
        self._settings = {
            "spark.penstock.receivers.perSlot": self._chance.choice(["1", "4"]),
        }
        self._states: str | None = None
        self._kafka: dict[str, Any] = {}
        self._hdfs: Hdfs | None = None
        self._broker: Broker | None = None
        self._store: VersityServer | None = None
        self._way: FaultyHttp | None = None
        self._stopped = ""
        self.numbers: Feeder | KafkaSource
        self.plain: Feeder | KafkaSource

    def run(self) -> dict[str, Any]:
        """Hurt it so many times, let it end, and check; return what there is to tell.

        Raises:
            AssertionError: Something is not as it is promised.
        """
        began_s = time.monotonic()
        with ExitStack() as stack:
            stack.callback(self._close_old)
            self._open(stack)
            self._hurt()
            sent, plain_sent = self._sent
            doubles = self.results.check(
                sent, plain_sent, plain_once=isinstance(self.plain, KafkaSource)
            )
            self._check_leftovers()
            left = self._left_in_store()
        return {
            "cycles": self.cycles,
            "faults": dict(self.faults),
            "drivers": self.drivers,
            "records": sent,
            "records without positions": 0 if self._broker else plain_sent,
            "records of a direct stream": plain_sent if self._broker else 0,
            "doubled without positions": doubles,
            "batches": self.results.batches,
            "states": self.results.checked_states,
            "windows": self.results.checked_windows,
            "left in the store": left,
            "duration_s": time.monotonic() - began_s,
        }

    def _open(self, stack: ExitStack) -> None:
        """Start who sends, and the services."""
        services = self.folder / "services"
        services.mkdir()
        if self.piece.mode == "hdfs":
            self._hdfs = Hdfs(services, data_nodes=3, replication=2)
            stack.callback(self._hdfs.stop)
            self._hdfs.start()
            self._checkpoint = self._hdfs.new_folder()
        if self.piece.mode == "s3":
            self._open_store(stack, services)
        if self.piece.mode == "kafka":
            self._broker = Broker(services)
            stack.callback(self._broker.stop)
            self._broker.start()
            marks = self.folder / "marks"
            marks.mkdir()
            numbers = KafkaSource(self._broker, 1, RATE // 2, marks)
            plain = KafkaSource(self._broker, 2, RATE // 2)
            self._kafka = {
                "marks": str(marks),
                "numbers": numbers.topic,
                "plain": plain.topic,
                "params": {
                    "bootstrap.servers": self._broker.address,
                    "auto.offset.reset": "earliest",
                    "group.id": "chaos",
                    "penstock.engine": self._chance.choice(["confluent-kafka", "kafka-python"]),
                },
            }
            self.numbers, self.plain = stack.enter_context(numbers), stack.enter_context(plain)
        else:
            self.numbers = stack.enter_context(Feeder())
            self.plain = stack.enter_context(Feeder())
        self._victims = Victims(
            lambda: [each.pids[-1] for each in (self.numbers, self.plain) if each.pids],
            self.disk,
            self.memory,
            "cluster" in self.piece.master,
            self._hdfs,
            self._broker,
            self._store,
            self._way,
        )

    def _open_store(self, stack: ExitStack, services: Path) -> None:
        """Start the store, and a way to it; set how all who are started find it."""
        self._store = make_server(services)
        stack.callback(self._store.stop)
        self._store.start()
        self._way = FaultyHttp(self._store.client_port, self.piece.seed)
        stack.callback(self._way.close)
        os.environ.update(self._store.environment(self._way.url))
        self._checkpoint = f"{self._store.authority}/app"
        # Spark saves states by itself: where it can, and where all hosts see it.
        self._states = str(self.folder / "states-of-spark")
        self._settings["spark.local.dir"] = f"{self.folder}/tmp/spark"

    # -- lives -------------------------------------------------------------------------------------

    def _hurt(self) -> None:
        until_s = self.piece.until_s or float("inf")
        life = self._start()
        self._await_flow(life)
        while self.cycles < self.piece.cycles and time.time() < until_s:
            began_s = time.monotonic()
            names = self._do_harm(life)
            hurt_s = time.monotonic() - began_s
            if life.ended:
                self._bury(life)
                if self._chance.random() < IN_RECOVERY_SHARE:
                    names.append(self._kill_in_recovery())
                life = self._start()
            self._await_flow(life)
            self._check_old()
            self.cycles += 1
            self.faults.update(names)
            took_s = time.monotonic() - began_s
            self.tell(
                f"{self.cycles}: {' + '.join(names)}, {hurt_s:.1f} s, "
                f"records flow after {took_s:.1f} s, "
                f"{self.results.processed} processed in {self.results.batches} batches"
            )
        self._sent = (self.numbers.finish(FLOWS_S), self.plain.finish(FLOWS_S))
        await_that(
            "memory files of killed applications are removed",
            lambda: all(life.application in name for name in os.listdir(self.memory)),
            CLEARED_S,
            lambda: f"{life.application}: {os.listdir(self.memory)}",
        )
        life.stop(STOPS_S + 60)
        self._stopped = life.application
        self._bury(life)
        await_that("no process is left", self._all_gone, OLD_S, self._told_old)

    def _do_harm(self, life: Life) -> list[str]:
        """Do one thing to it, or two at once; return their names."""
        mild = passing(self._victims)
        ending_share = ENDING_SHARE if self._store is None else ENDING_SHARE_S3
        if self.recoverable and self._chance.random() < ending_share:
            fault = self._draw(ENDING)
        else:
            fault = self._draw(mild)
        if self._chance.random() >= TWO_SHARE:
            return [fault(life) or _name(fault)]
        mild.pop(fault, None)
        other = self._draw(mild)
        failures: list[BaseException] = []

        def do_other() -> None:
            try:
                other(life)
            except BaseException as error:  # noqa: BLE001  # raised below, in the caller's thread
                failures.append(error)

        thread = threading.Thread(target=do_other, name="chaos-other")
        thread.start()
        try:
            name = fault(life) or _name(fault)
        finally:
            thread.join(STOPS_S)
        if failures:
            raise failures[0]
        self.faults["two at once"] += 1
        return [name, _name(other)]

    def _draw(self, faults: dict[Fault, int]) -> Fault:
        return self._chance.choices(list(faults), list(faults.values()))[0]

    def _kill_in_recovery(self) -> str:
        """Start the driver, and kill it while it recovers, or at a named moment soon after."""
        if self._chance.random() < 0.5:
            life = self._life({})
            life.die_within(self._chance.uniform(0.5, 15))
            moment = "in recovery"
        else:
            moment = self._chance.choice(list(MOMENTS))
            life = self._life({"moment": moment, "occasion": self._chance.randint(1, 3)})
            if not life.die_within(MOMENT_S + 30):
                moment = "after a recovery"
        self._bury(life)
        return f"kill {moment}"

    def _start(self) -> Life:
        life = self._life({})
        life.await_start()
        return life

    def _life(self, more: dict[str, Any]) -> Life:
        self.drivers += 1
        config = {
            "master": self.piece.master,
            "recoverable": self.recoverable,
            "batch_s": BATCH_S,
            "state_s": 2 * BATCH_S,
            "rate": RATE,
            "checkpoint": self._checkpoint,
            "rdd_folder": self._states,
            **{name: str(path) for name, path in self.results.paths.items()},
            "trigger": str(self.folder / "trigger"),
            "settings": {
                "spark.streaming.blockInterval": "2s",
                "spark.penstock.memory.dir": str(self.memory),
                "spark.penstock.blockServer.lease": f"{LEASE_S:g}s",
                "spark.streaming.gracefulStopTimeout": f"{STOPS_S:g}s",
                "spark.streaming.kafka.maxRatePerPartition": str(RATE),
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                # Executors are killed for as long as it runs.
                "spark.deploy.maxExecutorRetries": "-1",
                "spark.task.maxFailures": "20",
                "spark.stage.maxConsecutiveAttempts": "20",
                **self._settings,
            },
            **more,
        }
        if self._kafka:
            config["kafka"], config["feeder"] = self._kafka, None
        else:
            assert isinstance(self.numbers, Feeder)
            assert isinstance(self.plain, Feeder)
            config["feeder"], config["plain_feeder"] = self.numbers.address, self.plain.address
        driver = DriverProcess(self.folder, config, module="tests.system.chaos.program")
        self._old.append((driver, float("inf")))
        return Life(driver, self._victims, self._details)

    def _bury(self, life: Life) -> None:
        """From now on all that the driver left must end by itself; unless its host is lost."""
        is_killed = life.driver.process.returncode != 0
        if self._store is not None and is_killed and self._chance.random() < LOST_SHARE:
            self._lose_host(life)
        self._old = [
            (driver, time.monotonic() if driver is life.driver else ended_s)
            for driver, ended_s in self._old
        ]
        with suppress(FileNotFoundError):
            (self.folder / "trigger").unlink()

    def _lose_host(self, life: Life) -> None:
        """Kill what is left of a driver, and remove all files that are not on the store."""
        life.driver.close()
        self.faults["lose host"] += 1
        for folder in (self.memory, self.folder / "tmp"):
            for path in folder.iterdir():
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)

    def _check_old(self) -> None:
        for driver, ended_s in list(self._old):
            if ended_s == float("inf"):
                continue
            if not driver.processes():
                driver.close()
                self._old.remove((driver, ended_s))
                continue
            assert time.monotonic() < ended_s + OLD_S, self._told_old()

    def _all_gone(self) -> bool:
        self._check_old()
        return not self._old

    def _told_old(self) -> str:
        return "".join(
            f"left of a driver that has ended: {driver.processes()}\n{driver.report()}\n"
            for driver, ended_s in self._old
            if ended_s < float("inf")
        )

    def _close_old(self) -> None:
        for driver, _ in self._old:
            driver.close()

    def _await_flow(self, life: Life) -> None:
        """Wait until what is acknowledged after now is in batches, of both streams."""
        process = life.driver.process
        seen = self.numbers.acknowledged, self.plain.acknowledged
        end_s = time.monotonic() + FLOWS_S
        pause = threading.Event()
        while self.results.processed <= seen[0] or self.results.plain_end <= seen[1]:
            assert process.poll() is None, life.driver.report()
            assert time.monotonic() < end_s, (
                f"records do not flow: {self.results.processed} of {self.numbers}, "
                f"{self.results.plain_end} of {self.plain}; {life.driver.report()}"
            )
            pause.wait(0.1)
            self.results.look()

    # -- what is left ------------------------------------------------------------------------------

    def _check_leftovers(self) -> None:
        await_that(
            "no memory file is left",
            lambda: not os.listdir(self.memory),
            OLD_S,
            lambda: str(os.listdir(self.memory)),
        )
        # What a block server had to say stays, in the log that its error names.
        left = [
            path
            for path, size in self._files_below_checkpoint()
            if "block-server-" in path and (path.endswith(".lock") or not size)
        ]
        assert left == [], left
        assert _scratch(f"penstock-{self._stopped}-*") == [], _scratch()
        # Those of killed drivers are removed by the next start, when their locks are a minute old.
        await_that(
            "scratch folders can be removed", _remove_scratch, OLD_S, lambda: str(_scratch())
        )

    def _left_in_store(self) -> int:
        """Return how many logs of receivers have something, of which two are those of the last."""
        files = self._files_below_checkpoint() if self._store is not None else []
        logs = {path.split("/")[2] for path, size in files if "/receivedData/" in path and size}
        if len(logs) > 2:
            self.tell(f"logs left: {[each for each in files if each[0].split('/')[2] in logs]}")
        return len(logs)

    def _files_below_checkpoint(self) -> list[tuple[str, int]]:
        """Return paths and sizes in bytes."""
        if self._store is not None:
            found = self._store.store().list(prefix="app").collect()
            return [(each["path"], each["size"]) for each in found]
        if self._hdfs is None:
            found = [path for path in Path(self._checkpoint).rglob("*") if path.is_file()]
            return [(str(path), path.stat().st_size) for path in found]
        listed = self._hdfs.client().list_status(self._hdfs.path(self._checkpoint), recursive=True)
        return [(each.path, each.length) for each in listed]


def _scratch(name: str = "penstock-*") -> list[str]:
    """Return scratch folders and their claims."""
    tmp = os.environ["TMPDIR"]
    return glob.glob(f"{tmp}/{name}") + glob.glob(f"{tmp}/.{name}")


def _remove_scratch() -> bool:
    remove_scratch_folders(os.environ["TMPDIR"])
    return _scratch() == []


def _name(fault: Fault) -> str:
    return fault.__name__.replace("_", " ")


def _exit(*_: object) -> None:
    sys.exit(1)


def main() -> int:
    signal.signal(signal.SIGTERM, _exit)
    signal.signal(signal.SIGINT, _exit)
    piece = Piece(**json.loads(sys.argv[1]))
    run = Run(piece, lambda line: print(line, flush=True))
    try:
        told = run.run()
    except Exception:  # noqa: BLE001  # told to who started it, with what was done until then
        shutil.copytree(run.disk, run.folder / "kept-disk", symlinks=True, dirs_exist_ok=True)
        told = {"failed": traceback.format_exc(), "faults": dict(run.faults)}
    (run.folder / "told.json").write_text(json.dumps({**asdict(piece), **told}))
    return "failed" in told


if __name__ == "__main__":
    sys.exit(main())
