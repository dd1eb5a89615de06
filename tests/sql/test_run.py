"""Which queries `ReceiverHost.run` starts again, and which errors it raises, without Spark."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.sql import _run
from penstock.sql._run import QueriesOfRun
from tests.bounds import HANG_S

TOO_LATE = (
    "[STREAM_FAILED] … org.apache.spark.SparkException: Python worker failed to connect back."
)


class Ended(StreamingQuery):
    """Has ended: with an error, or without one."""

    def __init__(self, error: str = "", progress: Any = None) -> None:
        self._error, self._progress = error, progress

    id = name = "words"  # type: ignore[assignment]
    isActive = False  # type: ignore[assignment]

    def exception(self) -> Any:
        return StreamingQueryException(self._error) if self._error else None

    @property
    def lastProgress(self) -> Any:
        return self._progress


class Writer(DataStreamWriter):
    """Starts one query after the other."""

    def __init__(self, *queries: StreamingQuery) -> None:
        self.queries = list(queries)

    def start(self, *arguments: Any, **named: Any) -> StreamingQuery:
        return self.queries.pop(0)


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_run, "_PAUSE_S", 0.0)


def looked(*given: Any) -> None:
    run = QueriesOfRun(given)
    run.start()
    while not run.look():
        pass


def test_a_query_whose_python_process_came_too_late_is_started_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    looked(Writer(Ended(TOO_LATE), Ended(TOO_LATE), Ended()))
    assert len(caplog.messages) == 2
    assert all("It is started again" in told for told in caplog.messages)


def test_it_is_not_started_again_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    writer = Writer(*[Ended(TOO_LATE)] * 100)
    with pytest.raises(StreamingQueryException, match="failed to connect back"):
        looked(writer)
    assert len(writer.queries) == 100 - 1 - _run._TRIES
    assert "Start it again" in caplog.text


@pytest.mark.parametrize(
    ("given", "is_told"),
    [
        (Ended(TOO_LATE), True),  # The program's own: it says what to do.
        (Writer(Ended(TOO_LATE, progress={})), False),  # It may have written a batch.
        (Writer(Ended("division by zero")), False),
    ],
)
def test_every_other_failure_is_raised(
    caplog: pytest.LogCaptureFixture, given: Any, is_told: bool
) -> None:
    with pytest.raises(StreamingQueryException):
        looked(given)
    assert ("host.run(writer)" in caplog.text) == is_told


class Late(Ended):
    """Comes too late while it is to read what is there."""

    isActive = True  # type: ignore[assignment]

    def processAllAvailable(self) -> None:
        self.isActive = False
        raise StreamingQueryException(self._error)


class Reads(Ended):
    """Reads what is there."""

    isActive = True  # type: ignore[assignment]
    has_read = False

    def processAllAvailable(self) -> None:
        self.has_read = True


def test_what_is_there_is_read_at_a_stop_also_by_a_query_that_came_too_late() -> None:
    reads = Reads()
    run = QueriesOfRun([Writer(Ended(TOO_LATE), Late(TOO_LATE), reads)])
    run.start()
    assert not run.look()
    assert run.drain(HANG_S)
    assert reads.has_read


def test_a_query_that_fails_for_another_reason_at_a_stop_is_raised() -> None:
    run = QueriesOfRun([Writer(Late("division by zero"))])
    run.start()
    with pytest.raises(StreamingQueryException, match="division"):
        run.drain(HANG_S)


def test_what_is_no_query_is_refused() -> None:
    with pytest.raises(TypeError, match="writeStream"):
        QueriesOfRun(["words"])
