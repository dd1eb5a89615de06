"""`HttpSink`: what a continuous stream sends to the receiver of another one is there once."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pyarrow as pa
import pytest

from penstock.continuous import Epoch, HttpSink, SinkError, http_sink
from penstock.errors import PenstockError
from penstock.sources.http import HttpReceiver
from penstock.testing import run_receiver, sink_crash_test
from tests.bounds import HANG_S
from tests.services.ports import free_ports
from tests.sources.test_http import QUICK, send, serving

SOURCE, ATTEMPT = "a" * 32, "b" * 32


def rows(*numbers: int) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pydict({"n": list(numbers)})]


def opened(url: str, **options: Any) -> HttpSink:
    sink = HttpSink(url, **options)
    sink.open(SOURCE, 0)
    return sink


def numbers_of(records: list[Any]) -> list[int]:
    return [json.loads(record)["n"] for record in records]


@pytest.mark.slow
def test_each_record_is_in_the_other_stream_once_whatever_is_killed() -> None:
    (port,) = free_ports(1)
    with run_receiver(HttpReceiver(port, "127.0.0.1"), settings=QUICK) as running:
        running.wait_for_addresses()
        over = threading.Event()

        def restart() -> None:
            while not over.wait(1.0):
                running.restart()

        with ThreadPoolExecutor(1) as pool:
            restarting = pool.submit(restart)
            try:
                sink = HttpSink(f"http://127.0.0.1:{port}/scores")
                report = sink_crash_test(
                    sink, lambda: numbers_of(running.records), kills=20, seed=1
                )
            finally:
                over.set()
            restarting.result(HANG_S)
        assert report.late
        running.wait_for_event("registered", 2)


def test_what_was_sent_first_counts_and_comes_back_when_it_is_durable() -> None:
    with serving() as (running, address), ThreadPoolExecutor(2) as pool:
        running.hold()
        epoch = Epoch(SOURCE, 7, 0, ATTEMPT)
        first = pool.submit(opened(address).commit, epoch, rows(1, 2))
        running.wait_for_records(2)
        # Of an attempt whose function returned something else.
        second = pool.submit(opened(address).commit, epoch, rows(3))
        opened(address).commit(epoch, [])
        assert send(address, method="GET").status == 200
        assert not first.done()
        assert not second.done()
        running.go_on()
        first.result(HANG_S)
        second.result(HANG_S)
        opened(address).commit(Epoch(SOURCE, 7, 1, ATTEMPT), rows(4))
        assert numbers_of(running.records) == [1, 2, 4]


def test_a_large_part_is_several_requests_which_are_stored_once_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_sink, "_MOST_BYTES", 20)
    with serving(maxBody=20) as (running, address):
        for _ in range(2):
            opened(address).commit(Epoch(SOURCE, 0, 0, ATTEMPT), rows(*range(5)) + rows(5, 6, 7))
        assert numbers_of(running.records) == list(range(8))


def test_a_server_that_is_away_or_busy_is_asked_again_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_sink, "_AGAIN_S", 0.01)
    (port,) = free_ports(1)
    epoch, url = Epoch(SOURCE, 0, 0, ATTEMPT), f"http://127.0.0.1:{port}"
    with monkeypatch.context() as patched:
        patched.setattr(http_sink, "_WAIT_S", 0.1)
        with pytest.raises(PenstockError, match=r"did not take a+-0+-0000 .*refused"):
            opened(url).commit(epoch, rows(1))
    answers = iter([503, 500, 200, 200])
    asked = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            told = (self.path, self.headers["Idempotency-Key"], self.headers["Authorization"])
            asked.append((*told, self.rfile.read(length)))
            self.send_response(next(answers))
            self.send_header("Content-Length", "2000")
            self.end_headers()
            self.wfile.write(b"x" * 2000)

        def log_message(self, *_: Any) -> None: ...

    with HTTPServer(("127.0.0.1", port), Handler) as server, ThreadPoolExecutor(1) as pool:
        serving = pool.submit(server.serve_forever, 0.01)
        sink = opened(f"{url}/a?b=c", token="secret")
        try:
            sink.commit(epoch, rows(1))
            # What is left of a long answer is not taken for the next one.
            monkeypatch.setattr(http_sink, "_AGAIN_S", HANG_S)
            sink.commit(epoch, rows(1))
        finally:
            sink.close()  # Else the server has its connection still.
            server.shutdown()
        serving.result(HANG_S)
    assert asked == [("/a?b=c", epoch.name, "Bearer secret", b'{"n": 1}\n')] * 4


def test_while_the_other_stream_is_held_the_part_waits_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_sink, "_AGAIN_S", 0.01)
    epoch = Epoch(SOURCE, 0, 0, ATTEMPT)
    with serving(storeTimeout=0.1) as (running, address):
        running.hold()
        with monkeypatch.context() as patched:
            patched.setattr(http_sink, "_WAIT_S", 0.5)
            sink = opened(address)
            for _ in range(2):
                with pytest.raises(SinkError, match=f"{address} answers 503: .*not durable"):
                    sink.commit(epoch, rows(1))
        running.go_on()
        sink.commit(epoch, rows(1))
        assert numbers_of(running.records) == [1]


@pytest.mark.parametrize(
    ("options", "path", "why"),
    [
        ({"maxBody": 5}, "", "413: .*maxBody"),
        ({"token": "other"}, "", "401: .*token"),
        ({"path": "/clicks"}, "scores", "404: "),
    ],
)
def test_what_would_never_be_taken_gives_the_stream_up(
    options: dict[str, Any], path: str, why: str
) -> None:
    with serving(**options) as (running, address):
        sink = opened(address.replace("clicks", path), token="secret")
        with pytest.raises(SinkError, match=why):
            sink.commit(Epoch(SOURCE, 0, 0, ATTEMPT), rows(1))
        assert running.records == []


@pytest.mark.parametrize("url", ["host:8080", "ftp://host/", "http:///path", None])
def test_what_is_no_address_is_said_at_once(url: Any) -> None:
    with pytest.raises(ValueError, match=r"url=.* is not accepted"):
        HttpSink(url)
