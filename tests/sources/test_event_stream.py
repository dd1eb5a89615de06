"""Event streams, cut as the WHATWG's HTML standard says (9.2.6), wherever their chunks end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sources.server_sent import Event, EventStreamParser


def parsed(*chunks: bytes, limit: int = 1 << 20) -> list[Event]:
    parser = EventStreamParser(limit)
    return [event for chunk in chunks for event in parser.feed(chunk)]


def data(*chunks: bytes) -> list[bytes]:
    return [event.data for event in parsed(*chunks)]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        # The examples of the standard.
        (b"data: YHOO\ndata: +2\ndata: 10\n\n", [(b"YHOO\n+2\n10", "message", "")]),
        (
            b": test stream\n\ndata: first\nid: 1\n\ndata:second\nid\n\ndata:  third event\n",
            [(b"first", "message", "1"), (b"second", "message", "")],
        ),
        (b"data\n\ndata\ndata\n\ndata:", [(b"", "message", ""), (b"\n", "message", "")]),
        (b"data:test\n\ndata: test\n\n", [(b"test", "message", ""), (b"test", "message", "")]),
        # Ends of lines, the mark at the begin, types, unknown fields.
        (b"\xef\xbb\xbfdata: 1\r\rdata: 2\r\n\r\n", [(b"1", "message", ""), (b"2", "message", "")]),
        (b"event: add\ndata: 1\n\ndata: 2\n\n", [(b"1", "add", ""), (b"2", "message", "")]),
        (b"data: 1\r\ndata: 2\r\n\r\n", [(b"1\n2", "message", "")]),
        (b"event: lost\n\ndata: 1\n\n", [(b"1", "message", "")]),
        (b"Data: 1\nother: 2\n:data: 3\n\n", []),
        (
            b"id: 1\0\ndata: 1\n\nid: 2\n\ndata: 2\n\n",
            [(b"1", "message", ""), (b"2", "message", "2")],
        ),
        (b"data: \xff\xfe\nevent: \xff\n\n", [(b"\xff\xfe", "\ufffd", "")]),
    ],
)
def test_a_stream_has_the_events_of_the_standard_wherever_it_is_cut(
    stream: bytes, events: list[tuple[bytes, str, str]]
) -> None:
    expected = [Event(*event) for event in events]
    assert parsed(stream) == expected
    assert parsed(*(bytes([byte]) for byte in stream)) == expected
    for at in range(len(stream)):
        assert parsed(stream[:at], b"", stream[at:]) == expected


def test_ids_are_known_before_an_event_has_them_and_retry_is_kept() -> None:
    parser = EventStreamParser(100, "7")
    assert [event.last_id for event in parser.feed(b"data: 1\n\nid: 8\n")] == ["7"]
    assert parser.last_id == "7"
    list(parser.feed(b"retry: 1500\nretry: x\n\n"))
    assert (parser.last_id, parser.retry_s) == ("8", 1.5)
    again = parser.again()
    assert (again.last_id, again.retry_s) == ("8", 1.5)
    list(again.feed(b"retry: 999999999\n"))
    assert again.retry_s == 300


@pytest.mark.parametrize("whole", [b"data: " + b"x" * 5000, b"data: xxx\n" * 1000, b"x" * 5000])
def test_what_is_too_large_is_cut_and_what_follows_is_not(whole: bytes) -> None:
    for size in (1, 700, 10_000):
        stream = whole + b"\n\ndata: 1\n\n"
        chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
        *large, last = parsed(*chunks, limit=100)
        assert last == Event(b"1", "message", "")
        assert [(len(each.data) <= 200, each.is_cut) for each in large] == (
            [(True, True)] if whole.startswith(b"data") else []
        )


@given(
    st.lists(st.sampled_from([b"data: 1", b"id: 2", b"\r", b"\n", b"\r\n", b":", b"\xef\xbb\xbf"]))
)
def test_the_ends_of_chunks_change_nothing(parts: list[bytes]) -> None:
    assert parsed(*parts) == parsed(b"".join(parts))


def test_of_a_line_without_an_end_no_more_is_kept_than_an_event_may_have() -> None:
    parser = EventStreamParser(10)
    for _ in range(1000):
        assert list(parser.feed(b"data: " + 100 * b"x")) == []
    assert sum(map(len, parser._line)) < 300
    (event,) = parser.feed(b"\n\n")
    assert (event.data, event.is_cut) == (10 * b"x", True)
