"""What is shown of a `ReceiverHost`: receivers, queries, and no batches."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.monitor import TrackerEvents
from penstock.monitor.tables import top_lines
from penstock.monitor.web.routes import Routes
from penstock.tracker import (
    ConsumerStatus,
    EpochStatus,
    KeptStream,
    ReceiverState,
    ReceiverTrackingInfo,
)
from penstock.tracker.cluster import ExecutorLocation
from tests.monitor.asking import get, open_access, read, text
from tests.monitor.feeding import START_MS, Program


def running() -> Program:
    program = Program(batch_ms=None)
    TrackerEvents(program.model).started()
    program.receiver(limit=8000.0, source="query")
    query = ConsumerStatus("c4ff9a50", 5, 1_200, True, START_MS)
    program.kept[0] = KeptStream(0, "epoch", 3, 9, 12_345, 5 << 20, (query,))
    program.second(8000, busy_s=0.1)
    return program


def status(program: Program) -> Any:
    return read(Routes(program.model, open_access()).answer(get("/api/penstock/status")))


def samples(program: Program) -> dict[tuple[str, str, str], float]:
    """Return what Prometheus reads, by name, stream, and who reads, or what is waited for."""
    answer = Routes(program.model, open_access()).answer(get("/metrics"))
    return {
        (found.name, found.labels.get("stream", ""), labels.get("query", labels.get("for", ""))): (
            found.value
        )
        for family in text_string_to_metric_families(text(answer) + "\n")
        for found in family.samples
        for labels in [found.labels]
    }


def test_its_status_has_who_reads_what_and_no_batches() -> None:
    program = running()
    told = status(program)
    assert told["application"]["batchMs"] is None
    assert told["totals"]["startedMs"] == START_MS
    assert told["totals"]["inputRatePerSecond"] is None
    (kept,) = told["kept"]
    query = {
        "consumer": "c4ff9a50",
        "recordsBehind": 1_200,
        "hasCommitted": True,
        "seenMs": START_MS,
    }
    assert kept == {
        "stream": 0,
        "name": "numbers-0",
        "records": 12_345,
        "bytes": 5 << 20,
        "blocks": 6,
        "queries": [query],
    }
    lines = top_lines(told, 80)
    assert not [line for line in lines if "batches" in line.lower()]
    at = next(number for number, line in enumerate(lines) if line.startswith("STREAM"))
    assert lines[at + 1].split() == ["numbers-0", "5.2M", "12.3k", "1,200", "c4ff9a50"]


def test_a_receiver_that_listens_is_shown_with_its_addresses() -> None:
    program = running()
    (receiver,) = status(program)["receivers"]
    assert receiver["addresses"] == ["http://h1:8080/"]
    lines = top_lines(status(program), 80)
    assert lines[lines.index("RECEIVER   LISTENS AT") + 1] == "numbers-0  http://h1:8080/"
    program.receiver(state="stopped")
    program.model.tick()
    assert not any("LISTENS AT" in line for line in top_lines(status(program), 80))


def test_a_stream_that_no_query_reads_says_so() -> None:
    program = running()
    program.kept[0] = KeptStream(0, "epoch", 0, 0, 0, 0, ())
    program.model.tick()
    assert any("(no query)" in line for line in top_lines(status(program), 80))


@pytest.mark.parametrize(
    ("limit", "source", "spent", "expected"),
    [
        (None, "unlimited", {"busy_s": 0.1}, "Data flows: 8,000 records/s"),
        (8000.0, "query", {"rate_s": 0.9}, "held at 8,000 records/s by the slowest query"),
        (0.0, "backlog", {"rate_s": 0.9}, "is held until its queries, or its function, have"),
        (0.0, "paused", {"rate_s": 0.9}, "is held because it is paused"),
        # Until just now a limit held it.
        (None, "unlimited", {"rate_s": 0.9}, "Data flows: 8,000 records/s"),
    ],
)
def test_it_says_how_it_goes(
    limit: float | None, source: str, spent: dict[str, float], expected: str
) -> None:
    program = running()
    program.receiver(limit=limit, source=source)
    program.second(8000, **spent)
    assert expected in program.model.sentence()


def test_before_the_first_look_it_says_something() -> None:
    program = Program(batch_ms=None)
    TrackerEvents(program.model).started()
    program.model.tick()
    assert program.model.sentence().startswith("Nothing comes in")


def test_a_source_that_gives_nothing_is_told() -> None:
    program = running()
    program.second(0)
    assert program.model.sentence().startswith("Nothing comes in")


def test_prometheus_reads_what_is_kept_and_how_far_queries_are() -> None:
    found = samples(running())
    assert found["penstock_kept_bytes", "numbers", ""] == 5 << 20
    assert found["penstock_query_lag_records", "numbers", "c4ff9a50"] == 1_200
    assert found["penstock_receiver_up", "numbers", ""] == 1
    assert not [name for name, *_ in found if "batch" in name or "epoch" in name]


def test_epochs_are_shown_with_their_age_and_what_their_tasks_wait_for() -> None:
    program = running()
    assert status(program)["epochs"] == []
    assert not any(line.startswith("EPOCHS") for line in top_lines(status(program), 90))
    waits = ("the function", "the sink", "the function")
    program.epochs[0] = EpochStatus(8, 7, 12_345, 1, waits, 1_500, 100, 3, 2, START_MS)
    program.epochs[1] = EpochStatus(-1, -1, 0, 0, (), None, 100)
    program.model.tick()
    first, second = status(program)["epochs"]
    assert first == {
        "stream": 0,
        "name": "numbers-0",
        "logged": 8,
        "committed": 7,
        "ageMs": 1_500,
        "records": 12_345,
        "deadLetters": 3,
        "late": 2,
        "watermarkMs": START_MS,
        "failures": 1,
        "waitsFor": "the function (2), the sink (1)",
    }
    assert second["waitsFor"] == "nothing, as it is over"
    lines = top_lines(status(program), 90)
    at = next(number for number, line in enumerate(lines) if line.startswith("EPOCHS OF"))
    shown = "numbers-0 8 7 1500 12.3k 1 the function (2), the sink (1)"
    assert lines[at + 1].split() == shown.split()
    figures = samples(program)
    assert figures["penstock_epochs_committed_total", "numbers", ""] == 8
    assert figures["penstock_epoch_records_total", "numbers", ""] == 12_345
    assert figures["penstock_epoch_age_seconds", "numbers", ""] == 1.5
    assert figures["penstock_epoch_waiting_tasks", "numbers", "the function"] == 2
    assert figures["penstock_epochs_committed_total", "stream", ""] == 0
    assert figures["penstock_epoch_age_seconds", "stream", ""] == 0


def test_what_a_function_failed_of_is_among_the_errors_once() -> None:
    program = running()
    for failed, error in (
        (1, "Task 0: it failed\nTraceback"),
        (1, "Task 0: it failed\nTraceback"),
        (3, "b"),
    ):
        program.epochs[0] = EpochStatus(
            8, 7, 12_345, 0, (), None, 100, failed=failed, last_error=error
        )
        program.model.tick()
    errors = program.model.errors()
    assert [(event.text, event.detail, event.stream_id) for event in errors] == [
        ("Task 0: it failed", "Traceback", 0),
        ("b", "", 0),
    ]


def test_a_function_or_sink_that_holds_a_stream_up_is_said_first() -> None:
    program = running()
    waits = ("the sink",)
    for age_ms, said in (
        (5_100, "Data flows: "),
        (5_200, "numbers-0 waits for the sink: its first record that is in no epoch came 5 s ago."),
    ):
        program.epochs[0] = EpochStatus(8, 7, 12_345, 0, waits, age_ms, 100)
        program.model.tick()
        assert program.model.sentence().startswith(said)
    program.epochs[1] = EpochStatus(8, 7, 12_345, 0, (), 7_200_000, 3_600_000)
    program.model.tick()
    assert program.model.sentence() == (
        "stream-1 waits for nothing, as it is over: its first record that is in no epoch came "
        "7,200 s ago, and 1 more are late."
    )


def test_before_its_receivers_were_looked_at_it_is_not_ready() -> None:
    program = Program(batch_ms=None)
    TrackerEvents(program.model).started()
    answer = Routes(program.model, open_access()).answer(get("/health/ready"))
    assert (answer.status, text(answer)) == (503, "the streams have only just started")


def test_it_is_ready_while_its_receivers_run() -> None:
    program = running()
    routes = Routes(program.model, open_access())
    assert routes.answer(get("/health/ready")).status == 200
    program.receiver(state="stopped", error="the source is gone")
    program.model.tick()
    answer = routes.answer(get("/health/ready"))
    assert answer.status == 503
    assert text(answer) == "numbers-0 does not run: the source is gone"


def test_sparks_rest_has_its_receivers() -> None:
    routes = Routes(running().model, open_access())
    root = "/api/v1/applications/local-1/streaming"
    told = read(routes.answer(get(f"{root}/statistics")))
    assert told["numActiveReceivers"] == 1
    assert "batchDuration" not in told
    (receiver,) = read(routes.answer(get(f"{root}/receivers")))
    assert receiver["streamName"] == "numbers-0"
    assert receiver["eventRates"] == []
    assert read(routes.answer(get(f"{root}/batches"))) == []


def test_what_a_tracker_tells_is_in_the_strip_of_events() -> None:
    program = Program(batch_ms=None)
    events = TrackerEvents(program.model)
    events.started()

    def info(error: str = "", trace: str = "") -> ReceiverTrackingInfo:
        return ReceiverTrackingInfo(
            0,
            ReceiverState.ACTIVE,
            "numbers-0",
            running=ExecutorLocation("h1", "3"),
            last_error_message=error,
            last_error=trace,
            last_error_time_ms=START_MS,
        )

    events.receiver_started(info())
    events.receiver_error(info("no route to host", "Traceback 1"))
    events.receiver_stopped(info("Restarting: no route to host", "Traceback 2"))
    events.permanent_error(0, "Receiver 0 failed 8 times", "Traceback 3")
    assert [(event.text, event.detail) for event in program.model.events()] == [
        ("The streams started", ""),
        ("numbers-0 runs on h1", ""),
        ("numbers-0: no route to host", "Traceback 1"),
        ("numbers-0 stopped: Restarting: no route to host", "Traceback 2"),
        ("Given up: Receiver 0 failed 8 times", "Traceback 3"),
    ]
    assert len(program.model.errors()) == 3


def test_of_an_error_that_is_final_no_more_is_shown_than_of_others() -> None:
    program = running()
    told = "1 record was discarded (stored with 1): no int; it begins with {'card': '4929'}"
    TrackerEvents(program.model).permanent_error(0, told, "a trace with 4929")
    (event,) = program.model.errors()
    assert event.stream_id == 0
    routes = Routes(program.model, open_access())
    for path in ("/api/penstock/status", "/api/penstock/errors"):
        shown = text(routes.answer(get(path)))
        assert "Given up" in shown
        assert "4929" not in shown


def test_a_rate_that_follows_queries_does_not_fill_the_strip_of_events() -> None:
    program = running()
    for limit in (100.0, 200.0, 300.0, 400.0):
        program.receiver(limit=limit, source="query")
        program.second(10)
    assert not [event for event in program.model.events() if "records/s" in event.text]


def test_of_many_queries_some_are_told_of() -> None:
    program = running()
    many = tuple(ConsumerStatus(f"c{n:03}", 0, n, True, START_MS) for n in range(150))
    program.kept[0] = KeptStream(0, "epoch", 0, 9, 10, 10, many)
    program.second(10)
    assert len(status(program)["kept"][0]["queries"]) == 100
    metrics = text(Routes(program.model, open_access()).answer(get("/metrics")))
    assert metrics.count("\npenstock_query_lag_records{") == 100


def test_a_query_whose_name_is_no_text_breaks_no_scrape() -> None:
    program = running()
    odd = ConsumerStatus("a\udcff", 0, 1, True, START_MS)
    program.kept[0] = KeptStream(0, "epoch", 0, 9, 10, 10, (odd,))
    program.second(10)
    answer = Routes(program.model, open_access()).answer(get("/metrics"))
    assert answer.status == 200
    assert 'query="a\\\\udcff"' in text(answer)


def test_streams_are_told_of_in_their_order_and_forgotten() -> None:
    program = Program(batch_ms=None, streams={0: "a", 1: "b"})
    for number in (1, 0):
        program.kept[number] = KeptStream(number, "epoch", 0, 9, 10, 10, ())
    program.model.tick()
    assert [found.stream_id for found in program.model.kept()] == [0, 1]
    del program.kept[1]
    program.model.tick()
    assert [found.stream_id for found in program.model.kept()] == [0]
