"""The Python of docs/sources/ runs as it stands there, each program with its real server.

Changed are only places: addresses, folders, and who connects (`Page.places`).
"""

from __future__ import annotations

import contextlib
import http.server
import itertools
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import websockets.sync.server

from tests.bounds import HANG_S
from tests.examples.running import ROOT, Run
from tests.examples.test_pages import blocks_of, replaced, some_in_ci
from tests.services.mosquitto import Mosquitto
from tests.services.moto import KEYS, moto_server
from tests.services.nats import make_server as make_nats
from tests.services.ports import free_ports
from tests.services.postgres import postgres_server
from tests.services.rabbitmq import RabbitMQ
from tests.services.redis import make_server as make_redis

PAGES = sorted(path.stem for path in (ROOT / "docs" / "sources").glob("*.md"))
AWS_REGION = "eu-west-1"


@dataclass
class Page:
    """How the program of a page is run.

    Attributes:
        places: What stands in it, and what it is replaced by.
        feed: Gives its source a record; called again and again.
        environment: What it finds in its environment, as do the programs of the other pages.
    """

    places: dict[str, str]
    feed: Callable[[], object]
    environment: dict[str, str] = field(default_factory=dict)


@contextlib.contextmanager
def amqp(folder: Path) -> Iterator[Page]:
    with RabbitMQ(folder) as server:
        server.declare("orders")
        yield Page(
            {"amqp://localhost:5672": server.address, "/var/lib/orders": str(folder / "kept")},
            lambda: server.publish("orders", [b"book"]),
        )


@contextlib.contextmanager
def datagrams(folder: Path) -> Iterator[Page]:
    (port,) = free_ports(1)
    yield Page({"5140": str(port)}, partial(send_datagram, port, b"hello\n"))


def send_datagram(port: int, data: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(data, ("127.0.0.1", port))


@contextlib.contextmanager
def growing_files(folder: Path) -> Iterator[Page]:
    def write() -> None:
        with open(folder / "app.log", "a") as log:
            log.write("a line\n")

    shown = {"/var/log/app/*.log*": f"{folder}/*.log*", "/var/lib/app": str(folder / "kept")}
    yield Page(shown, write)


@contextlib.contextmanager
def http_page(folder: Path) -> Iterator[Page]:
    (port,) = free_ports(1)

    def post() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_S)
        with contextlib.closing(connection):
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/hooks", b'{"order": 1}', headers)
            connection.getresponse().read()

    yield Page({"8080": str(port), "/tmp/hooks": str(folder / "kept")}, post)


@contextlib.contextmanager
def aws(folder: Path, service: str) -> Iterator[Page]:
    import boto3

    with moto_server(folder) as server:
        client = boto3.client(service, region_name=AWS_REGION, endpoint_url=server.url, **KEYS)
        if service == "sqs":
            queue = client.create_queue(QueueName="orders")["QueueUrl"]
            feed: Any = partial(client.send_message, QueueUrl=queue, MessageBody="book")
        else:
            client.create_stream(StreamName="orders", ShardCount=2)
            feed = partial(client.put_record, StreamName="orders", Data=b"book", PartitionKey="a")
        given = {
            f"AWS_ENDPOINT_URL_{service.upper()}": server.url,
            "AWS_ACCESS_KEY_ID": KEYS["aws_access_key_id"],
            "AWS_SECRET_ACCESS_KEY": KEYS["aws_secret_access_key"],
        }
        yield Page({"/var/lib/app": str(folder / "kept")}, feed, given)


@contextlib.contextmanager
def mqtt(folder: Path) -> Iterator[Page]:
    with Mosquitto(folder) as server:
        yield Page(
            {"mqtt://localhost:1883": server.address, "/var/lib/plant": str(folder / "kept")},
            lambda: server.publish("plant/oven/temperature", b"180"),
        )


@contextlib.contextmanager
def nats(folder: Path) -> Iterator[Page]:
    server = make_nats(folder)
    server.start()
    try:
        server.do(lambda js: js.add_stream(name="ORDERS", subjects=["orders.>"]))
        shown = {"nats://localhost:4222": server.address, "/var/lib/app": str(folder / "kept")}
        yield Page(shown, lambda: server.do(lambda js: js.publish("orders.new", b"book")))
    finally:
        server.stop()


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[Page]:
    with postgres_server() as server, server.connect() as connection:
        connection.execute("CREATE TABLE orders (id bigserial PRIMARY KEY, item text)")
        shown = "host=db.example dbname=shop user=penstock sslmode=verify-full"
        yield Page(
            {shown: server.conninfo(), "/var/lib/app": str(folder / "kept")},
            lambda: connection.execute("INSERT INTO orders (item) VALUES ('book')"),
        )


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[Page]:
    from redis import Redis

    server = make_redis(folder)
    server.start()
    try:
        with Redis.from_url(server.address) as client:
            shown = {"redis://localhost:6379/0": server.address}
            yield Page(
                {**shown, "/var/lib/app": str(folder / "kept")},
                lambda: client.xadd("orders", {"item": "book"}),
            )
    finally:
        server.stop()


