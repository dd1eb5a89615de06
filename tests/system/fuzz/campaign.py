"""A whole run: two applications, their good peers, and attacks from one seed."""

from __future__ import annotations

import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.bounds import HANG_S
from tests.system.fuzz.application import Application
from tests.system.fuzz.attacker import Attacker
from tests.system.fuzz.attacks import Attack, attacks
from tests.system.fuzz.good_peers import GoodPeers

ROUND = 100
"""Attacks between two looks at those who are attacked."""
QUIET_S = HANG_S
"""How long it may take until nothing is left of the attacks; the longest time-out is 30 s."""
POOL = min(32, (os.cpu_count() or 1) + 4)
"""Threads of an event loop's own pool (`asyncio`), which it starts one by one and keeps."""
ALLOWED_GROWTH_MIB = 8.0
_DEFECT = re.compile(r"Traceback|never retrieved|never awaited|ResourceWarning|Exception in")
_KNOWN = re.compile(
    r"Exception in callback _SelectorSocketTransport\._call_connection_lost\("
    r"(?:BrokenPipe|Connection).*?AttributeError: 'NoneType' object has no attribute 'close'\n",
    re.DOTALL,
)
"""asyncio's own: when a TLS connection breaks while it is closed and its buffer is being emptied,
its socket is closed a second time. Nothing is left open by it."""
_LOOK_AT_LOGS = 10
_LAST = 20


class Campaign:
    """Attacks a tracker and a block server without TLS, and others with it.

    Args:
        folder: An empty one.
        number: The seed: the attacks follow from it, but for the names and ports that processes
            choose.
        tell: Takes lines for people.
    """

    def __init__(self, folder: Path, number: int, tell: Callable[[str], object] = print) -> None:
        self._seed = number
        self._tell = tell
        self._stack = ExitStack()
        self._last: deque[Attack] = deque(maxlen=_LAST)
        self.applications: dict[bool, Application] = {}
        try:
            for tls in (False, True):
                made = Application(folder / ("tls" if tls else "plain"), tls=tls)
                self._stack.callback(made.close)
                self.applications[tls] = made
            self.attacker = Attacker(self.applications)
            self._stack.callback(self.attacker.close)
            self.good = [GoodPeers(found) for found in self.applications.values()]
            for peers in self.good:
                self._stack.callback(peers.stop)
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Campaign:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def run(self, *, seconds: float = 0.0, rounds: int = 0, warm_up_s: float = 0.0) -> None:
        """Attack, and judge.

        Args:
            seconds: For so long; 0 for `rounds`.
            rounds: So many times a hundred attacks; 0 for `seconds`.
            warm_up_s: Memory is compared from then on; 0 to compare none.

        Raises:
            AssertionError: Something did not hold.
        """
        try:
            self._run(seconds, rounds, warm_up_s)
        except BaseException:
            self._tell(f"the last {len(self._last)} attacks:")
            for attack in self._last:
                self._tell(f"  {attack!r:.2000}")
            raise

    def _run(self, seconds: float, rounds: int, warm_up_s: float) -> None:
        for peers in self.good:
            peers.start()
            peers.wait_for_more()
        # What is made at the first use of a thing stands by then.
        self._round(0)
        self.attacker.crowd()
        self._await_quiet({})
        before = self._used()
        begun_s = time.monotonic()
        number = 0
        while number < rounds or time.monotonic() < begun_s + seconds:
            number += 1
            self._round(number)
            if warm_up_s and time.monotonic() < begun_s + warm_up_s:
                for process in self._processes():
                    process.memory_mib.clear()
        taken_s = time.monotonic() - begun_s
        try:
            self._await_quiet(before)
            for peers in self.good:
                peers.stop()
                peers.check()
        finally:
            self._report(taken_s)
        for found, peers in zip(self.applications.values(), self.good, strict=True):
            seen = found.finish()
            assert seen["blocks"] == peers.added, (seen, peers.added)
            known = _check_logs(found)
            if known:
                self._tell(f"{found.name}: asyncio closed {known} broken TLS sockets twice")
        if warm_up_s:
            for process in self._processes():
                assert process.growth_mib() <= ALLOWED_GROWTH_MIB, (process.name, "grows")

    def _processes(self) -> list:
        return [process for found in self.applications.values() for process in found.processes]

    def _round(self, number: int) -> None:
        recorded = {tls: found.conversations for tls, found in self.applications.items()}

        @seed(self._seed * 1_000_003 + number)
        @settings(
            max_examples=ROUND,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(attacks(recorded))
        def attack(found: Attack) -> None:
            self._last.append(found)
            self.attacker.carry_out(found)

        attack()
        for peers in self.good:
            peers.check()
            peers.wait_for_more()
        for found in self.applications.values():
            found.look()
            if number % _LOOK_AT_LOGS == 0:
                _check_logs(found)

    def _used(self) -> dict[str, tuple[int, int]]:
        return {found.name: (found.descriptors(), found.threads()) for found in self._processes()}

    def _await_quiet(self, before: dict[str, tuple[int, int]]) -> None:
        """Let go of all that is held, and wait until as little is in use as before.

        The good peers go on: their connections come and go, so several looks are taken.
        """
        self.attacker.close()
        end_s = time.monotonic() + QUIET_S
        pause = threading.Event()
        least = self._used()
        while True:
            for name, (descriptors, threads) in self._used().items():
                least[name] = (min(least[name][0], descriptors), min(least[name][1], threads))
            left = {
                name: (least[name], allowed)
                for name, allowed in before.items()
                if least[name][0] > allowed[0] or least[name][1] > allowed[1] + POOL
            }
            if before and not left:
                break
            assert not left or time.monotonic() < end_s, f"not given back: {left}"
            if not before and time.monotonic() > end_s - QUIET_S + 1:
                break
            pause.wait(0.05)

    def _report(self, taken_s: float) -> None:
        for what, counts in self.attacker.counts.items():
            parts = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
            self._tell(f"by {what}: {parts}")
        total = self.attacker.counts["way"].total()
        self._tell(f"{total:,} attacks in {taken_s:.0f} s, seed {self._seed}")
        for found, peers in zip(self.applications.values(), self.good, strict=True):
            self._tell(
                f"good peers ({found.name}): {peers.added:,} blocks added and {peers.read:,} read, "
                f"the slowest answer took {peers.slowest_s:.2f} s"
            )
        for process in self._processes():
            used = f"{process.descriptors()} descriptors, {process.threads()} threads"
            memory = process.memory_mib
            at = [memory[(len(memory) - 1) * part // 4] for part in range(5)]
            self._tell(
                f"{process.name}: {', '.join(f'{mib:.1f}' for mib in at)} MiB from begin to end, "
                f"{max(memory):.1f} at most, growth {process.growth_mib():+.1f}; {used}"
            )


def _check_logs(application: Application) -> int:
    """Look for tracebacks; return how many there are of the kind that is known."""
    logged, known = _KNOWN.subn("", application.logs())
    defect = _DEFECT.search(logged)
    assert defect is None, logged[max(0, defect.start() - 2000) :][:8000]
    return known
