"""Batches: their times, their order, what Spark and listeners see of them, what is forgotten."""

from __future__ import annotations

import threading
from datetime import datetime
from typing import Any

import pytest
from pyspark import StorageLevel

from penstock.errors import IllegalStateError
from penstock.listeners.input_info import BatchInput, InputInfoTracker
from penstock.runtime.clock import ManualClock
from penstock.streaming import StreamingListener
from penstock.streaming.dstream.inputs.input_streams import InputDStream
from penstock.streaming.scheduler.recurring_timer import RecurringTimer
from tests.streaming.batches import WAIT_S, batches


class Numbers(InputDStream):
    """An input that tells how many records it has."""

    def compute(self, time_ms: int) -> Any:
        info = BatchInput(self.stream_id, 3, {"Description": "three numbers"})
        self.graph.runtime.input_info.report_info(time_ms, info)
        return self.graph.spark_context.parallelize([1, 2, 3], 1)


class TestTimes:
    def run_timer(self, clock: ManualClock, count: int, change: Any) -> list[int]:
        times: list[int] = []
        arrived = threading.Semaphore(0)

        def tick(time_ms: int) -> None:
            times.append(time_ms)
            arrived.release()

        timer = RecurringTimer(clock, 1000, tick, "test-timer")
        timer.start(timer.first_time())
        change()
        for _ in range(count):
            assert arrived.acquire(timeout=WAIT_S)
        timer.stop(WAIT_S)
        return times

    def test_they_are_multiples_of_the_interval(self) -> None:
        clock = ManualClock(10_400)
        assert self.run_timer(clock, 2, lambda: clock.advance(1600)) == [11_000, 12_000]

    def test_none_is_left_out_when_late(self) -> None:
        clock = ManualClock(10_400)
        found = self.run_timer(clock, 5, lambda: clock.advance(5000))
        assert found == [11_000, 12_000, 13_000, 14_000, 15_000]

    def test_a_first_time_is_after_now(self) -> None:
        timer = RecurringTimer(ManualClock(11_000), 1000, lambda _: None, "test-timer")
        assert timer.first_time() == 12_000

    def test_i14_none_comes_before_its_time(self) -> None:
        clock = ManualClock(10_400)
        timer = RecurringTimer(clock, 1000, lambda time_ms: times.append(time_ms), "test-timer")
        times: list[int] = []
        timer.start(timer.first_time())
        clock.advance(599)
        timer.stop(WAIT_S)
        assert times == []

    def test_a_clock_set_back_halves_their_pace_until_it_has_caught_up(self, caplog: Any) -> None:
        clock = ManualClock(3_600_000)
        times: list[tuple[int, int]] = []
        arrived = threading.Semaphore(0)

        def tick(time_ms: int) -> None:
            times.append((time_ms, round(clock.monotonic_s())))
            arrived.release()

        timer = RecurringTimer(clock, 1000, tick, "test-timer")
        timer.start(timer.first_time())
        clock.set_wall_time(3_596_000)
        with caplog.at_level("INFO", logger="penstock.streaming"):
            for seconds in (2, 2, 2, 2, 1, 1, 1):
                for _ in range(seconds):
                    clock.advance(1000)
                assert arrived.acquire(timeout=WAIT_S)
        timer.stop(WAIT_S)
        first = 3_601_000
        assert times == [
            (first, 2),
            (first + 1000, 4),
            (first + 2000, 6),
            (first + 3000, 8),
            (first + 4000, 9),
            (first + 5000, 10),
            (first + 6000, 11),
        ]
        assert caplog.text.count("ahead of the clock, which was set back") == 1
        assert caplog.text.count("The clock has caught up") == 1

    def test_functions_get_the_naive_local_time(self, sc: Any) -> None:
        seen: list[datetime] = []
        with batches(sc) as run:
            run.ssc.queueStream([[1]]).foreachRDD(lambda time, rdd: seen.append(time))
            run.run(2)
        assert seen == [
            datetime.fromtimestamp(1_700_000_001),
            datetime.fromtimestamp(1_700_000_002),
        ]


