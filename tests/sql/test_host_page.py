"""A `ReceiverHost` that is looked at and changed from outside, on a real Spark."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.__main__ import main
from penstock.errors import IllegalStateError
from penstock.monitor.cli import AppClient
from penstock.monitor.registry import registered, runtime_folder
from penstock.receiver import receiver
from penstock.sql import ReceiverHost
from penstock.streaming import StreamingContext
from tests.bounds import HANG_S
from tests.monitor import asking
from tests.sql.sources import await_records, hosting, started

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

until = partial(asking.until, bound_s=HANG_S)

THREADS = ("penstock-ui", "penstock-monitor", "penstock-spark-views")


@receiver(positions=True)
def counting(context: Any) -> Iterator[tuple[str, int]]:
    number = context.last_position or 0
    while not context.stopped.wait(0.002):
        number += 1
        yield str(number), number


@receiver(positions=True, schema="n bigint")
def half_bad(context: Any) -> Iterator[tuple[list[dict[str, Any]], int]]:
    for place in range(context.last_position or 0, 9):
        yield [{"n": place}, {"n": "bad"}, {"n": "bad"}], place + 1
    context.stopped.wait()


@pytest.fixture
def spark(sc: Any) -> SparkSession:
    session = SparkSession(sc)
    session.conf.set("spark.sql.shuffle.partitions", "2")
    return session


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "runtime").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    return tmp_path


@pytest.fixture
def setting(spark: SparkSession) -> Iterator[Any]:
    conf = spark.sparkContext._conf
    given = []

    def give(key: str, value: str) -> None:
        conf.set(key, value)
        given.append(key)

    yield give
    for key in given:
        conf._jconf.remove(key)


def asked() -> AppClient:
    (app,) = registered(runtime_folder(os.environ))
    return AppClient(app.url, app.token)


@pytest.mark.exhaustive  # `tests/monitor/test_program.py` has the same commands.
def test_a_host_is_found_looked_at_changed_and_stopped_by_commands(
    spark: SparkSession, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with hosting(spark, counting, folder / "host") as host:
        client = asked()

        def status() -> Any:
            return client.get("/api/penstock/status")

        frame = spark.readStream.format("penstock").option("stream", "numbers").load()
        query = frame.writeStream.format("noop").option(
            "checkpointLocation", str(folder / "checkpoint")
        )
        running = started(query)
        try:
            (kept,) = until(lambda: [each for each in status()["kept"] if each["queries"]])
            assert kept["name"] == "numbers-0"
            assert kept["bytes"] > 0
            until(lambda: status()["receivers"][0]["recordsPerSecond"])
            assert "flows" in until(lambda: status()["sentence"])
            capsys.readouterr()
            assert main(["top", "--once"]) == 0
            assert kept["queries"][0]["consumer"] in capsys.readouterr().out
            until(lambda: main(["tap", "numbers", "--sample", "2", "--count", "4"]) == 0)
            assert len(capsys.readouterr().out.split()) == 4

            assert main(["rate", "numbers", "50/second"]) == 0
            (found,) = until(lambda: [r for r in status()["receivers"] if r["limitBy"] == "user"])
            assert found["limitPerSecond"] == 50
            assert main(["pause", "numbers"]) == 0
            until(lambda: "because it is paused" in status()["sentence"])
            assert host.receivers()[0].waits.limit == "paused"  # type: ignore[union-attr]
            assert main(["resume", "numbers"]) == 0
            before = host.streams()["numbers"].records
            until(lambda: host.streams()["numbers"].records > before)
            assert main(["rate", "numbers", "none"]) == 0
            assert main(["seal", "numbers"]) == 0
            assert main(["restart", "numbers"]) == 0
            until(lambda: host.receivers()[0].state != "running")
            until(lambda: host.receivers()[0].state == "running")
            texts = [event["text"] for event in status()["events"]]
            assert "numbers-0 was paused from outside" in texts
            assert not host.isStopAsked

            assert main(["stop"]) == 0
            until(lambda: host.receivers()[0].state == "stopped")
            assert host.isStopAsked
            # What is there can still be read.
            running.processAllAvailable()
            records = host.streams()["numbers"].records
            until(lambda: status()["kept"][0]["records"] == records)
            # Nothing more of it comes, and nobody is told otherwise.
            capsys.readouterr()
            for command in (["rate", "numbers", "5"], ["pause", "numbers"], ["restart", "numbers"]):
                assert main(command) == 1
                assert "has ended, and is not started again" in capsys.readouterr().err
            with pytest.raises(IllegalStateError, match="not started again"):
                host.resume("numbers")
        finally:
            running.stop()
    assert not registered(runtime_folder(os.environ))
    assert not [one for one in threading.enumerate() if one.name.startswith(THREADS)]


@pytest.mark.long
def test_stop_now_ends_the_host(spark: SparkSession, folder: Path) -> None:
    with hosting(spark, counting, folder / "host") as host:
        await_records(host, "numbers", 10)
        assert main(["stop", "--now"]) == 0
        until(lambda: ReceiverHost.getActive() is None)
        assert host.isStopAsked


def test_a_host_and_a_context_of_one_program_are_told_apart_by_their_addresses(
    spark: SparkSession, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ssc = StreamingContext(spark.sparkContext, 0.5)
    ssc.queueStream([[1]]).foreachRDD(lambda rdd: None)
    with hosting(spark, counting):
        ssc.start()
        try:
            host, context = registered(runtime_folder(os.environ))
            capsys.readouterr()
            assert main(["receivers"]) == 2
            told = capsys.readouterr().err
            assert host.url in told
            assert context.url in told
            # The token is in the file of the program that is there.
            assert main(["seal", "numbers", "--app", host.url]) in (0, 1)
            assert main(["pause", "numbers", "--app", host.url]) == 0
            assert main(["pause", "numbers", "--app", context.url]) == 1
        finally:
            ssc.stop(stopSparkContext=False)


def test_a_program_sets_rates_and_pauses(spark: SparkSession) -> None:
    with hosting(spark, counting) as host:
        await_records(host, "numbers", 1)
        host.setRate("numbers", "20/second")
        until(lambda: (w := host.receivers()[0].waits) is not None and w.limit == "user")
        host.pause("numbers")
        until(lambda: (w := host.receivers()[0].waits) is not None and w.limit == "paused")
        host.setRate("numbers", None)
        host.resume("numbers")
        before = host.streams()["numbers"].records
        until(lambda: host.streams()["numbers"].records > before)
        with pytest.raises(ValueError, match="rate='-5'"):
            host.setRate("numbers", "-5")
        with pytest.raises(KeyError, match="there are numbers"):
            host.pause("none")
    with pytest.raises(IllegalStateError, match="does not run"):
        host.resume("numbers")


@pytest.mark.long
def test_a_stream_over_its_budget_is_paused_until_it_is_resumed(
    spark: SparkSession, folder: Path, setting: Any
) -> None:
    setting("spark.penstock.deadLetters.budget", "5/h")
    setting("spark.penstock.deadLetters.budgetAction", "pause")
    with hosting(spark, half_bad, folder / "host") as host:

        def limits() -> list[str]:
            found = asked().get("/api/penstock/status")["receivers"]
            return [receiver["limitBy"] for receiver in found]

        for count in (1, 2, 3):
            # Six of those that are discarded came with three that are not.
            until(lambda count=count: host.streams()["numbers"].records >= 3 * count)
            until(lambda: limits() == ["paused"])
            assert host.streams()["numbers"].records == 3 * count
            if count % 2:
                assert main(["resume", "numbers"]) == 0
            else:
                host.resume("numbers")
        frame = spark.read.format("penstock").option("stream", "numbers").load()
        assert sorted(row["n"] for row in frame.collect()) == list(range(9))


@pytest.mark.long
def test_discarded_records_that_do_not_fit_now_either_stay_as_they_are(
    spark: SparkSession, folder: Path, setting: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    letters = folder / "letters"
    setting("spark.penstock.deadLetters.dir", str(letters))
    with hosting(spark, half_bad, folder / "host") as host:
        await_records(host, "numbers", 9)
        until(lambda: count_of_letters() == 18)
        # They do not fit the schema now either, so each stays the dead letter that it is.
        assert main(["dead-letters", str(letters), "send", "--stream", "0"]) == 1
        assert "0 sent, 18 left" in capsys.readouterr().out
        assert count_of_letters() == 18
        assert host.streams()["numbers"].records == 9


def count_of_letters() -> int:
    kinds = asked().get("/api/penstock/dead-letters")["kinds"]
    return sum(int(kind["count"]) for kind in kinds)


def test_without_a_page_nothing_listens_and_the_host_runs(
    spark: SparkSession, setting: Any
) -> None:
    setting("spark.penstock.ui.enabled", "false")
    with hosting(spark, counting) as host:
        await_records(host, "numbers", 1)
        assert not registered(runtime_folder(os.environ))
        assert not [one for one in threading.enumerate() if one.name == "penstock-ui"]


def test_what_it_says_on_the_terminal(
    spark: SparkSession, setting: Any, caplog: pytest.LogCaptureFixture
) -> None:
    setting("spark.penstock.console", "on")
    with caplog.at_level(logging.INFO, "penstock.sql"), hosting(spark, counting) as host:
        await_records(host, "numbers", 1)
    said = [record.getMessage() for record in caplog.records if record.name == "penstock.sql"]
    assert any(line.startswith("Penstock receives numbers-0 for queries of ") for line in said)
    assert any(line.startswith("It can be looked at on http://") for line in said)
    assert any(line.startswith("Receiver numbers-0 runs on ") for line in said)
    assert any(line.startswith("Receiver numbers-0 stopped") for line in said)
