"""Cutting byte streams into records."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from penstock.receiver.blocks.framing import Frames, Framing, Lines, frame_reader

LIMIT = 1 << 20


def source(data: bytes, cuts: list[int]) -> Callable[[memoryview], int]:
    """Return a `readinto` that gives `data` in pieces of the sizes `cuts`, then in large ones."""
    at = 0
    sizes = iter(cuts)

    def readinto(target: memoryview) -> int:
        nonlocal at
        size = min(max(1, next(sizes, 1 << 16)), len(target), len(data) - at)
        target[:size] = data[at : at + size]
        at += size
        return size

    return readinto


def read_all(
    framing: Framing, data: bytes, cuts: list[int], limit: int = LIMIT
) -> tuple[list[bytes], int]:
    reader = frame_reader(framing, limit)
    records = []
    discarded = 0
    for found in reader.frames(source(data, cuts)):
        records.extend(cut(found))
        discarded += len(reader.take_dropped())
    discarded += len(reader.take_dropped())
    return records, discarded


def cut(found: Frames | Lines) -> list[bytes]:
    if isinstance(found, Lines):
        lines = bytes(found.data).split(b"\n")
        assert lines.pop() == b""
        assert len(lines) == found.number
        return lines
    assert int(found.lengths.sum()) == len(found.joined)
    ends = found.lengths.cumsum().tolist()
    return [
        found.joined[end - size : end]
        for end, size in zip(ends, found.lengths.tolist(), strict=True)
    ]


def java_lines(data: bytes) -> list[bytes]:
    """What Java's `BufferedReader.readLine` gives, by its definition."""
    lines = re.split(rb"\r\n|\r|\n", data)
    return lines[:-1] if lines[-1] == b"" else lines


byte_streams = st.lists(
    st.sampled_from([b"a", b"\n", b"\r", b"\r\n", b"\xff", b"line", b"\n\n", b""]), max_size=40
).map(b"".join)
cut_sizes = st.lists(st.integers(1, 9), max_size=60)


@given(byte_streams, cut_sizes)
def test_text_lines_are_those_of_java_however_the_stream_is_cut(data, cuts):
    assert read_all(Framing.LINES, data, cuts) == (java_lines(data), 0)


@given(byte_streams, cut_sizes)
def test_binary_lines_end_only_with_a_line_feed_and_what_is_left_is_told(data, cuts):
    *lines, rest = data.split(b"\n")
    assert read_all(Framing.NEWLINE, data, cuts) == (lines, 1 if rest else 0)


@given(st.lists(st.binary(max_size=30), max_size=30), cut_sizes)
def test_length_prefixed_records_come_back_whole(records, cuts):
    data = b"".join(len(record).to_bytes(4, "big") + record for record in records)
    assert read_all(Framing.LENGTH_PREFIX, data, cuts) == (records, 0)


@given(st.lists(st.integers(0, 60), max_size=20), cut_sizes)
def test_a_record_over_the_limit_is_dropped_and_counted_and_the_others_pass(sizes, cuts):
    limit = 32
    kept = [b"x" * size for size in sizes if size <= limit]
    lines = b"".join(b"x" * size + b"\n" for size in sizes)
    records, discarded = read_all(Framing.NEWLINE, lines, cuts, limit)
    # A line may pass up to the few bytes that the staging buffer has beyond the limit.
    assert [record for record in records if len(record) <= limit] == kept
    assert all(len(record) <= limit + 8 for record in records)
    assert len(records) + discarded == len(sizes)

    framed = b"".join(size.to_bytes(4, "big") + b"x" * size for size in sizes)
    records, discarded = read_all(Framing.LENGTH_PREFIX, framed, cuts, limit)
    assert records == kept
    assert discarded == len(sizes) - len(kept)


@given(st.lists(st.integers(0, 60), max_size=20), cut_sizes, st.data())
def test_a_text_line_over_the_limit_ends_where_any_other_does(sizes, cuts, data):
    ends = data.draw(
        st.lists(st.sampled_from([b"\n", b"\r", b"\r\n"]), min_size=len(sizes), max_size=len(sizes))
    )
    lines = b"".join(b"x" * size + end for size, end in zip(sizes, ends, strict=True))
    limit = 32
    records, discarded = read_all(Framing.LINES, lines, cuts, limit)
    lengths = list(map(len, java_lines(lines)))
    # A line may pass up to the few bytes that the staging buffer has beyond the limit.
    assert [len(record) for record in records if len(record) <= limit] == [
        length for length in lengths if length <= limit
    ]
    assert len(records) + discarded == len(lengths)


def test_a_dropped_record_is_shown_with_bytes_of_its_own_only():
    before, large = b"\0\0\0\6secret" * 9, (5000).to_bytes(4, "big") + b"large" * 1000
    for arrived in (4, 6, 5004):
        pieces = [before, large[:arrived], large[arrived:]]
        reader = frame_reader(Framing.LENGTH_PREFIX, 1000)
        dropped = []
        for _ in reader.frames(source(b"".join(pieces), [len(piece) for piece in pieces])):
            dropped += reader.take_dropped()
        (found,) = dropped
        assert large[4:].startswith(found.start)


def test_a_source_without_a_newline_for_a_gigabyte_needs_no_more_than_one_record_of_memory():
    left = 1 << 30

    def readinto(target: memoryview) -> int:
        nonlocal left
        size = min(len(target), left)
        left -= size
        if left == 0 and size:
            target[size - 3 : size] = b"\nz\n"
        return size

    reader = frame_reader(Framing.NEWLINE, LIMIT)
    tracemalloc.start()
    try:
        records = [record for found in reader.frames(readinto) for record in cut(found)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert records == [b"z"]
    (dropped,) = reader.take_dropped()
    assert LIMIT < dropped.size < 2 * LIMIT
    # Enough for a dead letter.
    assert len(dropped.start) == 64 << 10
    assert peak < 5 * LIMIT


def test_a_source_that_closes_inside_a_record_loses_only_that_record():
    records, discarded = read_all(Framing.LENGTH_PREFIX, b"\0\0\0\1a\0\0\0\5bc", [])
    assert records == [b"a"]
    assert discarded == 1
