"""`HttpReceiver`, asked by Python's own client, by curl, and by clients that break the rules."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import gzip
import hmac
import http.client
import json
import pickle
import socket
import ssl
import subprocess
import threading
import time
import urllib.parse
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import NonRecordingSpan, SpanContext, set_span_in_context

from penstock.receiver import ReceiverStoppedError, RecordTooLargeError
from penstock.sources.formats import JsonFormat
from penstock.sources.http import (
    GitHubSignature,
    HttpReceiver,
    Signature,
    SignatureError,
    StandardWebhooksSignature,
    StripeSignature,
    _server,
)
from penstock.sources.http._bodies import Content
from penstock.sources.http._keys import Keys, entry_of
from penstock.testing import crash_test, run_receiver
from penstock.testing.running import RunningReceiver
from tests.bounds import HANG_S
from tests.services.ports import free_ports
from tests.services.tls import certificate_of_host

QUICK = {"spark.streaming.blockInterval": "10ms", "spark.streaming.receiverRestartDelay": 1}
JSON = {"Content-Type": "application/json"}
LINES = {"Content-Type": "application/x-ndjson"}
BYTES = {"Content-Type": "application/octet-stream"}
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Answer:
    def __init__(self, answered: http.client.HTTPResponse) -> None:
        self.status = answered.status
        self.headers = answered.headers
        self.text = answered.read().decode()


def send(
    address: str,
    body: bytes = b"",
    headers: Mapping[str, str] = BYTES,
    method: str = "POST",
    context: ssl.SSLContext | None = None,
) -> Answer:
    place = urllib.parse.urlsplit(address)
    assert place.hostname is not None
    if place.scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            place.hostname, place.port, timeout=HANG_S, context=context
        )
    else:
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=HANG_S)
    with contextlib.closing(connection):
        connection.request(method, place.path, body, dict(headers))
        return Answer(connection.getresponse())


@contextlib.contextmanager
def serving(
    *, settings: Mapping[str, object] | None = None, **options: Any
) -> Iterator[tuple[RunningReceiver, str]]:
    receiver = HttpReceiver(0, "127.0.0.1", **options)
    with run_receiver(receiver, settings={**QUICK, **(settings or {})}) as running:
        (address,) = running.wait_for_addresses()
        yield running, address


def until(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + HANG_S
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.005)


# -- what is stored ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "headers", "records"),
    [
        (b"\x00\xff", BYTES, [b"\x00\xff"]),
        (b"", BYTES, [b""]),
        (b' {"a": [1, 2.50]}\n', JSON, [b'{"a": [1, 2.50]}']),
        (b'[{"a": 1}, {"a": 1, "a": 2}]', JSON, [b'{"a": 1}', b'{"a": 1, "a": 2}']),
        (b"[]", JSON, []),
        (b'{"a": 1}', {"Content-Type": "application/cloudevents+json"}, [b'{"a": 1}']),
        (b"1\n2\n", LINES, [b"1", b"2"]),
        (b"\n1\n\n\r\n2", LINES, [b"1", b"2"]),
        (b"22\n\r", LINES, [b"22"]),
        (b"1\r\n2\r3\r\n\r\n\r4\r", LINES, [b"1", b"2\r3", b"\r4"]),
        (b"  \n\n22", LINES, [b"  ", b"22"]),
        (b"", LINES, []),
        (
            gzip.compress(b"1\n", mtime=0) + gzip.compress(b"2\n", mtime=0),
            LINES | {"Content-Encoding": "gzip"},
            [b"1", b"2"],
        ),
        (
            pa.compress(b"12", codec="zstd", asbytes=True),
            BYTES | {"Content-Encoding": "zstd"},
            [b"12"],
        ),
    ],
)
def test_a_body_is_stored_as_its_type_says(
    body: bytes, headers: dict[str, str], records: list[bytes]
) -> None:
    with serving() as (running, address):
        answer = send(address, body, headers)
        assert (answer.status, answer.text) == (200, "{}")
        send(address, b"last")
        assert running.wait_for_records(len(records) + 1) == [*records, b"last"]


def test_an_answer_waits_for_no_block_interval() -> None:
    settings = {"spark.streaming.blockInterval": "1h"}
    with run_receiver(HttpReceiver(0, "127.0.0.1"), settings=settings) as running:
        (address,) = running.wait_for_addresses()
        for number in range(3):
            assert send(address, b"%d" % number).status == 200
        with ThreadPoolExecutor(8) as clients:
            answers = clients.map(lambda _: send(address, b"x").status, range(50))
            assert set(answers) == {200}
        assert running.wait_for_records(53)[:3] == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("body", "headers", "status", "told"),
    [
        (b'{"a": 1', JSON, 400, "truncated"),
        (b'[{"a": 1}, ', JSON, 400, "truncated"),
        (b'{"a": NaN}', JSON, 400, "invalid character"),
        (b"[" * 100_000 + b"]" * 100_000, JSON, 400, "nested too deep"),
        (b'["\xff"]', JSON, 400, "not UTF-8"),
        (b"", JSON, 400, "truncated"),
        (
            gzip.compress(b"1\n2\n", mtime=0)[:-6],
            LINES | {"Content-Encoding": "gzip"},
            400,
            "no whole gzip",
        ),
        (b"1\n2\n", LINES | {"Content-Encoding": "gzip"}, 400, "no whole gzip"),
        (b"", LINES | {"Content-Encoding": "gzip"}, 400, "no whole gzip"),
        (
            pa.compress(b"12", codec="zstd", asbytes=True)[:-2],
            {"Content-Encoding": "zstd"},
            400,
            "no whole zstd",
        ),
        (b"12", {"Content-Encoding": "br"}, 415, "gzip or zstd"),
        (b"x" * 2001, BYTES, 413, "larger than 2000 bytes"),
        (
            gzip.compress(b"x" * 100_000, mtime=0),
            {"Content-Encoding": "gzip"},
            413,
            "larger than 2000",
        ),
    ],
)
def test_a_body_that_is_not_whole_or_not_what_it_says_is_refused_as_a_whole(
    body: bytes, headers: dict[str, str], status: int, told: str
) -> None:
    limit = 2000 if status == 413 else 1 << 20
    with serving(maxBody=limit) as (running, address):
        answer = send(address, body, headers)
        assert (answer.status, told in answer.text) == (status, True), answer.text
        # Of a body that is too large the rest is not read, by ending the connection.
        assert answer.headers.get("Connection") == ("close" if status == 413 else None)
        send(address, b"last")
        assert running.wait_for_records(1) == [b"last"]
        assert str(status) in running.wait_for_error("Requests were refused")


def test_what_values_cannot_read_is_a_dead_letter_and_the_rest_is_stored() -> None:
    numbers = JsonFormat(pa.schema([("n", pa.int64())]))
    with serving(values=numbers) as (running, address):
        assert send(address, b'{"n": 1}\n{"n": \n{"n": 2}', LINES).status == 200
        assert running.wait_for_records(2) == [{"n": 1}, {"n": 2}]
        assert [data for data, _ in running.discarded] == [b'{"n": ']


def test_columns_have_the_request_beside_the_record_but_no_credentials() -> None:
    headers = LINES | {"Idempotency-Key": "k", "Authorization": "Bearer secret", "X-From": "me"}
    headers |= {"X-Via": "a", "x-via": "b"}
    with serving(path="/hooks", columns=True, token="secret") as (running, address):
        assert send(f"{address}/orders", b"1\n2", headers).status == 200
        one, two = running.wait_for_records(2)
    assert [one.pop("value"), two.pop("value")] == [b"1", b"2"]
    assert one == two
    assert (one["path"], one["key"], one["remote"]) == ("/hooks/orders", "k", "127.0.0.1")
    told = {name: value for name, value in one["headers"] if name.startswith("x-")}
    assert told == {"x-from": "me", "x-via": "a, b"}
    assert len({name for name, _ in one["headers"]}) == len(one["headers"])
    assert "secret" not in str(one)
    assert abs(one["time"].timestamp() - time.time()) < HANG_S


def test_a_function_cuts_a_body_into_records() -> None:
    def pairs(body: bytes) -> list[bytes]:
        if body == b"one":
            return body  # type: ignore[return-value]
        if b"&" not in body:
            raise ValueError("no pairs")
        return body.split(b"&")

    with serving(body=pairs) as (running, address):
        assert send(address, b"a=1&b=2").status == 200
        assert "no pairs" in send(address, b"a").text
        assert "a list of bytes" in send(address, b"one").text
        assert running.wait_for_records(2) == [b"a=1", b"b=2"]


def test_each_log_record_of_opentelemetry_keeps_its_resource_and_scope() -> None:
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "a"}}]}
    scopes = [
        {"scope": {"name": "s"}, "logRecords": [{"body": 1}, {"body": 2}]},
        {"logRecords": [{"body": 3}]},
        # A null is the same as nothing, as of a nil slice of Go.
        {"logRecords": None},
    ]
    logs = {"resourceLogs": [{"scopeLogs": None}, {"resource": resource, "scopeLogs": scopes}]}
    with serving(path="/v1/logs", body="otlp-logs") as (running, address):
        answer = send(address, json.dumps(logs).encode(), JSON)
        assert (answer.status, answer.text) == (200, "{}")
        found = [json.loads(record) for record in running.wait_for_records(3)]
        assert [each["log"]["body"] for each in found] == [1, 2, 3]
        assert [each["scope"] for each in found] == [{"name": "s"}, {"name": "s"}, {}]
        assert found[2]["resource"] == resource
        assert send(address, b'{"resourceLogs": null}', JSON).status == 200
        refused = send(address, b"", {"Content-Type": "text/plain"})
        assert (refused.status, "application/json" in refused.text) == (415, True)


def test_opentelemetrys_exporter_sends_the_same_as_protobuf() -> None:
    with serving(path="/v1/logs", body="otlp-logs") as (running, address):
        provider = LoggerProvider(Resource({"service.name": "a"}))
        exporter = OTLPLogExporter(address)
        provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
        ids = NonRecordingSpan(SpanContext(0xAB << 120, 0xCD << 56, is_remote=False))
        provider.get_logger("s").emit(
            LogRecord(
                body="é", severity_number=SeverityNumber.INFO, context=set_span_in_context(ids)
            )
        )
        found = json.loads(running.wait_for_records(1)[0])
        kinds = {"Content-Type": "application/x-protobuf"}
        empty, wrong = send(address, b"", kinds), send(address, b"\n\x05x", kinds)
        assert (empty.status, empty.text, empty.headers["Content-Type"]) == (
            *(200, ""),
            kinds["Content-Type"],
        )
        assert (wrong.status, "as protobuf" in wrong.text) == (400, True)
        provider.shutdown()
    assert found["resource"]["attributes"][0]["value"] == {"stringValue": "a"}
    assert found["scope"]["name"] == "s"
    log = found["log"]
    assert (log["body"], log["severityNumber"]) == ({"stringValue": "é"}, 9)
    assert (log["traceId"], log["spanId"]) == ("ab" + "0" * 30, "cd" + "0" * 14)


def test_only_its_path_and_its_methods_are_taken() -> None:
    with serving(path="/hooks/") as (_, address):
        assert send(address, b"1").status == 200
        assert send(address.replace("/hooks/", "/hooks"), b"1").status == 200
        assert send(address.replace("/hooks/", "/hooksmith"), b"1").status == 404
        assert send(address, b"", method="DELETE").status == 405
        assert send(address, b"", method="GET").status == 200


def test_curl_is_answered() -> None:
    with serving() as (running, address):
        command = ["curl", "-sS", "-H", "Expect: 100-continue", "--data-binary", "@-", address]
        done = subprocess.run(command, input=b"x" * 3_000_000, capture_output=True, timeout=HANG_S)
        assert (done.stdout, done.stderr) == (b"{}", b"")
        assert [len(each) for each in running.wait_for_records(1)] == [3_000_000]


def test_a_body_of_chunks_has_the_same_limit() -> None:
    with serving(maxBody=10) as (running, address):
        chunk = b"6\r\n123456\r\n"
        head = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
        assert b" 413 " in answer_to(address, head + 2 * chunk + b"0\r\n\r\n")
        assert b" 200 " in answer_to(address, head + chunk + b"0\r\n\r\n")
        assert running.records == [b"123456"]


def test_a_sender_that_asks_first_is_told_to_go_on_or_is_refused() -> None:
    asks = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
    with serving(maxBody=10) as (running, address), connect(address) as client:
        client.sendall(asks + b"Content-Length: 2\r\n\r\n")
        assert client.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(b"12")
        assert b" 200 OK" in client.recv(65536)
        client.sendall(asks + b"Content-Length: 11\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 413 ")
        assert running.records == [b"12"]


# -- acknowledged means durable ------------------------------------------------------------------


def test_a_request_is_answered_when_it_is_durable_and_not_sooner() -> None:
    with serving() as (running, address), ThreadPoolExecutor(1) as pool:
        running.hold()
        answer = pool.submit(send, address, b"1")
        assert running.wait_for_records(1) == [b"1"]  # Reported, and not yet known to the driver.
        assert not answer.done()
        running.go_on()
        assert answer.result(HANG_S).status == 200


def test_a_request_that_is_not_durable_in_time_is_to_be_sent_again() -> None:
    with serving(storeTimeout=0.05) as (running, address):
        running.hold()
        for _ in range(2):
            answer = send(address, b"1", {"Idempotency-Key": "a"})
            assert (answer.status, answer.headers["Retry-After"]) == (503, "2")
        running.go_on()
        until(lambda: send(address, b"1", {"Idempotency-Key": "a"}).status == 200)
        assert running.records == [b"1"]


def test_while_the_stream_is_held_requests_are_refused_and_later_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_server, "_HELD_S", 0.1)
    settings = {"spark.streaming.receiver.maxRate": 1, "spark.penstock.receiver.burst": "1s"}
    with serving(settings=settings) as (running, address), ThreadPoolExecutor(1) as pool:
        answers = [pool.submit(send, address, b"1")]

        def is_held() -> bool:
            if answers[-1].done():
                answers.append(pool.submit(send, address, b"1"))
            asked = send(address, b"", method="GET")
            return (asked.status, asked.headers["Retry-After"]) == (503, "2")

        until(is_held)
        until(lambda: send(address, b"", method="GET").status == 200)
        assert send(address, b"2").status == 200
        taken = [each.result(HANG_S).status for each in answers].count(200)
        assert taken == len(answers)
        assert running.records == [b"1"] * taken + [b"2"]


def test_bytes_in_memory_are_bounded_whatever_is_sent() -> None:
    with serving(maxWaiting=100_000) as (running, address), ThreadPoolExecutor(1) as pool:
        for _ in range(2):  # What one gave back is not given back twice.
            running.hold()
            first = pool.submit(send, address, b"x" * 200_000)
            until(lambda: send(address, b"", method="GET").status == 503)
            assert send(address, b"y").status == 503
            running.go_on()
            assert first.result(HANG_S).status == 200
            until(lambda: send(address, b"y").status == 200)


def test_bytes_that_come_with_their_heads_are_bounded_too() -> None:
    with contextlib.ExitStack() as opened:
        running, address = opened.enter_context(serving(maxWaiting=10_000))
        running.hold()
        for _ in range(12):
            sender = opened.enter_context(connect(address))
            sender.sendall(HEAD + b"Content-Length: 1000\r\n\r\n" + bytes(1000))
        until(lambda: send(address, b"", method="GET").status == 503)
        running.go_on()
        until(lambda: send(address, b"", method="GET").status == 200)


def test_what_was_refused_takes_no_memory_any_more() -> None:
    with serving(maxWaiting=1000) as (_, address):
        for _ in range(2):
            assert send(address, b"{" * 2000, JSON).status == 400
        assert send(address, b"1").status == 200


def test_what_was_refused_while_it_was_read_is_no_garbage_that_has_to_be_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusals: list[weakref.ref[BaseException]] = []
    too_large = _server.too_large

    def noting(limit: int) -> Any:
        error = too_large(limit)
        refusals.append(weakref.ref(error))
        return error

    monkeypatch.setattr(_server, "too_large", noting)
    gc.disable()
    try:
        with serving(maxBody=1000) as (_, address):
            with contextlib.closing(connect(address)) as sender:
                sender.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
                time.sleep(0.1)  # So that the body is read by a task.
                sender.sendall(b"7d0\r\n" + b"x" * 2000)
                assert b" 413 " in sender.recv(100)
            end_s = time.monotonic() + HANG_S
            while refusals[0]() is not None:
                assert time.monotonic() < end_s, "the error, and the body with it, is garbage"
                time.sleep(0.01)
    finally:
        gc.enable()


def test_a_body_that_is_being_read_is_given_up_when_others_fill_the_memory() -> None:
    head = HEAD + b"Content-Length: %d\r\n\r\n"
    with contextlib.ExitStack() as opened:
        _, address = opened.enter_context(serving(maxWaiting=100_000))
        early, large = (opened.enter_context(connect(address)) for _ in range(2))
        early.sendall(head % 1000 + b"x")
        until(lambda: send(address, b"", method="GET").status == 200)
        large.sendall(head % 200_000 + bytes(150_000))
        until(lambda: send(address, b"", method="GET").status == 503)
        early.sendall(b"x")
        assert early.recv(65536).startswith(b"HTTP/1.1 503 ")
        large.sendall(bytes(50_000))
        assert large.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_a_stop_answers_what_it_took_and_takes_no_more() -> None:
    with serving() as (running, address), ThreadPoolExecutor(8) as pool:
        answered: list[int] = []
        is_over = threading.Event()

        def post() -> None:
            with contextlib.suppress(OSError, http.client.HTTPException):
                while not is_over.is_set():
                    answered.append(send(address, b"1").status)

        posting = [pool.submit(post) for _ in range(8)]
        until(lambda: answered.count(200) > 20)
        running.stop()
        is_over.set()
        for each in posting:
            each.result(HANG_S)
        assert len(running.records) == answered.count(200)


# -- keys ----------------------------------------------------------------------------------------


def test_a_request_with_a_key_is_stored_once_also_after_a_restart() -> None:
    key = BYTES | {"Idempotency-Key": "a"}
    with serving() as (running, address):
        for _ in range(2):
            assert send(address, b"1", key).status == 200
        assert send(address, b"1", {**key, "Idempotency-Key": "b"}).status == 200
        assert send(f"{address}other", b"1", key).status == 200
        running.restart()
        running.wait_for_event("registered", 2)
        (address,) = running.wait_for_addresses()
        assert send(address, b"1", key).status == 200
        conflict = send(address, b"2", key)
        assert (conflict.status, "another body" in conflict.text) == (422, True)
        assert running.records == [b"1"] * 3


def test_two_requests_with_one_key_at_once_are_one() -> None:
    key = {"Idempotency-Key": "a"}
    with serving() as (running, address), ThreadPoolExecutor(3) as pool:
        running.hold()
        first = pool.submit(send, address, b"1", key)
        running.wait_for_records(1)
        second = pool.submit(send, address, b"1", key)
        # Whether the first will be there is not known yet.
        other = pool.submit(send, address, b"2", key)
        assert send(address, method="GET").status == 200
        assert not other.done()
        running.go_on()
        assert other.result(HANG_S).status == 422
        assert {first.result(HANG_S).status, second.result(HANG_S).status} == {200}
        assert running.records == [b"1"]


def test_after_a_restart_the_last_keys_are_known_and_no_more() -> None:
    with serving(keys=2) as (running, address):
        for key in "abc":
            send(address, b"1", {"Idempotency-Key": key})
        running.restart()
        running.wait_for_event("registered", 2)
        (address,) = running.wait_for_addresses()
        for key in "cba":
            assert send(address, b"1", {"Idempotency-Key": key}).status == 200
        assert running.records == [b"1"] * 4


def test_the_position_has_the_keys_that_are_remembered_and_few_more() -> None:
    position: dict[str, bytes] = {}
    for start in range(0, 2000, 250):
        keys: Keys[object] = Keys(200, position)
        for number in range(start, start + 250):
            entry = entry_of("/", str(number), b"")
            assert keys.find(entry) is None
            keys.add(entry, number)
            assert keys.find(entry) == (True, number)
            changes = keys.changes_with([entry])
            keys.settled(entry, bool(number % 7))
            if number % 7 == 0:  # It was not stored: another call comes instead.
                changes = keys.changes_with([])
            keys.stored()
            assert len(changes) <= 2
            position = {**position, **changes}
            position = {name: chunk for name, chunk in position.items() if chunk is not None}
        known: Keys[object] = Keys(200, position)
        stored = [number for number in range(start + 250) if number % 7]
        for number in stored[-200:]:
            assert known.find(entry_of("/", str(number), b"")) == (True, None)
        for number in stored[:-200]:
            assert keys.find(entry_of("/", str(number), b"")) is None
            assert known.find(entry_of("/", str(number), b"")) is None
        assert sum(map(len, position.values())) <= (200 + 2 * 64) * 16


def test_keys_that_are_being_stored_take_no_place_of_durable_ones() -> None:
    keys: Keys[object] = Keys(2, None)
    entries = [entry_of("/", name, b"") for name in "abcd"]
    for entry in entries[:2]:
        keys.add(entry, None)
        keys.settled(entry, True)
    for entry in entries[2:]:
        keys.add(entry, entry)
    keys.settled(entries[2], True)
    assert [keys.find(entry) for entry in entries] == [
        None,
        (True, None),
        (True, None),
        (True, entries[3]),
    ]


def test_no_more_keys_wait_to_be_durable_than_are_remembered() -> None:
    with serving(keys=1) as (running, address), ThreadPoolExecutor(1) as pool:
        running.hold()
        first = pool.submit(send, address, b"1", {"Idempotency-Key": "a"})
        running.wait_for_records(1)
        refused = send(address, b"2", {"Idempotency-Key": "b"})
        assert (refused.status, "requests with a key" in refused.text) == (503, True)
        running.go_on()
        assert first.result(HANG_S).status == 200


@pytest.mark.parametrize("large", [[], [b"large\n"]])
def test_what_waits_is_stored_together_whatever_its_kind_and_one_refusal_is_that_of_no_other(
    large: list[bytes],
) -> None:
    stored: list[Any] = []

    def store(data: Any, position: object, ack: Callable[[], None], *framing: str) -> None:
        if b"large" in (data if framing else data[0]):
            raise RecordTooLargeError(100, 50)
        stored.append(data)
        ack()

    receiver = HttpReceiver()
    receiver.streamId = 0
    receiver.store = store  # type: ignore[method-assign,assignment]
    receiver.seal = lambda: None  # type: ignore[method-assign]
    bodies = [b"one\n", *large, b"two\n"]
    contents = [Content(body, (), len(body)) for body in bodies]
    contents.insert(-1, Content(None, [b"three"], 5))

    async def answers() -> list[object]:
        server = _server.HttpServer(receiver)
        requests = [_server._Taken(content, (), None, content.size) for content in contents]
        server._waiting.put(requests)
        server._waiting.put(None)
        server._storer.start()
        server._storer.join(HANG_S)
        assert not server._storer.is_alive()
        await asyncio.sleep(0)
        assert all(request.is_settled for request in requests)
        return [request.error for request in requests]

    one, *refused, three, two = asyncio.run(answers())
    assert (one, three, two) == (None, None, None)
    assert list(map(type, refused)) == [RecordTooLargeError] * len(large)
    assert stored == [b"one\n", [b"three"], b"two\n"]


def test_what_was_stored_stays_so_when_the_receiver_stops_in_the_same_moment() -> None:
    def store(data: bytes, position: object, ack: Callable[[], None], *framing: str) -> None:
        ack()
        raise ReceiverStoppedError("the receiver stops")

    receiver = HttpReceiver()
    receiver.streamId = 0
    receiver.store = store  # type: ignore[method-assign,assignment]
    receiver.seal = lambda: None  # type: ignore[method-assign]

    async def held() -> tuple[BaseException | None, int]:
        server = _server.HttpServer(receiver)
        server._held_bytes = 4
        request = _server._Taken(Content(b"one\n", (), 4), (), None, 4)
        server._store([request])
        await asyncio.sleep(0)
        return request.error, server._held_bytes

    assert asyncio.run(held()) == (None, 0)


def test_what_becomes_durable_after_the_end_of_the_server_is_no_error() -> None:
    async def made() -> _server.HttpServer:
        receiver = HttpReceiver()
        receiver.streamId = 0
        return _server.HttpServer(receiver)

    asyncio.run(made())._settle_soon([])


def test_the_records_of_a_key_are_in_one_block_or_refused() -> None:
    settings = {"spark.penstock.block.maxSize": "64k"}
    body = b"\n".join([b"x" * 99] * 1000)
    with serving(settings=settings) as (running, address):
        refused = send(address, body, LINES | {"Idempotency-Key": "a"})
        assert refused.status == 413
        assert send(address, body, LINES).status == 200
        assert send(address, b"y", BYTES | {"Idempotency-Key": "a"}).status == 200
        assert running.wait_for_records(1001)[-2:] == [b"x" * 99, b"y"]


def test_a_record_that_is_larger_than_a_block_is_a_dead_letter() -> None:
    with serving(settings={"spark.penstock.block.maxSize": "64k"}) as (running, address):
        assert send(address, b"x" * 100_000).status == 200
        assert [len(data) for data, _ in running.discarded] == [100_000]


class Sender:
    """Sends numbered records until each is answered, whatever becomes of the server."""

    def __init__(self, count: int, *, has_keys: bool) -> None:
        (self.port,) = free_ports(1)
        self._numbers = iter(range(count))
        self._count = count
        self._has_keys = has_keys
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._send) for _ in range(4)]

    def __enter__(self) -> Sender:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(HANG_S)

    def expected(self) -> list[bytes]:
        return [b"%d" % number for number in range(self._count)]

    def _send(self) -> None:
        while True:
            with self._lock:
                number = next(self._numbers, None)
            if number is None:
                return
            headers = {"Idempotency-Key": str(number)} if self._has_keys else {}
            while not self._is_over.wait(0.02):
                with contextlib.suppress(OSError, http.client.HTTPException):
                    if (
                        send(f"http://127.0.0.1:{self.port}/", b"%d" % number, headers).status
                        == 200
                    ):
                        break


@pytest.mark.parametrize(
    ("kills", "has_keys"),
    [
        pytest.param(27, True, marks=pytest.mark.exhaustive),
        pytest.param(4, False, marks=[pytest.mark.long, pytest.mark.timeout(900)]),
    ],
)
def test_a_kill_loses_nothing_and_doubles_nothing_that_has_a_key(
    kills: int, has_keys: bool
) -> None:
    report = crash_test(
        lambda sender: HttpReceiver(sender.port, "127.0.0.1"),
        lambda: Sender(150, has_keys=has_keys),
        claim="exactly once" if has_keys else "at least once",
        kills=kills,
        settings=QUICK,
    )
    assert sum(report.kills.values()) >= kills


# -- who may send --------------------------------------------------------------------------------


def github(body: bytes, secret: str = "s") -> dict[str, str]:
    made = hmac.new(secret.encode(), body, "sha256").hexdigest()
    return {"X-Hub-Signature-256": f"sha256={made}", "X-GitHub-Delivery": "d1"}


def stripe(body: bytes, at_s: float, secret: str = "s") -> dict[str, str]:
    signed = b"%d." % at_s + body
    made = hmac.new(secret.encode(), signed, "sha256").hexdigest()
    return {"Stripe-Signature": f"t={int(at_s)},v0=11,v1={'00' * 32},v1={made}"}


def standard(body: bytes, at_s: float, secret: str = SECRET) -> dict[str, str]:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    made = hmac.digest(key, b"m1.%d." % at_s + body, "sha256")
    return {
        "webhook-id": "m1",
        "webhook-timestamp": str(int(at_s)),
        "webhook-signature": f"v1a,x v1,{base64.b64encode(made).decode()}",
    }


def test_signatures_are_those_that_their_senders_document() -> None:
    found = GitHubSignature("It's a Secret to Everybody").check(
        {
            "X-Hub-Signature-256": "sha256="
            "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
        },
        b"Hello, World!",
        0,
    )
    assert found == ""
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    signature = StandardWebhooksSignature(SECRET)
    body = b'{"test": 2432232314}'
    assert signature.check(headers, body, 1614265330 + 299) == "msg_p5jXN8AQM9LWM0D4loKWxJek"


@pytest.mark.parametrize(
    ("signature", "sign", "name"),
    [
        (GitHubSignature(["old", "s"]), lambda body, at_s: github(body), "d1"),
        (StripeSignature("s"), stripe, "evt_1"),
        (StandardWebhooksSignature(SECRET), standard, "m1"),
    ],
)
def test_a_signature_is_of_this_body_with_this_secret_and_of_lately(
    signature: Signature, sign: Callable[[bytes, float], dict[str, str]], name: str
) -> None:
    body = b'{"id": "evt_1"}'
    headers = sign(body, 1000)
    for now_s in (1000, 701, 1299):
        assert signature.check(headers, body, now_s) == name
    with pytest.raises(SignatureError):
        signature.check(headers, body + b" ", 1000)
    with pytest.raises(SignatureError):
        signature.check({}, body, 1000)
    for cut in headers:
        broken = {**headers, cut: headers[cut][:-1] + "é"}
        if cut != "X-GitHub-Delivery":
            with pytest.raises(SignatureError):
                signature.check(broken, body, 1000)
    if not isinstance(signature, GitHubSignature):
        for now_s in (699, 1301):
            with pytest.raises(SignatureError, match="more than 300 s"):
                signature.check(headers, body, now_s)


@pytest.mark.parametrize("secret", ["", [], [""], [1]])
def test_a_secret_that_is_none_is_refused(secret: Any) -> None:
    with pytest.raises(ValueError, match="secret is not accepted"):
        GitHubSignature(secret)
    with pytest.raises(ValueError, match="secret is not accepted"):
        StandardWebhooksSignature("whsec_hidden!") if secret == "" else GitHubSignature(secret)
    with pytest.raises(ValueError, match="secret is not accepted"):
        StandardWebhooksSignature("whsec_")


def test_a_hook_with_a_wrong_or_an_old_signature_is_refused_and_one_replayed_is_stored_once() -> (
    None
):
    body = b'{"id": "evt_1"}'
    now_s = time.time()
    with serving(signature=StandardWebhooksSignature(SECRET)) as (running, address):
        right = JSON | standard(body, now_s)
        for _ in range(2):
            assert send(address, body, right).status == 200
        for wrong in (JSON, JSON | standard(body, now_s - 400), right | {"webhook-id": "m2"}):
            assert send(address, body, wrong).status == 401
        assert running.records == [body]
        told = running.wait_for_error("Requests were refused")
        assert "401" in told
        assert SECRET.removeprefix("whsec_") not in told


def test_a_token_is_asked_for_before_the_body_is_read_and_never_shown() -> None:
    receiver = HttpReceiver(0, token="hidden", signature=GitHubSignature("hidden"))
    assert "hidden" not in f"{receiver!r} {receiver.signature!r}"
    with serving(token="hidden\n") as (running, address):  # as a file has it
        for given in ({}, {"Authorization": "Bearer hid"}, {"Authorization": "Basic hidden"}):
            refused = send(address, b"1", given)
            assert (refused.status, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert send(address, b"2", {"Authorization": "Bearer hidden"}).status == 200
        assert running.records == [b"2"]
        assert "hidden" not in running.wait_for_error("Requests were refused")


# -- clients that do not keep to it --------------------------------------------------------------


def connect(address: str) -> socket.socket:
    place = urllib.parse.urlsplit(address)
    return socket.create_connection((place.hostname, place.port), HANG_S)


def answer_to(address: str, sent: bytes, *, closes: bool = False) -> bytes:
    with connect(address) as client:
        client.sendall(sent)
        if closes:
            client.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            return b"".join(iter(lambda: client.recv(65536), b""))
        return b""


HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        HEAD + b"Content-Length: 10\r\n\r\n12345",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n123",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n5\r\n12345\r\n0\r\n\r\n",
        HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
        HEAD + b"Content-Length: -5\r\n\r\n12345",
        HEAD.replace(b"close", b"keep-alive") + b"Content-Length: 3\r\n\r\n12345",
        HEAD[:-10],
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_a_request_that_ends_early_or_contradicts_itself_stores_nothing(sent: bytes) -> None:
    with serving() as (running, address):
        answer = answer_to(address, sent, closes=True)
        assert b" 200 " not in answer
        send(address, b"last")
        assert running.records == [b"last"]


def test_a_connection_that_is_used_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_server, "_IDLE_S", 0.3)
    monkeypatch.setattr(_server, "_LOOK_S", 0.02)
    with serving() as (_, address):
        place = urllib.parse.urlsplit(address)
        kept = http.client.HTTPConnection(place.netloc, timeout=HANG_S)
        with contextlib.closing(kept):
            kept.connect()
            end_s = time.monotonic() + 1
            while time.monotonic() < end_s:
                kept.sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                assert b" 200 " in kept.sock.recv(65536)


def test_what_is_no_http_is_told_as_a_refusal_without_its_text(
    capfd: pytest.CaptureFixture[str],
) -> None:
    token = b"\r\nAuthorization: Bearer hidden\x01" + b"x" * 9000
    with serving() as (running, address):
        assert b" 400 " in answer_to(address, HEAD[:-2] + token + b"\r\n\r\n")
        told = running.wait_for_error("Requests were refused")
    assert "400" in told
    assert "hidden" not in f"{told}{''.join(capfd.readouterr())}"


def test_what_the_users_signature_raises_is_told_with_its_traceback() -> None:
    class Wrong(GitHubSignature):
        def check(self, headers: Mapping[str, str], body: bytes, now_s: float) -> str:
            return headers["X-None"]

    with serving(signature=Wrong("s")) as (running, address):
        assert send(address, b"1").status == 500
        assert "KeyError" in running.wait_for_error("Requests were refused")


def test_a_header_that_is_no_utf8_is_stored_with_what_stands_for_it() -> None:
    head = HEAD + b"Content-Length: 1\r\nIdempotency-Key: \xff\r\nX-A: \xc3\xa9\xfe\r\n\r\n1"
    with serving(columns=True) as (running, address):
        assert b" 200 " in answer_to(address, head)
        (found,) = running.wait_for_records(1)
    assert (found["key"], dict(found["headers"])["x-a"]) == ("\ufffd", "é\ufffd")


def test_a_body_that_comes_too_slowly_is_refused_and_others_are_served_meanwhile() -> None:
    with serving(bodyTimeout=0.3) as (running, address), connect(address) as slow:
        slow.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        assert send(address, b"1").status == 200
        with contextlib.suppress(OSError):
            while b" 408 " not in (answer := _ready(slow)):
                assert not answer
                slow.sendall(b"1\r\nx\r\n")
        assert send(address, b"2").status == 200
        assert running.records == [b"1", b"2"]


def _ready(client: socket.socket) -> bytes:
    client.settimeout(0.02)
    try:
        return client.recv(65536)
    except TimeoutError:
        return b""
    finally:
        client.settimeout(HANG_S)


def test_a_connection_that_sends_no_whole_head_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_server, "_IDLE_S", 0.2)
    monkeypatch.setattr(_server, "_LOOK_S", 0.05)
    with serving() as (_, address), connect(address) as silent, connect(address) as slow:
        slow.sendall(HEAD[:20])
        for client in (silent, slow):
            with contextlib.suppress(ConnectionResetError):
                assert client.recv(1) == b""


# -- ports and TLS -------------------------------------------------------------------------------


def test_two_receivers_of_a_range_have_ports_of_their_own_and_share_one_if_they_are_to() -> None:
    with serving() as (_, address):
        taken = urllib.parse.urlsplit(address).port
        assert taken is not None
        ports = f"{taken}-{min(taken + 50, 65535)}"
        with run_receiver(HttpReceiver(ports, "127.0.0.1"), settings=QUICK) as other:
            (second,) = other.wait_for_addresses()
            assert second != address
            assert send(second, b"1").status == 200
        with run_receiver(HttpReceiver(taken, "127.0.0.1"), settings=QUICK) as refused:
            assert f"port {taken}" in refused.wait_for_error("cannot listen")
    with serving(share=True) as (_, address):
        port = urllib.parse.urlsplit(address).port
        assert port is not None
        shared = HttpReceiver(port, "127.0.0.1", share=True)
        with run_receiver(shared, settings=QUICK) as other:
            assert other.wait_for_addresses() == (address,)


def test_tls_with_a_certificate_and_with_those_of_clients(tmp_path: Path) -> None:
    certificate = certificate_of_host(tmp_path)
    pem = str(tmp_path / "server.pem")
    context = ssl.create_default_context(cafile=str(certificate))
    with serving(certificate=pem) as (running, address):
        assert address.startswith("https://127.0.0.1:")
        assert send(address, b"1", context=context).status == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            send(address, b"2", context=ssl.create_default_context())
        assert running.records == [b"1"]
    with serving(certificate=pem, clientAuthorities=str(certificate)) as (running, address):
        with pytest.raises(OSError, match=r"(?i)certificate|reset|closed|broken|EOF"):
            send(address, b"1", context=context)
        context.load_cert_chain(pem)
        assert send(address, b"2", context=context).status == 200
        assert running.records == [b"2"]


def test_a_certificate_that_is_missing_is_said_at_once() -> None:
    receiver = HttpReceiver(0, "127.0.0.1", certificate="/nowhere/server.pem")
    with run_receiver(receiver, settings=QUICK) as running:
        assert "/nowhere/server.pem" in running.wait_for_error("Error in HttpReceiver")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"port": 70_000}, "port=70000"),
        ({"path": "hooks"}, "path='hooks'"),
        ({"body": "xml"}, "body='xml'"),
        ({"keys": 0}, "keys=0"),
        ({"host": None}, "host=None"),
        ({"path": "/hooks?a=1"}, "path="),
        ({"token": " "}, "token is not accepted"),
        ({"maxBody": 0}, "maxBody=0"),
        ({"bodyTimeout": 0}, "bodyTimeout=0"),
        ({"signature": "secret"}, "signature"),
        ({"privateKey": "key.pem"}, "certificate"),
        ({"values": dict}, "values="),
    ],
)
def test_what_is_not_accepted_is_said_when_it_is_made(options: dict[str, Any], told: str) -> None:
    with pytest.raises((ValueError, TypeError), match=told):
        HttpReceiver(**options)


def test_it_travels_to_the_executor() -> None:
    found = pickle.loads(pickle.dumps(HttpReceiver(0, signature=GitHubSignature("s"))))
    assert (found.port, found.requires) == (0, ("aiohttp",))
