"""`getOrCreate`: a context from a checkpoint, a new one, or an error that says why neither."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkConf

from penstock.errors import SettingError
from penstock.streaming import CheckpointReadError, StreamingContext
from penstock.streaming.checkpoint.record import Checkpoint, CheckpointHeader, SavedState
from penstock.streaming.recovery import recover_context, recovered_conf, saved_conf
from penstock.tracker import StreamsDoNotFitError
from tests.streaming.checkpoint.recovering import ZERO_MS, ProgramOf
from tests.streaming.checkpoint.stored import ledger_of, stored, stored_header
from tests.system.running import settings
from tests.tracker.ledger_cases import add, attempt_name, block

INPUT = [["a", "a", "b"], ["b"]]


def test_the_configuration_of_one_run_is_not_taken_over(sc: Any, monkeypatch: Any) -> None:
    """Spark: correct spark.driver.[host|port], SPARK-30199 ui port and blockmanager port."""
    saved = {
        "spark.app.id": "local-1",
        "spark.driver.host": "elsewhere",
        "spark.driver.bindAddress": "elsewhere",
        "spark.driver.port": "1",
        "spark.ui.port": "2",
        "spark.blockManager.port": "3",
        "spark.master": "local[7]",
        "spark.mine": "yes",
    }
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    found = dict(recovered_conf(saved.items()).getAll())
    assert found == {"spark.master": "local[7]", "spark.mine": "yes"}
    # As by spark-submit: what it says counts.
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    found = dict(recovered_conf(saved.items()).getAll())
    assert found["spark.master"] == sc.master
    assert found["spark.driver.host"] == "127.0.0.1"
    assert found["spark.mine"] == "yes"
    assert "spark.ui.port" not in found


ENDPOINT = "spark.penstock.storage.s3.endpoint"
PROFILE = "spark.penstock.storage.s3.profile"
PATIENCE = "spark.penstock.storage.patience"
SAVED_STORAGE = {ENDPOINT: "http://before:1", PROFILE: "before", PATIENCE: "5s"}


def test_a_program_goes_on_with_the_store_by_which_its_folder_was_found(
    sc: Any, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setenv("PENSTOCK_STORAGE_S3_ENDPOINT", "http://now:1")
    properties = sc._jvm.java.lang.System
    properties.setProperty(ENDPOINT, "http://now:1")
    try:
        found = dict(recovered_conf(SAVED_STORAGE.items(), "s3://bucket/app").getAll())
    finally:
        properties.clearProperty(ENDPOINT)
    assert found[ENDPOINT] == "http://now:1"
    # There was none; the folder was found by what else the environment has.
    assert PROFILE not in found
    assert found[PATIENCE] == "5s"
    # It counts: so nothing is said.
    assert ENDPOINT not in caplog.text


def test_a_program_whose_checkpoint_is_elsewhere_keeps_how_its_logs_are_reached(
    sc: Any, monkeypatch: Any
) -> None:
    monkeypatch.delenv("PENSTOCK_STORAGE_S3_ENDPOINT", raising=False)
    for path in ("/var/lib/app", "hdfs://host/app"):
        found = dict(recovered_conf(SAVED_STORAGE.items(), path).getAll())
        assert SAVED_STORAGE.items() <= found.items()


@pytest.mark.parametrize(
    ("key", "text"),
    [("s3.endpont", "http://host:9000"), ("patience", "long")],
)
def test_a_setting_of_a_store_that_is_wrong_is_named_as_it_was_given(
    sc: Any, monkeypatch: Any, key: str, text: str
) -> None:
    key = f"spark.penstock.storage.{key}"
    with settings(sc, {key: text}), pytest.raises(SettingError, match=re.escape(key)):
        StreamingContext.getOrCreate("s3://bucket/app", lambda: 1 / 0)
    # As by spark-submit, before there is a Spark context.
    monkeypatch.setattr(type(sc), "_active_spark_context", None)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    properties = sc._jvm.java.lang.System
    properties.setProperty(key, text)
    try:
        with pytest.raises(SettingError, match=re.escape(key)):
            StreamingContext.getOrCreate("s3://bucket/app", lambda: 1 / 0)
    finally:
        properties.clearProperty(key)


def test_what_is_set_otherwise_than_in_a_checkpoint_is_said_with_the_value_that_counts(
    sc: Any, program_of: ProgramOf, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    program = program_of(lambda program, ssc: program.keep(program.listed(ssc, INPUT)))
    changed = {"spark.mine": "2", "spark.mine.password": "b", "spark.penstock.console": "on"}
    with settings(sc, {"spark.mine": "1", "spark.mine.password": "a", "spark.other": "x"}):
        program.run(1)
        recover_context(StreamingContext, str(program.checkpoint))
        assert "where they differ" not in caplog.text
    with settings(sc, changed):
        recover_context(StreamingContext, str(program.checkpoint))
    (said,) = [text for text in caplog.messages if "where they differ" in text]
    assert said.partition("SparkContext count, and not those of the checkpoint")[1]
    assert said.partition(": ")[2].split("; ") == [
        "spark.mine is 2, 1 in the checkpoint",
        "spark.mine.password (not shown)",
        "spark.other is not set, x in the checkpoint",
        "spark.penstock.console is on, not in the checkpoint",
    ]


def test_a_setting_that_does_not_count_after_a_restart_is_said(
    sc: Any, monkeypatch: Any, caplog: pytest.LogCaptureFixture
) -> None:
    # As by spark-submit: what it says is in the properties of the JVM.
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    properties = sc._jvm.java.lang.System
    given = {"spark.mine": "2", "spark.new": "3", "spark.mine.secret": "c", "spark.same": "s"}
    for key, value in given.items():
        properties.setProperty(key, value)
    try:
        saved = {"spark.mine": "1", "spark.same": "s", "spark.mine.secret": "b", "spark.gone": "4"}
        found = dict(recovered_conf(saved.items()).getAll())
    finally:
        for key in given:
            properties.clearProperty(key)
    assert saved.items() <= found.items()
    assert "spark.new" not in found
    (said,) = [text for text in caplog.messages if "The settings of the checkpoint count" in text]
    assert "getOrCreate(..., version=...)" in said
    assert "spark.mine is 2, 1 in the checkpoint; spark.mine.secret (not shown); " in said
    assert "spark.new is 3, not in the checkpoint" in said
    assert "spark.same" not in said
    assert "spark.gone" not in said


def test_what_spark_adds_to_the_options_of_a_jvm_is_not_saved(sc: Any) -> None:
    """Else it would be added again in each run, until a JVM takes no more."""

    class Context:
        _jvm = sc._jvm

        def __init__(self, **settings: str) -> None:
            self.settings = settings

        def getConf(self) -> Any:
            return SparkConf(loadDefaults=False).setAll(
                [(f"spark.{key}.extraJavaOptions", value) for key, value in self.settings.items()]
            )

    driver = "spark.driver.extraJavaOptions"
    added = sc.getConf().get(driver)
    assert "--add-opens" in added
    assert driver not in dict(saved_conf(sc))
    context = Context(driver=f"{added} {added} -Dmine=1", executor="-Dmine=2")
    assert dict(saved_conf(context)) == {
        driver: "-Dmine=1",
        "spark.executor.extraJavaOptions": "-Dmine=2",
    }


def test_a_queue_cannot_be_recovered(sc: Any, tmp_path: Path, caplog: Any) -> None:
    """Spark: queueStream doesn't support checkpointing."""

    def setup() -> StreamingContext:
        ssc = StreamingContext(sc, 1)
        ssc.queueStream([[1]]).foreachRDD(lambda rdd: None)
        return ssc

    with caplog.at_level(logging.WARNING, "penstock.streaming"):
        ssc = StreamingContext.getOrCreate(str(tmp_path), setup)
        ssc.start()
    assert "queueStream doesn't support checkpointing" in caplog.text
    ssc.stop(stopSparkContext=False)
    with pytest.raises(CheckpointReadError, match="queueStream doesn't support checkpointing"):
        StreamingContext.getOrCreate(str(tmp_path), setup)