class TestOrder:
    def test_operations_run_in_the_order_of_the_program(self, sc: Any) -> None:
        seen: list[Any] = []
        with batches(sc) as run:
            stream = run.ssc.queueStream([[1]])
            for name in "abc":
                stream.foreachRDD(lambda time, rdd, name=name: seen.append((time.second, name)))
            run.run(2)
        assert [name for _, name in seen] == list("abcabc")

    def test_a_stream_has_one_rdd_per_batch(self, sc: Any) -> None:
        seen: list[int] = []
        with batches(sc) as run:
            stream = run.ssc.queueStream([[1]]).map(str)
            stream.foreachRDD(lambda rdd: seen.append(rdd.id()))
            stream.foreachRDD(lambda rdd: seen.append(rdd.id()))
            run.run(1)
        assert seen[0] == seen[1]

    def test_concurrent_jobs_run_at_once(self, sc: Any, monkeypatch: Any) -> None:
        conf = sc.getConf().set("spark.streaming.concurrentJobs", "2")
        monkeypatch.setattr(sc, "getConf", lambda: conf)
        barrier = threading.Barrier(2, timeout=WAIT_S)
        with batches(sc) as run:
            stream = run.ssc.queueStream([[1]])
            for _ in range(2):
                stream.foreachRDD(lambda rdd: barrier.wait() and None)
            run.run(1)
        assert not barrier.broken


