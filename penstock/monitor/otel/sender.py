"""`OtelSender`: sends figures and spans to a collector, every so often."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import MissingPackageError, SettingError, typed_text
from penstock.monitor.figures import Figures
from penstock.monitor.model import Model
from penstock.monitor.otel.otlp_data import Ways
from penstock.monitor.otel.signals import Outcome, Signal
from penstock.runtime.threads import OwnedThread
from penstock.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

_LOOK_S = 1.0
_GRACE_S = 2.0
"""How long the end of a program waits for what is still to be sent."""
_SPANS = 7_000
"""Spans that may wait for the collector, about 1,000 blocks' worth; beyond that, the oldest are
dropped."""
_AT_ONCE = 1_400
_FIGURES_MS = 60_000
_SPANS_MS = 5_000
"""How often they are sent: OpenTelemetry's default."""
_ENDPOINT = "spark.penstock.otel.endpoint"
_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"


class OtelSender:
    """Sends what a model has (``penstock-otel``) until it is stopped.

    Args:
        model: What is sent.
        settings: Where to, and one block in how many is traced.
        environ: The variables of OpenTelemetry.

    Raises:
        MissingPackageError: The packages are not installed.
        SettingError: The endpoint is no address of HTTP.
    """

    def __init__(self, model: Model, settings: Settings, environ: Mapping[str, str]) -> None:
        self._model = model
        self._figures = Figures(model)
        self._ways = Ways(model.application, settings.otel_traces_every)
        where = _without_password(
            settings.otel_endpoint
            or _checked(environ.get(_VARIABLE) or None, _VARIABLE)
            or "http://localhost:4318"
        )
        self._said = _Said()
        figures_s = _seconds(environ, "OTEL_METRIC_EXPORT_INTERVAL", _FIGURES_MS)
        spans_s = _seconds(environ, "OTEL_BSP_SCHEDULE_DELAY", _SPANS_MS)
        said, now_s = self._said.take, time.monotonic()
        self._of_figures = Signal(
            *("Figures", where, "OTEL_METRICS_EXPORTER", figures_s, said, now_s)
        )
        self._of_spans = Signal("Traces", where, "OTEL_TRACES_EXPORTER", spans_s, said, now_s)
        self._parts = _Parts.of(model, settings, environ, self._of_figures, self._of_spans)
        self._begun_ms = model.now_ms()
        self._stopped = threading.Event()
        self._thread = OwnedThread(self._run, "otel", again=True)

    def start(self) -> None:
        """Begin; once."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Send what is left, if the collector takes it soon, and end. May be called again.

        A collector that takes its time holds the thread, not the caller: it is a daemon, and ends
        when its time for an answer is over.
        """
        self._stopped.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(min(timeout_s, _GRACE_S))
            if self._thread.is_alive():
                self._parts.abandon()

    def _run(self) -> None:
        is_over = False
        with self._said.kept():
            while not is_over:
                is_over = self._stopped.wait(_LOOK_S)
                try:
                    self._look()
                except Exception as error:  # noqa: BLE001  # the program does not depend on it
                    self._of_spans.failed(typed_text(error), time.monotonic())
                self._send_spans(is_over)
                self._send_figures(is_over)
            self._parts.close()

    def _look(self) -> None:
        if self._parts.tracer is None or self._model.application.batch_ms is None:
            return  # Without batches no way comes to its end.
        from penstock.monitor.otel.otlp_data import add_spans

        for way in self._ways.take(self._model.batches()):
            add_spans(self._parts.tracer, way, self._model.application.streams)

    def _send_spans(self, is_last: bool) -> None:
        waiting, exporter, signal = self._parts.spans, self._parts.span_exporter, self._of_spans
        if exporter is None or not signal.is_due(time.monotonic(), is_last=is_last):
            return
        while waiting:
            some = [waiting.popleft() for _ in range(min(len(waiting), _AT_ONCE))]
            outcome = signal.send(exporter, some, time.monotonic())
            if outcome is Outcome.LATER:
                # Made by this thread alone, so that there is still room for them.
                waiting.extendleft(reversed(some))
            if outcome is not Outcome.TAKEN:
                return

    def _send_figures(self, is_last: bool) -> None:
        exporter, signal = self._parts.metric_exporter, self._of_figures
        if exporter is None or not signal.is_due(time.monotonic(), is_last=is_last):
            return
        from penstock.monitor.otel.otlp_data import metrics_data

        try:
            started_ms = self._model.totals().started_ms or self._begun_ms
            found = self._figures.collect()
            data = metrics_data(found, self._parts.resource, started_ms, self._model.now_ms())
        except Exception as error:  # noqa: BLE001  # the program does not depend on it
            signal.failed(typed_text(error), time.monotonic())
            return
        signal.send(exporter, data, time.monotonic())


