"""From a receiver in an executor to the user's function, with nothing replaced."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.receiver import Receiver, ReceiverContext, bound_socket, receiver
from penstock.runtime.clock import SystemClock
from penstock.streaming import (
    PermanentReceiverError,
    StreamingContext,
)
from penstock.wal import UnwritableFolderError
from tests.bounds import HANG_S
from tests.doubles import Events

WAIT_S = HANG_S


class Streams:
    def __init__(self, sc: Any) -> None:
        self.ssc = StreamingContext(sc, 0.5)
        self.events = Events()
        self.ssc.addStreamingListener(self.events)
        self._changed = threading.Condition()
        self.records: list[Any] = []

    def __reduce__(self) -> tuple[Any, ...]:
        # Its output operations go to checkpoints, from which no test here makes them again.
        return str, ("streams of a test",)

    def collect(self, stream: Any) -> None:
        def keep(rdd: Any) -> None:
            found = rdd.collect()
            with self._changed:
                self.records.extend(found)
                self._changed.notify_all()

        stream.foreachRDD(keep)

    def wait_for_total(self, total: int) -> None:
        """Wait for so many records, a pair counting as its number."""

        def so_far() -> int:
            return sum(r[1] if isinstance(r, tuple) else 1 for r in self.records)

        with self._changed:
            assert self._changed.wait_for(lambda: so_far() >= total, WAIT_S), so_far()

    def wait_for_records(self, count: int) -> None:
        with self._changed:
            done = self._changed.wait_for(lambda: len(self.records) >= count, WAIT_S)
            assert done, f"{len(self.records)} of {count} records after {WAIT_S} s"


@pytest.fixture
def streams(sc: Any) -> Iterator[Streams]:
    before = set(threading.enumerate())
    made = Streams(sc)
    yield made
    made.ssc.stop(stopSparkContext=False)
    left = set(threading.enumerate()) - before
    assert [t.name for t in left if t.name.startswith("penstock-")] == []


def scratch_folders(sc: Any) -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob(f"penstock-{sc.applicationId}-*"))


def hundred_lines() -> Iterator[str]:
    for number in range(100):
        yield f"line {number}"


class Forever(Receiver):
    """Counts for ever, as fast as it is let."""

    def onStart(self) -> None:
        self.thread = threading.Thread(target=self.count, daemon=True)
        self.thread.start()

    def onStop(self) -> None:
        self.thread.join(HANG_S)

    def count(self) -> None:
        number = 0
        while not self.isStopped():
            self.store(number.to_bytes(8, "big"))
            number += 1
            if number % 100 == 0:
                time.sleep(0.001)


@receiver(schema="number bigint")
class Sieved:
    """Five rows in a block each, and after each a call that nothing is left of."""

    def run(self, context: Any) -> None:
        for number in range(5):
            context.store([{"number": number}])
            context.store([{"number": "none"}])
        context.stopped.wait()


class TestEndToEnd:
    def test_a_generators_records_are_counted(self, sc: Any, streams: Streams) -> None:
        lines = streams.ssc.receiverStream(hundred_lines)
        counts = lines.flatMap(str.split).map(lambda word: (word, 1))
        streams.collect(counts.reduceByKey(lambda a, b: a + b))
        streams.ssc.start()
        streams.wait_for_records(101)
        assert dict(streams.records) == {"line": 100, **{str(n): 1 for n in range(100)}}
        done = streams.events.wait_for("batch", lambda batch: batch.numRecords() > 0)
        assert done.streamIdToInputInfo()[0].numRecords() > 0
        assert streams.events.wait_for("started").streamId() == 0
        assert len(scratch_folders(sc)) == 1
        streams.ssc.stop(stopSparkContext=False)
        assert scratch_folders(sc) == []

    def test_words_are_split_and_counted_by_arrow_in_blocks_of_every_kind(
        self, streams: Streams
    ) -> None:
        words = [f"{number % 3} {number}" for number in range(100)]

        @receiver(finite=True)
        def mixed(ctx: ReceiverContext) -> Iterator[Any]:
            yield from words[:40]
            ctx.store("".join(f"{word}\n" for word in words[40:70]).encode(), framing="lines")
            yield from words[70:]

        lines = streams.ssc.receiverStream(mixed)
        streams.collect(lines.arrow.split(" ").value_counts())
        # Of every other stream, too.
        streams.collect(lines.filter(lambda line: "9" in line).arrow.records())
        streams.ssc.start()
        counted = Counter(part for word in words for part in word.split(" "))
        nines = [word for word in words if "9" in word]
        streams.wait_for_total(200 + len(nines))
        found: Counter[str] = Counter()
        for record in streams.records:
            if isinstance(record, tuple):
                found[record[0]] += record[1]
        assert found == counted
        assert [record for record in streams.records if isinstance(record, str)] == nines

    @pytest.mark.slow
    def test_a_batch_as_a_dataframe(self, streams: Streams) -> None:
        rows: list[Any] = []
        lines = streams.ssc.receiverStream(hundred_lines)

        def keep(frame: Any, time: Any) -> None:
            rows.extend(row.value for row in frame.collect())

        lines.foreachBatch(keep)
        streams.collect(lines)
        streams.ssc.start()
        streams.wait_for_records(100)
        assert rows == streams.records == [f"line {n}" for n in range(100)]

    def test_a_dataframe_has_its_columns_whatever_was_discarded(self, streams: Streams) -> None:
        """What nothing is left of is a block without records, and without columns."""
        numbers: list[int] = []
        rows = streams.ssc.receiverStream(Sieved())

        def keep(frame: Any, time: Any) -> None:
            numbers.extend(row.number for row in frame.select("number").collect())

        rows.foreachBatch(keep)
        streams.collect(rows)
        streams.ssc.start()
        streams.wait_for_records(5)
        assert numbers == list(range(5))

    def test_lines_from_a_socket(self, streams: Streams) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            streams.collect(streams.ssc.socketTextStream("127.0.0.1", port))
            streams.ssc.start()
            server.settimeout(WAIT_S)
            connection, _ = server.accept()
            with connection:
                connection.sendall("".join(f"zeile {n} é\n" for n in range(1000)).encode())
                streams.wait_for_records(1000)
        assert streams.records == [f"zeile {n} é" for n in range(1000)]

    def test_i10_a_graceful_stop_loses_nothing(self, streams: Streams) -> None:
        """What the receiver stored is processed: the numbers have no gap and no double."""
        streams.collect(streams.ssc.receiverStream(Forever()))
        streams.ssc.start()
        streams.wait_for_records(2000)
        begin = SystemClock().monotonic_s()
        streams.ssc.stop(stopSparkContext=False, stopGraceFully=True)
        assert SystemClock().monotonic_s() - begin < 60
        numbers = [int.from_bytes(record, "big") for record in streams.records]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= 2000
        assert streams.ssc.awaitTerminationOrTimeout(0)

    @pytest.mark.slow
    def test_two_receivers_share_the_batches(self, streams: Streams) -> None:
        one = streams.ssc.receiverStream(hundred_lines)
        two = streams.ssc.receiverStream(hundred_lines)
        streams.collect(one.union(two).map(lambda line: (line, 1)).reduceByKey(lambda a, b: a + b))
        streams.collect(one.count())
        streams.ssc.start()
        streams.events.wait_for("batch", lambda batch: batch.numRecords() > 0)

    def test_a_checkpoint_directory_keeps_the_logs(self, streams: Streams, tmp_path: Path) -> None:
        streams.ssc.checkpoint(str(tmp_path))
        streams.collect(streams.ssc.receiverStream(hundred_lines))
        streams.ssc.start()
        streams.wait_for_records(100)
        streams.ssc.stop(stopSparkContext=False, stopGraceFully=True)
        assert list((tmp_path / "receivedBlockMetadata").iterdir())

    def test_a_receiver_that_can_never_start_is_told_to_the_user(self, streams: Streams) -> None:
        class Broken(Forever):
            def __setstate__(self, state: Any) -> None:
                raise ValueError("cannot be unpickled")

        streams.collect(streams.ssc.receiverStream(Broken()))
        streams.ssc.start()
        with pytest.raises(PermanentReceiverError, match="cannot be unpickled"):
            streams.ssc.awaitTermination(WAIT_S)

    def test_a_stream_names_the_addresses_where_its_receiver_listens(
        self, streams: Streams
    ) -> None:
        def listens(ctx: ReceiverContext) -> Iterator[bytes]:
            with bound_socket("127.0.0.1", 0) as server:
                ctx.listening(f"tcp://127.0.0.1:{server.getsockname()[1]}")
                server.settimeout(0.1)
                while not ctx.stopped.is_set():
                    with contextlib.suppress(TimeoutError):
                        yield server.accept()[0].recv(100)

        stream = streams.ssc.receiverStream(listens)
        streams.collect(stream)
        assert stream.addresses == ()
        streams.ssc.start()
        end_s = time.monotonic() + WAIT_S
        while not stream.addresses:
            assert time.monotonic() < end_s
            time.sleep(0.01)
        (address,) = stream.addresses
        host, port = address.removeprefix("tcp://").split(":")
        with socket.create_connection((host, int(port)), WAIT_S) as client:
            client.sendall(b"hello")
        streams.wait_for_records(1)

    def test_listeners_are_told_of_a_receiver(self, streams: Streams) -> None:
        class Complaining(Receiver):
            def onStart(self) -> None:
                self.reportError("only told", ValueError("the reason"))
                self.stop("that is all")

            def onStop(self) -> None:
                pass

        streams.collect(streams.ssc.receiverStream(Complaining()))
        streams.ssc.start()
        started, error, stopped = map(streams.events.wait_for, ("started", "error", "stopped"))
        assert {info.streamId() for info in (started, error, stopped)} == {0}
        assert {info.name() for info in (started, error, stopped)} == {"Complaining-0"}
        assert (started.active(), stopped.active()) == (True, False)
        assert started.executorId() == "driver"
        assert started.location()
        assert error.lastErrorMessage() == "only told"
        assert "ValueError: the reason" in error.lastError()
        assert error.lastErrorTime() > 0
        assert stopped.lastErrorMessage() == "that is all"


class TestFailedStart:
    @pytest.mark.parametrize("setting", ["wal.dir", "deadLetters.dir"])
    def test_a_log_folder_that_cannot_be_written(
        self, sc: Any, streams: Streams, tmp_path: Path, monkeypatch: Any, setting: str
    ) -> None:
        (tmp_path / "file").write_text("in the way")
        conf = sc.getConf().set(f"spark.penstock.{setting}", str(tmp_path / "file" / "logs"))
        monkeypatch.setattr(sc, "getConf", lambda: conf)
        streams.collect(streams.ssc.receiverStream(hundred_lines))
        with pytest.raises(UnwritableFolderError, match="file/logs"):
            streams.ssc.start()
        assert StreamingContext.getActive() is None
        assert os.listdir(tmp_path) == ["file"]
