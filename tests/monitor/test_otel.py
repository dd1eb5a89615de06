"""Figures and traces that a collector of OpenTelemetry gets, and what its absence does: nothing."""

from __future__ import annotations

import itertools
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from email.utils import formatdate
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.resources import Resource
from prometheus_client.core import Metric

from penstock.errors import MissingPackageError, SettingError
from penstock.monitor import Model, start_monitor
from penstock.monitor.figures import Figures
from penstock.monitor.otel import OtelSender
from penstock.monitor.otel.otlp_data import metrics_data
from penstock.monitor.otel.signals import Outcome, Signal
from penstock.receiver import ReceiverContext, receiver
from penstock.settings import Settings
from penstock.streaming import StreamingContext
from penstock.wire.messages import BlockTrace, ReceivedBlockInfo
from tests.bounds import HANG_S
from tests.monitor.asking import WAIT_S, until
from tests.monitor.collector import Collector, attributes, collecting
from tests.monitor.feeding import START_MS, Program
from tests.services.ports import free_ports

PARTS = ["store", "queue", "log", "driver", "allocated", "batch"]
OFTEN = {"OTEL_METRIC_EXPORT_INTERVAL": "100", "OTEL_BSP_SCHEDULE_DELAY": "100"}


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    # A collector that is not there is not waited for as long as in production.
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


def settings_for(address: str, **more: str) -> Settings:
    pairs = {"spark.penstock.otel.enabled": "true", "spark.penstock.otel.endpoint": address, **more}
    return Settings.from_pairs(pairs.items())


def running_program() -> Program:
    program = Program(streams={0: "numbers", 1: "letters"})
    program.start()
    for stream_id in program.streams:
        program.receiver(stream_id, limit=1000.0)
    for number in range(1, 4):
        program.batch(number, takes_ms=200 * number, errors=(None if number < 3 else "no table",))
        program.second(900, 0, rate_s=0.5, busy_s=0.1)
        program.second(100, 1, log_s=0.5, busy_s=0.1)
    return program


def sending(model: Model, settings: Settings) -> OtelSender:
    sender = OtelSender(model, settings, OFTEN)
    sender.start()
    return sender


def of_prometheus(families: list[Metric]) -> set[tuple[str, frozenset[Any], float]]:
    """Return every sample, as (name, labels, value)."""
    return {
        (sample.name, frozenset(sample.labels.items()), float(sample.value))
        for family in families
        for sample in family.samples
    }


def of_otlp(metrics: dict[str, Any]) -> set[tuple[str, frozenset[Any], float]]:
    """Return the same of what a collector got, as its way to Prometheus names it."""
    found = set()
    for name, metric in metrics.items():
        kind = metric.WhichOneof("data")
        for point in getattr(metric, kind).data_points:
            labels = attributes(point)
            if kind != "histogram":
                ending = "_total" if kind == "sum" else ""
                found.add((name + ending, frozenset(labels.items()), point.as_double))
                continue
            count = 0
            for bound, each in zip(
                [*point.explicit_bounds, "+Inf"], point.bucket_counts, strict=True
            ):
                count += each
                named = frozenset({**labels, "le": str(bound)}.items())
                found.add((f"{name}_bucket", named, float(count)))
            found.add((f"{name}_count", frozenset(labels.items()), float(point.count)))
            found.add((f"{name}_sum", frozenset(labels.items()), point.sum))
    return found


def test_a_collector_gets_the_figures_that_prometheus_gets(collector: Collector) -> None:
    model = running_program().model
    sender = sending(model, settings_for(collector.address))
    try:
        metrics = until(collector.metrics)
    finally:
        sender.stop(WAIT_S)
    wanted = of_prometheus(list(Figures(model).collect()))
    assert len(wanted) > 80
    assert of_otlp(metrics) == wanted
    counted = metrics["penstock_batches_completed"].sum
    assert counted.is_monotonic
    assert counted.data_points[0].start_time_unix_nano == START_MS * 1_000_000
    assert metrics["penstock_batch_total_delay_seconds"].unit == "s"
    assert metrics["penstock_log_free_bytes"].unit == "By"


