"""A real PostgreSQL server on a free port of loopback, run as a user that is not root.

``PENSTOCK_TEST_POSTGRES`` names the folder of its programs; else it is the newest installed one.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import HANG_S
from tests.services.ports import free_ports

PASSWORD = "s3cret-of-the-test"
_USER = "postgres" if os.geteuid() == 0 else None
_SETTINGS = {
    "wal_level": "logical",
    "listen_addresses": "127.0.0.1",
    "max_wal_senders": 20,
    "max_replication_slots": 20,
    "fsync": "off",
    "shared_buffers": "16MB",
    "timezone": "Europe/Berlin",
    "datestyle": "German",
}
"""Time zone and style are set so that a receiver that rests on the server's own is found out."""


def _binaries() -> Path | None:
    if (given := os.environ.get("PENSTOCK_TEST_POSTGRES")) is not None:
        return Path(given)
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if found:
        return found[-1].parent
    on_path = shutil.which("postgres")
    return Path(on_path).resolve().parent if on_path else None


class PostgresServer:
    """One server; its port stays the same when it is started again.

    Args:
        folder: A folder that the server's user owns.
        settings: Settings beside those of every test.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any] | None = None) -> None:
        binaries = _binaries()
        assert binaries is not None
        self.binaries = binaries
        self.folder = folder
        self.data = folder / "data"
        self.user = _USER or pwd.getpwuid(os.geteuid()).pw_name
        (self.port,) = free_ports(1)
        self._settings = {**_SETTINGS, **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it was started, and not killed since."""
        return self._process is not None

    def make(self) -> None:
        """Make its data folder."""
        password = self.folder / "password"
        password.write_text(PASSWORD)
        command = [self.binaries / "initdb", "-D", self.data, "-U", "postgres"]
        command += [
            "-A",
            "scram-sha-256",
            "--pwfile",
            password,
            "-E",
            "UTF8",
            "--locale=C",
            "-N",
            "--wal-segsize=1",
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=HANG_S, user=_USER)

    def make_standby_of(self, primary: PostgresServer) -> None:
        """Make its data folder, a copy of another server that follows it."""
        command = [self.binaries / "pg_basebackup", "-D", self.data, "-d", primary.conninfo()]
        command += ["-R", "-c", "fast"]
        subprocess.run(command, check=True, capture_output=True, timeout=HANG_S, user=_USER)

    def start(self, **settings: Any) -> None:
        """Start it and wait until it takes connections, and what they write."""
        assert self._process is None
        self._settings |= settings
        command = [self.binaries / "postgres", "-D", self.data, "-p", str(self.port)]
        command += ["-k", self.folder]
        for name, value in self._settings.items():
            command += ["-c", f"{name}={value}"]
        with open(self.folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, user=_USER, start_new_session=True
            )
        import psycopg

        end_s = time.monotonic() + HANG_S
        while True:
            try:
                with self.connect() as connection:
                    # It takes connections before it has ended a recovery.
                    connection.execute("CREATE TEMPORARY TABLE written ()")
                return
            except (psycopg.OperationalError, psycopg.errors.ReadOnlySqlTransaction):
                if self._process.poll() is not None or time.monotonic() > end_s:
                    said = (self.folder / "server.log").read_text()[-3000:]
                    raise AssertionError(f"the server does not come up: {said}") from None
                time.sleep(0.02)

    def conninfo(self, database: str = "postgres", password: str = PASSWORD, **others: Any) -> str:
        """Return how a client connects."""
        parts = {
            "host": "127.0.0.1",
            "port": self.port,
            "user": "postgres",
            "password": password,
            "dbname": database,
        } | others
        return " ".join(f"{name}={value}" for name, value in parts.items())

    def connect(self, database: str = "postgres") -> Any:
        """Return a connection of psycopg that commits each statement."""
        import psycopg

        return psycopg.connect(self.conninfo(database), autocommit=True)

    def kill(self) -> None:
        """Kill it and all its processes with SIGKILL."""
        assert self._process is not None
        # Each of them has a process group of its own.
        pid = self._process.pid
        children: list[str] = []
        with contextlib.suppress(FileNotFoundError):  # It has ended by itself.
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        self._process.kill()
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
        self._process.wait(HANG_S)
        self._process = None

    def stall(self, pid: int) -> None:
        """Let one of its processes do nothing, with its connections open."""
        os.kill(pid, signal.SIGSTOP)

    def go_on(self, pid: int) -> None:
        """End a stall."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def shut_down(self) -> None:
        """Let it end in its usual way, which waits for those who read its log."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        self._process.wait(HANG_S)
        self._process = None

    def stop(self) -> None:
        """Kill it if it runs."""
        if self._process is not None:
            self.kill()

    def copy_data(self) -> None:
        """Keep a copy of its data; it must not run."""
        subprocess.run(["cp", "-a", self.data, self.folder / "copy"], check=True, timeout=HANG_S)

    def go_back_to_copy(self) -> None:
        """Have the data of the copy again; it must not run."""
        shutil.rmtree(self.data)
        (self.folder / "copy").rename(self.data)


@contextlib.contextmanager
def postgres_server(**settings: Any) -> Iterator[PostgresServer]:
    """Run a server; where there is none the test is skipped."""
    with postgres_folder() as folder:
        server = PostgresServer(folder, settings)
        server.make()
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextlib.contextmanager
def postgres_folder() -> Iterator[Path]:
    """Give a folder for a server; where there is no server the test is skipped."""
    if _binaries() is None:
        why = "platform: no PostgreSQL server; `make services` installs one"
        pytest.skip(why)
    # Not below pytest's folder, which another user may not enter.
    with tempfile.TemporaryDirectory(prefix="penstock-postgres-") as name:
        folder = Path(name)
        if _USER is not None:
            shutil.chown(folder, _USER)
        yield folder