@contextlib.contextmanager
def server_sent_events(folder: Path) -> Iterator[Page]:
    over = threading.Event()

    class Events(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            with contextlib.suppress(OSError):
                for number in itertools.count():
                    self.wfile.write(b"id: %d\ndata: change\n\n" % number)
                    if over.wait(0.2):
                        return

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Events) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        url = f"http://127.0.0.1:{server.server_port}/"
        try:
            yield Page(
                {
                    "https://stream.wikimedia.org/v2/stream/recentchange": url,
                    "/tmp/changes": str(folder / "kept"),
                },
                lambda: None,
            )
        finally:
            over.set()
            server.shutdown()
            serving.join(HANG_S)


@contextlib.contextmanager
def syslog(folder: Path) -> Iterator[Page]:
    (port,) = free_ports(1)
    feed = partial(send_datagram, port, b"<13>Nov 28 10:00:00 here app: hello")
    yield Page({"5140": str(port)}, feed)


@contextlib.contextmanager
def websocket(folder: Path) -> Iterator[Page]:
    over = threading.Event()

    def serve(connection: Any) -> None:
        after = int(re.search(r"after=(\d+)", connection.request.path)[1])  # type: ignore[index]
        for number in itertools.count(after + 1):
            connection.send(json.dumps({"number": number}))
            if over.wait(0.2):
                return

    with websockets.sync.server.serve(serve, "127.0.0.1", 0) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        port = server.socket.getsockname()[1]
        try:
            yield Page({"8765": str(port), "/tmp/trades": str(folder / "kept")}, lambda: None)
        finally:
            over.set()
            server.shutdown()
            serving.join(HANG_S)


PREPARED: dict[str, Callable[[Path], contextlib.AbstractContextManager[Page]]] = {
    "amqp": amqp,
    "datagrams": datagrams,
    "growing-files": growing_files,
    "http": http_page,
    "kinesis": partial(aws, service="kinesis"),
    "mqtt": mqtt,
    "nats": nats,
    "postgres": postgres,
    "redis": redis,
    "server-sent-events": server_sent_events,
    "sqs": partial(aws, service="sqs"),
    "syslog": syslog,
    "websocket": websocket,
}


def test_each_page_of_a_source_has_a_program_and_is_run() -> None:
    assert sorted(PREPARED) == PAGES
    for page in PAGES:
        assert any("ssc.run()" in block for block in blocks_of(f"sources/{page}")), page
        for number, block in enumerate(blocks_of(f"sources/{page}")):
            compile(block, f"{page}, block {number}", "exec")


SOME = ["http", "nats"]
"""Whose programs run in CI: those that begin soonest."""


@pytest.mark.slow
@pytest.mark.timeout(2700)
@some_in_ci(SOME, PAGES)
def test_the_programs_of_the_sources_run(
    run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    """In one JVM; each server runs while its page does."""
    missing: list[str] = []
    with contextlib.ExitStack() as opened:
        pages: dict[str, Page] = {}
        files: list[str] = []
        for name in names:
            folder = tmp_path / f"{name}-server"
            folder.mkdir()
            try:
                pages[name] = page = opened.enter_context(PREPARED[name](folder))
            except pytest.skip.Exception as error:
                missing.append(str(error))
                continue
            for variable, value in page.environment.items():
                monkeypatch.setenv(variable, value)
            blocks = blocks_of(f"sources/{name}")
            for shown in page.places:
                assert any(shown in block for block in blocks), f"{name} does not say {shown}"
            plan = {
                "name": name,
                "argv": ["app.py"],
                "blocks": [replaced(block, page.places) for block in blocks],
            }
            files.append(str(tmp_path / f"{name}.json"))
            Path(files[-1]).write_text(json.dumps(plan))
        program = run(str(ROOT / "tests" / "examples" / "pages_process.py"), *files)
        for name, page in pages.items():
            end_s = time.monotonic() + HANG_S
            while f"{name} has run" not in program.lines and program.process.poll() is None:
                said = "\n".join(program.lines[-100:])
                assert time.monotonic() < end_s, f"{name} does not end:\n{said}"
                with contextlib.suppress(OSError):  # It does not listen yet.
                    page.feed()
                time.sleep(0.3)
        assert program.wait_until_ended(HANG_S) == 0, program.output
        assert "Traceback" not in program.output
        program.wait_until_nothing_is_left()
    if missing:
        pytest.skip(f"{missing[0]} (all others were run)")
