"""What is done to the program, and to the services that it uses."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.bounds import HANG_S
from tests.programs import executors_of, kill_one
from tests.services.hdfs import Hdfs
from tests.services.http_faults import FaultyHttp
from tests.services.kafka import Broker
from tests.services.versitygw import VersityServer
from tests.system.driver_process import DriverProcess
from tests.system.leftovers import block_servers, is_running
from tests.system.recoverable import MOMENTS

LEASE_S = 2.0
PAUSE_S = (1.25 * LEASE_S, 2.5 * LEASE_S)
"""Between these lies how long something is paused: longer than the lease."""

MOMENT_S = 30.0
"""How long a named moment is waited for before the driver is killed from outside."""

ENDS_S = HANG_S


@dataclass(frozen=True)
class Victims:
    """Who may be hurt beside the driver.

    Attributes:
        receivers: Returns the newest process of each receiver.
        disk: Holds checkpoints and logs.
        memory: Holds the memory files.
        executors: Whether these are processes of their own.
        hdfs: Holds checkpoints and logs instead of the disk.
        broker: Sends the records.
        store: Holds checkpoints and logs instead of the disk, behind `way`.
    """

    receivers: Callable[[], list[int]]
    disk: Path
    memory: Path
    executors: bool
    hdfs: Hdfs | None = None
    broker: Broker | None = None
    store: VersityServer | None = None
    way: FaultyHttp | None = None


class Life:
    """One run of the driver, and the ways to hurt it.

    Attributes:
        chance: Decides about details.
    """

    def __init__(self, driver: DriverProcess, victims: Victims, chance: random.Random) -> None:
        self.driver = driver
        self.victims = victims
        self.chance = chance
        self.ended = False

    def await_start(self) -> None:
        identity = self.driver.wait_for("identity", timeout_s=HANG_S)
        self.application = str(identity["application"])
        self.jvm = int(identity["jvm"])
        self.driver.wait_until_started()

    # -- who ---------------------------------------------------------------------------------------

    def receivers(self) -> list[int]:
        return [pid for pid in self.victims.receivers() if is_running(pid)]

    def executors(self) -> list[int]:
        return executors_of(self.receivers())

    def servers(self) -> list[int]:
        return block_servers(self.application)

    def drivers(self) -> list[int]:
        """The program's process, and its JVM."""
        return [self.driver.process.pid, self.jvm]

    # -- how ---------------------------------------------------------------------------------------

    def kill(self, pids: list[int]) -> None:
        kill_one(pids, self.chance)

    def pause(self, pids: list[int]) -> None:
        """Stop one of them for longer than the lease."""
        if not pids:
            return
        pid = self.chance.choice(pids)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
        try:
            self.wait(*PAUSE_S)
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    @contextmanager
    def full(self, folder: Path) -> Iterator[None]:
        """Take all the space there is, again and again, until the end."""
        done = threading.Event()
        path = folder / "filler"

        def fill() -> None:
            with open(path, "ab", buffering=0) as filler:
                while not done.wait(0.05):
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
            thread.join(HANG_S)
            path.unlink()

    def wait(self, least_s: float, most_s: float) -> None:
        """Wait so long, or until the driver ends."""
        self.driver.ends_within(self.chance.uniform(least_s, most_s))

    def order(self, line: str) -> None:
        self.driver.tell(line)

    def die_within(self, timeout_s: float) -> bool:
        """Wait until the driver has killed itself, or else kill it; tell whether it did it."""
        if not (by_itself := self.driver.ends_within(timeout_s)):
            self.driver.kill()
        assert self.driver.process.returncode == -signal.SIGKILL, self.driver.report()
        self.ended = True
        return by_itself

    def kill_driver(self) -> None:
        self.driver.kill()
        self.ended = True

    def stop(self, timeout_s: float) -> None:
        """Stop gracefully."""
        self.order("stop")
        assert self.driver.wait_until_ended(timeout_s) == 0, self.driver.report()
        self.ended = True


# -- what passes -----------------------------------------------------------------------------------


def kill_receiver(life: Life) -> None:
    life.kill(life.receivers())


def kill_executor(life: Life) -> None:
    life.kill(life.executors())


def kill_block_server(life: Life) -> None:
    life.kill(life.servers())


def pause_receiver(life: Life) -> None:
    life.pause(life.receivers())


def pause_executor(life: Life) -> None:
    life.pause(life.executors())


def pause_block_server(life: Life) -> None:
    life.pause(life.servers())


def pause_driver(life: Life) -> None:
    life.pause(life.drivers())


def pause_all(life: Life) -> None:
    """Press Ctrl-Z: everything that belongs to the program stops."""
    group = life.driver.process.pid
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGSTOP)
    try:
        life.wait(*PAUSE_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGCONT)


def fill_disk(life: Life) -> None:
    with life.full(life.victims.disk):
        life.wait(0.5, 4)


def fill_memory(life: Life) -> None:
    with life.full(life.victims.memory):
        life.wait(0.5, 4)


