"""Records and sources that are not as they should be."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from penstock.receiver import Receiver, RecordTooLargeError, receiver
from penstock.sources import SocketReceiver
from penstock.streaming import RateSource
from penstock.streaming.dstream.inputs.receiver_dstream import RatedDStream
from tests.bounds import HANG_S
from tests.system.running import Run, run_on

pytestmark = pytest.mark.slow

WAIT_S = HANG_S
MB = 1 << 20


def as_it_is(record: Any) -> Any:
    return record


class StoresOnce(Receiver):
    """Stores records one by one; what `store` refuses, it reports and leaves out."""

    def onStart(self) -> None:
        for record in self.records():
            try:
                self.store(record)
            except (PenstockError, TypeError) as error:
                self.reportError(f"left out: {error}", error)

    def records(self) -> Iterator[Any]:
        raise NotImplementedError

    def onStop(self) -> None:
        pass


class SomeUnpicklable(StoresOnce):
    def records(self) -> Iterator[Any]:
        yield "before"
        yield threading.Lock()
        yield {"lock": threading.Lock()}
        yield "after"


class Mixed(StoresOnce):
    ALL = (b"bytes", "text", 1, 2.5, None, {"a": [1]}, ("tuple",), b"", "", True, b"end")

    def records(self) -> Iterator[Any]:
        yield from self.ALL


class TooLarge(StoresOnce):
    """With blocks of 4 MB and segments of 16 MB."""

    def records(self) -> Iterator[Any]:
        yield b"first"
        yield bytes(5 * MB)
        yield "x" * (5 * MB)
        yield bytes(20 * MB)
        yield [b"in a list", bytes(20 * MB)]
        yield bytes(3 * MB)
        yield b"last"


class Empty(StoresOnce):
    def records(self) -> Iterator[Any]:
        yield from [b""] * 1000
        yield []
        yield [b"", b""]
        yield b"end"


def test_an_object_that_cannot_be_pickled_is_refused_and_the_stream_goes_on(sc: Any) -> None:
    with run_on(sc) as run:
        run.process(SomeUnpicklable(), as_it_is)
        run.start()
        error = run.events.wait_for("error", count=2)
        assert "lock" in error.lastErrorMessage()
        run.await_processed(2)
        run.stop()
        assert run.processed == ["before", "after"]


@pytest.mark.long
def test_records_of_mixed_types_come_out_as_they_went_in(sc: Any) -> None:
    with run_on(sc) as run:
        run.process(Mixed(), as_it_is)
        run.start()
        run.await_processed(len(Mixed.ALL))
        run.stop()
        assert run.processed == list(Mixed.ALL)
        assert list(map(type, run.processed)) == list(map(type, Mixed.ALL))
        assert run.events.of("error") == []


@pytest.mark.long
def test_a_record_larger_than_a_block_or_a_segment_is_discarded_and_the_stream_goes_on(
    sc: Any,
) -> None:
    with run_on(sc) as run:
        run.process(TooLarge(), len)
        run.start()
        run.await_last(4)
        errors = [
            run.events.wait_for("error", count=number + 1).lastErrorMessage() for number in range(4)
        ]
        run.stop()
        assert run.processed == [5, 9, 3 * MB, 4]
        assert all("spark.penstock.block.maxSize" in text for text in errors), errors


def test_empty_records_are_records(sc: Any) -> None:
    with run_on(sc) as run:
        run.process(Empty(), as_it_is)
        run.start()
        run.await_last(b"end")
        run.stop()
        assert run.processed == [b""] * 1002 + [b"end"]


# -- sources of lines ------------------------------------------------------------------------------


class TellingSocketReceiver(SocketReceiver):
    """Says which process it runs in, by an error that is none."""

    def onStart(self) -> None:
        self.reportError(f"process {os.getpid()}")
        super().onStart()


@contextmanager
def lines_from_a_server(sc: Any) -> Iterator[tuple[Run, socket.socket]]:
    """Run a stream of lines, with the server that it connects to."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        run_on(sc, {"spark.streaming.receiverRestartDelay": "10"}) as run,
    ):
        server.settimeout(WAIT_S)
        run.process(TellingSocketReceiver(*server.getsockname()), as_it_is)
        run.start()
        yield run, server


