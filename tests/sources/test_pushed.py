"""`WebSocketReceiver` and `ServerSentEventsReceiver`, beside what every source is asked."""

from __future__ import annotations

import contextlib
import http.server
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from penstock.sources.formats import JsonFormat
from penstock.sources.server_sent import ServerSentEventsReceiver
from penstock.sources.websocket import WebSocketReceiver
from penstock.testing import ReceiverTestError, run_receiver
from tests.bounds import HANG_S

SETTINGS = {"spark.streaming.blockInterval": "10ms", "spark.streaming.receiverRestartDelay": 1}
NUMBERS = JsonFormat(pa.schema([("n", pa.int64())]))


def until(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + HANG_S
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.005)


# -- server-sent events --------------------------------------------------------------------------


class EventServer:
    """Answers each request with the next of some answers, and the last one again and again."""

    def __init__(self, *answers: tuple[int, str, bytes]) -> None:
        self.asked: list[dict[str, str]] = []
        self._is_over = threading.Event()
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, kind, body = answers[min(len(server.asked), len(answers) - 1)]
                server.asked.append(dict(self.headers) | {"path": self.path})
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.end_headers()
                self.wfile.write(body)
                for _ in range(18 if body.endswith(b":\n") else 0):
                    server._is_over.wait(0.2)
                    self.wfile.write(b":\n")
                if body.endswith(b"..."):
                    server._is_over.wait(HANG_S)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/events"
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> EventServer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._server.shutdown()
        self._thread.join(HANG_S)
        self._server.server_close()


STREAM = "text/event-stream; charset=utf-8"


def test_an_event_has_its_type_its_id_and_typed_data_beside_it() -> None:
    body = b'event: add\nid: 7\ndata: {"n": 1}\n\ndata: {"n"\n\ndata: {"n": 2}\n\n: ...'
    with EventServer((200, STREAM, body)) as server:
        receiver = ServerSentEventsReceiver(server.url, columns=True, values=NUMBERS)
        with run_receiver(receiver, settings=SETTINGS) as running:
            one, two = running.wait_for_records(2)
            assert (one["event"], one["id"], one["value"]) == ("add", "7", {"n": 1})
            assert (two["event"], two["id"], two["value"]) == ("message", "7", {"n": 2})
            assert [data for data, _ in running.discarded] == [b'{"n"']


def test_what_an_end_cuts_off_is_no_event_and_the_stream_is_asked_again_after_the_last_id() -> None:
    first = (200, STREAM, b"retry: 1\nid: 1\ndata: 1\n\nid: 2\ndata: lost")
    with EventServer(first, (200, STREAM, b"id: 2\ndata: 2\n\nid: 3\n\n: ...")) as server:
        with run_receiver(ServerSentEventsReceiver(server.url), settings=SETTINGS) as running:
            assert running.wait_for_records(2) == [b"1", b"2"]
            until(lambda: running.position["id"] == "3")
            running.restart()
            until(lambda: len(server.asked) == 3)
        assert [each.get("Last-Event-ID") for each in server.asked] == [None, "1", "3"]


def test_a_server_that_ends_each_answer_behind_an_event_is_asked_at_its_own_pace() -> None:
    """As those do that know no open answers: it is no outage, and waits do not grow."""
    answers = [(200, STREAM, b"retry: 1\nid: %d\ndata: %d\n\n" % (n, n)) for n in range(20)]
    server = EventServer(*answers, (200, STREAM, b": ..."))
    receiver = ServerSentEventsReceiver(server.url)
    with server, run_receiver(receiver, settings=SETTINGS) as running:
        assert running.wait_for_records(20) == [b"%d" % n for n in range(20)]
        assert running.errors == []


def test_a_server_that_ends_empty_answers_at_once_is_reported() -> None:
    server = EventServer((200, STREAM, b""))
    receiver = ServerSentEventsReceiver(server.url)
    with server, run_receiver(receiver, settings=SETTINGS) as running:
        running.wait_for_error("it ended the stream at once")