class TestListeners:
    def test_events_come_in_order_with_pysparks_getters(self, sc: Any) -> None:
        events: list[tuple[str, Any]] = []

        def record(name: str) -> Any:
            return lambda self, event: events.append((name, event))

        names = [name for name in dir(StreamingListener) if name.startswith("on")]
        listener = type("All", (StreamingListener,), {name: record(name) for name in names})()
        with batches(sc) as run:
            run.ssc.addStreamingListener(listener)
            stream = run.ssc._stream(Numbers(run.ssc._graph))
            stream.foreachRDD(lambda rdd: rdd.count())
            stream.foreachRDD(lambda rdd: 1 // 0)
            run.run(1)
            run.ssc._bus.wait_until_empty(WAIT_S)
            assert run.ssc.statistics().completed_batches == 1
        assert [name for name, _ in events] == [
            "onStreamingStarted",
            "onBatchSubmitted",
            "onBatchStarted",
            "onOutputOperationStarted",
            "onOutputOperationCompleted",
            "onOutputOperationStarted",
            "onOutputOperationCompleted",
            "onBatchCompleted",
        ]
        by_name = dict(events)
        assert by_name["onStreamingStarted"].time() == 1_700_000_000_500
        submitted = by_name["onBatchSubmitted"].batchInfo()
        assert submitted.submissionTime() > 0
        assert submitted.processingStartTime() == -1
        assert submitted.totalDelay() == -1
        done = by_name["onBatchCompleted"].batchInfo()
        assert done.batchTime().milliseconds() == 1_700_000_001_000
        assert done.numRecords() == 3
        assert done.processingDelay() == done.processingEndTime() - done.processingStartTime()
        assert done.totalDelay() == done.schedulingDelay() + done.processingDelay()
        info = done.streamIdToInputInfo()[0]
        assert (info.inputStreamId(), info.numRecords()) == (0, 3)
        assert info.metadataDescription() == "three numbers"
        first, second = done.outputOperationInfos().values()
        assert (first.id(), second.id()) == (0, 1)
        assert first.name().startswith("foreachRDD at test_batches.py:")
        assert "test_events_come_in_order" in first.description()
        assert first.failureReason() is None
        assert "ZeroDivisionError" in second.failureReason()
        assert first.endTime() >= first.startTime() > 0

    def test_a_listener_that_fails_does_not_stop_the_others(self, sc: Any) -> None:
        class Failing(StreamingListener):
            def onBatchCompleted(self, batchCompleted: Any) -> None:
                raise ValueError

        with batches(sc) as run:
            run.ssc._bus.remove(run.events)
            run.ssc.addStreamingListener(Failing())
            run.ssc.addStreamingListener(run.events)
            run.ssc.queueStream([[1]]).foreachRDD(lambda rdd: None)
            run.run(2)

    def test_a_removed_listener_hears_nothing(self, sc: Any) -> None:
        heard: list[Any] = []

        class Hearing(StreamingListener):
            def onStreamingStarted(self, streamingStarted: Any) -> None:
                heard.append(streamingStarted)

        with batches(sc) as run:
            listener = Hearing()
            run.ssc.addStreamingListener(listener)
            run.ssc.removeStreamingListener(listener)
            run.ssc.queueStream([[1]]).foreachRDD(lambda rdd: None)
            run.run(1)
        assert heard == []

    def test_input_info_is_reported_once(self) -> None:
        tracker = InputInfoTracker()
        tracker.report_info(1000, BatchInput(0, 5))
        with pytest.raises(IllegalStateError, match="already added"):
            tracker.report_info(1000, BatchInput(0, 5))
        tracker.report_info(2000, BatchInput(0, 6))
        tracker.cleanup(2000)
        assert tracker.get_info(1000) == {}
        assert tracker.get_info(2000)[0].num_records == 6


class TestSparkJobs:
    def test_jobs_carry_batch_and_operation_and_the_programs_properties(self, sc: Any) -> None:
        seen: list[dict[str, Any]] = []
        names = [
            "spark.streaming.internal.batchTime",
            "spark.streaming.internal.outputOpId",
            "spark.job.description",
            "callSite.short",
            "callSite.long",
            "spark.jobGroup.id",
            "test.property",
            "test.mine",
        ]

        def look(rdd: Any) -> None:
            seen.append({name: sc.getLocalProperty(name) for name in names})
            assert sc.getJobTags()
            sc.setLocalProperty("test.mine", "x")

        sc.setLocalProperty("test.property", "kept")
        sc.setJobGroup("group", "not kept")
        try:
            with batches(sc) as run:
                stream = run.ssc.queueStream([[1]])
                stream.foreachRDD(look)
                stream.foreachRDD(look)
                run.run(1)
        finally:
            sc.setLocalProperty("test.property", None)
            sc.setLocalProperty("spark.jobGroup.id", None)
        first, second = seen
        assert first["spark.streaming.internal.batchTime"] == "1700000001000"
        assert first["spark.streaming.internal.outputOpId"] == "0"
        assert second["spark.streaming.internal.outputOpId"] == "1"
        assert "output operation 1, batch time" in second["spark.job.description"]
        assert second["spark.job.description"].startswith("foreachRDD at test_batches.py:")
        assert first["callSite.short"].startswith("foreachRDD at test_batches.py:")
        assert second["callSite.long"].startswith("test_jobs_carry_batch_and_operation")
        assert first["spark.jobGroup.id"] is None
        assert first["test.property"] == "kept"
        assert second["test.mine"] is None


class TestRemembering:
    def times(self, stream: Any) -> list[int]:
        return [ms // 1000 % 100 for ms in stream._node.generated]

    def drain(self, run: Any) -> None:
        assert run.ssc._engine._generator._loop.drain(WAIT_S)

    def test_old_rdds_are_forgotten_and_unpersisted(self, sc: Any) -> None:
        rdds: list[Any] = []
        with batches(sc) as run:
            stream = run.ssc.queueStream([[1], [2], [3]]).map(str).cache()
            stream.foreachRDD(lambda rdd: rdds.append(rdd) or rdd.count())
            run.run(3)
            self.drain(run)
            assert self.times(stream) == [3]
            assert [rdd.is_cached for rdd in rdds] == [False, False, True]

    def test_remember_keeps_them_longer(self, sc: Any) -> None:
        with batches(sc) as run:
            run.ssc.remember(2)
            with pytest.raises(IllegalStateError, match="Remember duration already set as 2000"):
                run.ssc.remember(3)
            stream = run.ssc.queueStream([[1], [2], [3], [4]])
            run.collect(stream)
            run.run(4)
            self.drain(run)
            assert self.times(stream) == [3, 4]

    def test_batches_without_jobs_are_forgotten_too(self, sc: Any) -> None:
        with batches(sc) as run:
            stream = run.ssc.queueStream([[1]])
            run.collect(stream.window(2, 2))
            run.start()
            run.clock.advance(5000)
            run.events.wait_for("batch", count=2)
            self.drain(run)
            assert self.times(stream) == [2, 3, 4]

    def test_slice(self, sc: Any) -> None:
        with batches(sc) as run:
            run.ssc.remember(10)
            stream = run.ssc.queueStream([[1], [2], [3]])
            with pytest.raises(IllegalStateError, match="has not been initialized"):
                stream.slice(0, 1)
            run.collect(stream)
            run.run(3)
            first, last = 1_700_000_001, 1_700_000_002
            found = stream.slice(first, last + 0.9)
            assert [rdd.collect() for rdd in found] == [[1], [2]]
            found = stream.slice(datetime.fromtimestamp(first), datetime.fromtimestamp(last))
            assert [rdd.collect() for rdd in found] == [[1], [2]]
            assert stream.slice(last, first) == []


class TestWindows:
    def test_window(self, sc: Any) -> None:
        with batches(sc) as run:
            stream = run.ssc.queueStream([[1], [2], [3], [4]])
            found = run.collect(stream.window(3))
            run.run(4)
        assert [sorted(x) for x in found] == [[1], [1, 2], [1, 2, 3], [2, 3, 4]]

    def test_window_with_slide(self, sc: Any) -> None:
        with batches(sc) as run:
            stream = run.ssc.queueStream([[1], [2], [3], [4]])
            found = run.collect(stream.window(3, 2))
            run.start()
            run.clock.advance(4000)
            run.events.wait_for("batch", count=2)
        assert [sorted(x) for x in found] == [[1, 2], [2, 3, 4]]

    def test_a_window_must_be_a_multiple_of_the_slide(self, sc: Any) -> None:
        with batches(sc) as run:
            stream = run.ssc.queueStream([[1]])
            with pytest.raises(ValueError, match="windowDuration must be multiple of the parent"):
                stream.window(1.5)
            with pytest.raises(ValueError, match="slideDuration must be multiple of the parent"):
                stream.window(2, 1.5)

    @pytest.mark.long
    @pytest.mark.slow
    def test_reduce_by_key_and_window_with_and_without_inverse(
        self, sc: Any, tmp_path: Any
    ) -> None:
        inputs = [[("a", 1)], [("a", 2), ("b", 1)], [("b", 5)], [], [], [("c", 1)], []]
        with batches(sc) as run:
            run.ssc.checkpoint(str(tmp_path))
            stream = run.ssc.queueStream(inputs)
            plain = run.collect(
                stream.reduceByKeyAndWindow(lambda a, b: a + b, None, 5, None, 1).persist(
                    StorageLevel.MEMORY_ONLY
                )
            )
            inverse = run.collect(
                stream.reduceByKeyAndWindow(
                    lambda a, b: a + b, lambda a, b: a - b, 5, None, 1, lambda kv: kv[1] > 0
                )
            )
            counted = run.collect(stream.countByWindow(5, 1))
            run.run(7)
        assert [dict(x) for x in plain] == [dict(x) for x in inverse]
        assert dict(plain[-1]) == {"b": 5, "c": 1}
        assert counted == [[1], [3], [4], [4], [4], [4], [2]]

    def test_group_by_key_and_window(self, sc: Any) -> None:
        with batches(sc) as run:
            stream = run.ssc.queueStream([[("a", 1)], [("a", 2)], [("b", 3)]])
            found = run.collect(stream.groupByKeyAndWindow(2, 1).mapValues(sorted))
            run.run(3)
        assert [dict(x) for x in found] == [{"a": [1]}, {"a": [1, 2]}, {"a": [2], "b": [3]}]


class TestState:
    def test_update_state_by_key(self, sc: Any, tmp_path: Any) -> None:
        def update(new: Any, old: int | None) -> int | None:
            total = sum(new) + (old or 0)
            return total if total < 10 else None

        with batches(sc) as run:
            run.ssc.checkpoint(str(tmp_path))
            stream = run.ssc.queueStream([[("a", 1)], [("a", 2), ("b", 3)], [("b", 7)]])
            found = run.collect(stream.updateStateByKey(update, initialRDD=[("c", 5)]))
            run.run(4)
        assert [dict(x) for x in found] == [
            {"a": 1, "c": 5},
            {"a": 3, "b": 3, "c": 5},
            {"a": 3, "c": 5},
            {"a": 3, "c": 5},
        ]


class TestBacklog:
    def test_it_is_visible(self, sc: Any, caplog: Any) -> None:
        release = threading.Event()
        with batches(sc) as run:
            stream = run.ssc.queueStream([[1]])
            stream.foreachRDD(lambda rdd: release.wait(WAIT_S) and None)
            run.start()
            with caplog.at_level("WARNING", logger="penstock.streaming"):
                run.clock.advance(12_000)
                pause = threading.Event()
                while run.ssc.statistics().waiting_batches < 11:
                    assert not pause.wait(0.01)
            statistics = run.ssc.statistics()
            assert (statistics.waiting_batches, statistics.running_batches) == (11, 1)
            assert "batches wait to be processed: none is complete yet" in caplog.text
            release.set()
            run.events.wait_for("batch", count=12)
            caplog.clear()
            release.clear()
            with caplog.at_level("WARNING", logger="penstock.streaming"):
                # Twice as many as before: the next warning.
                run.clock.advance(22_000)
                while run.ssc.statistics().waiting_batches < 21:
                    assert not pause.wait(0.01)
            assert "takes longer than the batch interval of 1000 ms" in caplog.text
            release.set()
            run.events.wait_for("batch", count=34)
        assert run.ssc.statistics().completed_batches == 34

    def test_it_is_bounded(self, sc: Any, monkeypatch: Any) -> None:
        monkeypatch.setattr("penstock.streaming.scheduler.job_scheduler._MAX_WAITING", 3)
        release = threading.Event()
        with batches(sc) as run:
            stream = run.ssc.queueStream([[i] for i in range(8)])
            found: list[Any] = []

            def slow(rdd: Any) -> None:
                release.wait(WAIT_S)
                found.append(rdd.collect())

            stream.foreachRDD(slow)
            run.start()
            run.clock.advance(8000)
            pause = threading.Event()
            while run.ssc.statistics().waiting_batches < 3:
                assert not pause.wait(0.01)
            assert not pause.wait(0.1)
            assert run.ssc.statistics().waiting_batches == 3
            release.set()
            run.events.wait_for("batch", count=8)
        assert found == [[i] for i in range(8)]
