"""A run against the HTTP door: attacks from one seed, crowds, and somebody who asks as ever."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import resource
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.bounds import HANG_S
from tests.system.fuzz.application import END_S, START_S, Watched, exact_memory
from tests.system.fuzz.http_attacks import HttpAttack, HttpEnding, http_attacks

ROUND = 100
PATIENCE_S = HANG_S
READ_S = 0.01
SLOW_S = 0.002
HELD = 100
QUIET_S = HANG_S
ALLOWED_GROWTH_MIB = 8.0
_LAST = 20
_FILES = 4096
"""A crowd's ends are in this process, beside what else it has open."""
_RESET = struct.pack("ii", 1, 0)
_DEFECT = re.compile(r"Traceback|never retrieved|ResourceWarning|Exception in|could not be answ")
_EVENTS = b"GET /api/penstock/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
_ALL = b"GET /api/penstock/history?seconds=86400 HTTP/1.1\r\nHost: localhost\r\n\r\n"


class HttpCampaign:
    """Attacks a server of the page in a process of its own.

    Args:
        folder: An empty one.
        number: The seed.
        tell: Takes lines for people.

    Attributes:
        counts: Attacks by their ways and endings.
    """

    def __init__(self, folder: Path, number: int, tell: Callable[[str], object] = print) -> None:
        self._seed = number
        self._tell = tell
        self._last: deque[HttpAttack] = deque(maxlen=_LAST)
        self._held: deque[socket.socket] = deque()
        self._pause = threading.Event()
        self._slowest_s = 0.0
        self._asked = 0
        self.counts: Counter[str] = Counter()
        self._log = folder / "http.log"
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, _FILES)), hard))
        with open(self._log, "w") as log, exact_memory():
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.system.fuzz.http_target"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.watched = Watched("page's server", self._process.pid)
        try:
            said = self._hear()
            self._port, self._token = int(said["port"]), str(said["token"])
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> HttpCampaign:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def run(
        self,
        *,
        seconds: float = 0.0,
        rounds: int = 0,
        warm_up_s: float = 0.0,
        crowd: int = 1000,
    ) -> None:
        """Attack, and judge.

        Args:
            seconds: For so long; 0 for `rounds`.
            rounds: So many times a hundred attacks; 0 for `seconds`.
            warm_up_s: Memory is compared from then on; 0 to compare none.
            crowd: So many come at once, at the begin and in every tenth round.

        Raises:
            AssertionError: Something did not hold.
        """
        try:
            self._run(seconds, rounds, warm_up_s, crowd)
        except BaseException:
            self._tell(f"the last {len(self._last)} attacks on the page's server:")
            for attack in self._last:
                self._tell(f"  {attack!r:.2000}")
            raise

    def _run(self, seconds: float, rounds: int, warm_up_s: float, crowd: int) -> None:
        self._ask()
        self._crowd(crowd, _EVENTS)
        self._await_quiet(None)
        before = self._used()
        begun_s = time.monotonic()
        number = 0
        while number < rounds or time.monotonic() < begun_s + seconds:
            number += 1
            self._round(number)
            if number % 10 == 1:
                self._crowd(crowd, _ALL if number % 20 == 1 else _EVENTS)
            if warm_up_s and time.monotonic() < begun_s + warm_up_s:
                self.watched.memory_mib.clear()
        try:
            self._await_quiet(before)
        finally:
            parts = ", ".join(f"{name} {count:,}" for name, count in sorted(self.counts.items()))
            self._tell(f"on the page's server: {parts}")
            self._tell(
                f"who asked as ever had {self._asked:,} answers, the slowest after "
                f"{self._slowest_s:.2f} s; growth {self.watched.growth_mib():+.1f} MiB"
            )
        self._finish()
        if warm_up_s:
            assert self.watched.growth_mib() <= ALLOWED_GROWTH_MIB, "the page's server grows"

    def _round(self, number: int) -> None:
        @seed(self._seed * 1_000_003 + number)
        @settings(
            max_examples=ROUND,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(http_attacks())
        def attack(found: HttpAttack) -> None:
            self._last.append(found)
            self._carry_out(found)

        attack()
        self._ask()
        self._look()

    def _carry_out(self, attack: HttpAttack) -> None:
        self.counts[attack.way] += 1
        self.counts[attack.ending.value] += 1
        with contextlib.suppress(OSError):
            peer = self._connect()
            try:
                with contextlib.suppress(OSError):
                    for piece in attack.pieces:
                        peer.sendall(piece)
                        if attack.slow:
                            self._pause.wait(SLOW_S)
                self._end(peer, attack.ending)
            except BaseException:
                peer.close()
                raise

    def _end(self, peer: socket.socket, ending: HttpEnding) -> None:
        if ending is HttpEnding.HOLD:
            self._held.append(peer)
            if len(self._held) > HELD:
                self._held.popleft().close()
            return
        with contextlib.suppress(OSError):
            if ending is HttpEnding.RESET:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            elif ending is HttpEnding.HALF_OPEN:
                peer.shutdown(socket.SHUT_WR)
                peer.recv(65536)
            elif ending is HttpEnding.READ:
                while peer.recv(1 << 20):
                    pass
        peer.close()

    def _crowd(self, size: int, asked: bytes) -> None:
        """Have many at once who ask and read nothing, and one who has his answer all the same."""
        crowd = []
        try:
            for _ in range(size):
                with contextlib.suppress(OSError):
                    peer = self._connect()
                    crowd.append(peer)
                    peer.sendall(asked)
            self._ask()
            self._look()
        finally:
            for peer in crowd:
                peer.close()

    def _connect(self) -> socket.socket:
        peer = socket.socket()
        try:
            # Little room, so that who reads nothing holds the server up.
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.settimeout(PATIENCE_S)
            peer.connect(("127.0.0.1", self._port))
            peer.settimeout(READ_S)
            return peer
        except BaseException:
            peer.close()
            raise

    def _ask(self) -> None:
        """Ask as a probe and a command do, and be answered rightly within the time.

        Who is told to come again comes again.
        """
        for path, is_right in (
            ("/health/live", lambda body: body == b"ok\n"),
            ("/api/penstock/status", lambda body: json.loads(body)["application"]["id"]),
        ):
            begun_s = time.monotonic()
            while not self._is_answered(path, is_right):
                assert time.monotonic() < begun_s + PATIENCE_S, f"{path} is not answered"
                self._pause.wait(0.05)
            self._asked += 1
            self._slowest_s = max(self._slowest_s, time.monotonic() - begun_s)

    def _is_answered(self, path: str, is_right: Callable[[bytes], object]) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_S)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self._token}"})
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException):
            return False  # It was cut off to make room.
        finally:
            connection.close()
        if answer.status == 503:
            return False
        assert answer.status == 200, (path, answer.status, body[:500])
        assert is_right(body), (path, body[:500])
        return True

    def _look(self) -> None:
        assert self.watched.is_alive(), f"the page's server died\n{self._logged()[-4000:]}"
        self.watched.look()
        logged = self._logged()
        defect = _DEFECT.search(logged)
        assert defect is None, logged[max(0, defect.start() - 2000) :][:8000]

    def _used(self) -> tuple[int, int]:
        return self.watched.descriptors(), self.watched.threads()

    def _await_quiet(self, allowed: tuple[int, int] | None) -> None:
        """Let go of all that is held, and wait until as little is in use as before."""
        while self._held:
            self._held.popleft().close()
        end_s = time.monotonic() + QUIET_S
        settled: tuple[int, int] | None = None
        while True:
            used = self._used()
            if allowed is None:
                # As little as it comes to: the same for a second.
                if used == settled:
                    return
                settled = used
                self._pause.wait(1.0)
            elif used[0] <= allowed[0] and used[1] <= allowed[1]:
                return
            else:
                self._pause.wait(0.05)
            assert time.monotonic() < end_s, f"not given back: {used}, {allowed}"

    def _finish(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        said = self._hear()
        assert self._process.wait(END_S) == 0
        # Nobody proved the right to act.
        assert said["acted"] == "[]"
        self._look_at_log()

    def _look_at_log(self) -> None:
        defect = _DEFECT.search(self._logged())
        assert defect is None, self._logged()[-8000:]

    def _logged(self) -> str:
        return self._log.read_text()

    def _hear(self) -> dict[str, object]:
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], START_S)[0], "the server is silent"
        line = self._process.stdout.readline()
        assert line, f"the server ended\n{self._logged()[-4000:]}"
        found: dict[str, object] = json.loads(line)
        return found

    def close(self) -> None:
        """Kill what is left."""
        while self._held:
            self._held.popleft().close()
        self.watched.close()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
