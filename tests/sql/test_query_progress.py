"""What rates of receivers are told of a query's batch, out of what Spark tells of it."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from pyspark.sql.streaming.listener import StreamingQueryProgress

from penstock.sql._query_rates import batch_of

RUN, QUERY = uuid.uuid4(), uuid.uuid4()
BEGUN_MS = 1_700_000_000_250


def offset(epoch: str, records: int, consumer: str = "c", **more: Any) -> dict[str, Any]:
    return {"v": 1, "stream": epoch, "consumer": consumer, "records": records, **more}


def several(**parts: dict[str, Any]) -> dict[str, Any]:
    return {"v": 1, "streams": parts}


def progress(*sources: tuple[Any, Any], rows: int = 7, **more: Any) -> Any:
    """Return the progress of a batch of a query with sources from one offset to another each."""
    facts: dict[str, Any] = {
        "id": str(QUERY),
        "runId": str(RUN),
        "name": None,
        "timestamp": "2023-11-14T22:13:20.250Z",
        "batchId": 1,
        "batchDuration": 900,
        "durationMs": {"triggerExecution": 900, "addBatch": 650, "walCommit": 20},
        "stateOperators": [],
        "sources": [
            {
                "description": "of a test",
                "startOffset": json.dumps(start),
                "endOffset": json.dumps(end),
                "latestOffset": json.dumps(end),
                "numInputRows": rows,
                "inputRowsPerSecond": 1.0,
                "processedRowsPerSecond": 1.0,
            }
            for start, end in sources
        ],
        "sink": {"description": "of a test", "numOutputRows": rows},
        **more,
    }
    return StreamingQueryProgress.fromJson(facts)


@pytest.mark.parametrize(
    ("sources", "reads"),
    [
        # Rows that a query reads twice are counted once.
        ([(offset("a", 100), offset("a", 130))], {"a": (30, 130)}),
        # The first batch: its own rows are all that is known.
        ([(None, offset("a", 130))], {"a": (7, 130)}),
        ([(offset("a", 100, "phantom"), offset("a", 130))], {"a": (7, 130)}),
        # What was released before it was read is not of the batch.
        (
            [(offset("a", 100), offset("a", 130, resumed={"block": 5, "records": 120}))],
            {"a": (10, 130)},
        ),
        (
            [(offset("a", 125), offset("a", 130, resumed={"block": 5, "records": 120}))],
            {"a": (5, 130)},
        ),
        # Of two reads of a stream the longer one takes the time, and the later one is behind.
        (
            [(offset("a", 100), offset("a", 130)), (offset("a", 0, "d"), offset("a", 80, "d"))],
            {"a": (80, 80)},
        ),
        (
            [(offset("a", 0, "d"), offset("a", 80, "d")), (offset("a", 100), offset("a", 130))],
            {"a": (80, 80)},
        ),
        (
            [
                (
                    several(x=offset("a", 100), y=offset("b", 5)),
                    several(x=offset("a", 130), y=offset("b", 6)),
                )
            ],
            {"a": (30, 130), "b": (1, 6)},
        ),
        # How its rows are divided among several streams is not known of a first batch.
        ([(None, several(x=offset("a", 130), y=offset("b", 6)))], {}),
        ([(None, several(x=offset("a", 130)))], {"a": (7, 130)}),
        # Of other sources there is nothing to tell.
        ([({"topic": {"0": 5}}, {"topic": {"0": 9}})], {}),
        ([(3, 5)], {}),
        ([(None, {"v": 1, "streams": 5})], {}),
        ([(None, {"stream": "a", "consumer": "c", "records": "5"})], {}),
        ([(None, {"stream": 5, "consumer": "c", "records": 5})], {}),
        ([(None, {"stream": "a", "consumer": None, "records": 5})], {}),
    ],
)
def test_the_records_of_a_batch_are_those_between_its_offsets(
    sources: list[tuple[Any, Any]], reads: dict[str, tuple[int, int]]
) -> None:
    assert batch_of(progress(*sources)).reads == reads


def test_a_batch_has_its_query_and_its_times() -> None:
    batch = batch_of(progress((offset("a", 100), offset("a", 130))))
    assert (batch.run, batch.query) == (str(RUN), str(QUERY))
    assert (batch.begun_ms, batch.took_ms, batch.beside_ms) == (BEGUN_MS, 900, 250)
    assert batch_of(progress(name="counts")).query == "counts"


def test_the_time_beside_a_batch_that_is_not_told_is_none() -> None:
    assert batch_of(progress(durationMs={"triggerExecution": 900})).beside_ms == 0
    longer = {"triggerExecution": 900, "addBatch": 901}
    assert batch_of(progress(durationMs=longer)).beside_ms == 0
    assert batch_of(progress(durationMs={})).took_ms == 0