@dataclass
class _Parts:
    """What OpenTelemetry's packages do of it; a signal that is switched off is None."""

    resource: Resource
    spans: deque[ReadableSpan]
    metric_exporter: OTLPMetricExporter | None
    span_exporter: OTLPSpanExporter | None
    provider: TracerProvider | None
    tracer: Any

    @classmethod
    def of(
        cls,
        model: Model,
        settings: Settings,
        environ: Mapping[str, str],
        of_figures: Signal,
        of_spans: Signal,
    ) -> _Parts:
        try:
            from opentelemetry.exporter.otlp.proto.http import metric_exporter, trace_exporter
            from opentelemetry.sdk.resources import OTELResourceDetector, Resource
            from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
        except ModuleNotFoundError as error:
            raise MissingPackageError(
                "spark.penstock.otel.enabled",
                "the packages of OpenTelemetry in the driver",
                "otel",
                ", or set it to false",
            ) from error

        waiting: deque[ReadableSpan] = deque(maxlen=_SPANS)

        class Waiting(SpanProcessor):
            def on_end(self, span: ReadableSpan) -> None:
                if span.context is not None and span.context.trace_flags.sampled:
                    waiting.append(span)

        endpoint = _checked(settings.otel_endpoint)
        application = model.application
        resource = Resource.create(
            {
                "service.name": application.name or "penstock",
                "service.instance.id": application.application_id,
                "spark.application.id": application.application_id,
                # What OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say.
                **OTELResourceDetector().detect().attributes,
            }
        )
        wants_spans = settings.otel_traces_every > 0 and _is_on(environ, "OTEL_TRACES_EXPORTER")
        # A session that brings credentials is made by OpenTelemetry; its answers are not seen.
        has_own_session = any(name.endswith("_CREDENTIAL_PROVIDER") for name in environ)
        metrics = spans = provider = None
        if _is_on(environ, "OTEL_METRICS_EXPORTER"):
            metrics = metric_exporter.OTLPMetricExporter(
                endpoint and f"{endpoint}/v1/metrics",
                session=None if has_own_session else of_figures.session(),
            )
        if wants_spans:
            spans = trace_exporter.OTLPSpanExporter(
                endpoint and f"{endpoint}/v1/traces",
                session=None if has_own_session else of_spans.session(),
            )
            provider = TracerProvider(resource=resource, shutdown_on_exit=False)
            provider.add_span_processor(Waiting())
        tracer = None if provider is None else provider.get_tracer("penstock")
        return cls(resource, waiting, metrics, spans, provider, tracer)

    def abandon(self) -> None:
        """Have an exporter that waits to try again give up; may be called again."""
        for exporter in (self.metric_exporter, self.span_exporter):
            if exporter is not None:
                exporter.shutdown()

    def close(self) -> None:
        self.abandon()
        if self.provider is not None:
            self.provider.shutdown()


class _Said(logging.Filter):
    """Keeps what the exporters log in one thread, which would be said with each attempt."""

    def __init__(self) -> None:
        super().__init__()
        self._first = ""
        self._thread = 0

    def take(self) -> str:
        """Return the first thing that was said since this was asked."""
        first, self._first = self._first, ""
        return first

    def filter(self, record: logging.LogRecord) -> bool:
        if record.thread != self._thread:
            return True
        if record.levelno >= logging.WARNING:
            self._first = self._first or record.getMessage()
        return False

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Keep what OpenTelemetry's packages say in this thread; other threads' is theirs."""
        self._thread = threading.get_ident()
        loggers = [
            logging.getLogger(name)
            for name in list(logging.root.manager.loggerDict)
            if name.startswith(("opentelemetry.", "urllib3."))
        ]
        for logger in loggers:
            logger.addFilter(self)
        try:
            yield
        finally:
            for logger in loggers:
                logger.removeFilter(self)


def _checked(endpoint: str | None, key: str = _ENDPOINT) -> str | None:
    if endpoint is None:
        return None
    if not endpoint.startswith(("http://", "https://")):
        told = _without_password(endpoint)
        raise SettingError(key, told, "an address such as http://collector:4318")
    return endpoint.rstrip("/")


def _without_password(endpoint: str) -> str:
    """Return an address as it may be shown: it may contain a user and a password."""
    scheme, separator, rest = endpoint.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def _is_on(environ: Mapping[str, str], name: str) -> bool:
    """Return whether a signal is wanted; OTEL_SDK_DISABLED switches all off."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    return environ.get(name, "otlp").strip().lower() != "none"


def _seconds(environ: Mapping[str, str], name: str, default_ms: int) -> float:
    text = environ.get(name, "").strip()
    return (int(text) if text.isascii() and text.isdigit() and int(text) else default_ms) / 1000
