"""What the model knows after events and readings, and that it stays bounded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.monitor.model import EVENTS, STREAM_FIGURES, UNFINISHED, WAIT_FIGURES
from penstock.monitor.records import TEXT_LIMIT, BatchStatus, EventKind, last_line
from penstock.monitor.sentence import troubles
from tests.monitor.feeding import START_MS, Program


def test_a_batch_is_seen_from_its_submission_to_its_end() -> None:
    program = Program()
    model = program.start()
    program.batch(1, waits_ms=-1)
    (waiting,) = model.batches()
    assert (waiting.status, waiting.scheduling_delay_ms) == (BatchStatus.QUEUED, None)
    program.batch(1, waits_ms=20, takes_ms=None)
    (running,) = model.batches(BatchStatus.PROCESSING)
    assert (running.scheduling_delay_ms, running.processing_ms) == (20, None)
    assert running.operations[0].start_ms == START_MS + 1020
    program.batch(1, waits_ms=20, takes_ms=300, description="a topic")
    (done,) = model.batches()
    assert (done.status, done.records) == (BatchStatus.COMPLETED, 100)
    assert (done.scheduling_delay_ms, done.processing_ms, done.total_delay_ms) == (20, 300, 320)
    assert done.inputs[0].description == "a topic"
    assert model.batch(START_MS + 1000) == done
    assert model.batch(START_MS) is None


def test_totals_count_what_began_and_what_is_complete() -> None:
    program = Program(batch_ms=500)
    model = program.start()
    program.batch(1, records=100, takes_ms=200)
    program.batch(2, records=200, waits_ms=30, takes_ms=400, errors=(None, "no such table"))
    program.batch(3, records=50, takes_ms=None)
    program.batch(4, records=7, waits_ms=-1)
    totals = model.totals()
    assert (totals.completed_batches, totals.failed_batches) == (2, 1)
    assert (totals.received_records, totals.processed_records) == (350, 300)
    assert (totals.waiting, totals.running, totals.retained) == (1, 1, 2)
    assert totals.input_rate == (100 + 200 + 50 + 7) / 4 * 2
    assert (totals.scheduling_delay_ms, totals.processing_ms) == ((10 + 30 + 10) // 3, 300)
    assert totals.started_ms == START_MS


def test_a_failed_batch_is_an_event_that_says_why() -> None:
    program = Program()
    model = program.start()
    program.batch(1, errors=(None, "no such table"))
    (failed,) = model.errors()
    assert (failed.kind, failed.batch_ms) == (EventKind.BATCH_FAILED, START_MS + 1000)
    assert failed.text == (
        "Output operation 1 (pprint at program.py:1) of a batch failed: ValueError: no such table"
    )
    assert "ValueError: no such table" in failed.detail
    batch = model.batch(START_MS + 1000)
    assert batch is not None
    assert batch.operations[0].error is None
    assert batch.error == batch.operations[1].error is not None


def test_receivers_are_told_with_what_they_wait_for_and_whose_limit_it_is() -> None:
    program = Program()
    model = program.start()
    program.receiver(limit=8000.0, source="estimator")
    program.second(8000, rate_s=0.9, busy_s=0.1)
    (receiver,) = model.receivers()
    assert (receiver.name, receiver.state, receiver.host) == ("numbers-0", "running", "h1")
    assert str(receiver.waits) == "tokens (estimator) 90 %, nothing 10 %"
    assert receiver.reading is not None
    assert receiver.reading.records_per_second == 8000
    program.receiver(state="stopped", error="Restarting: lost", trace="Traceback ...")
    model.tick()
    (receiver,) = model.receivers()
    assert (receiver.state, receiver.waits, receiver.reading) == ("stopped", None, None)
    assert (receiver.last_error, receiver.last_error_detail) == (
        "Restarting: lost",
        "Traceback ...",
    )


def test_the_history_has_rates_delays_and_waits_by_the_second() -> None:
    program = Program()
    model = program.start()
    program.receiver(limit=500.0, source="user")
    for number in range(1, 4):
        program.batch(number, takes_ms=100 * number)
        program.second(100 * number, rate_s=0.25, log_s=0.5, queue_s=0.5)
    since_s, until_s = START_MS // 1000, START_MS // 1000 + 10
    points = model.history(since_s, until_s)
    assert [point.at_s - since_s for point in points] == [1, 2, 3]
    assert [point.values[:4] for point in points] == [
        (100, 10, 100, 110),
        (200, 10, 200, 210),
        (300, 10, 300, 310),
    ]
    assert points[-1].values[5] == 100
    ((figures, waited),) = model.stream_histories(since_s, until_s).values()
    last = dict(zip(STREAM_FIGURES, figures[-1].values, strict=True))
    assert last["records_per_second"] == 300
    assert last["bytes_per_second"] == 3000
    assert (last["limit"], last["latency_ms"], last["log_bytes"]) == (500, 12.5, 4096)
    waits = dict(zip(WAIT_FIGURES, waited[-1].values, strict=True))
    assert (waits["tokens"], waits["log"], waits["source"]) == (25, 50, 25)


def test_events_tell_of_receivers_and_of_rates_that_somebody_set() -> None:
    program = Program()
    model = program.start()
    program.receiver(limit=100.0, source="maxRate")
    model.tick()
    program.receiver(limit=50.0, source="user")
    model.tick()
    program.receiver(limit=20.0, source="estimator")
    model.tick()
    program.receiver(limit=30.0, source="estimator")
    model.tick()
    told = [event.text for event in model.events() if event.kind is EventKind.RATE_CHANGED]
    assert told == ["numbers: 50 records/s (user)", "numbers: 20 records/s (estimator)"]
    first = model.events()[0]
    assert (first.number, first.kind) == (1, EventKind.STARTED)
    assert next(event.number for event in model.events(after=first.number)) == 2


def test_whatever_happens_the_model_stays_bounded() -> None:
    program = Program(retained_batches=20)
    model = program.start()
    for number in range(UNFINISHED + 100):
        program.batch(number, waits_ms=-1)
    assert len(model.batches(BatchStatus.QUEUED)) == UNFINISHED
    assert model.totals().waiting == UNFINISHED + 100
    for number in range(200):
        program.batch(number, errors=("x" * 100_000,))
    assert len(model.batches(BatchStatus.COMPLETED)) == 20
    assert model.batch(START_MS) is None
    assert model.totals().completed_batches == 200
    newest = model.batches(BatchStatus.COMPLETED)[0]
    assert newest.error is not None
    assert len(newest.error) <= TEXT_LIMIT + 100
    for number in range(EVENTS + 10):
        model.note(f"note {number}")
    assert len(model.events()) == EVENTS
    # What went wrong is still there when newer events pushed it out of the strip.
    assert len(model.errors()) == 200


def test_averages_are_those_of_the_batches_that_are_kept() -> None:
    program = Program(retained_batches=7, batch_ms=500)
    model = program.start()
    for number in range(40):
        # Some wait, some run; the later ones complete those.
        waits_ms, takes_ms = number % 5 - 1, None if number % 7 == 3 else number * 37 % 101
        program.batch(number, records=number * 13, waits_ms=waits_ms, takes_ms=takes_ms)
        if number % 4 == 0:
            program.batch(number // 2, records=3, waits_ms=number, takes_ms=number)
        batches, totals = model.batches(), model.totals()
        assert totals.input_rate == pytest.approx(
            sum(batch.records for batch in batches) * 2 / len(batches)
        )
        for name in ("scheduling_delay_ms", "processing_ms", "total_delay_ms"):
            known = [getattr(batch, name) for batch in batches]
            known = [each for each in known if each is not None]
            assert getattr(totals, name) == (sum(known) // len(known) if known else None)


def fail(program: Program) -> None:
    """Have the receiver raise, and start again in its process."""
    error = "Restarting receiver with delay 2000 ms: ConnectionError: no broker"
    program.receiver(state="stopped", error=error)
    program.clock.advance(2_000)
    program.receiver(limit=8000.0, source="estimator")
    program.statuses[0] = replace(program.statuses[0], last_error=error)
    program.model.tick()


@pytest.mark.parametrize(
    ("happens", "says"),
    [
        (lambda program: None, "No batch is complete yet."),
        (
            lambda program: [program.batch(n, takes_ms=1400) for n in range(5)],
            "The batches are the bottleneck: 1.4 s of work for 1 s of batch.",
        ),
        (
            lambda program: [
                *(program.batch(n, takes_ms=1400) for n in range(5)),
                *(program.batch(n, waits_ms=-1) for n in range(5, 9)),
                program.second(8000, rate_s=0.9),
            ],
            (
                "The batches are the bottleneck: 1.4 s of work for 1 s of batch, 4 batches wait; "
                "numbers-0 is held at 8,000 records/s by backpressure."
            ),
        ),
        (
            lambda program: [program.batch(1), program.second(10, log_s=0.8, queue_s=0.8)],
            "numbers-0 waits for its log 80 % of the time.",
        ),
        (
            lambda program: [program.batch(1), program.second(1200)],
            "Data flows: 1,200 records/s, and nothing holds it up.",
        ),
        (
            lambda program: [program.batch(1, records=0), program.batch(2, records=1)],
            "Data flows: 0.5 records/s, and nothing holds it up.",
        ),
        (
            lambda program: [program.batch(1, records=0), program.second()],
            "Nothing comes in: the receivers wait for their sources.",
        ),
        (
            lambda program: [program.batch(1), program.batch(2, errors=("bad",))],
            "The last batch failed.",
        ),
        (
            lambda program: [program.batch(1), program.receiver(state="stopped", error="lost\nx")],
            "numbers-0 does not run (lost).",
        ),
        (
            lambda program: [program.batch(1), program.receiver(state="starting")],
            "numbers-0 is starting.",
        ),
        (
            lambda program: [
                program.batch(1, takes_ms=900),
                program.batch(2, takes_ms=None),
                program.clock.advance(63_000),
            ],
            "A batch has been running for 61 s, for 1 s of batch.",
        ),
        (
            lambda program: [
                program.batch(1),
                *(fail(program) for _ in range(3)),
                program.second(5, discarded=7),
            ],
            (
                "numbers-0 stopped 3 times in the last ten minutes (ConnectionError: no broker); "
                "numbers-0 discarded 7 records in the last five minutes."
            ),
        ),
        (
            lambda program: [program.batch(1), program.second(800, discarded=1)],
            "numbers-0 discarded 1 record in the last five minutes.",
        ),
    ],
)
def test_one_sentence_says_how_it_goes_and_names_the_worst_first(happens, says) -> None:
    program = Program()
    model = program.start()
    assert model.sentence() == "It has not started yet."
    program.receiver(limit=8000.0, source="estimator")
    happens(program)
    model.tick()
    assert model.sentence() == says


def test_a_lag_that_grows_is_told_and_one_that_stays_or_shrinks_is_not() -> None:
    program = Program()
    model = program.start()
    program.receiver()
    program.batch(1)
    program.second(100, source_lag=50_000)
    for _ in range(180):
        program.second(100, source_lag=-10)
    assert model.sentence() == "Data flows: 100 records/s, and nothing holds it up."
    for _ in range(125):
        program.second(100, source_lag=50)
    assert model.sentence() == (
        "numbers-0 falls behind its source: 54,450 records, and 51,450 a minute ago."
    )
    # It passes as soon as the lag does not grow any more.
    for _ in range(65):
        program.second(100)
    assert model.sentence() == "Data flows: 100 records/s, and nothing holds it up."


def test_a_lag_of_a_moment_is_none() -> None:
    program = Program()
    model = program.start()
    program.receiver()
    program.batch(1)
    for _ in range(200):
        program.second(100, source_lag=2)
        assert "behind" not in model.sentence()


def test_what_passed_is_told_for_some_minutes_only() -> None:
    program = Program()
    model = program.start()
    program.receiver()
    program.batch(1)
    program.second(100, discarded=3)
    for _ in range(290):
        program.second(100)
    assert "discarded 3 records in the last five minutes" in model.sentence()
    for _ in range(20):
        program.second(100)
    assert model.sentence() == "Data flows: 100 records/s, and nothing holds it up."
    for _ in range(3):
        fail(program)
    program.second(100)
    assert "stopped 3 times in the last ten minutes" in model.sentence()
    for _ in range(600):
        program.second(100)
    assert "Data flows" in model.sentence()


def test_of_many_receivers_in_trouble_the_worst_is_named() -> None:
    names = {number: f"s{number}" for number in range(200)}
    program = Program(batch_ms=None, streams=names)
    model = program.start()
    for number in names:
        program.receiver(number)
        program.second(stream_id=number, discarded=number % 50)
    assert model.sentence() == (
        "s49-49 discarded 49 records in the last five minutes; so it is with 195 more."
    )
    assert len(model.receivers()) == 200


def test_a_receiver_that_starts_again_in_its_process_was_started_again() -> None:
    program = Program()
    model = program.start()
    program.receiver()
    for _ in range(3):
        fail(program)
        # The tracker has one attempt of it for as long as its process lives.
        program.statuses[0] = replace(program.statuses[0], attempts=1)
    model.tick()
    assert model.receivers()[0].attempts == 4


def test_a_disk_that_is_nearly_full_is_told() -> None:
    program = Program()
    model = program.start()
    program.receiver()
    program.batch(1)
    program.free_bytes = 900_000_000
    program.second(100)
    assert model.sentence() == "numbers-0 has 900 MB left on the disk of its log."
    assert [troubles(found) for found in model.receivers()] == [
        ["has 900 MB left on the disk of its log"]
    ]


_OF_A_TASK = """\
Traceback (most recent call last):
  File "program.py", line 12, in <module>