def kill_data_node(life: Life) -> None:
    hdfs = life.victims.hdfs
    assert hdfs is not None
    number = life.chance.randrange(len(hdfs.data_nodes))
    hdfs.kill_data_node(number)
    life.wait(0.5, 10)
    hdfs.start_data_node(number)
    hdfs.wait_until_writable()


def pause_data_node(life: Life) -> None:
    hdfs = life.victims.hdfs
    assert hdfs is not None
    with hdfs.paused_data_node(life.chance.randrange(len(hdfs.data_nodes))):
        life.wait(LEASE_S, 12)


def kill_name_node(life: Life) -> None:
    hdfs = life.victims.hdfs
    assert hdfs is not None
    hdfs.kill_name_node()
    life.wait(0, 4)
    hdfs.start_name_node()
    hdfs.wait_until_writable()


def _kill(life: Life, server: Broker | VersityServer | None) -> None:
    assert server is not None
    server.kill()
    life.wait(0, 6)
    server.start()


def _pause(life: Life, server: Broker | VersityServer | None, most_s: float) -> None:
    assert server is not None
    with server.paused():
        life.wait(LEASE_S, most_s)


def kill_broker(life: Life) -> None:
    _kill(life, life.victims.broker)


def pause_broker(life: Life) -> None:
    _pause(life, life.victims.broker, 12)


def kill_store(life: Life) -> None:
    _kill(life, life.victims.store)


def pause_store(life: Life) -> None:
    _pause(life, life.victims.store, 15)


def spoil_requests(life: Life) -> None:
    """Lose answers, repeat requests, cut them and answer 503, one in four, for a while."""
    way = life.victims.way
    assert way is not None
    way.faults = {"lost": 0.1, "twice": 0.05, "cut": 0.05, "busy": 0.05}
    try:
        life.wait(1, 8)
    finally:
        way.faults = {}


def refuse_requests(life: Life) -> None:
    """Refuse each request for a while, as where credentials have ended, until there are others."""
    way = life.victims.way
    assert way is not None
    way.faults = {"refused": 1.0}
    try:
        life.wait(1, 15)
    finally:
        way.faults = {}


def lose_hosts_of_executors(life: Life) -> None:
    """Kill executors, receivers and block servers, and remove what they had in memory."""
    drivers = life.drivers()
    for _ in range(2):
        for pid in [*life.driver.processes()]:
            if pid not in drivers:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    for path in life.victims.memory.iterdir():
        path.unlink(missing_ok=True)


# -- what ends the driver --------------------------------------------------------------------------


def kill_driver(life: Life) -> None:
    life.wait(0, 3)
    life.kill_driver()


def kill_everything(life: Life) -> None:
    """Kill the driver, its JVM, executors, workers and block servers."""
    life.wait(0, 3)
    for pid in [life.driver.process.pid, *life.driver.processes()]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    life.driver.process.wait(HANG_S)
    life.ended = True


def kill_jvm(life: Life) -> None:
    """Kill the driver's JVM; the driver says so and ends."""
    with suppress(ProcessLookupError):
        os.kill(life.jvm, signal.SIGKILL)
    code = life.driver.wait_until_ended(ENDS_S)
    assert code == 1, (code, life.driver.report())
    assert "SparkEndedError" in life.driver.log(), life.driver.report()
    life.ended = True


def kill_stopping_driver(life: Life) -> None:
    """Kill the driver in the middle of a graceful stop."""
    life.order("stop")
    life.wait(0, 4)
    life.kill_driver()


def kill_at_moment(life: Life) -> str:
    """Let the driver kill itself at a named moment; if that does not come, kill it."""
    moment = life.chance.choice(list(MOMENTS))
    life.order(f"die {life.chance.randint(1, 3)} {moment}")
    return f"kill {moment}" if life.die_within(MOMENT_S) else "kill driver"


def stop_gracefully(life: Life) -> None:
    life.stop(STOPS_S)


STOPS_S = 600.0
"""How long a graceful stop may take: after a long pause there are many batches to make."""

Fault = Callable[[Life], str | None]
"""Does harm, and returns what it did, if its name does not say it."""


def passing(victims: Victims) -> dict[Fault, int]:
    """Return the faults that the driver outlives, with how often they come."""
    found: dict[Fault, int] = {
        kill_receiver: 4,
        kill_block_server: 3,
        pause_receiver: 2,
        pause_block_server: 2,
        pause_driver: 3,
        pause_all: 1,
        fill_memory: 3,
    }
    if victims.executors:
        found.update({kill_executor: 3, pause_executor: 3})
    if victims.hdfs is not None:
        found.update({kill_data_node: 6, pause_data_node: 5, kill_name_node: 3})
    elif victims.store is not None:
        found.update({kill_store: 6, pause_store: 3, spoil_requests: 5, refuse_requests: 2})
        if victims.executors:
            found[lose_hosts_of_executors] = 5
    else:
        found[fill_disk] = 3
    if victims.broker is not None:
        found.update({kill_broker: 7, pause_broker: 5})
    return found


ENDING: dict[Fault, int] = {
    kill_driver: 3,
    kill_at_moment: 4,
    kill_everything: 2,
    kill_stopping_driver: 2,
    kill_jvm: 1,
    stop_gracefully: 2,
}
"""The faults that end the driver."""
