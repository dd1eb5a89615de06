"""What comes from this host without a server: files that grow, datagrams, and syslog."""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.sources.datagrams import DatagramReceiver
from penstock.sources.growing_files import GrowingFilesReceiver
from penstock.sources.syslog import SYSLOG_SCHEMA, SyslogReceiver
from tests.bounds import HANG_S
from tests.services.ports import free_ports
from tests.sources.cases import SECRET, Source, SourceCase

_ROTATED_AFTER = 100


class FilesSource(Source):
    """A log that is renamed again and again."""

    port = 0

    def __init__(self, folder: Path) -> None:
        self._log = folder / "app.log"
        self._log.touch()
        self._numbers = itertools.count(1)

    def receiver(self, port: int, secret: str = SECRET) -> object:
        return GrowingFilesReceiver(f"{self._log}*", text=False)

    def send(self, payloads: Sequence[bytes]) -> None:
        for start in range(0, len(payloads), _ROTATED_AFTER):
            with open(self._log, "ab") as file:
                for payload in payloads[start : start + _ROTATED_AFTER]:
                    file.write(payload[:7])
                    file.flush()
                    file.write(payload[7:] + b"\n")
            if len(payloads) > start + _ROTATED_AFTER:
                self._log.rename(self._log.with_name(f"app.log.{next(self._numbers)}"))


class _Sending(Source):
    """A sender that begins when a receiver listens, and loses nothing by itself."""

    def send(self, payloads: Sequence[bytes]) -> None:
        end_s = time.monotonic() + HANG_S
        while True:
            try:
                sending = self._connected()
                break
            except OSError:
                if time.monotonic() > end_s:
                    raise
                time.sleep(0.01)
        with sending:
            for payload in payloads:
                sending.sendall(self.framed(payload))

    def _connected(self) -> socket.socket:
        raise NotImplementedError

    def framed(self, payload: bytes) -> bytes:
        return payload


class UnixSource(_Sending):
    """A Unix socket, whose sender waits while it is full."""

    port = 0

    def __init__(self, folder: Path) -> None:
        self._path = str(folder / "socket")

    def receiver(self, port: int, secret: str = SECRET) -> object:
        return DatagramReceiver(path=self._path)

    def _connected(self) -> socket.socket:
        sending = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            sending.connect(self._path)
        except OSError:
            sending.close()
            raise
        return sending


class UdpSource(_Sending):
    def __init__(self, folder: Path) -> None:
        (self.port,) = free_ports(1)

    def receiver(self, port: int, secret: str = SECRET) -> object:
        return DatagramReceiver(port, "127.0.0.1")

    def _connected(self) -> socket.socket:
        wanted = f"0100007F:{self.port:04X}"
        if not any(
            line.split()[1] == wanted for line in Path("/proc/net/udp").read_text().splitlines()
        ):
            raise ConnectionRefusedError
        sending = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sending.connect(("127.0.0.1", self.port))
        return sending


class SyslogSource(_Sending):
    """A sender by TCP from a port of its own, with the length before each message."""

    _made = datetime(2026, 1, 1, tzinfo=timezone.utc)

    def __init__(self, folder: Path) -> None:
        self.port, self._own = free_ports(2)

    def receiver(self, port: int, secret: str = SECRET) -> object:
        return SyslogReceiver(tcp=port, host="127.0.0.1", maxMessage=2 << 20)

    def framed(self, payload: bytes) -> bytes:
        message = b"<13>1 2026-01-01T00:00:00Z host app - - - " + payload
        return b"%d %s" % (len(message), message)

    def _connected(self) -> socket.socket:
        return socket.create_connection(
            ("127.0.0.1", self.port), HANG_S, source_address=("127.0.0.1", self._own)
        )

    def stored(self, payload: bytes) -> object:
        row: list[Any] = [1, 5, self._made, "host", "app", None, None, None, payload.decode()]
        row.append(f"127.0.0.1:{self._own}")
        fields = zip(SYSLOG_SCHEMA, row, strict=True)
        return {field.name: pa.scalar(value, field.type).as_py() for field, value in fields}


def _opened(kind: Callable[[Path], Source]) -> Any:
    @contextlib.contextmanager
    def opened(folder: Path) -> Iterator[Source]:
        yield kind(folder)

    return opened


CASES = [
    SourceCase("growing-files", _opened(FilesSource), "exactly once", connects=False),
    SourceCase("datagrams-unix", _opened(UnixSource), None, connects=False, largest_bytes=60_000),
    SourceCase("datagrams-udp", _opened(UdpSource), None, connects=False, largest_bytes=60_000),
    SourceCase("syslog", _opened(SyslogSource), None, connects=False),
]
