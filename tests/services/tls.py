"""TLS for servers that tests start: a certificate of this host, and a front for one without TLS."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.bounds import HANG_S

_OPENSSL = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
    "-subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 "
    "-addext basicConstraints=critical,CA:FALSE"
)
START_S = HANG_S


def certificate_of_host(folder: Path) -> Path:
    """Make ``certificate.pem``, and ``server.pem`` that has the key too; return the first."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run(
        [*_OPENSSL.split(), "-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
        timeout=START_S,
    )
    (folder / "server.pem").write_bytes(key.read_bytes() + certificate.read_bytes())
    return certificate


@contextmanager
def tls_front(port: int, pem: Path) -> Iterator[int]:
    """Take TLS connections and hand them on to a port of loopback.

    Args:
        port: The port of a server without TLS.
        pem: Key and certificate.

    Yields:
        The port of the front.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    loop = asyncio.new_event_loop()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, back), copy(there, writer))

    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(START_S)
        for task in asyncio.all_tasks(loop):
            task.cancel()
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(task)
        loop.close()
