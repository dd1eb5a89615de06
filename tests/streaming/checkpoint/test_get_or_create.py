"""`getOrCreate`: a context from a checkpoint, a new one, or an error that says why neither."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkConf

from penstock.streaming import CheckpointReadError, StreamingContext
from penstock.streaming.recovery import recover_context, recovered_conf, saved_conf
from tests.streaming.checkpoint.recovering import ZERO_MS, ProgramOf
from tests.system.running import settings

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
