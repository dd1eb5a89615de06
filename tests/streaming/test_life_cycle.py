"""A context's life: start, errors, waiting, stopping, and what a failed start leaves."""

from __future__ import annotations

import os
import signal
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import IllegalStateError, SettingError
from penstock.runtime.clock import ManualClock
from penstock.streaming import (
    JobGenerationError,
    LogFolderInUseError,
    OutputOperationError,
    StreamGraphError,
    StreamingContext,
    StreamingContextState,
    StreamingListener,
)
from tests.programs import run_to_end
from tests.streaming.batches import WAIT_S, batches, forget_checkpoint_directory
from tests.streaming.checkpoint.stored import ledger_of

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


_OTHERS: set[threading.Thread] = set()
"""Those of tests before, in the same process: one may still hang in a service."""


@pytest.fixture(autouse=True)
def threads_of_others() -> None:
    _OTHERS.clear()
    _OTHERS.update(threading.enumerate())


def own_threads() -> list[str]:
    found = (t for t in threading.enumerate() if t not in _OTHERS)
    return [t.name for t in found if t.name.startswith("penstock-")]


def nothing(rdd: Any) -> None:
    pass


class TestStart:
    def test_without_output_operations_the_error_says_so(self, sc: Any) -> None:
        ssc = StreamingContext(sc, 1)
        ssc.queueStream([[1]]).map(str)
        with pytest.raises(StreamGraphError, match="No output operations registered, so nothing"):
            ssc.start()
        assert ssc.getState() is StreamingContextState.STOPPED
        assert StreamingContext.getActive() is None
        assert own_threads() == []
        # Whoever waits is told, too.
        with pytest.raises(StreamGraphError):
            ssc.awaitTermination()

    def test_states(self, sc: Any) -> None:
        with batches(sc) as run:
            run.ssc.queueStream([[1]]).foreachRDD(nothing)
            assert run.ssc.getState() is StreamingContextState.INITIALIZED
            run.start()
            assert run.ssc.getState() is StreamingContextState.ACTIVE
            assert StreamingContext.getActive() is run.ssc
            run.start()
            run.ssc.stop(False)
            assert run.ssc.getState() is StreamingContextState.STOPPED
            assert StreamingContext.getActive() is None
            assert run.ssc.awaitTerminationOrTimeout(0)
            with pytest.raises(IllegalStateError, match="has already been stopped"):
                run.start()
        assert own_threads() == []

    def test_one_context_is_active_at_a_time(self, sc: Any) -> None:
        with batches(sc) as first, batches(sc) as second:
            for run in (first, second):
                run.ssc.queueStream([[1]]).foreachRDD(nothing)
            first.start()
            with pytest.raises(IllegalStateError, match="Only one StreamingContext"):
                second.start()
            first.ssc.stop(False)
            second.start()
            assert StreamingContext.getActive() is second.ssc

    def test_a_checkpoint_directory_has_one_program_at_a_time(
        self, sc: Any, tmp_path: Path
    ) -> None:
        """Also without receivers."""
        folder = tmp_path / "cp"
        for is_used in (True, False):
            with batches(sc) as run:
                run.ssc.checkpoint(tmp_path / "cp")
                run.ssc.textFileStream(str(tmp_path)).foreachRDD(nothing)
                if is_used:
                    other = ledger_of(folder)
                    with pytest.raises(LogFolderInUseError, match="in use by process"):
                        run.start()
                    assert other.checkpoint == b""
                    other.close()
                else:
                    run.run(1)
                    with pytest.raises(LogFolderInUseError):
                        ledger_of(folder)
            assert own_threads() == []
        ledger_of(folder).close()

    def test_a_bad_setting_is_named(self, sc: Any, monkeypatch: Any) -> None:
        conf = sc.getConf().set("spark.streaming.concurrentJobs", "none")
        monkeypatch.setattr(sc, "getConf", lambda: conf)
        ssc = StreamingContext(sc, 1)
        ssc.queueStream([[1]]).foreachRDD(nothing)
        with pytest.raises(SettingError, match="concurrentJobs"):
            ssc.start()
        assert own_threads() == []

    @pytest.mark.parametrize("duration", [None, 0, -1, 0.0001])
    def test_a_batch_duration_is_needed(self, sc: Any, duration: Any) -> None:
        with pytest.raises(ValueError, match="batchDuration"):
            StreamingContext(sc, duration)

    def test_durations_are_rounded_to_milliseconds(self, sc: Any) -> None:
        assert StreamingContext(sc, 2.01)._graph.batch_ms == 2010

    def test_state_needs_a_checkpoint_directory(self, sc: Any) -> None:
        forget_checkpoint_directory(sc)
        ssc = StreamingContext(sc, 1)
        state = ssc.queueStream([[("a", 1)]]).updateStateByKey(lambda new, old: sum(new))
        state.foreachRDD(nothing)
        with pytest.raises(StreamGraphError, match="checkpoint directory has not been set"):
            ssc.start()

    @pytest.mark.slow
    def test_the_checkpoint_directory_of_the_spark_context_will_do_for_states(
        self, sc: Any, tmp_path: Path, caplog: Any
    ) -> None:
        sc.setCheckpointDir(str(tmp_path))
        with batches(sc) as run:
            pairs = run.ssc.queueStream([[("a", 1)], [("a", 2)]])
            states = pairs.updateStateByKey(lambda new, old: sum(new) + (old or 0))
            found = run.collect(states.checkpoint(1))
            run.run(2)
            saved = [rdd.isCheckpointed() for rdd in states._node.generated.values()]
        assert found == [[("a", 1)], [("a", 3)]]
        assert any(saved)
        # The RDDs are there, and nothing that a driver could go on from.
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith("check")] == []
        assert "States are saved in" in caplog.text
        assert "StreamingContext.checkpoint(...)" in caplog.text

    def test_nothing_is_added_or_changed_after_the_start(self, sc: Any) -> None:
        with batches(sc) as run:
            stream = run.ssc.queueStream([[1]])
            stream.foreachRDD(nothing)
            run.start()
            for add in (
                lambda: run.ssc.queueStream([[1]]),
                lambda: stream.foreachRDD(nothing),
                lambda: stream.window(1),
            ):
                with pytest.raises(IllegalStateError, match="after starting a context"):
                    add()
            with pytest.raises(IllegalStateError, match="Cannot change storage level"):
                stream.cache()
            with pytest.raises(IllegalStateError, match="Cannot change checkpoint interval"):
                stream.checkpoint(1)
            stream.map(str)
            run.ssc.stop(False)
            with pytest.raises(IllegalStateError, match="after stopping a context"):
                stream.foreachRDD(nothing)