def test_an_id_that_the_server_takes_back_is_not_asked_for() -> None:
    """An empty one: it cannot go on after the last event, or is to begin again."""
    body = b"id: 5\ndata: 1\n\nid\ndata: 2\n\n: ..."
    with EventServer((200, STREAM, body), (200, STREAM, b": ...")) as server:
        receiver = ServerSentEventsReceiver(server.url, lastEventId="4")
        with run_receiver(receiver, settings=SETTINGS) as running:
            assert running.wait_for_records(2) == [b"1", b"2"]
            running.stop()
            running.start()
            until(lambda: len(server.asked) == 2)
        assert [each.get("Last-Event-ID") for each in server.asked] == ["4", None]


def test_the_id_of_another_stream_is_not_asked_for(tmp_path: Path) -> None:
    with EventServer((200, STREAM, b"id: 5\ndata: 1\n\n: ...")) as server:
        receiver = ServerSentEventsReceiver(f"{server.url}?secret", lastEventId="4")
        with run_receiver(receiver, settings=SETTINGS) as running:
            running.wait_for_records(1)
            position = running.position
        assert "secret" not in str(position)
        for url, wanted in ((f"{server.url}?secret", "5"), (server.url, "4")):
            again = ServerSentEventsReceiver(url, lastEventId="4")
            assert again.first_id(position) == wanted


def test_an_event_that_is_too_large_is_a_dead_letter_and_the_stream_goes_on() -> None:
    body = b"id: 1\ndata: " + b"x" * 5000 + b"\n\nid: 2\ndata: 2\n\n: ..."
    with EventServer((200, STREAM, body)) as server:
        receiver = ServerSentEventsReceiver(server.url, maxEvent=1000)
        with run_receiver(receiver, settings=SETTINGS) as running:
            assert running.wait_for_records(1) == [b"2"]
            ((data, reason),) = running.discarded
            assert (data, "maxEvent=1000" in reason) == (b"x" * 1000, True)


def test_an_event_larger_than_a_block_is_a_dead_letter_and_the_stream_goes_on() -> None:
    body = b"id: 1\ndata: " + b"x" * 5000 + b"\n\nid: 2\ndata: 2\n\n: ..."
    settings = {**SETTINGS, "spark.penstock.block.maxSize": "4k"}
    with EventServer((200, STREAM, body)) as server:
        receiver = ServerSentEventsReceiver(server.url)
        with run_receiver(receiver, settings=settings) as running:
            assert running.wait_for_records(1) == [b"2"]
            until(lambda: running.position["id"] == "2")
            assert [len(data) for data, _ in running.discarded] == [5000]


def test_no_more_events_end_the_stream() -> None:
    with EventServer((204, STREAM, b"")) as server:
        with run_receiver(ServerSentEventsReceiver(server.url), settings=SETTINGS) as running:
            running.wait_for_error("gets no more records")
            until(lambda: any(event.startswith("deregistered") for event in running.events))
        assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((500, "text/plain", b"out of order"), "answered 500 with text/plain: 'out of order'"),
        ((200, "text/html", b"<html>"), "answered 200 with text/html"),
    ],
)
def test_another_answer_is_reported_once_and_asked_again(
    answer: tuple[int, str, bytes], told: str
) -> None:
    with EventServer(answer, answer, (200, STREAM, b"data: 1\n\n: ...")) as server:
        receiver = ServerSentEventsReceiver(f"{server.url}?token=hidden", headers={"X-Key": "dark"})
        with run_receiver(receiver, settings=SETTINGS) as running:
            assert running.wait_for_records(1) == [b"1"]
            assert len(running.errors) == 1
            assert told in running.errors[0]
            assert "hidden" not in running.errors[0]
        assert "dark" not in repr(receiver)


