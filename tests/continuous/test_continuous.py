"""From a receiver to the function and its sink, in Spark, with nothing replaced."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.continuous import Epoch
from penstock.dead_letters import letters
from penstock.host.errors import NotEnoughCoresError
from penstock.receiver import receiver
from penstock.streaming import (
    ContinuousStreamError,
    DatabaseSink,
    ExpiredTimers,
    FileSink,
    FunctionSink,
    KeyedState,
    Sink,
    SinkError,
    StreamGraphError,
    StreamingContext,
    Timers,
)
from penstock.tracker import LedgerError, ReceivedBlockTracker
from tests.bounds import HANG_S
from tests.sql.sources import numbers
from tests.system.leftovers import assert_nothing_left, threads

pytestmark = pytest.mark.slow


@contextmanager
def setting(sc: Any, key: str, value: str) -> Iterator[None]:
    sc._conf.set(key, value)
    yield
    sc._conf._jconf.remove(key)


@pytest.fixture
def early_blocks(sc: Any) -> Iterator[None]:
    """Let a block interval last so long that no record could wait for its end."""
    with setting(sc, "spark.streaming.blockInterval", "1h"):
        yield


@pytest.fixture
def one_slot(sc: Any) -> Iterator[None]:
    """Let receivers share a task."""
    with setting(sc, "spark.penstock.receivers.perSlot", "4"):
        yield


@pytest.fixture
def ssc(sc: Any) -> Iterator[StreamingContext]:
    before = threads()
    made = StreamingContext(sc, 0.5)
    yield made
    made.stop(stopSparkContext=False)
    assert_nothing_left(sc.applicationId, before)


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    found = [2 * int(value) for value in batch.column(0).to_pylist()]
    return pa.RecordBatch.from_pydict({"n": found})


def written(folder: Path) -> list[int]:
    files = sorted(folder.glob("part-*.jsonl")) if folder.is_dir() else []
    return [json.loads(line)["n"] for path in files for line in path.read_text().splitlines()]


def await_that(holds: Callable[[], object], says: Callable[[], object]) -> None:
    end_s = time.monotonic() + HANG_S
    while not holds():
        assert time.monotonic() < end_s, says()
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("parallelism", "deliver"), [(1, "durable"), (2, "durable"), (2, "stored")]
)
def test_each_record_is_in_the_sink_once(
    ssc: StreamingContext, tmp_path: Path, parallelism: int, deliver: Any
) -> None:
    out = tmp_path / "out"
    stream = ssc.receiverStream(numbers(3000, block_s=0.01))
    options: Any = {"parallelism": parallelism, "deliver": deliver}
    stream.continuous(doubled, sink=FileSink(out, "jsonl"), epoch=0.05, **options)
    assert stream.epochs is None
    ssc.start()
    await_that(lambda: len(written(out)) >= 3000, lambda: len(written(out)))
    status = stream.epochs
    assert status is not None
    assert status.failures == 0
    assert status.number >= status.committed >= 0
    assert status.records <= 3000
    report = ssc.stop(stopSparkContext=False, stopGraceFully=True)
    assert report is not None
    assert report.is_complete
    found = written(out)
    assert sorted(found) == [2 * n for n in range(3000)]
    if parallelism == 1:
        assert found == sorted(found)


def test_a_function_sees_what_is_stored_and_the_sink_what_is_logged(
    ssc: StreamingContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, seen, go_on = (tmp_path / name for name in ("out", "seen", "go on"))
    may_log = threading.Event()
    may_log.set()
    add_many: Any = ReceivedBlockTracker.add_many

    def held(*arguments: Any) -> Any:
        assert may_log.wait(HANG_S)
        return add_many(*arguments)

    def noted(batch: pa.RecordBatch) -> pa.RecordBatch:
        with open(seen, "a") as lines:
            lines.writelines(f"{int(value)}\n" for value in batch.column(0).to_pylist())
        return doubled(batch)

    def calls() -> list[int]:
        return [int(line) for line in seen.read_text().splitlines()] if seen.exists() else []

    monkeypatch.setattr(ReceivedBlockTracker, "add_many", held)
    stream = ssc.receiverStream(numbers(250, go_on=str(go_on)))
    stream.continuous(noted, sink=FileSink(out, "jsonl"), epoch=0.05, deliver="stored")
    ssc.start()
    await_that(lambda: len(written(out)) >= 100, ssc.receivers)
    may_log.clear()
    try:
        go_on.touch()
        await_that(lambda: len(calls()) > 100, ssc.receivers)
        assert ssc.receivers()[0].records == 100
        assert len(written(out)) == 100
    finally:
        may_log.set()
    await_that(lambda: len(written(out)) >= 250, lambda: len(written(out)))
    ssc.stop(stopSparkContext=False, stopGraceFully=True)
    assert written(out) == [2 * n for n in range(250)]
    assert calls() == list(range(250))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"deliver": "at once"}, "deliver='at once' is not accepted: 'durable' or 'stored'"),
        ({"deliver": "stored", "key_by": "n"}, "deliver='stored' and key_by do not go together"),
    ],
)
def test_what_is_delivered_when_must_be_possible(
    ssc: StreamingContext, tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    stream = ssc.receiverStream(numbers(1))
    with pytest.raises(ValueError, match=said):
        stream.continuous(lambda batch, state=None: batch, sink=FileSink(tmp_path), **given)


@pytest.mark.usefixtures("one_slot")
def test_streams_of_one_kind_need_no_names(ssc: StreamingContext, tmp_path: Path) -> None:
    outs = [tmp_path / "first", tmp_path / "second"]
    for out in outs:
        ssc.receiverStream(numbers(500)).continuous(doubled, sink=FileSink(out, "jsonl"), epoch=0.1)
    ssc.start()
    await_that(lambda: all(len(written(out)) >= 500 for out in outs), ssc.receivers)
    ssc.stop(stopSparkContext=False, stopGraceFully=True)
    assert [sorted(written(out)) for out in outs] == [[2 * n for n in range(500)]] * 2


@pytest.mark.usefixtures("early_blocks")
def test_a_graceful_stop_commits_what_was_received(ssc: StreamingContext, tmp_path: Path) -> None:
    stream = ssc.receiverStream(numbers(500))
    # The epoch would be over in an hour.
    stream.continuous(doubled, sink=FileSink(tmp_path, "jsonl"), epoch="1h")
    ssc.start()
    await_that(lambda: ssc.receivers()[0].records >= 500, ssc.receivers)
    assert written(tmp_path) == []
    ssc.stop(stopSparkContext=False, stopGraceFully=True)
    assert written(tmp_path) == [2 * n for n in range(500)]


class Refusing(Sink):
    def commit(self, epoch: Epoch, batches: Sequence[pa.RecordBatch]) -> None:
        raise SinkError("it takes nothing")


@pytest.mark.usefixtures("early_blocks")
def test_what_fails_for_good_in_a_graceful_stop_is_raised(ssc: StreamingContext) -> None:
    stream = ssc.receiverStream(numbers(500), "clicks")
    # The epoch would be over in an hour: its first commit is that of the stop.
    stream.continuous(doubled, sink=Refusing(), epoch="1h")
    with pytest.raises(ContinuousStreamError, match=r"clicks.*it takes nothing"):
        ssc.run(timeout=5, stopSparkContext=False)


def test_batches_of_other_streams_run_beside_it(ssc: StreamingContext, tmp_path: Path) -> None:
    sums: list[int] = []
    changed = threading.Event()

    def keep(rdd: Any) -> None:
        sums.extend(rdd.map(int).collect())
        if len(sums) >= 100:
            changed.set()

    ssc.receiverStream(numbers(100), "batches").foreachRDD(keep)
    ssc.receiverStream(numbers(100), "fast").continuous(doubled, sink=FileSink(tmp_path, "jsonl"))
    ssc.start()
    assert changed.wait(HANG_S)
    await_that(lambda: len(written(tmp_path)) >= 100, lambda: written(tmp_path))
    ssc.stop(stopSparkContext=False, stopGraceFully=True)
    assert sorted(sums) == list(range(100))
    assert written(tmp_path) == [2 * n for n in range(100)]


def test_a_context_from_a_checkpoint_goes_on_with_its_epochs(sc: Any, tmp_path: Path) -> None:
    before = threads()
    checkpoint, out = str(tmp_path / "checkpoint"), tmp_path / "out"

    def make() -> StreamingContext:
        made = StreamingContext(sc, 0.5)
        made.checkpoint(checkpoint)
        stream = made.receiverStream(numbers(3000, block_s=0.05), "numbers")
        stream.continuous(doubled, sink=FileSink(out, "jsonl"), epoch=0.05)
        return made

    for least in (500, 3000):
        ssc = StreamingContext.getOrCreate(checkpoint, make)
        ssc.start()
        await_that(lambda: len(written(out)) >= least, lambda: len(written(out)))  # noqa: B023
        report = ssc.stop(stopSparkContext=False, stopGraceFully=least == 3000)
    assert report is not None
    assert report.is_complete
    assert written(out) == [2 * n for n in range(3000)]
    assert_nothing_left(sc.applicationId, before)


class Counts:
    """Says of each number which one it is of its key, and once ends its process in the midst."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, batch: pa.RecordBatch, state: KeyedState) -> pa.RecordBatch:
        counts = []
        for key, n in zip(batch["key"].to_pylist(), batch["n"].to_pylist(), strict=True):
            state[key] = state.get(key, 0) + 1
            counts.append(state[key])
            if n > 700 and not (self.folder / "died").exists():
                (self.folder / "died").touch()
                os._exit(1)
        return pa.RecordBatch.from_pydict({"n": batch["n"], "count": counts})


