"""``penstock new-source``: a package with a receiver, and tests that it passes."""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
from pathlib import Path

import click

from penstock.commands import Command
from penstock.whole_files import whole_folder

_NAME = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")

_PYPROJECT = """\
[build-system]
requires = ["setuptools>=64"]
build-backend = "setuptools.build_meta"

[project]
name = "{distribution}"
version = "0.1.0"
description = "A receiver of {name} for Penstock"
requires-python = ">=3.10"
dependencies = ["penstock"]

[project.optional-dependencies]
test = ["pytest"]

[tool.setuptools]
packages = ["{package}"]

[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["."]
"""

_RECEIVER = '''\
"""Records of {name}.

What must hold: a record is acknowledged to its source when it is durable, and not sooner. The
position is the number of the last record, so that none comes twice after a crash.
"""

from __future__ import annotations

import contextlib
import json
import socket

import pyarrow as pa

SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string())])


class {title}Receiver:
    """Stores what a server at an address gives, as columns `SCHEMA`.

    The server is a stand-in: it is asked ``after N`` and gives a JSON object a line, each with a
    number that grows; it is told ``ack N`` for all up to N. Put the client of your source here.

    Args:
        host: Where the server is.
        port: Its port.
    """

    schema = SCHEMA

    def __init__(self, host: str, port: int) -> None:
        # Pickled in the driver: connections and clients are opened in `run`.
        self.address = host, port

    def run(self, ctx):
        """Store records until the stop; called again, after a delay, when it raises."""
        with socket.create_connection(self.address) as self.connection:
            self.connection.sendall(b"after %d\\n" % (ctx.last_position or 0))
            with self.connection.makefile("rb") as lines:
                for line in lines:
                    if not line.endswith(b"\\n"):
                        break  # It was cut.
                    record = json.loads(line)
                    number = record["number"]
                    ctx.store(record, number, lambda number=number: self.acknowledge(number))
        if not ctx.stopped.is_set():
            raise ConnectionError("the server closed the connection")

    def acknowledge(self, number):
        """Tell the source that all up to a record is durable; called from another thread."""
        with contextlib.suppress(OSError):  # `run` notices a broken connection.
            self.connection.sendall(b"ack %d\\n" % number)

    def stop(self):
        """End the wait in `run`; called from another thread."""
        with contextlib.suppress(AttributeError, OSError):
            self.connection.shutdown(socket.SHUT_RD)
'''

_INIT = '''\
"""A receiver of {name} for Penstock."""

from {package}.receiver import SCHEMA, {title}Receiver

__all__ = ["SCHEMA", "{title}Receiver"]
'''

_TEST = '''\
"""What `{title}Receiver` stores and claims, tried on a server of the tests' own."""

import contextlib
import json
import socketserver
import threading
import time

from penstock.testing import crash_test, run_receiver

from {package} import {title}Receiver

COUNT = 60


class Server:
    """Gives numbered records after the one that it is asked for, and forgets acknowledged ones."""

    def __init__(self):
        self.acknowledged = 0
        self.changed = threading.Condition()
        server = self

        class Client(socketserver.StreamRequestHandler):
            def handle(self):
                with contextlib.suppress(OSError):
                    after = max(int(self.rfile.readline().split()[1]), server.acknowledged)
                    for record in server.expected()[after:]:
                        self.wfile.write(json.dumps(record).encode() + b"\\n")
                        time.sleep(0.01)  # So that there are several blocks.
                    while line := self.rfile.readline():
                        with server.changed:
                            server.acknowledged = max(server.acknowledged, int(line.split()[1]))
                            server.changed.notify_all()

        self.listener = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Client)
        self.listener.daemon_threads = True
        self.listener.block_on_close = False
        threading.Thread(target=self.listener.serve_forever, daemon=True).start()

    def expected(self):
        return [{{"number": at, "text": f"record {{at}}"}} for at in range(1, COUNT + 1)]

    def has_all_acknowledged(self):
        with self.changed:
            return self.changed.wait_for(lambda: self.acknowledged == COUNT, 60)

    def receiver(self):
        return {title}Receiver(*self.listener.server_address)


@contextlib.contextmanager
def server():
    opened = Server()
    try:
        yield opened
    finally:
        opened.listener.shutdown()
        opened.listener.server_close()


def test_all_records_are_stored_and_acknowledged():
    with server() as source, run_receiver(source.receiver()) as running:
        assert running.wait_for_records(COUNT) == source.expected()
        running.stop()
        assert source.has_all_acknowledged()
        assert not running.errors


def test_nothing_is_acknowledged_before_it_is_durable():
    with server() as source, run_receiver(source.receiver()) as running:
        running.hold()
        running.wait_for_records(1)
        assert source.acknowledged == 0
        running.go_on()
        running.wait_for_records(COUNT)


def test_each_record_is_stored_once_whatever_is_killed():
    crash_test(lambda source: source.receiver(), server, claim="exactly once", kills=5)
'''


def _is_taken(package: str) -> bool:
    if keyword.iskeyword(package) or package == "tests" or package in sys.stdlib_module_names:
        return True
    found = importlib.util.find_spec(package)
    # A mere folder here is no module.
    return found is not None and found.origin is not None


@click.command(
    cls=Command,
    epilog="""\
penstock new-source acme-feed
cd acme-feed && python -m pytest

exit codes: 0 written, 2 wrong usage, or it is there already
""",
)
@click.argument("name")
def new_source(name: str) -> None:
    """Write a package with a receiver of your own, and tests that it passes at once.

    NAME is that of the package and of a new folder here: a receiver, its schema, tests that run it
    and kill it (penstock.testing), and pyproject.toml. Put the client of your source in the place
    of its connection.
    """
    package = name.replace("-", "_")
    if not _NAME.fullmatch(name) or _is_taken(package):
        raise click.BadParameter(
            f"{name!r}: small letters and digits, with - or _ between words, such as acme-feed, "
            "and not the name of a module that there is",
            param_hint="NAME",
        )
    words = {
        "name": name,
        "distribution": name.replace("_", "-"),
        "package": package,
        "title": "".join(word.capitalize() for word in package.split("_")),
    }
    with whole_folder(name) as folder:
        for path, text in {
            "pyproject.toml": _PYPROJECT,
            f"{package}/__init__.py": _INIT,
            f"{package}/receiver.py": _RECEIVER,
            f"tests/test_{package}.py": _TEST,
        }.items():
            file = Path(folder, path)
            file.parent.mkdir(exist_ok=True)
            file.write_text(text.format(**words))
    click.echo(f"{name} is written; try it: cd {name} && python -m pytest")