def test_the_variables_of_opentelemetry_say_what_they_say_everywhere(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=night")
    settings = Settings.from_pairs([("spark.penstock.otel.enabled", "true")])
    sender = sending(running_program().model, settings)
    try:
        until(collector.metrics)
    finally:
        sender.stop(WAIT_S)
    told = collector.resources[-1]
    assert told["service.name"] == "shop"
    assert told["deployment.environment"] == "night"
    assert told["spark.application.id"] == "local-1"


def traced(number: int, stream_id: int = 0, at_s: float = START_MS / 1000) -> BlockTrace:
    times_s = [at_s + after for after in (0.0, 0.2, 0.21, 0.25, 0.3)]
    return BlockTrace(f"input-{stream_id}-{number}", 10, 1000, *times_s)


def block(number: int, stream_id: int = 0) -> ReceivedBlockInfo:
    return ReceivedBlockInfo(
        *(stream_id, f"input-{stream_id}-{number}", 10, 1000, "a", "h1", number, None, None)
    )


@pytest.mark.long
@pytest.mark.slow
def test_a_block_is_traced_from_store_to_the_end_of_its_batch(collector: Collector) -> None:
    program = running_program()
    traces = [traced(0), traced(1), traced(1 << 32, 1), traced(400)]
    blocks = {START_MS + 1000: (block(0), block(1)), START_MS + 3000: (block(1 << 32, 1),)}
    program.model.application = replace(
        program.application(),
        take_traces=lambda: [traces.pop(0) for _ in traces[:1]],
        blocks_of_batch=lambda time_ms: blocks.get(time_ms, ()),
    )
    sender = sending(program.model, settings_for(collector.address))
    try:
        # One of a hundred of an attempt, and block 400 is in no batch yet.
        until(lambda: len(collector.spans()) == 14)
    finally:
        sender.stop(WAIT_S)
    first, second = sorted(
        collector.traces(), key=lambda spans: attributes(spans[0])["penstock.stream"], reverse=True
    )
    root, *parts = first
    assert root.name == "penstock.block"
    told = attributes(root)
    assert told["penstock.block.id"] == "input-0-0"
    assert told["penstock.stream"] == "numbers"
    assert told["penstock.block.records"] == 10
    assert [span.name for span in parts] == PARTS
    assert {span.parent_span_id for span in parts} == {root.span_id}
    took_ms = [round((span.end_time_unix_nano - span.start_time_unix_nano) / 1e6) for span in parts]
    # It was known at 300 ms, and the batch of 1,000 ms took 10 and 200 ms.
    assert took_ms == [200, 10, 40, 50, 700, 210]
    for span, behind in itertools.pairwise(parts):
        assert span.end_time_unix_nano == behind.start_time_unix_nano
    assert root.start_time_unix_nano == parts[0].start_time_unix_nano
    assert root.end_time_unix_nano == parts[-1].end_time_unix_nano
    failed, *_, last = second
    assert failed.status.code == last.status.code == 2
    assert last.status.message == "ValueError: no table"


def test_a_clock_that_is_ahead_makes_no_span_that_ends_before_it_begins(
    collector: Collector,
) -> None:
    program = running_program()
    traces = [traced(0, at_s=START_MS / 1000 + 60)]
    program.model.application = replace(
        program.application(),
        take_traces=lambda: [traces.pop() for _ in traces[:1]],
        blocks_of_batch=lambda time_ms: (block(0),) if time_ms == START_MS + 1000 else (),
    )
    sender = sending(program.model, settings_for(collector.address))
    try:
        spans = until(collector.spans)
    finally:
        sender.stop(WAIT_S)
    assert len(spans) == 7
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)