def test_a_silent_server_is_asked_again() -> None:
    with EventServer((200, STREAM, b"id: 1\ndata: 1\n\n..."), (204, STREAM, b"")) as server:
        receiver = ServerSentEventsReceiver(server.url, silence=0.1)
        with run_receiver(receiver, settings=SETTINGS) as running:
            running.wait_for_error("nothing came for 0.1 s")
            running.wait_for_error("gets no more records")


def test_a_comment_ends_a_silence() -> None:
    with EventServer((200, STREAM, b"data: 1\n:\n"), (204, STREAM, b"")) as server:
        receiver = ServerSentEventsReceiver(server.url, silence=2.5)
        with run_receiver(receiver, settings=SETTINGS) as running:
            running.wait_for_error("gets no more records")
            assert not [error for error in running.errors if "nothing came" in error]


# -- WebSocket -----------------------------------------------------------------------------------


@contextlib.contextmanager
def websocket_server(handle: Callable[[ServerConnection], None]) -> Iterator[str]:
    def quietly(connection: ServerConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            handle(connection)

    with serve(quietly, "127.0.0.1", 0, compression=None) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}/"
        finally:
            server.shutdown()
            thread.join(HANG_S)


def send_and_wait(messages: list[str | bytes], connection: ServerConnection) -> None:
    for message in messages:
        connection.send(message)
    with contextlib.suppress(ConnectionClosed):
        connection.recv(HANG_S)


def test_a_message_has_its_kind_beside_it_and_what_cannot_be_read_is_a_dead_letter() -> None:
    handle = partial(send_and_wait, ['{"n": 1}', b'{"n": 2}', "é", ""])
    with websocket_server(handle) as url:
        receiver = WebSocketReceiver(url, columns=True, values=NUMBERS)
        with run_receiver(receiver, settings=SETTINGS) as running:
            found = running.wait_for_records(2)
            assert [(each["kind"], each["value"]["n"]) for each in found] == [
                ("text", 1),
                ("binary", 2),
            ]
            until(lambda: [data for data, _ in running.discarded] == ["é".encode(), b""])


def test_what_is_subscribed_to_follows_the_last_position() -> None:
    asked: list[str | bytes] = []

    def handle(connection: ServerConnection) -> None:
        asked.append(connection.recv(HANG_S))
        after = int(asked[-1].split()[-1])
        send_and_wait([f"{number}" for number in range(after + 1, after + 4)], connection)

    with websocket_server(handle) as url:
        receiver = WebSocketReceiver(
            url, subscribe=lambda after: [f"after {after or 0}"], position=int
        )
        with run_receiver(receiver, settings=SETTINGS) as running:
            assert running.wait_for_records(3) == [b"1", b"2", b"3"]
            running.restart()
            assert running.wait_for_records(6)[3:] == [b"4", b"5", b"6"]
    assert asked == ["after 0", "after 3"]


def test_a_function_takes_keep_alives_away_and_what_it_raises_for_is_a_dead_letter() -> None:
    def records(message: bytes) -> list[bytes]:
        return [] if message == b"tick" else [b"%d" % int(part) for part in message.split(b",")]

    with websocket_server(partial(send_and_wait, ["tick", "1,2", "x", "tick", "3"])) as url:
        receiver = WebSocketReceiver(url, records=records)
        with run_receiver(receiver, settings=SETTINGS) as running:
            assert running.wait_for_records(3) == [b"1", b"2", b"3"]
            ((data, reason),) = running.discarded
            assert (data, "ValueError" in reason) == (b"x", True)


def test_a_function_that_returns_one_message_and_no_list_is_told_so() -> None:
    told = ""
    with websocket_server(partial(send_and_wait, [])) as url:
        receiver = WebSocketReceiver(url, subscribe=lambda _: "hello")
        with contextlib.suppress(ReceiverTestError), run_receiver(receiver) as running:
            told = running.wait_for_error("subscribe=")
    assert "a list of messages" in told