def test_state_by_key_goes_on_over_a_crash_and_a_restart(sc: Any, tmp_path: Path) -> None:
    before = threads()
    log, out, key = tmp_path / "log", tmp_path / "out", "spark.penstock.wal.dir"

    def rows() -> list[dict[str, int]]:
        files = sorted(out.glob("part-*.jsonl"))
        return [json.loads(line) for path in files for line in path.read_text().splitlines()]

    def started(count: int, parallelism: int, key_by: str | None) -> StreamingContext:
        made = StreamingContext(sc, 0.5)
        source = numbers(count, block_s=0.05, keys=7, go_on=str(tmp_path / "first epoch"))
        stream = made.receiverStream(source, "numbers")
        sink = FileSink(out, "jsonl")
        function = Counts(tmp_path) if key_by else doubled
        stream.continuous(function, sink=sink, epoch=0.05, parallelism=parallelism, key_by=key_by)
        sc._conf.set(key, str(log))
        try:
            made.start()
        except LedgerError:
            made.stop(stopSparkContext=False)
            raise
        finally:
            sc._conf._jconf.remove(key)
        return made

    # The crash and the restart come when some epochs are committed and numbers are still to come.
    ssc = started(1500, 2, "key")
    await_that(rows, rows)
    (tmp_path / "first epoch").touch()
    await_that(lambda: len(rows()) >= 1500, lambda: len(rows()))
    ssc.stop(stopSparkContext=False)
    for parallelism, key_by in ((1, "key"), (2, "n"), (2, None)):
        with pytest.raises(LedgerError, match="key_by='key' and parallelism=2 up to epoch"):
            started(3000, parallelism, key_by)
    ssc = started(3000, 2, "key")
    await_that(lambda: len(rows()) >= 3000, lambda: len(rows()))
    ssc.stop(stopSparkContext=False, stopGraceFully=True)
    assert (tmp_path / "died").exists()
    assert sorted(row["n"] for row in rows()) == list(range(3000))
    assert all(row["count"] == row["n"] // 7 + 1 for row in rows())
    assert {path.stem[-4:] for path in out.glob("part-*.jsonl")} == {"0000", "0001"}
    assert_nothing_left(sc.applicationId, before)


class FailsFirst:
    """Raises with its first batches, and counts its calls, in files that all attempts see."""

    def __init__(self, folder: Path, times: int, hang: bool = False) -> None:
        self.folder = folder
        self.times = times
        self.hang = hang

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        calls = len(list(self.folder.glob("call-*")))
        if calls < self.times:
            (self.folder / f"call-{calls}-{os.getpid()}").touch()
            if self.hang:
                time.sleep(HANG_S)
            raise RuntimeError("the model is not there")
        return doubled(batch)


@pytest.mark.parametrize(
    "hang",
    [False, pytest.param(True, marks=pytest.mark.long)],
    ids=["raises", "hangs"],
)
def test_a_function_that_fails_is_called_again_with_the_same_epoch(
    ssc: StreamingContext, tmp_path: Path, caplog: Any, hang: bool
) -> None:
    out, calls = tmp_path / "out", tmp_path / "calls"
    calls.mkdir()
    stream = ssc.receiverStream(numbers(300))
    stream.continuous(FailsFirst(calls, 2, hang), sink=FileSink(out, "jsonl"), timeout="2 s")
    ssc.start()
    await_that(lambda: len(written(out)) >= 300, lambda: caplog.text[-3000:])
    assert written(out) == [2 * n for n in range(300)]
    said = "the function has not returned for 2 s" if hang else "the model is not there"
    assert said in caplog.text
    assert "failure 1 of 10 since the last epoch" in caplog.text
    assert len(list(calls.iterdir())) == 2


class HangsFirst:
    """Hangs in the first process that has it made, as an import may."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        marked = self.folder / "made"
        if not marked.exists():
            marked.touch()
            time.sleep(10 * HANG_S)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return doubled(batch)


@pytest.mark.long
def test_a_function_that_hangs_while_it_is_made_is_made_again(
    ssc: StreamingContext, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    stream = ssc.receiverStream(numbers(300))
    # On a busy machine to make it takes more than a second, and one made in vain each time.
    stream.continuous(HangsFirst(tmp_path), sink=FileSink(out, "jsonl"), timeout="5 s")
    ssc.start()
    await_that(lambda: len(written(out)) >= 300, lambda: None)
    assert (tmp_path / "made").exists()
    assert written(out) == [2 * n for n in range(300)]


def test_one_that_fails_for_good_is_given_up_and_told(
    ssc: StreamingContext, tmp_path: Path
) -> None:
    def fail(epoch: Any, table: Any) -> None:
        raise RuntimeError("the database is away")

    ssc.receiverStream(numbers(300), "clicks").continuous(
        doubled, sink=FunctionSink(fail), attempts=2
    )
    ssc.start()
    with pytest.raises(ContinuousStreamError, match="the database is away") as raised:
        ssc.awaitTermination(HANG_S)
    assert "2 times without an epoch between" in str(raised.value)
    assert "clicks" in str(raised.value)
    await_that(lambda: ssc.receivers()[0].records >= 300, ssc.receivers)
    report = ssc.stop(stopSparkContext=False, stopGraceFully=True)
    assert report is not None
    assert list(report.waiting_records.values()) == [300]


def dies_of_seven(batch: pa.RecordBatch) -> pa.RecordBatch:
    if "7" in batch.column(0).to_pylist():
        os._exit(3)
    return doubled(batch)


def test_a_function_that_ends_its_process_is_given_up_and_told_where(
    ssc: StreamingContext, tmp_path: Path
) -> None:
    stream = ssc.receiverStream(numbers(8, block_s=0.05), "clicks")
    stream.continuous(dies_of_seven, sink=FileSink(tmp_path, "jsonl"), epoch=0.01, attempts=3)
    ssc.start()
    with pytest.raises(ContinuousStreamError, match="its process ended without a word") as raised:
        ssc.awaitTermination(HANG_S)
    status = stream.epochs
    assert status is not None
    assert status.failures == 3
    said = str(raised.value).splitlines()[0]
    assert "3 times without an epoch between" in said
    # One that is logged is not committed if its process dies of the next one first.
    assert f"in epoch {status.committed + 1}, whose blocks have the places from " in said
    assert "a program whose function gets past it, or leaves it out, goes on there" in said


def in_half_a_second(batch: pa.RecordBatch, state: KeyedState, timers: Timers) -> None:
    for key in batch["key"].to_pylist():
        timers.processing_time.register(key, timers.processing_time.now_ms + 500)


def dies(expired: ExpiredTimers, state: KeyedState, timers: Timers) -> None:
    os._exit(3)


def test_a_timer_that_ends_its_process_while_nothing_comes_is_given_up(
    ssc: StreamingContext, tmp_path: Path
) -> None:
    stream = ssc.receiverStream(numbers(8, keys=3), "clicks")
    stream.continuous(
        in_half_a_second,
        on_timer=dies,
        sink=FileSink(tmp_path),
        epoch=0.01,
        attempts=2,
        key_by="key",
    )
    ssc.start()
    with pytest.raises(ContinuousStreamError, match="its process ended without a word") as raised:
        ssc.awaitTermination(HANG_S)
    said = str(raised.value).splitlines()[0]
    assert "2 times without an epoch between" in said
    assert ", of timers alone)" in said


def holds_the_interpreter(batch: pa.RecordBatch) -> None:
    # Backtracks for years, and lets no other thread have a turn.
    re.match("(a+)+$", 40 * "a" + "b")


@pytest.mark.long
def test_a_function_that_lets_no_thread_have_a_turn_is_ended(
    ssc: StreamingContext, tmp_path: Path
) -> None:
    stream = ssc.receiverStream(numbers(8))
    stream.continuous(holds_the_interpreter, sink=FileSink(tmp_path), timeout="1 s", attempts=2)
    ssc.start()
    with pytest.raises(ContinuousStreamError, match="2 times without an epoch between"):
        ssc.awaitTermination(HANG_S)


class TellsProcess:
    """Says in which process it runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        (self.folder / f"process-{os.getpid()}").touch()
        return doubled(batch)


@pytest.mark.long
def test_a_process_that_is_stopped_for_good_is_replaced(
    ssc: StreamingContext, tmp_path: Path, caplog: Any
) -> None:
    out = tmp_path / "out"
    stream = ssc.receiverStream(numbers(10_000, block_s=0.05))
    stream.continuous(TellsProcess(tmp_path), sink=FileSink(out, "jsonl"), epoch=0.05)
    key = "spark.penstock.blockServer.lease"
    ssc.sparkContext._conf.set(key, "10s")
    try:
        ssc.start()
    finally:
        ssc.sparkContext._conf._jconf.remove(key)  # type: ignore[attr-defined]
    await_that(lambda: written(out), lambda: "nothing")
    (process,) = tmp_path.glob("process-*")
    stopped = int(process.name.removeprefix("process-"))
    os.kill(stopped, signal.SIGSTOP)
    try:
        await_that(lambda: len(written(out)) >= 10_000, lambda: caplog.text[-3000:])
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGCONT)
    ssc.stop(stopSparkContext=False, stopGraceFully=True)
    assert written(out) == [2 * n for n in range(10_000)]
    assert "lost its connection, and has not ended since" in caplog.text


