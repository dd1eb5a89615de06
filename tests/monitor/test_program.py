"""A real program that is looked at and changed from outside while it runs."""

from __future__ import annotations

import http.client
import os
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.__main__ import main
from penstock.monitor.cli import AppClient
from penstock.monitor.registry import registered, runtime_folder
from penstock.receiver import ReceiverContext, receiver
from penstock.streaming import OutputOperationError, RateSource, StreamingContext
from tests.bounds import HANG_S
from tests.monitor import asking

pytestmark = pytest.mark.slow

WAIT_S = HANG_S

until = partial(asking.until, bound_s=WAIT_S)

ENDED = ("penstock-ui", "penstock-ui-connection", "penstock-monitor", "penstock-spark-views")


@receiver(positions=True)
def numbers(ctx: ReceiverContext) -> Iterator[tuple[int, int]]:
    number = ctx.last_position or 0
    while not ctx.stopped.wait(0.005):
        number += 1
        yield number, number


def read(url: str, path: str) -> str:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=WAIT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == 200
        return answer.read().decode()
    finally:
        connection.close()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_program_is_found_looked_at_changed_and_stopped_by_commands(
    sc: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    ssc = StreamingContext(sc, 0.5)
    stream = ssc.receiverStream(numbers)
    fails = threading.Event()

    def count(rdd: Any) -> None:
        rdd.count()
        if fails.is_set():
            raise ValueError("no such table")

    stream.foreachRDD(count)
    ssc.start()
    try:
        (app,) = registered(runtime_folder(os.environ))
        client = AppClient(app.url, app.token)

        def status() -> Any:
            return client.get("/api/penstock/status")

        until(lambda: status()["totals"]["processedRecords"] > 100)
        (told,) = until(lambda: [r for r in status()["receivers"] if r["waits"]])
        assert (told["name"], told["state"], told["attempts"]) == ("numbers-0", "running", 1)
        assert sum(told["waits"].values()) == pytest.approx(100, abs=1)
        assert told["log"]["bytes"] > 0
        until(lambda: status()["receivers"][0]["recordsPerSecond"] > 10)

        root = f"/api/v1/applications/{sc.applicationId}/streaming"
        statistics = client.get(f"{root}/statistics")
        assert statistics["batchDuration"] == 500
        assert statistics["numActiveReceivers"] == 1
        done = [b for b in client.get(f"{root}/batches?status=completed") if b["inputSize"]]
        (operation,) = client.get(f"{root}/batches/{done[0]['batchId']}/operations")
        assert operation["jobIds"]
        assert operation["name"].startswith("foreachRDD at test_program.py")

        samples = {
            sample.name: sample.value
            for family in text_string_to_metric_families(read(app.url, "/metrics"))
            for sample in family.samples
        }
        assert samples["penstock_receiver_up"] == 1
        assert samples["penstock_received_records_total"] > 100
        assert read(app.url, "/health/live") == "ok\n"
        assert 'id="sentence"' in read(app.url, "/")

        capsys.readouterr()
        assert main(["tap", "numbers", "--sample", "3", "--count", "5"]) == 0
        shown = [int(line) for line in capsys.readouterr().out.splitlines()]
        assert len(shown) == 5
        assert shown == sorted(set(shown))

        assert main(["rate", "numbers", "20/second"]) == 0
        assert ssc.rates()[0].source is RateSource.USER
        assert ssc.rates()[0].effective == 20
        until(lambda: (status()["receivers"][0]["waits"] or {}).get("tokens", 0) > 30)
        assert status()["receivers"][0]["limitBy"] == "user"
        until(lambda: "by the rate that was set" in status()["sentence"])
        capsys.readouterr()
        assert main(["receivers"]) == 0
        assert "tokens (user)" in capsys.readouterr().out

        fails.set()
        until(lambda: status()["totals"]["failedBatches"])
        capsys.readouterr()
        assert main(["errors"]) == 0
        assert "ValueError: no such table" in capsys.readouterr().out
        fails.clear()

        assert main(["stop"]) == 0
        with pytest.raises(OutputOperationError):
            ssc.awaitTermination(WAIT_S)
        until(lambda: ssc.getState().name == "STOPPED")
        assert registered(runtime_folder(os.environ)) == []
        assert main(["top", "--once"]) == 2
    finally:
        ssc.stop(stopSparkContext=False)
    until(lambda: not [t.name for t in threading.enumerate() if t.name in ENDED])