def test_signals_can_be_switched_off_alone(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = running_program()
    asked: list[int] = []
    program.model.application = replace(
        program.application(), take_traces=lambda: asked.append(1) or []
    )
    settings = settings_for(collector.address, **{"spark.penstock.otel.traces.every": "0"})
    sender = sending(program.model, settings)
    try:
        until(collector.metrics)
    finally:
        sender.stop(WAIT_S)
    assert not asked
    before = collector.asked
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    sender = OtelSender(program.model, settings_for(collector.address), dict(os.environ))
    sender.start()
    sender.stop(WAIT_S)
    assert collector.asked == before


@pytest.mark.slow
def test_a_collector_that_is_away_is_told_of_once_and_once_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (port,) = free_ports(1)
    model = running_program().model
    with caplog.at_level(logging.INFO):
        sender = sending(model, settings_for(f"http://me:secret@127.0.0.1:{port}"))
        try:
            until(lambda: "cannot be sent to" in caplog.text)
            # It is tried several times more, and nobody is told again, by whatever library.
            with collecting(port) as collector:
                until(collector.metrics)
                until(lambda: "sent by OpenTelemetry again" in caplog.text)
        finally:
            sender.stop(WAIT_S)
    said = [record for record in caplog.records if record.levelno >= logging.INFO]
    assert {record.name for record in said} == {"penstock.monitor"}
    told = [record.getMessage() for record in said]
    assert f"http://127.0.0.1:{port} " in told[0]
    assert "secret" not in caplog.text
    # A slow machine may make it seem away more often; each time is told once, and each return.
    assert [line.endswith("again") for line in told] == [
        place % 2 == 1 for place in range(len(told))
    ]


@pytest.mark.long
@pytest.mark.slow
def test_a_collector_that_refuses_is_told_with_what_it_answered(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.refuses = 403
    with caplog.at_level(logging.INFO):
        sender = sending(running_program().model, settings_for(collector.address))
        try:
            until(lambda: collector.asked >= 3)
        finally:
            sender.stop(WAIT_S)
    (said,) = [record.getMessage() for record in caplog.records]
    assert "403" in said


def exporter_to(collector: Collector, signal: Signal) -> OTLPMetricExporter:
    return OTLPMetricExporter(f"{collector.address}/v1/metrics", session=signal.session())


def some_figures() -> Any:
    model = running_program().model
    return metrics_data(Figures(model).collect(), Resource.create(), START_MS, model.now_ms())


@pytest.mark.parametrize(
    ("retry_after", "wait_s"),
    [("3600", 3600), ("1", 60), ("", 60), ("soon", 60), ("9" * 400, 86_400), ("0", 60)],
)
def test_a_collector_that_says_when_to_come_again_is_asked_then(
    collector: Collector, caplog: pytest.LogCaptureFixture, retry_after: str, wait_s: int
) -> None:
    collector.refuses, collector.retry_after = 503, retry_after
    signal = Signal("Figures", collector.address, "SWITCH", 60.0, lambda: "", 0.0)
    exporter = exporter_to(collector, signal)
    assert not signal.is_due(59.0)
    assert signal.is_due(60.0)
    assert signal.send(exporter, some_figures(), 100.0) is Outcome.LATER
    # It was asked once, and not again and again until its time for an answer was over.
    assert collector.asked == 1
    assert not signal.is_due(100.0 + wait_s - 1)
    assert signal.is_due(100.0 + wait_s)
    assert not signal.is_due(0.0, is_last=True)
    (said,) = [record.getMessage() for record in caplog.records if record.name.startswith("pens")]
    assert said.startswith(f"Figures cannot be sent to {collector.address} by OpenTelemetry: 503 ")
    if wait_s > 60:
        assert said.endswith(f"they are tried again in {wait_s:,} s, as it asks")
    collector.refuses = None
    assert signal.send(exporter, some_figures(), 5000.0) is Outcome.TAKEN
    assert collector.metrics()
    assert caplog.messages[-1] == "Figures are sent by OpenTelemetry again"
    assert signal.is_due(0.0, is_last=True)


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("http://127.0.0.1:1", "Connection refused"),
        ("http://no-such-host.invalid:4318", "Failed to resolve"),
    ],
)
def test_why_a_collector_is_not_reached_is_said_and_not_that_it_was_tried_for_long(
    address: str,
    reason: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The exporter's own first pause is longer, so that it only says that its time is over.
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.1")
    signal = Signal("Figures", address, "SWITCH", 60.0, lambda: "max retries", 0.0)
    exporter = OTLPMetricExporter(f"{address}/v1/metrics", session=signal.session())
    assert signal.send(exporter, some_figures(), 0.0) is Outcome.LATER
    (said,) = [record.getMessage() for record in caplog.records if record.name.startswith("pens")]
    assert said.startswith(f"Figures cannot be sent to {address} by OpenTelemetry: ")
    assert reason in said
    assert "retries" not in said


def test_a_date_to_come_again_is_kept_to(collector: Collector) -> None:
    collector.refuses, collector.retry_after = 429, formatdate(time.time() + 7200, usegmt=True)
    signal = Signal("Figures", collector.address, "SWITCH", 60.0, lambda: "", 0.0)
    assert signal.send(exporter_to(collector, signal), some_figures(), 0.0) is Outcome.LATER
    assert not signal.is_due(3600.0)
    assert signal.is_due(7200.0)


@pytest.mark.parametrize("status", [301, 400, 404, 413, 500])
def test_what_a_collector_refuses_for_good_is_not_sent_again(
    collector: Collector, status: int
) -> None:
    collector.refuses = status
    signal = Signal("Figures", collector.address, "SWITCH", 60.0, lambda: "", 0.0)
    assert signal.send(exporter_to(collector, signal), some_figures(), 0.0) is Outcome.REFUSED
    assert collector.asked == 1


def tracing_program() -> tuple[Program, list[BlockTrace]]:
    """Have a program of which one block can be traced as soon as its trace is put in the list."""
    program = running_program()
    traces: list[BlockTrace] = []
    program.model.application = replace(
        program.application(),
        take_traces=lambda: [traces.pop() for _ in traces[:1]],
        blocks_of_batch=lambda time_ms: (block(0),) if time_ms == START_MS + 1000 else (),
    )
    return program, traces


@pytest.mark.slow
def test_traces_wait_for_a_collector_that_is_away(collector: Collector) -> None:
    collector.refuses = 503
    program, traces = tracing_program()
    traces.append(traced(0))
    sender = sending(program.model, settings_for(collector.address))
    try:
        until(lambda: "/v1/traces" in collector.paths)
        assert collector.spans() == []
        collector.refuses = None
        assert len(until(collector.spans)) == 7
    finally:
        sender.stop(WAIT_S)
    assert len(collector.spans()) == 7


@pytest.mark.long
@pytest.mark.slow
def test_a_collector_that_takes_traces_only_gets_them_also_at_the_end(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.refuses_path = {"/v1/metrics": 404}
    program, traces = tracing_program()
    with caplog.at_level(logging.INFO, logger="penstock.monitor"):
        sender = OtelSender(
            program.model,
            settings_for(collector.address),
            {**OFTEN, "OTEL_BSP_SCHEDULE_DELAY": "3600000"},
        )
        sender.start()
        until(lambda: collector.paths.count("/v1/metrics") >= 3)
        traces.append(traced(0))
        until(lambda: not traces)
        sender.stop(WAIT_S)
    assert len(collector.spans()) == 7
    said = [record.getMessage() for record in caplog.records if record.name.startswith("pens")]
    (line,) = said
    assert line == (
        f"Figures are not taken by {collector.address}: 404 Not Found; the program goes on, and "
        "they are dropped until it takes some (OTEL_METRICS_EXPORTER=none switches them off)"
    )


@pytest.mark.slow
def test_a_collector_that_answers_nobody_holds_no_program_up(collector: Collector) -> None:
    collector.hold.clear()
    program = running_program()
    sender = sending(program.model, settings_for(collector.address))
    until(lambda: collector.asked)
    # While it hangs there, the model goes on, and the end of the program does, too.
    program.second(100)
    sender.stop(WAIT_S)
    collector.hold.set()
    until(lambda: not [t for t in threading.enumerate() if t.name == "penstock-otel"])


def test_without_its_packages_a_program_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = running_program()
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'penstock\[otel\]'"):
        start_monitor(
            program.application(), settings_for("http://h:1"), lambda _: None, lambda _: None
        )


def test_an_endpoint_that_is_no_address_is_an_error_at_the_start() -> None:
    with pytest.raises(SettingError, match=r"otel\.endpoint='h:4317' is not accepted"):
        OtelSender(running_program().model, settings_for("h:4317"), {})
    # A setting wins over the variable.
    variable = {"OTEL_EXPORTER_OTLP_ENDPOINT": "me:secret@h:4317"}
    OtelSender(running_program().model, settings_for("http://h:1"), variable)
    no_endpoint = Settings.from_pairs([("spark.penstock.otel.enabled", "true")])
    with pytest.raises(SettingError, match=r"OTEL_EXPORTER_OTLP_ENDPOINT='h:4317' is not acc"):
        OtelSender(running_program().model, no_endpoint, variable)


def test_switched_off_nothing_of_it_is_imported() -> None:
    code = (
        "import sys, penstock.monitor, penstock.monitor.web.routes, penstock.receiver\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=WAIT_S)


@receiver
def ticking(ctx: ReceiverContext) -> Iterator[str]:
    while not ctx.stopped.wait(0.01):
        yield "tick"


@pytest.mark.slow
def test_a_running_program_sends_its_figures_and_the_ways_of_its_blocks(
    sc: Any, tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in OFTEN.items():
        monkeypatch.setenv(name, text)
    options = {
        "spark.penstock.ui.enabled": "false",
        "spark.penstock.otel.enabled": "true",
        "spark.penstock.otel.endpoint": collector.address,
        "spark.penstock.otel.traces.every": "2",
    }
    for name, text in options.items():
        sc._conf.set(name, text)
    try:
        ssc = StreamingContext(sc, 0.5)
        ssc.receiverStream(ticking).foreachRDD(lambda rdd: rdd.count())
        ssc.start()
        wait = partial(until, bound_s=HANG_S)
        try:
            wait(lambda: len(collector.traces()) >= 3)
            wait(lambda: "penstock_received_records" in collector.metrics())
        finally:
            ssc.stop(stopSparkContext=False)
    finally:
        for name in options:
            sc._conf._jconf.remove(name)
    numbers = set()
    for root, *parts in collector.traces():
        assert [span.name for span in parts] == PARTS
        told = attributes(root)
        assert told["penstock.stream.id"] == 0
        assert told["penstock.block.records"] > 0
        numbers.add(int(told["penstock.block.id"].rpartition("-")[2]))
        batch_s = told["penstock.batch.time_ms"] / 1000
        # A batch has its time before the blocks that it takes: these may come after that, too.
        assert abs(batch_s - parts[0].end_time_unix_nano / 1e9) < HANG_S
        assert root.start_time_unix_nano < root.end_time_unix_nano
    assert len(numbers) == len(collector.traces())
    assert all(number % 2 == 0 for number in numbers)
    assert not [t for t in threading.enumerate() if t.name == "penstock-otel"]