class Picky:
    """Raises for multiples of 7, and once ends its process with what it has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        found = [int(value) for value in batch.column(0).to_pylist()]
        if max(found) > 250 and not (self.folder / "died").exists():
            (self.folder / "died").touch()
            os._exit(1)
        if any(n % 7 == 0 for n in found):
            raise ValueError("a multiple of seven")
        return doubled(batch)


@pytest.mark.parametrize("deliver", ["durable", "stored"])
def test_records_that_the_function_raises_for_are_dead_letters(
    sc: Any, tmp_path: Path, deliver: Any
) -> None:
    before = threads()
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    ssc = StreamingContext(sc, 0.5)
    ssc.checkpoint(str(checkpoint))
    stream = ssc.receiverStream(numbers(300), "clicks")
    options: Any = {"dead_letters": True, "deliver": deliver}
    stream.continuous(Picky(tmp_path), sink=FileSink(out, "jsonl"), epoch=0.05, **options)
    ssc.start()
    expected = [2 * n for n in range(300) if n % 7]
    await_that(lambda: len(written(out)) >= len(expected), lambda: len(written(out)))
    ssc.stop(stopSparkContext=False, stopGraceFully=True)
    assert written(out) == expected
    status = stream.epochs
    assert status is not None
    assert (status.records, status.letters) == (300, 43)
    found = [stored.letter for stored in letters(str(checkpoint))]
    assert sorted(int(letter.data) for letter in found) == list(range(0, 300, 7))
    assert {(letter.form, letter.error, letter.receiver) for letter in found} == {
        ("text", "ValueError", "continuous")
    }
    assert "a multiple of seven" in found[0].reason
    assert "test_continuous.py" in found[0].reason
    assert found[0].stream_text == "clicks-0"
    assert_nothing_left(sc.applicationId, before)


def test_a_result_of_a_wrong_type_is_no_dead_letter_and_is_given_up_at_once(
    ssc: StreamingContext, tmp_path: Path
) -> None:
    wrong: Any = lambda batch: batch.to_pylist()  # noqa: E731
    ssc.receiverStream(numbers(10)).continuous(wrong, sink=FileSink(tmp_path), dead_letters=True)
    ssc.start()
    with pytest.raises(ContinuousStreamError, match="and returned list; what was received stays"):
        ssc.awaitTermination(HANG_S)


class Refuses(FileSink):
    def open(self, source: str, task: int) -> None:
        raise SinkError("the file system has no hard links")


def test_a_sink_that_cannot_go_on_is_given_up_at_once(
    ssc: StreamingContext, tmp_path: Path
) -> None:
    ssc.receiverStream(numbers(10)).continuous(doubled, sink=Refuses(tmp_path))
    ssc.start()
    with pytest.raises(ContinuousStreamError, match="the file system has no hard links") as raised:
        ssc.awaitTermination(HANG_S)
    assert "what was received stays in the log" in str(raised.value)
    assert "times" not in str(raised.value).splitlines()[0]


def test_objects_without_columns_are_refused_with_what_to_do(
    ssc: StreamingContext, tmp_path: Path
) -> None:
    @receiver
    def objects() -> Iterator[Any]:
        yield {"a": 1}

    ssc.receiverStream(objects).continuous(doubled, sink=FileSink(tmp_path))
    ssc.start()
    with pytest.raises(ContinuousStreamError, match="declare a schema on the receiver"):
        ssc.awaitTermination(HANG_S)


@pytest.mark.usefixtures("early_blocks")
@pytest.mark.parametrize("deliver", ["durable", "stored"])
def test_the_memory_of_a_batch_is_the_functions_own(
    ssc: StreamingContext, tmp_path: Path, deliver: Any
) -> None:
    class Keeps:
        def __init__(self) -> None:
            self.kept: list[pa.RecordBatch] = []

        def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
            self.kept.append(batch)
            found = [int(v) for kept in self.kept for v in kept.column(0).to_pylist()]
            assert found == list(range(len(found)))
            return batch

    stream = ssc.receiverStream(numbers(20_000, block_s=0.005))
    stream.continuous(Keeps(), sink=FileSink(tmp_path, "jsonl"), epoch=0.1, deliver=deliver)
    ssc.start()
    lines = lambda: sum(len(p.read_text().splitlines()) for p in tmp_path.glob("part-*"))  # noqa: E731
    await_that(lambda: lines() >= 20_000, lines)


@pytest.mark.usefixtures("early_blocks")
def test_a_stream_is_continuous_or_has_batches(ssc: StreamingContext, tmp_path: Path) -> None:
    stream = ssc.receiverStream(numbers(10), "clicks")
    stream.continuous(doubled, sink=FileSink(tmp_path))
    stream.pprint()
    with pytest.raises(StreamGraphError, match="'clicks' has a continuous function"):
        ssc.start()


@pytest.mark.usefixtures("early_blocks")
@pytest.mark.parametrize("has_batches", [True, False])
def test_each_task_holds_a_core_and_batches_need_one(
    ssc: StreamingContext, tmp_path: Path, has_batches: bool
) -> None:
    tasks = 3 if has_batches else 4
    stream = ssc.receiverStream(numbers(10), "clicks")
    stream.continuous(doubled, sink=FileSink(tmp_path), parallelism=tasks)
    if has_batches:
        ssc.queueStream([]).pprint()
    lacks = "no batch could run" if has_batches else "some could not start"
    said = (
        rf"{tasks + 1} receiver\(s\) and tasks of continuous streams \({tasks} of them\).*{lacks}"
    )
    with pytest.raises(NotEnoughCoresError, match=said):
        ssc.start()


@pytest.mark.usefixtures("early_blocks")
def test_continuous_streams_alone_may_hold_all_cores(ssc: StreamingContext, tmp_path: Path) -> None:
    stream = ssc.receiverStream(numbers(3000, block_s=0.01), "clicks")
    stream.continuous(doubled, sink=FileSink(tmp_path, "jsonl"), epoch=0.05, parallelism=3)
    ssc.start()
    await_that(lambda: len(written(tmp_path)) >= 3000, lambda: stream.epochs)
    report = ssc.stop(stopSparkContext=False, stopGraceFully=True)
    assert report is not None
    assert report.is_complete
    assert sorted(written(tmp_path)) == [2 * n for n in range(3000)]


class HeldSink(FileSink):
    """Takes nothing until there is a file."""

    def commit(self, epoch: Epoch, batches: Any) -> None:
        if not os.path.exists(f"{self._folder}/opened"):
            raise SinkError("http://host/scores answers 503: the stream is held", is_held=True)
        super().commit(epoch, batches)


@pytest.mark.usefixtures("early_blocks")
def test_a_sink_that_is_held_is_waited_for_and_no_failure(
    ssc: StreamingContext, tmp_path: Path
) -> None:
    stream = ssc.receiverStream(numbers(300), "clicks")
    stream.continuous(doubled, sink=HeldSink(tmp_path, "jsonl"), epoch=0.05, attempts=1)
    ssc.start()
    said = "the sink (http://host/scores answers 503: the stream is held)"
    await_that(lambda: stream.epochs and stream.epochs.waits_for == said, lambda: stream.epochs)
    (tmp_path / "opened").touch()
    await_that(lambda: len(written(tmp_path)) >= 300, lambda: stream.epochs)
    await_that(lambda: stream.epochs and stream.epochs.waits_for == "the source", lambda: 0)
    status = stream.epochs
    assert status is not None
    assert (status.failed, status.failures) == (0, 0)
    assert sorted(written(tmp_path)) == [2 * n for n in range(300)]


def test_what_cannot_be_sent_to_a_task_is_named_where_it_is_given(
    ssc: StreamingContext, tmp_path: Path
) -> None:
    stream = ssc.receiverStream(numbers(10), "clicks")
    lock = threading.Lock()

    def locked(batch: pa.RecordBatch) -> pa.RecordBatch:
        with lock:
            return batch

    said = r"function of continuous stream 'clicks' cannot be pickled: .*locked .*variable 'lock'"
    with pytest.raises(TypeError, match=said):
        stream.continuous(locked, sink=FileSink(tmp_path))
    with sqlite3.connect(":memory:") as connection:
        sink = DatabaseSink(lambda: connection, "INSERT INTO numbers VALUES (?)")
        said = r"sink of continuous stream 'clicks' .*sqlite3.Connection.* in open of the sink"
        with pytest.raises(TypeError, match=said):
            stream.continuous(doubled, sink=sink)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"function": 3}, "function"),
        ({"sink": print}, "sink"),
        ({"epoch": "soon"}, "epoch"),
        ({"epoch": 0}, "epoch"),
        ({"epoch": "100"}, "epoch"),
        ({"epoch": float("nan")}, "epoch"),
        ({"epoch": "2d"}, "epoch"),
        ({"parallelism": 0}, "parallelism"),
        ({"timeout": True}, "timeout"),
        ({"attempts": 1.5}, "attempts"),
        ({"dead_letters": "yes"}, "dead_letters"),
        ({"key_by": 3}, "key_by"),
        ({"key_by": ""}, "key_by"),
        ({"dead_letters": True, "key_by": "card", "function": Counts(Path())}, "dead_letters"),
    ],
)
def test_arguments_are_checked(
    ssc: StreamingContext, tmp_path: Path, arguments: dict[str, Any], says: str
) -> None:
    stream = ssc.receiverStream(numbers(10))
    given = {"function": doubled, "sink": FileSink(tmp_path), **arguments}
    with pytest.raises((TypeError, ValueError), match=f"^{says}="):
        stream.continuous(given.pop("function"), **given)


@pytest.mark.parametrize("key_by", [None, "card"])
def test_a_function_that_cannot_be_called_so_is_refused(
    ssc: StreamingContext, tmp_path: Path, key_by: str | None
) -> None:
    stream = ssc.receiverStream(numbers(10))
    wrong, said = (
        (doubled, r"\(batch, state\) with") if key_by else (Counts(tmp_path), r"\(batch\) wi")
    )
    with pytest.raises(TypeError, match=rf"the function is called as function{said}"):
        stream.continuous(wrong, sink=FileSink(tmp_path), key_by=key_by)


def test_a_column_of_keys_that_is_not_there_is_given_up_at_once(
    ssc: StreamingContext, tmp_path: Path
) -> None:
    @receiver
    def words() -> Iterator[str]:
        yield "a"

    stream = ssc.receiverStream(words)
    stream.continuous(Counts(tmp_path), sink=FileSink(tmp_path), key_by="card")
    ssc.start()
    says = r"key_by='card': there is no such column in \['value'\]"
    with pytest.raises(ContinuousStreamError, match=says) as raised:
        ssc.awaitTermination(HANG_S)
    assert "times" not in str(raised.value).splitlines()[0]


@pytest.mark.parametrize("key_by", ["crad", "amount"])
def test_a_column_of_keys_that_the_schema_has_not_is_refused_at_once(
    ssc: StreamingContext, tmp_path: Path, key_by: str
) -> None:
    @receiver(schema="card bigint, amount double")
    def payments() -> Iterator[Any]:
        yield {"card": 1, "amount": 0.5}

    stream = ssc.receiverStream(payments, "payments")
    with pytest.raises(ValueError, match=f"stream 'payments': key_by='{key_by}'"):
        stream.continuous(Counts(tmp_path), sink=FileSink(tmp_path), key_by=key_by)
    stream.continuous(Counts(tmp_path), sink=FileSink(tmp_path), key_by="card")


def test_a_state_that_is_lost_is_told_and_not_begun_anew(
    ssc: StreamingContext, tmp_path: Path
) -> None:
    class Removes:
        def __call__(self, batch: pa.RecordBatch, state: KeyedState) -> pa.RecordBatch:
            if max(batch["n"].to_pylist()) > 500:
                os.unlink(state._place.path)
                raise RuntimeError("it fails")
            return batch

    stream = ssc.receiverStream(numbers(3000, block_s=0.05, keys=2))
    stream.continuous(Removes(), sink=FileSink(tmp_path), epoch=0.05, key_by="key")
    ssc.start()
    with pytest.raises(
        ContinuousStreamError, match=r"the state after epoch \d+ is not in .*sqlite"
    ) as raised:
        ssc.awaitTermination(HANG_S)
    assert "times" not in str(raised.value).splitlines()[0]