class TestErrors:
    def test_a_failed_operation_costs_only_itself(self, sc: Any) -> None:
        def fail(rdd: Any) -> None:
            raise ValueError("it broke")

        with batches(sc) as run:
            stream = run.ssc.queueStream([[1], [2]])
            found = run.collect(stream)
            stream.foreachRDD(fail)  # last, where the original never clears the batch
            run.run(2)
            assert found == [[1], [2]]
            assert run.ssc.getState() is StreamingContextState.ACTIVE
            for _ in range(2):  # it is raised again
                with pytest.raises(OutputOperationError, match=r"output operation 1 .*fail") as got:
                    run.ssc.awaitTermination(WAIT_S)
                assert isinstance(got.value.__cause__, ValueError)
                assert got.value.__cause__.__traceback__ is not None
                assert got.value.batch_time_ms == 1_700_000_002_000
            infos = run.events.of("batch")[0].outputOperationInfos()
            assert infos[0].failureReason() is None
            assert "ValueError: it broke" in infos[1].failureReason()
            # Cleared like any other batch: only the last RDD is remembered.
            assert run.ssc._engine is not None
            assert run.ssc._engine._generator._loop.drain(WAIT_S)
            assert list(stream._node.generated) == [1_700_000_002_000]
            assert run.ssc.statistics().failed_batches == 2

    def test_an_error_in_a_task_reaches_the_waiter(self, sc: Any) -> None:
        with batches(sc) as run:
            run.collect(run.ssc.queueStream([[0]]).map(lambda x: 1 // x))
            run.run(1)
            with pytest.raises(OutputOperationError, match="ZeroDivisionError"):
                run.ssc.awaitTermination(WAIT_S)

    def test_an_error_while_a_batch_is_made_costs_only_its_operation(self, sc: Any) -> None:
        def fail(rdd: Any) -> Any:
            raise ValueError("no RDD")

        with batches(sc) as run:
            stream = run.ssc.queueStream([[1], [2]])
            run.collect(stream.transform(fail))
            found = run.collect(stream)
            run.run(2)
            assert found == [[1], [2]]
            with pytest.raises(JobGenerationError, match=r"no RDD \(for \w+ at ") as got:
                run.ssc.awaitTermination(WAIT_S)
            assert isinstance(got.value.__cause__, ValueError)

    def test_transform_must_return_an_rdd(self, sc: Any) -> None:
        with batches(sc) as run:
            run.collect(run.ssc.queueStream([[1]]).transform(lambda rdd: rdd.collect()))
            run.run(1)
            with pytest.raises(
                JobGenerationError,
                match=r"transform at test_life_cycle\.py:\d+ must return an RDD or None, not list",
            ):
                run.ssc.awaitTermination(WAIT_S)


class TestStop:
    def test_stop_may_come_at_any_time_and_again(self, sc: Any) -> None:
        ssc = StreamingContext(sc, 1)
        ssc.stop(False)
        ssc.stop(False)
        assert ssc.awaitTerminationOrTimeout(0)
        with pytest.raises(IllegalStateError, match="already been stopped"):
            ssc.start()

    def test_a_program_that_ends_while_its_context_stops_is_not_told_to_stop_it(
        self, sc: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        ssc = StreamingContext(sc, 1)
        ssc.queueStream([[1]]).foreachRDD(lambda rdd: None)
        ssc.start()
        ssc.stop(stopSparkContext=False)
        ssc._stop_at_exit()
        assert "without StreamingContext.stop()" not in caplog.text

    def test_who_waits_for_a_context_that_was_not_started_is_told(
        self, sc: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ssc = StreamingContext(sc, 1)
        told = threading.Event()
        monkeypatch.setattr(caplog.handler, "flush", told.set)
        waiting = threading.Thread(target=ssc.awaitTermination, name="waiting")
        waiting.start()
        assert told.wait(WAIT_S)
        assert "was not started" in caplog.text
        assert "call start() before" in caplog.text
        ssc.stop(stopSparkContext=False)
        waiting.join(WAIT_S)
        assert not waiting.is_alive()
        ssc.awaitTermination()
        assert caplog.text.count("was not started") == 1

    def test_waiting_ends_with_stop(self, sc: Any) -> None:
        with batches(sc) as run:
            run.ssc.queueStream([[1]]).foreachRDD(nothing)
            run.start()
            assert not run.ssc.awaitTerminationOrTimeout(0.01)
            stopper = threading.Thread(target=run.ssc.stop, args=(False,))
            stopper.start()
            run.ssc.awaitTermination(WAIT_S)
            stopper.join(WAIT_S)
            assert run.ssc.awaitTerminationOrTimeout(0)

    @pytest.mark.parametrize("graceful", [False, True])
    def test_an_output_operation_may_stop_the_context(self, sc: Any, graceful: bool) -> None:
        with batches(sc) as run:
            stream = run.ssc.queueStream([[1]])
            stream.foreachRDD(lambda rdd: run.ssc.stop(False, graceful))
            run.start()
            run.clock.advance(1000)
            assert run.ssc.awaitTerminationOrTimeout(WAIT_S)

    def test_a_listener_must_not_stop_the_context(self, sc: Any) -> None:
        errors: list[Exception] = []
        called = threading.Event()

        class Stopping(StreamingListener):
            def onBatchCompleted(self, batchCompleted: Any) -> None:
                try:
                    run.ssc.stop(False)
                except IllegalStateError as error:
                    errors.append(error)
                called.set()

        with batches(sc) as run:
            run.ssc.addStreamingListener(Stopping())
            run.ssc.queueStream([[1]]).foreachRDD(nothing)
            run.run(1)
            assert called.wait(WAIT_S)
        assert "Cannot stop StreamingContext within listener bus thread" in str(errors[0])

    def test_a_graceful_stop_processes_what_waits_and_makes_no_more(self, sc: Any) -> None:
        release = threading.Event()
        seen: list[Any] = []

        def slow(rdd: Any) -> None:
            assert release.wait(WAIT_S)
            seen.append(rdd.collect())

        with batches(sc) as run:
            run.ssc.queueStream([[1], [2], [3], [4]]).foreachRDD(slow)
            run.start()
            engine = run.ssc._engine
            assert engine is not None
            for _ in range(3):
                run.clock.advance(1000)
            submitted = threading.Event()
            while run.ssc.statistics().waiting_batches < 2:
                assert not submitted.wait(0.01)
            stopper = threading.Thread(target=run.ssc.stop, args=(False, True))
            stopper.start()
            release.set()
            stopper.join(WAIT_S)
            assert not stopper.is_alive()
        assert seen == [[1], [2], [3]]
        assert own_threads() == []

    @pytest.mark.slow
    def test_a_graceful_stop_is_bounded(self, sc: Any, monkeypatch: Any) -> None:
        conf = sc.getConf().set("spark.streaming.gracefulStopTimeout", "100ms")
        monkeypatch.setattr(sc, "getConf", lambda: conf)
        started, release = threading.Event(), threading.Event()

        def endless(rdd: Any) -> None:
            started.set()
            release.wait(WAIT_S)

        with batches(sc) as run:
            run.ssc.queueStream([[1]]).foreachRDD(endless)
            run.start()
            run.clock.advance(1000)
            assert started.wait(WAIT_S)
            threading.Timer(1.0, release.set).start()
            run.ssc.stop(False, True)
            assert run.ssc.getState() is StreamingContextState.STOPPED

    def test_a_graceful_stop_that_waited_for_receivers_alone_says_so(
        self, sc: Any, monkeypatch: Any, caplog: Any
    ) -> None:
        conf = sc.getConf().set("spark.streaming.gracefulStopTimeout", "100ms")
        monkeypatch.setattr(sc, "getConf", lambda: conf)
        with batches(sc) as run:
            run.ssc.queueStream([[1]]).foreachRDD(nothing)
            run.start()
            assert run.ssc._engine is not None
            slow = threading.Event()
            monkeypatch.setattr(
                run.ssc._engine._receivers, "stop_receiving", lambda *_: slow.wait(0.2)
            )
            monkeypatch.setattr(run.ssc._engine._generator, "finish", lambda left_s: left_s > 0)
            report = run.ssc.stop(False, True)
        assert report is not None
        assert report.is_complete
        assert "it waited for receivers; no batch is given up" in caplog.text

    def test_what_a_stop_gave_up_is_returned_and_counted(
        self, sc: Any, monkeypatch: Any, caplog: Any
    ) -> None:
        conf = sc.getConf().set("spark.streaming.gracefulStopTimeout", "100ms")
        monkeypatch.setattr(sc, "getConf", lambda: conf)
        started, release = threading.Event(), threading.Event()

        def endless(rdd: Any) -> None:
            started.set()
            release.wait(WAIT_S)

        with batches(sc) as run:
            run.ssc.queueStream([[1], [2]]).foreachRDD(endless)
            run.start()
            run.clock.advance(3000)
            assert started.wait(WAIT_S)
            pause = threading.Event()
            while run.ssc.statistics().waiting_batches < 2:
                assert not pause.wait(0.005)
            threading.Timer(0.5, release.set).start()
            report = run.ssc.stop(False, True)
        assert report is not None
        assert not report.is_complete
        # The first one ended while the stop went on.
        assert [batch.time_ms for batch in report.given_up] == [
            1_700_000_002_000,
            1_700_000_003_000,
        ]
        assert run.ssc.statistics().given_up_batches == 2
        assert "The stop gave up 2 batches" in caplog.text
        assert run.ssc.stop(False) == report

    def test_a_stop_does_not_wait_for_a_function_that_makes_a_batch(
        self, sc: Any, monkeypatch: Any
    ) -> None:
        monkeypatch.setattr("penstock.streaming._engine._THREADS_END_S", 0.1)
        conf = sc.getConf().set("spark.streaming.gracefulStopTimeout", "100ms")
        monkeypatch.setattr(sc, "getConf", lambda: conf)
        entered, release, returned = threading.Event(), threading.Event(), threading.Event()

        def hang(rdd: Any) -> Any:
            entered.set()
            release.wait(WAIT_S)
            returned.set()
            return rdd

        ran: list[Any] = []
        with batches(sc) as run:
            run.ssc.queueStream([[1]]).transform(hang).foreachRDD(ran.append)
            run.start()
            run.clock.advance(1000)
            assert entered.wait(WAIT_S)
            report = run.ssc.stop(False, True)
            assert report is not None
            assert report.batches_not_made == 1
            assert not returned.is_set()
            assert run.ssc.getState() is StreamingContextState.STOPPED
            release.set()
            assert run.ssc._engine is not None
            run.ssc._engine._generator._loop.thread.join(WAIT_S)
        assert ran == []

    def test_a_stop_that_hangs_or_fails_in_one_part_stops_the_others(
        self, sc: Any, monkeypatch: Any, caplog: Any
    ) -> None:
        monkeypatch.setattr("penstock.streaming._engine._RECEIVERS_CANCEL_S", 0.1)
        release = threading.Event()

        def fail(*_: Any) -> None:
            raise OSError("it broke")

        with batches(sc) as run:
            run.ssc.queueStream([[1]]).foreachRDD(nothing)
            run.start()
            engine = run.ssc._engine
            assert engine is not None
            monkeypatch.setattr(engine._receivers, "stop", lambda _: release.wait(WAIT_S))
            monkeypatch.setattr(engine._scheduler, "stop", fail)
            scheduler_stop = type(engine._scheduler).stop
            run.ssc.stop(False)
            assert run.ssc.getState() is StreamingContextState.STOPPED
            assert StreamingContext.getActive() is None
            assert run.ssc.awaitTerminationOrTimeout(0)
            release.set()
            scheduler_stop(engine._scheduler, WAIT_S)
        assert "Stopping output operations failed" in caplog.text
        assert "Stopping the tracker has not ended" in caplog.text

    def test_a_graceful_stop_by_an_output_operation_processes_what_waits(
        self, sc: Any, caplog: Any
    ) -> None:
        seen: list[Any] = []
        returned: list[Any] = []

        def work(rdd: Any) -> None:
            if not seen:
                while run.ssc.statistics().waiting_batches < 2:
                    assert not threading.Event().wait(0.005)
                returned.append(run.ssc.stop(False, True))
            seen.append(rdd.collect())

        with batches(sc) as run:
            run.ssc.queueStream([[1], [2], [3]]).foreachRDD(work)
            run.start()
            run.clock.advance(3000)
            assert run.ssc.awaitTerminationOrTimeout(WAIT_S)
            assert run.ssc.stop(False).is_complete  # type: ignore[union-attr]  # it is stopped
        assert returned == [None]
        assert seen == [[1], [2], [3]]
        assert "called by a function that a batch waits for" in caplog.text

    @pytest.mark.long
    @pytest.mark.slow
    def test_a_fast_stop_cancels_running_spark_jobs(self, sc: Any) -> None:
        started = threading.Event()

        def endless(rdd: Any) -> None:
            started.set()
            rdd.foreach(lambda _: threading.Event().wait(60))

        with batches(sc) as run:
            run.ssc.queueStream([[1]]).foreachRDD(endless)
            run.start()
            run.clock.advance(1000)
            assert started.wait(WAIT_S)
            run.ssc.stop(False)
        assert own_threads() == []


PROGRAM = textwrap.dedent(
    """
    import os, signal, sys, threading
    from pyspark import SparkConf, SparkContext
    from penstock.streaming import StreamingContext

    conf = SparkConf().setMaster("local[2]").set("spark.ui.enabled", "false")
    conf.set("spark.streaming.gracefulStopTimeout", "60s")
    sc = SparkContext(conf=conf)
    sc.setLogLevel("OFF")
    ssc = StreamingContext(sc, 0.1)
    seen = []
    interrupted = threading.Event()

    def work(rdd):
        if not seen:
            seen.append(None)
            os.kill(os.getpid(), signal.SIGINT)
            assert interrupted.wait(60)
        seen.append(rdd.map(str).collect())

    ssc.queueStream([["a"]]).foreachRDD(work)
    ssc.start()
    try:
        ssc.awaitTermination()
    except KeyboardInterrupt:
        interrupted.set()
        print("interrupted")
    if "stop" in sys.argv:
        ssc.stop(stopSparkContext=True, stopGraceFully=True)
    print("seen", seen[1:2])
    """
)


@pytest.mark.slow
class TestProgram:
    @pytest.mark.exhaustive  # `tests/system/test_signals.py` has Ctrl-C.
    @pytest.mark.parametrize("how", ["stop", "forget"])
    def test_ctrl_c_leaves_running_batches_alone_and_nothing_hangs(self, how: str) -> None:
        done = run_to_end("-c", PROGRAM, how, code=None)
        assert done.returncode == 0, done.stderr
        assert "interrupted" in done.stdout
        if how == "stop":
            assert "seen [['a']]" in done.stdout
        assert "Traceback" not in done.stderr

    @pytest.mark.exhaustive  # `test_signals` ends a program in the same way.
    def test_the_order_to_end_drains_when_the_setting_says_so(self) -> None:
        program = textwrap.dedent(
            """
            import os, signal, threading
            from pyspark import SparkConf, SparkContext
            from penstock.streaming import StreamingContext

            conf = SparkConf().setMaster("local[2]").set("spark.ui.enabled", "false")
            conf.set("spark.streaming.stopGracefullyOnShutdown", "true")
            conf.set("spark.streaming.gracefulStopTimeout", "60s")
            sc = SparkContext(conf=conf)
            sc.setLogLevel("OFF")
            ssc = StreamingContext(sc, 0.1)

            def work(time, rdd):
                if not ordered:
                    ordered.append(True)
                    os.kill(os.getpid(), signal.SIGTERM)
                    # The timer and the receivers stop first; this operation is waited for.
                    threading.Event().wait(1)
                    print("processed", rdd.map(str).collect(), flush=True)

            ordered = []
            ssc.queueStream([["a"]]).foreachRDD(work)
            ssc.start()
            ssc.awaitTermination()
            """
        )
        done = run_to_end("-c", program, code=None)
        assert done.returncode == 128 + signal.SIGTERM, done.stderr
        assert "processed ['a']" in done.stdout

    @pytest.mark.exhaustive  # `tests/sql/test_host_command.py` kills one.
    def test_a_program_whose_jvm_was_killed_ends_with_one_error(self) -> None:
        program = textwrap.dedent(
            """
            import os, signal, threading
            from pyspark import SparkConf, SparkContext
            from penstock.receiver import receiver
            from penstock.streaming import SparkEndedError, StreamingContext

            conf = SparkConf().setMaster("local[3]").set("spark.ui.enabled", "false")
            sc = SparkContext(conf=conf)
            sc.setLogLevel("OFF")

            @receiver
            def numbers(ctx):
                while not ctx.stopped.wait(0.05):
                    yield 1

            ssc = StreamingContext(sc, 0.2)
            counted = threading.Event()
            ssc.receiverStream(numbers).foreachRDD(lambda rdd: rdd.count() and counted.set())
            ssc.start()
            assert counted.wait(200)
            os.kill(sc._gateway.proc.pid, signal.SIGKILL)
            try:
                print("in time", ssc.awaitTerminationOrTimeout(60))
            except SparkEndedError as error:
                print("ended:", error)
            pause = threading.Event()
            while ssc.getState().name != "STOPPED":
                pause.wait(0.05)
            try:
                ssc.awaitTermination()
            except SparkEndedError as error:
                print("still:", error.reason)
            print("stop:", ssc.stop(True, True))
            """
        )
        done = run_to_end("-c", program, code=None)
        assert "ended: the streams have ended because Spark has: its JVM does not" in done.stdout, (
            done.stdout + done.stderr
        )
        assert "still: its JVM does not answer" in done.stdout
        # A `finally` with a stop hides no error by another.
        assert "\nstop: " in done.stdout
        assert done.stderr.count("the streams have ended because") == 1
        assert "failed for good" not in done.stderr
        assert done.returncode == 0


def test_signal_handlers_of_the_program_are_kept(sc: Any) -> None:
    calls: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, frame: calls.append(number))
    try:
        ssc = StreamingContext(sc, 1, clock=ManualClock(0))
        timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        assert not ssc.awaitTerminationOrTimeout(0.3)
        timer.join()
        assert calls == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, previous)
        ssc.stop(False)
