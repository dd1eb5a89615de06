"""Spark is the oracle: what it shows of a `pyspark.streaming` program, and we of the same one."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import HANG_S
from tests.monitor.asking import until

# What CI asks of the REST API is in test_rest.py.
pytestmark = [pytest.mark.exhaustive, pytest.mark.slow]

WAIT_S = HANG_S
NOT_THERE = (404, 501)

ENDPOINTS = (
    *("statistics", "receivers", "receivers/0", "batches", "batches?status=completed"),
    *("batches/{batch}", "batches/{batch}/operations", "batches/{batch}/operations/0"),
    "batches/{batch}/operations/1",
)
MISSING = ("receivers/99", "batches/5", "batches/5/operations", "batches/{batch}/operations/99")


class Source:
    """Sends lines to each program that connects: a word ten times a second, and what it is told."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._over = threading.Event()
        self.says_fail = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._send, args=(peer,)))
            self._threads[-1].start()

    def _send(self, peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError):
            while not self._over.wait(0.1):
                peer.sendall(b"fail\n" if self.says_fail.is_set() else b"word\n")

    def close(self) -> None:
        self._over.set()
        # Whoever waits in accept is not woken by a close alone.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(WAIT_S)


class Asked:
    """A program of one kind, and its REST."""

    def __init__(self, kind: str, port: int, folder: Path) -> None:
        self.kind = kind
        with open(folder / f"{kind}.log", "w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.monitor.rest_program", kind, str(port)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "XDG_RUNTIME_DIR": str(folder)},
            )
        self._log = folder / f"{kind}.log"
        self._root = ""
        self.page = ""
        self.spark_page = ""

    def begin(self) -> None:
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], WAIT_S)[0], self._log.read_text()
        line = self._process.stdout.readline()
        assert line, self._log.read_text()[-3000:]
        said = json.loads(line)
        self.page, self.spark_page = said["url"], said["spark"]
        self._root = f"{said['url']}/api/v1/applications/{said['id']}/streaming"

    def ask(self, path: str) -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(f"{self._root}/{path}", timeout=WAIT_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, None

    def get(self, path: str) -> Any:
        status, found = self.ask(path)
        assert status == 200, (self.kind, path, status)
        return found

    def gauges(self) -> dict[str, Any]:
        """Return what Spark's metrics have of the streams, by the names that all programs share."""
        with urllib.request.urlopen(f"{self.spark_page}/metrics/json", timeout=WAIT_S) as answer:
            found = json.load(answer)["gauges"]
        parts = {name: name.partition(".driver.rest.StreamingMetrics.") for name in found}
        return {rest: found[name]["value"] for name, (_, sign, rest) in parts.items() if sign}

    def completed(self, *, failed: bool) -> list[dict[str, Any]]:
        """Return the complete batches with records, the failed ones or the others."""
        return [
            batch
            for batch in self.get("batches?status=completed")
            if batch["inputSize"] and bool(batch["numFailedOutputOps"]) == failed
        ]

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Asked, Asked]]:
    """The same program twice, side by side, each with batches that failed and that did not."""
    folder = tmp_path_factory.mktemp("rest")
    source = Source()
    programs = []
    try:
        for kind in ("spark", "penstock"):
            programs.append(Asked(kind, source.port, folder))
        for program in programs:
            program.begin()
        spark, ours = programs
        if spark.ask("statistics")[0] in NOT_THERE:
            pytest.skip("this Spark's UI has no REST API of DStreams any more")
        for program in programs:
            until(lambda p=program: p.completed(failed=False), WAIT_S)  # type: ignore[misc]
        source.says_fail.set()
        for program in programs:
            until(lambda p=program: p.completed(failed=True), WAIT_S)  # type: ignore[misc]
        yield spark, ours
    finally:
        for program in programs:
            program.end()
        source.close()


def shape(value: Any) -> Any:
    """Return names and types without values; of a list, the shape of all that is in it."""
    if isinstance(value, dict):
        return {name: shape(part) for name, part in value.items()}
    if isinstance(value, list):
        return [dict_of_all([shape(part) for part in value])]
    if isinstance(value, str) and value.endswith("GMT") and value[4:5] == "-":
        return f"time of {len(value)} letters"
    return type(value).__name__


def dict_of_all(shapes: list[Any]) -> Any:
    """Return one shape for several: of objects, each name with what it is."""
    if shapes and all(isinstance(found, dict) for found in shapes):
        together: dict[str, Any] = {}
        for found in shapes:
            together |= found
        return together
    return [json.loads(text) for text in sorted({json.dumps(found) for found in shapes})]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_fields_and_types_are_those_of_spark(
    both: tuple[Asked, Asked], path: str, failed: bool
) -> None:
    def told(program: Asked) -> Any:
        batch = program.completed(failed=failed)[0]
        return program.get(path.format(batch=batch["batchId"]))

    spark, ours = both
    assert shape(told(ours)) == shape(told(spark))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("path", MISSING)
def test_what_there_is_none_of_is_answered_as_spark_does(
    both: tuple[Asked, Asked], path: str
) -> None:
    def status(program: Asked) -> int:
        batch = program.completed(failed=True)[0]
        return program.ask(path.format(batch=batch["batchId"]))[0]

    spark, ours = both
    assert status(ours) == status(spark)


@pytest.mark.timeout(1800)
def test_values_that_follow_from_the_program_are_equal(both: tuple[Asked, Asked]) -> None:
    spark, ours = both
    for name in ("batchDuration", "numReceivers", "numActiveReceivers", "numInactiveReceivers"):
        assert ours.get("statistics")[name] == spark.get("statistics")[name]
    for failed in (False, True):
        mine, theirs = ours.completed(failed=failed)[0], spark.completed(failed=failed)[0]
        for name in ("status", "batchDuration", "numTotalOutputOps", "numCompletedOutputOps"):
            assert mine[name] == theirs[name]
        assert mine["numFailedOutputOps"] == theirs["numFailedOutputOps"]
    assert ours.get("receivers/0")["isActive"] is spark.get("receivers/0")["isActive"] is True


@pytest.mark.timeout(1800)
def test_gauges_of_streams_are_in_the_metrics_of_spark(both: tuple[Asked, Asked]) -> None:
    spark, ours = both
    assert set(ours.gauges()) == set(spark.gauges())
    done = ours.gauges()["streaming.totalCompletedBatches"]
    until(lambda: ours.gauges()["streaming.totalCompletedBatches"] > done, WAIT_S)
    for program in both:
        found = program.gauges()
        assert found["streaming.receivers"] == 1
        assert found["streaming.totalProcessedRecords"] > 0
        # One is set after the other, so that a look may fall between two.
        until(lambda program=program: are_of_one_batch(program.gauges()), WAIT_S)


def are_of_one_batch(found: dict[str, Any]) -> bool:
    """Say whether the figures of the last completed batch fit together."""
    last = "streaming.lastCompletedBatch_"
    submitted, begun, ended = (
        found[f"{last}{name}Time"] for name in ("submission", "processingStart", "processingEnd")
    )
    in_order = 0 < submitted <= begun <= ended
    return in_order and found[f"{last}totalDelay"] == ended - submitted


@pytest.mark.timeout(1800)
def test_the_page_of_spark_leads_to_that_of_the_program(both: tuple[Asked, Asked]) -> None:
    _, ours = both
    with urllib.request.urlopen(f"{ours.spark_page}/streaming", timeout=WAIT_S) as answer:
        assert answer.url == f"{ours.page}/"
