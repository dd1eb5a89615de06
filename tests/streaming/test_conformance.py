"""Spark's own tests of streams, by their names, and the tests here that show the same.

`CONFORMANCE` names, for each test of a suite of Spark, a test in this folder or beside it. What no
other file shows is in this one.
"""

from __future__ import annotations

import operator
import re
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from pyspark import StorageLevel

from penstock.errors import IllegalStateError
from penstock.streaming import StatsReportListener, StreamingContext, StreamingListener
from penstock.streaming.dstream.input_streams import InputDStream
from tests.streaming.batches import batches

_FROM_PYSPARK = "test_oracle.py::test_results_are_those_of_pyspark"
_WINDOWS = "test_conformance.py::test_windows_of_every_shape"
_REDUCED = "test_conformance.py::test_reductions_of_windows_with_and_without_inverse"
_RECOVERED = "test_recovery.py::test_every_kind_of_stream_goes_on"
_KILLED = "../system/test_recovered_driver.py::test_results_are_exact_whenever_the_driver_is_killed"
_NO_RDD = "test_conformance.py::test_an_input_without_rdds"

CONFORMANCE: dict[str, dict[str, str]] = {
    "BasicOperationsSuite": {
        "map": "test_operations.py::test_map",
        "flatMap": "test_operations.py::test_flat_map",
        "filter": "test_operations.py::test_filter",
        "glom": "test_operations.py::test_map_partitions_and_glom",
        "mapPartitions": "test_operations.py::test_map_partitions_and_glom",
        "repartition (more partitions)": "test_operations.py::test_partition_by_and_repartition",
        "repartition (fewer partitions)": "test_operations.py::test_partition_by_and_repartition",
        "groupByKey": "test_operations.py::test_combine_and_group_by_key",
        "reduceByKey": "test_operations.py::test_word_count",
        "reduce": "test_operations.py::test_count_and_reduce",
        "count": "test_operations.py::test_count_and_reduce",
        "countByValue": "test_operations.py::test_count_by_value",
        "mapValues": "test_operations.py::test_map_values_and_flat_map_values",
        "flatMapValues": "test_operations.py::test_map_values_and_flat_map_values",
        "union": "test_operations.py::test_union",
        "union with input stream return None": _NO_RDD,
        "StreamingContext.union": "test_operations.py::test_union",
        "transform": "test_operations.py::test_transform_with_and_without_time",
        "transform with NULL": "test_operations.py::test_transform_to_none_makes_no_batch",
        "transform with input stream return None": _NO_RDD,
        "transformWith": "test_operations.py::test_transform_with_another_stream",
        "transformWith with input stream return None": _NO_RDD,
        "StreamingContext.transform": (
            "test_operations.py::test_transform_of_several_streams_gets_a_tuple"
        ),
        "StreamingContext.transform with input stream return None": _NO_RDD,
        "cogroup": "test_operations.py::test_cogroup",
        "join": "test_operations.py::test_joins",
        "leftOuterJoin": "test_operations.py::test_joins",
        "rightOuterJoin": "test_operations.py::test_joins",
        "fullOuterJoin": "test_operations.py::test_joins",
        "updateStateByKey": "test_batches.py::test_update_state_by_key",
        "updateStateByKey - simple with initial value RDD": (
            "test_batches.py::test_update_state_by_key"
        ),
        "updateStateByKey - with initial value RDD": _FROM_PYSPARK,
        "updateStateByKey - object lifecycle": "test_batches.py::test_update_state_by_key",
        "slice": "test_batches.py::test_slice",
        "slice - has not been initialized": "test_batches.py::test_slice",
        "rdd cleanup - map and window": (
            "test_batches.py::test_batches_without_jobs_are_forgotten_too"
        ),
        "rdd cleanup - updateStateByKey": "test_conformance.py::test_old_states_are_forgotten",
        "rdd cleanup - input blocks and persisted RDDs": (
            "test_batches.py::test_old_rdds_are_forgotten_and_unpersisted"
        ),
    },
    "WindowOperationsSuite": {
        "window - basic window": _WINDOWS,
        "window - tumbling window": _WINDOWS,
        "window - larger window": _WINDOWS,
        "window - non-overlapping window": _WINDOWS,
        "window - persistence level": "test_conformance.py::test_a_window_persists_its_parent",
        "reduceByKeyAndWindow - basic reduction": _REDUCED,
        "reduceByKeyAndWindow - key already in window and new value added into window": _REDUCED,
        "reduceByKeyAndWindow - new key added into window": _REDUCED,
        "reduceByKeyAndWindow - key removed from window": _REDUCED,
        "reduceByKeyAndWindow - larger slide time": _REDUCED,
        "reduceByKeyAndWindow - big test": _REDUCED,
        "reduceByKeyAndWindow with inverse function - basic reduction": _REDUCED,
        "reduceByKeyAndWindow with inverse function - key removed from window": _REDUCED,
        "reduceByKeyAndWindow with inverse function - larger slide time": _REDUCED,
        "reduceByKeyAndWindow with inverse function - big test": _REDUCED,
        "reduceByKeyAndWindow with inverse and filter functions - big test": _REDUCED,
        "groupByKeyAndWindow": "test_batches.py::test_group_by_key_and_window",
        "countByWindow": _FROM_PYSPARK,
        "countByValueAndWindow": _FROM_PYSPARK,
    },
    "InputStreamsSuite": {
        "socket input stream": "test_end_to_end.py::test_lines_from_a_socket",
        "binary records stream": "test_file_streams.py::test_each_stream_has_its_own_record_length",
        "file input stream - newFilesOnly = true": (
            "test_file_streams.py::test_new_files_are_read_once_each"
        ),
        "file input stream - newFilesOnly = false": (
            "test_file_streams.py::test_old_files_on_demand"
        ),
        "file input stream - wildcard": (
            "test_file_streams.py::test_a_glob_stands_for_several_folders"
        ),
        "Modified files are correctly detected.": (
            "test_file_streams.py::test_a_modified_file_is_taken_again_when_it_was_forgotten"
        ),
        "multi-thread receiver": (
            "../receiver/test_life_cycle.py::test_multi_thread_receiver_loses_and_mixes_nothing"
        ),
        "queue input stream - oneAtATime = true": (
            "test_operations.py::test_the_queue_is_taken_as_it_is"
        ),
        "queue input stream - oneAtATime = false": (
            "test_operations.py::test_all_at_once_then_default"
        ),
        "test track the number of input stream": "test_conformance.py::test_inputs_are_numbered",
    },
    "InputInfoTrackerSuite": {
        "test report and get InputInfo from InputInfoTracker": (
            "test_batches.py::test_input_info_is_reported_once"
        ),
        "test cleanup InputInfo from InputInfoTracker": (
            "test_batches.py::test_input_info_is_reported_once"
        ),
    },
    "StreamingListenerSuite": {
        "batch info reporting": "test_batches.py::test_events_come_in_order_with_pysparks_getters",
        "receiver info reporting": ("test_end_to_end.py::test_listeners_are_told_of_a_receiver"),
        "output operation reporting": (
            "test_batches.py::test_events_come_in_order_with_pysparks_getters"
        ),
        "don't call ssc.stop in listener": (
            "test_life_cycle.py::test_a_listener_must_not_stop_the_context"
        ),
        "onBatchCompleted with successful batch": (
            "test_conformance.py::test_a_completed_batch_tells_which_jobs_failed"
        ),
        "onBatchCompleted with failed batch and one failed job": (
            "test_conformance.py::test_a_completed_batch_tells_which_jobs_failed"
        ),
        "onBatchCompleted with failed batch and multiple failed jobs": (
            "test_conformance.py::test_a_completed_batch_tells_which_jobs_failed"
        ),
        "StreamingListener receives no events after stopping StreamingListenerBus": (
            "test_conformance.py::test_no_event_comes_after_the_stop"
        ),
    },
    "RateControllerSuite": {
        "RateController - rate controller publishes updates after batches complete": (
            "rates/test_book.py::test_it_asks_with_what_the_batch_tells_and_publishes_whole_records"
        ),
        "ReceiverRateController - published rates reach receivers": (
            "rates/test_on_spark.py::test_backpressure_holds_a_fast_source_from_the_first_batch_on"
        ),
    },
    "PIDRateEstimatorSuite": {
        "the right estimator is created": "rates/test_book.py::test_the_named_estimator_is_made",
        "estimator checks ranges": "rates/test_pid.py::TestRanges",
        "first estimate is None": (
            "rates/test_pid.py::test_the_first_batch_gives_no_rate_and_the_second_does"
        ),
        "second estimate is not None": (
            "rates/test_pid.py::test_the_first_batch_gives_no_rate_and_the_second_does"
        ),
        "no estimate when no time difference between successive calls": (
            "rates/test_pid.py::test_no_rate_without_a_later_time"
        ),
        "no estimate when no records in previous batch": (
            "rates/test_pid.py::test_no_rate_without_records"
        ),
        "no estimate when there is no processing delay": (
            "rates/test_pid.py::test_no_rate_without_a_processing_delay"
        ),
        "estimate is never less than min rate": (
            "rates/test_pid.py::test_never_below_the_least_rate"
        ),
        "with no accumulated or positive error, |I| > 0, follow the processing speed": (
            "rates/test_pid.py::test_with_integral_it_follows_the_speed_when_nothing_waits"
        ),
        "with no accumulated but some positive error, |I| > 0, follow the processing speed": (
            "rates/test_pid.py::test_with_integral_it_follows_the_speed_when_nothing_waits"
        ),
        "with some accumulated and some positive error, |I| > 0, stay below the processing speed": (
            "rates/test_pid.py::test_with_integral_it_stays_below_the_speed_when_something_waits"
        ),
    },
    "ReceiverTrackerSuite": {
        "send rate update to receivers": (
            "../tracker/test_receiver_tracker.py::test_send_rate_update_to_receivers"
        ),
    },
    "MapWithStateSuite": {
        "state - get, exists, update, remove, ": "test_map_with_state.py::TestStateOfAKey",
        "mapWithState - basic operations with simple API": (
            "test_map_with_state.py::test_simple_api"
        ),
        "mapWithState - basic operations with advanced API": (
            "test_map_with_state.py::test_advanced_api"
        ),
        "mapWithState - initial states, with nothing returned from mapping function": (
            "test_map_with_state.py::test_advanced_api"
        ),
        "mapWithState - state removing": "test_map_with_state.py::test_advanced_api",
        "mapWithState - state timing out": (
            "test_map_with_state.py::test_timeouts_fire_at_the_batch_where_they_are_due"
        ),
        "mapWithState - checkpoint durations": (
            "test_map_with_state.py::test_checkpoint_durations"
        ),
        "mapWithState - driver failure recovery": _RECOVERED,
    },
    "CheckpointSuite": {
        "recovery maintains rate controller": (
            "rates/test_book.py::test_a_new_driver_begins_with_what_the_old_one_knew"
        ),
        "non-existent checkpoint dir": "test_get_or_create.py::TestGetOrCreate",
        "basic rdd checkpoints + dstream graph checkpoint recovery": _RECOVERED,
        "recovery of conf through checkpoints": _KILLED,
        "get correct spark.driver.[host|port] from checkpoint": _KILLED,
        "SPARK-30199 get ui port and blockmanager port": _KILLED,
        "recovery with map and reduceByKey operations": _RECOVERED,
        "recovery with invertible reduceByKeyAndWindow operation": _RECOVERED,
        "recovery with updateStateByKey operation": _RECOVERED,
        "recovery with file input stream": (
            "test_recovery.py::test_a_batch_that_was_running_is_made_again_with_the_same_files"
        ),
        "DStreamCheckpointData.restore invoking times": (
            "test_recovery.py::test_each_node_is_restored_once"
        ),
        "SPARK-11267: the race condition of two checkpoints in a batch": (
            "test_checkpoint.py::test_only_the_newest_waits_and_what_follows_is_done_for_all"
        ),
        "SPARK-28912: Fix MatchError in getCheckpointFiles": (
            "test_checkpoint.py::test_names_that_are_none_are_left_alone"
        ),
        "SPARK-6847: stack overflow when updateStateByKey is followed by a checkpointed dstream": (
            _RECOVERED
        ),
    },
    "StreamingContextSuite": {
        "start with non-serializable DStream checkpoints": "test_unpicklable.py::test_functions",
        "getOrCreate": "test_get_or_create.py::TestGetOrCreate",
        "getActive and getActiveOrCreate with checkpoint": "test_get_or_create.py::TestGetOrCreate",
        "queueStream doesn't support checkpointing": (
            "test_get_or_create.py::test_a_queue_cannot_be_recovered"
        ),
    },
    "pyspark test_dstream": {
        "test_transform_function_serializer_failure": "test_unpicklable.py::test_functions",
        "test_get_or_create_and_get_active_or_create": "test_get_or_create.py::TestGetOrCreate",
    },
}


def test_every_named_test_is_there() -> None:
    folder = Path(__file__).parent
    missing = [
        named
        for suite in CONFORMANCE.values()
        for named in suite.values()
        for file, _, name in [named.partition("::")]
        if not re.search(
            rf"^\s*(def|class) {name}\b", next(folder.rglob(file)).read_text(), re.MULTILINE
        )
    ]
    assert missing == []


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


@pytest.mark.slow
@pytest.mark.parametrize(("window", "slide"), [(2, 1), (5, 1), (10, 2)])
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