def test_bytes_that_are_not_utf_8_cost_no_other_line(sc: Any) -> None:
    with lines_from_a_server(sc) as (run, server):
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"before\n\xff\xfe broken \x80\n\xc3\n" + "naïve\nafter\n".encode())
            run.await_last("after")
        run.stop()
        assert run.processed == ["before", "\ufffd\ufffd broken \ufffd", "\ufffd", "naïve", "after"]


def test_a_source_that_closes_is_connected_to_again(sc: Any) -> None:
    with lines_from_a_server(sc) as (run, server):
        for number in range(4):
            connection, _ = server.accept()
            with connection:
                connection.sendall(f"line {number}\nthe last of {number}".encode())
            run.events.wait_for("started", count=number + 1)
        run.await_last("the last of 3")
        run.stop()
        assert run.processed == [
            text for n in range(4) for text in (f"line {n}", f"the last of {n}")
        ]


def test_a_source_that_stalls_in_the_middle_of_a_line_holds_up_nothing(sc: Any) -> None:
    with lines_from_a_server(sc) as (run, server):
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"whole\nhalf a ")
            run.await_last("whole")
            empty = len(run.events.of("batch"))
            run.events.wait_for("batch", count=empty + 3)
            connection.sendall(b"line\nanother half")
            run.await_last("half a line")
            # And a stop does not wait for the rest.
            run.stop()
        assert run.processed == ["whole", "half a line"]


@pytest.mark.long
def test_a_gigabyte_without_a_newline_does_not_grow_the_receivers_memory(sc: Any) -> None:
    with lines_from_a_server(sc) as (run, server):
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"before\n")
            run.await_last("before")
            told = run.events.wait_for("error").lastErrorMessage()
            pid = int(re.fullmatch(r"process (\d+)", told)[1])  # type: ignore[index]  # it does
            reset_peak(pid)
            begin = peak_memory(pid)
            piece = memoryview(bytes(b"x" * MB))
            for _ in range(1024):
                connection.sendall(piece)
            connection.sendall(b"\nafter\n")
            run.await_last("after")
            grown = peak_memory(pid) - begin
        run.stop()
        assert run.processed == ["before", "after"]
        error = run.events.wait_for("error", lambda info: "discarded" in info.lastErrorMessage())
        assert error.lastErrorMessage().startswith("1 record was discarded: ")
        assert RecordTooLargeError.__name__ in error.lastError()
        # The largest record, its staging buffer, and the blocks in shared memory.
        assert grown < 64 * MB


def reset_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_memory(pid: int) -> int:
    """Return the most bytes of memory that the process has had at a time."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", text)[1]) << 10  # type: ignore[index]  # it is there


@receiver(positions=True, schema=pa.schema([("n", pa.int64())]))
def half_bad(ctx: Any) -> Iterator[tuple[list[dict[str, Any]], int]]:
    for place in range(ctx.last_position or 0, 9):
        yield [{"n": place}, {"n": "bad"}, {"n": "bad"}], place + 1
    ctx.stopped.wait()


@pytest.mark.long
def test_a_stream_over_its_budget_of_dead_letters_is_paused_until_it_is_resumed(sc: Any) -> None:
    values = {
        "spark.penstock.deadLetters.budget": "5/h",
        "spark.penstock.deadLetters.budgetAction": "pause",
    }
    with run_on(sc, values) as run:
        run.process(half_bad, lambda row: int(row["n"]))
        run.start()
        stream = run.streams[0]
        assert isinstance(stream, RatedDStream)

        def is_over(info: Any) -> bool:
            return "spark.penstock.deadLetters.budget=5/h" in info.lastErrorMessage()

        for count in (1, 2, 3):
            told = run.events.wait_for("error", is_over, count)
            assert f"goes on by `penstock resume {stream.stream_id}`" in told.lastErrorMessage()
            end_s = time.monotonic() + WAIT_S
            while stream.rate.source is not RateSource.PAUSED:
                assert time.monotonic() < end_s
                time.sleep(0.05)
            # Six of those that are discarded came with three that are not.
            run.await_processed(3 * count)
            assert run.processed == list(range(3 * count))
            run.ssc._rates.set_paused(stream.stream_id, False)
        run.stop()
    assert run.processed == list(range(9))