class TestAnotherCheckpoint:
    """What a program that starts anew does with the checkpoint of another one."""

    def stored(self, folder: Path) -> Checkpoint:
        """Put one there, and in the ledger a stream that somebody has to go on with."""
        state = SavedState(name="totals", file=b"", time_ms=1000)
        facts = {"program": "one", "batch_ms": 1000, "zero_ms": 0, "app_name": "sums"}
        one = Checkpoint(CheckpointHeader(last_batch_ms=1000, states=(state,), **facts), b"graph")
        ledger = ledger_of(folder)
        ledger.write_checkpoint(one.encode())
        ledger.register_streams({"clicks": 0})
        name = attempt_name(1)
        first = ledger.register_attempt(0, name, "host").first_block_number
        add(ledger, 0, name, [block(0, name, first)])
        ledger.close()
        return one

    def queue(self, sc: Any, folder: Path) -> StreamingContext:
        ssc = StreamingContext(sc, 1)
        ssc.checkpoint(str(folder))
        ssc.queueStream([[1]]).foreachRDD(lambda rdd: None)
        return ssc

    def test_a_start_that_is_refused_leaves_it(self, sc: Any, tmp_path: Path) -> None:
        one = self.stored(tmp_path)
        ssc = self.queue(sc, tmp_path)
        ssc.receiverStream(lambda: iter([1]), name="orders").foreachRDD(lambda rdd: None)
        with pytest.raises(StreamsDoNotFitError):
            ssc.start()
        assert stored(tmp_path) == one

    def test_its_states_are_not_given_up_in_silence(
        self, sc: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.stored(tmp_path)
        ssc = self.queue(sc, tmp_path)
        ssc.start()
        ssc.stop(stopSparkContext=False)
        (told,) = [text for text in caplog.messages if "starts over" in text]
        assert "states of application sums (totals) are gone" in told
        assert "StreamingContext.getOrCreate" in told
        assert stored_header(tmp_path).refusal

    def test_one_that_came_after_none_was_found_is_not_replaced(
        self, sc: Any, tmp_path: Path
    ) -> None:
        """As when a program is started twice, and the second waits for something in `setupFunc`."""

        def setup() -> StreamingContext:
            ssc = StreamingContext(sc, 1)
            ssc.queueStream([[1]]).foreachRDD(lambda rdd: None)
            return ssc

        ssc = StreamingContext.getOrCreate(str(tmp_path), setup)
        one = self.stored(tmp_path)
        with pytest.raises(CheckpointReadError, match=r"there was none; and now .* 1000 ms"):
            ssc.start()
        assert stored(tmp_path) == one


class TestGetOrCreate:
    """Spark: getOrCreate, getActiveOrCreate with checkpoint, non-existent checkpoint dir; PySpark:
    test_get_or_create_and_get_active_or_create."""

    def test_new_recovered_or_active(self, program_of: ProgramOf, sc: Any) -> None:
        program = program_of(lambda program, ssc: program.keep(program.listed(ssc, INPUT)))
        path = str(program.checkpoint)
        calls = []

        def setup() -> StreamingContext:
            calls.append(1)
            ssc = StreamingContext(sc, 1, clock=program.clock)
            program.build(program, ssc)
            return ssc

        assert recover_context(StreamingContext, path) is None
        for create in (StreamingContext.getOrCreate, StreamingContext.getActiveOrCreate):
            ssc = create(path, setup)
            assert ssc._checkpoint_directory == path
            ssc.stop(stopSparkContext=False)
        assert len(calls) == 2
        program.run(1)
        for create in (StreamingContext.getOrCreate, StreamingContext.getActiveOrCreate):
            ssc = create(path, setup)
            assert ssc.sparkContext is sc
            assert ssc._graph.zero_ms == ZERO_MS
            ssc.stop(stopSparkContext=False)
        assert len(calls) == 2
        program.open().start()
        assert StreamingContext.getActiveOrCreate(path, setup) is program.ssc
        program.stop()
        # Without a path, checkpoints do not count.
        StreamingContext.getActiveOrCreate(None, setup).stop(stopSparkContext=False)
        assert len(calls) == 3

    def test_unreadable_checkpoints(self, sc: Any, tmp_path: Path) -> None:
        (tmp_path / "checkpoint-1").write_text("corrupt")
        with pytest.raises(CheckpointReadError, match="Failed to read checkpoint from directory"):
            StreamingContext.getOrCreate(str(tmp_path), lambda: StreamingContext(sc, 1))