py4j.protocol.Py4JJavaError: An error occurred while calling collectAndServe.
: org.apache.spark.SparkException: Job aborted: Traceback (most recent call last):
  File "program.py", line 7, in parse
ValueError: no number
 SQLSTATE: 38000

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:581)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2935)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (_OF_A_TASK, "ValueError: no number"),
        (
            "Job aborted\n\tat a.B.c(B.scala:1)\nCaused by: x.Y: z\n\t... 9 more\n",
            "Caused by: x.Y: z",
        ),
        ("KeyError: 1\nat the end\n", "at the end"),
        ("  \n", ""),
        ("", ""),
    ],
)
def test_the_line_of_an_error_is_what_went_wrong_and_not_the_stack_of_java(
    text: str, line: str
) -> None:
    assert last_line(text) == line


def test_a_receiver_that_was_told_to_stop_is_no_error_and_one_that_died_is() -> None:
    program = Program()
    program.start()
    program.receiver()
    program.receiver(state="stopped", error="Stopped by driver")
    assert program.model.errors() == ()
    program.receiver()
    program.receiver(state="stopped", error="no route to host", trace="Traceback")
    assert [event.text for event in program.model.errors()] == [
        "numbers-0 stopped: no route to host"
    ]


def test_of_many_receivers_that_are_held_up_two_are_named() -> None:
    names = {number: f"s{number}" for number in range(4)}
    program = Program(batch_ms=None, streams=names)
    program.start()
    for number in names:
        program.receiver(number, limit=0.0, source="paused")
        program.second(stream_id=number, rate_s=0.9)
    expected = "s0-0 is held because it is paused; s1-1 is held because it is paused; "
    assert program.model.sentence() == f"{expected}2 more receivers are held up."
    program.receiver(3)
    program.second(stream_id=3, busy_s=0.9)
    assert program.model.sentence() == f"{expected}1 more receiver is held up."
    program.receiver(2)
    program.second(stream_id=2, busy_s=0.9)
    assert program.model.sentence() == f"{expected.removesuffix('; ')}."