def test_a_function_that_returns_no_url_is_told_so_without_its_text() -> None:
    receiver = WebSocketReceiver(lambda _: "http://hidden")
    with run_receiver(receiver, settings=SETTINGS) as running:
        assert "hidden" not in running.wait_for_error("url is not accepted")


def test_a_function_that_returns_one_record_and_no_list_makes_a_dead_letter() -> None:
    with websocket_server(partial(send_and_wait, ["12"])) as url:
        receiver = WebSocketReceiver(url, records=bytes.strip)  # type: ignore[arg-type]
        with run_receiver(receiver, settings=SETTINGS) as running:
            until(lambda: [data for data, _ in running.discarded] == [b"12"])


def test_a_message_that_is_too_large_and_a_close_are_reported_with_what_they_are() -> None:
    closes = iter([lambda connection: connection.send("x" * 2000)])

    def handle(connection: ServerConnection) -> None:
        next(closes, lambda connection: connection.close(4001, "go away"))(connection)
        send_and_wait([], connection)

    with websocket_server(handle) as url:
        receiver = WebSocketReceiver(url, maxMessage=1000)
        with run_receiver(receiver, settings=SETTINGS) as running:
            running.wait_for_error("a message larger than maxMessage=1000")
            running.wait_for_error("closed the connection with 4001 'go away'")
            assert running.records == []


def test_while_nothing_is_stored_no_more_is_read_of_large_messages() -> None:
    """What it has read meanwhile is bounded by its bytes, however many messages may wait."""
    sent: list[int] = []
    message = bytes(1 << 20)

    def handle(connection: ServerConnection) -> None:
        for number in range(300):
            connection.send(message)
            sent.append(number)
        send_and_wait([], connection)

    few = {"spark.penstock.memory.size": "8m", "spark.penstock.block.maxSize": "2m"}
    with websocket_server(handle) as url:
        receiver = WebSocketReceiver(url)
        with run_receiver(receiver, settings=SETTINGS | few) as running:
            running.hold()
            until(lambda: len(sent) >= 8)
            stood_s, number = time.monotonic(), len(sent)
            while time.monotonic() < stood_s + 0.5:
                if len(sent) > number:
                    stood_s, number = time.monotonic(), len(sent)
                time.sleep(0.005)
            assert number < 100
            running.go_on()
            assert running.wait_for_records(300) == [message] * 300


def test_without_positions_a_stop_stores_what_it_took() -> None:
    sent: list[int] = []

    def handle(connection: ServerConnection) -> None:
        for number in range(100_000):
            connection.send(str(number))
            sent.append(number)

    with websocket_server(handle) as url:
        receiver = WebSocketReceiver(url)
        with run_receiver(receiver, settings=SETTINGS) as running:
            running.wait_for_records(100)
            running.stop()
            found = running.records
            assert found == [b"%d" % number for number in range(len(found))]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: WebSocketReceiver("http://hidden"), "ws://"),
        (lambda: WebSocketReceiver("ws://a", subscribe="hello"), "subscribe"),
        (lambda: WebSocketReceiver("ws://a", pingTimeout=0), "pingTimeout=0"),
        (lambda: WebSocketReceiver("ws://a", maxMessage=0), "maxMessage=0"),
        (lambda: WebSocketReceiver("ws://a", authorities="ca.pem"), "wss://"),
        (lambda: ServerSentEventsReceiver("hidden"), "http://"),
        (lambda: ServerSentEventsReceiver("http://a", authorities="ca.pem"), "https://"),
        (lambda: ServerSentEventsReceiver("http://a", silence=0), "silence=0"),
    ],
)
def test_what_is_not_accepted_is_said_when_it_is_made(
    make: Callable[[], object], told: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=told) as raised:
        make()
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize(
    "receiver", [WebSocketReceiver("ws://a"), ServerSentEventsReceiver("http://a")]
)
def test_they_travel_to_the_executor(receiver: Any) -> None:
    assert pickle.loads(pickle.dumps(receiver)).url == receiver.url
