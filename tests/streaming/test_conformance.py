"""Spark's own tests of streams, by their names, and the tests here that show the same.

`conformance.md` beside this file names, for each test of a suite of Spark, a test here. What no
other file shows is in this one.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from pyspark import StorageLevel

from penstock.errors import IllegalStateError
from penstock.streaming import StatsReportListener, StreamingContext, StreamingListener
from penstock.streaming.dstream.inputs.input_streams import InputDStream
from tests.streaming.batches import batches

ROOT = Path(__file__).parent.parent.parent
PAGE = Path(__file__).with_name("conformance.md")
NAMES = Path(__file__).with_name("spark_tests.txt")
"""The suites of Spark 4.0.1 and the names of their tests, one a line, with a tab between."""

_SUITE = re.compile(r"## (.+)")
_ROW = re.compile(r"\| (.+) \| (.+) \|")
_SHOWN = re.compile(r"\[`(\w+)`\]\(\.\./\.\./(tests/[\w/]+\.py)\)")
_REASON = re.compile(r"None: .{10,}\.")


def rows() -> Iterator[tuple[str, str, str]]:
    """Yield suite, name and what stands beside it, for each row of the page."""
    suite = None
    for line in PAGE.read_text().splitlines():
        if found := _SUITE.fullmatch(line):
            suite = found[1]
        elif suite is not None and (found := _ROW.fullmatch(line)):
            name, shown = (part.replace("\\|", "|") for part in found.groups())
            if name not in ("Spark", "---"):
                yield suite, name, shown


def test_the_page_has_every_test_of_spark() -> None:
    lines = NAMES.read_text().splitlines()
    assert [f"{suite}\t{name}" for suite, name, _ in rows()] == lines
    assert len(lines) > 350


def test_each_row_names_a_test_that_is_there_or_a_reason() -> None:
    wrong = []
    for suite, name, shown in rows():
        if found := _SHOWN.fullmatch(shown):
            file = ROOT / found[2]
            is_there = file.is_file() and re.search(
                rf"^\s*(def|class) {found[1]}\b", file.read_text(), re.MULTILINE
            )
        else:
            is_there = _REASON.fullmatch(shown)
        if not is_there:
            wrong.append((suite, name, shown))
    assert wrong == []


class NoRDD(InputDStream):
    def compute(self, time_ms: int) -> Any:
        return None


def test_an_input_without_rdds(sc: Any) -> None:
    with batches(sc) as run:
        one, none = run.ssc.queueStream([[1]]), run.ssc._stream(NoRDD(run.ssc._graph))
        never = run.collect(none.transform(lambda rdd: rdd))
        found = [
            run.collect(one.union(none)),
            run.collect(run.ssc.union(none, one)),
            run.collect(one.transformWith(lambda a, b: a.union(b), none)),
            run.collect(run.ssc.transform([none, one], lambda rdds: rdds[0].union(rdds[1]))),
        ]
        run.run(1)
    assert never == []
    assert found == [[[1]]] * 4


def test_inputs_are_numbered(sc: Any) -> None:
    with batches(sc) as run:
        run.ssc.queueStream([])
        run.ssc.socketTextStream("localhost", 9)
        run.ssc.textFileStream("/tmp")
        assert [node.stream_id for node in run.ssc._graph.inputs] == [0, 1, 2]


def test_an_input_that_nobody_reads_does_no_harm(sc: Any) -> None:
    with batches(sc) as run:
        run.ssc.queueStream([[1]])
        run.ssc.textFileStream("/tmp")
        found = run.collect(run.ssc.queueStream([[2]]))
        run.run(1)
    assert found == [[2]]


def test_the_checkpoint_directory_may_be_a_setting(sc: Any, tmp_path: Path) -> None:
    key = "spark.streaming.checkpoint.directory"
    sc._conf.set(key, str(tmp_path))
    try:
        ssc = StreamingContext(sc, 1)
    finally:
        sc._conf._jconf.remove(key)
    assert ssc._checkpoint_directory == str(tmp_path)
    ssc.stop(stopSparkContext=False)


@pytest.mark.slow
def test_old_states_are_forgotten(sc: Any, tmp_path: Path) -> None:
    with batches(sc) as run:
        run.ssc.checkpoint(str(tmp_path))
        pairs = run.ssc.queueStream([[("a", 1)]] * 7)
        states = pairs.updateStateByKey(lambda values, state: sum(values) + (state or 0))
        found = run.collect(states.checkpoint(1))
        run.run(5)
        assert run.ssc._engine._generator._loop.drain(30)
        assert [ms // 1000 % 100 for ms in states._node.generated] == [4, 5]
    assert found[-1] == [("a", 5)]


def test_windows_of_every_shape(sc: Any) -> None:
    with batches(sc) as run:
        stream = run.ssc.queueStream([[number] for number in range(6)])
        basic = run.collect(stream.window(2, 1))
        tumbling = run.collect(stream.window(2, 2))
        larger = run.collect(stream.window(4, 2))
        apart = run.collect(stream.window(1, 2))
        run.run(8)
    assert basic == [[0], [0, 1], [1, 2], [2, 3], [3, 4], [4, 5], [5], []]
    assert tumbling == [[0, 1], [2, 3], [4, 5], []]
    assert larger == [[0, 1], [0, 1, 2, 3], [2, 3, 4, 5], [4, 5]]
    assert apart == [[1], [3], [5], []]


def test_a_window_persists_its_parent(sc: Any) -> None:
    with batches(sc) as run:
        stream = run.ssc.queueStream([])
        window = stream.window(2)
        assert stream._node.storage_level == StorageLevel.MEMORY_ONLY
        window.persist(StorageLevel.DISK_ONLY)
        assert stream._node.storage_level == StorageLevel.DISK_ONLY
        assert not window.is_cached
        with pytest.raises(IllegalStateError, match="has not been initialized"):
            window.slice(0, 1)


_UP_AND_DOWN: list[list[tuple[str, int]]] = [
    [],
    [("a", 1)],
    [("a", 1), ("b", 1)],
    [("a", 1), ("b", 1), ("c", 1)],
    [("a", 1), ("b", 1)],
    [("a", 1)],
    [],
    [],
    [("b", 2)],
    [("b", 3), ("a", 1)],
    [],
    [],
]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("window", "slide"),
    [
        pytest.param(2, 1, marks=pytest.mark.exhaustive),
        pytest.param(5, 1, marks=pytest.mark.exhaustive),
        (10, 2),
    ],
)
def test_reductions_of_windows_with_and_without_inverse(
    sc: Any, tmp_path: Path, window: int, slide: int
) -> None:
    with batches(sc) as run:
        run.ssc.checkpoint(str(tmp_path))
        stream = run.ssc.queueStream(_UP_AND_DOWN)
        stream.foreachRDD(lambda rdd: None)
        over = (window, slide, 1)
        plain = run.collect(stream.reduceByKeyAndWindow(operator.add, None, *over))
        kept = run.collect(stream.reduceByKeyAndWindow(operator.add, operator.sub, *over))
        filtered = run.collect(
            stream.reduceByKeyAndWindow(operator.add, operator.sub, *over, lambda kv: kv[1] > 0)
        )
        run.run(len(_UP_AND_DOWN))
    expected = []
    for end in range(slide, len(_UP_AND_DOWN) + 1, slide):
        totals: dict[str, int] = {}
        for key, value in chain.from_iterable(_UP_AND_DOWN[max(0, end - window) : end]):
            totals[key] = totals.get(key, 0) + value
        expected.append(totals)
    assert [dict(x) for x in plain] == expected
    assert [dict(x) for x in filtered] == expected
    # Without a filter, keys that left the window may stay with what is left of their value.
    assert [{key: n for key, n in x if n} for x in kept] == expected


class Reasons(StreamingListener):
    def __init__(self) -> None:
        self.reasons: list[list[str | None]] = []

    def onBatchCompleted(self, batchCompleted: Any) -> None:
        operations = batchCompleted.batchInfo().outputOperationInfos()
        self.reasons.append([operations[i].failureReason() for i in sorted(operations)])


@pytest.mark.slow
def test_a_completed_batch_tells_which_jobs_failed(sc: Any) -> None:
    def fail_at(*values: int) -> Any:
        def look(rdd: Any) -> None:
            if rdd.first() in values:
                raise ValueError(f"this is a failed job: {rdd.first()}")

        return look

    with batches(sc) as run:
        listener = Reasons()
        run.ssc.addStreamingListener(listener)
        stream = run.ssc.queueStream([[0], [1], [2]])
        stream.foreachRDD(fail_at(2))
        stream.foreachRDD(fail_at(1, 2))
        run.run(3)
        run.ssc._bus.wait_until_empty(30)
    assert [[bool(reason) for reason in batch] for batch in listener.reasons] == [
        [False, False],
        [False, True],
        [True, True],
    ]
    assert "ValueError: this is a failed job: 2" in str(listener.reasons[2][0])


def test_no_event_comes_after_the_stop(sc: Any) -> None:
    heard: list[Any] = []

    class Hearing(StreamingListener):
        def onBatchSubmitted(self, batchSubmitted: Any) -> None:
            heard.append(batchSubmitted)

    with batches(sc) as run:
        run.ssc.addStreamingListener(Hearing())
        run.collect(run.ssc.queueStream([[1]]))
        run.run(1)
    count = len(heard)
    bus: Any = run.ssc._bus
    bus.post(heard[0])
    assert len(heard) == count == 1


def test_a_report_of_the_last_batches(sc: Any, caplog: Any) -> None:
    caplog.set_level("INFO", logger="penstock.streaming.stats")
    listener = StatsReportListener(2)
    with batches(sc) as run:
        run.ssc.addStreamingListener(listener)
        run.collect(run.ssc.queueStream([[1]]))
        run.run(3)
        run.ssc._bus.wait_until_empty(30)
    lines = [r.getMessage() for r in caplog.records if r.name == "penstock.streaming.stats"]
    assert len(listener.batchInfos) == 2
    assert len(lines) == 12
    assert lines[-4].startswith("Total delay: (count: 2, mean: ")
    assert lines[-1].startswith("Processing time: 0%: ")
    assert re.search(r"50%: \d+ ms, .* 100%: \d+ ms$", lines[-1])


def test_print_has_the_time_in_milliseconds(sc: Any, capsys: Any) -> None:
    with batches(sc) as run:
        run.ssc.queueStream([[1, 2]]).print(1)
        run.run(1)
    rule = "-" * 43
    assert capsys.readouterr().out == f"{rule}\nTime: 1700000001000 ms\n{rule}\n1\n...\n\n"


class TestGetActiveOrCreate:
    """PySpark: `test_get_active_or_create`."""

    def test_it_makes_one_or_gives_the_active_one(self, sc: Any) -> None:
        made: list[StreamingContext] = []

        def make() -> StreamingContext:
            made.append(StreamingContext(sc, 1))
            return made[-1]

        assert StreamingContext.getActiveOrCreate(None, make) is made[0]
        with batches(sc) as run:
            run.ssc.queueStream([]).foreachRDD(lambda rdd: None)
            run.start()
            assert StreamingContext.getActiveOrCreate(None, make) is run.ssc
            assert StreamingContext.getActiveOrCreate("/tmp/path", make) is run.ssc
        assert StreamingContext.getActiveOrCreate(None, make) is made[1]
        made[0].stop(False)

    def test_what_cannot_be_done_is_refused(self) -> None:
        with pytest.raises(TypeError, match="setupFunc should be callable"):
            StreamingContext.getActiveOrCreate(None, None)  # type: ignore[arg-type]  # the error
        with pytest.raises(TypeError, match="setupFunc should be callable"):
            StreamingContext.getOrCreate("/tmp/path", None)  # type: ignore[arg-type]  # the error
