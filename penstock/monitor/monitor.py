"""`Monitor`: the model and what shows it, begun and ended with a context or a host."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import SparkContext

from penstock.errors import typed_text
from penstock.listeners.events import (
    ReceiverError,
    ReceiverInfo,
    ReceiverStarted,
    ReceiverStopped,
    StreamingStarted,
)
from penstock.monitor.application import Application
from penstock.monitor.model import Model
from penstock.monitor.records import BatchStatus
from penstock.monitor.registry import register, runtime_folder, unregister
from penstock.monitor.web.access import Access
from penstock.monitor.web.routes import Routes
from penstock.monitor.web.server import PageTls, WebServer, listen_host, ports_near
from penstock.runtime.clock import Clock
from penstock.runtime.threads import OwnedThread, Repeated
from penstock.settings import Settings
from penstock.tracker import ReceiverTrackingInfo
from penstock.wire.addresses import address_text, bare_host

if TYPE_CHECKING:
    from penstock.monitor.otel import OtelSender

# `SparkViews`: what Spark's own page and metrics system show of a program.
#
# Spark's page leads from ``/streaming``, where its tab of streams was, to the page of this program;
# from ``/penstock`` to that of a `ReceiverHost`, which may be in the same program. Where there are
# batches, Spark's metrics system, and so each of its sinks, gets the gauges of Spark Streaming
# under their names, ``<application>.driver.<name>.StreamingMetrics.streaming.*``; -1 is not known.
#
# All of it is asked of Spark's JVM through classes that are Spark's own business, in a thread of
# its own (``penstock-spark-views``): what a version of Spark does not have is left out with a line
# in the log, and a JVM that does not answer holds no one up.

_EVERY_S = 1.0
_PATH = "/streaming"
_HOST_PATH = "/penstock"
_UNKNOWN = -1

_TIMES = {
    "submissionTime": "submission_ms",
    "processingStartTime": "start_ms",
    "processingEndTime": "end_ms",
}
_OF_COMPLETED = {
    **_TIMES,
    "processingDelay": "processing_ms",
    "schedulingDelay": "scheduling_delay_ms",
    "totalDelay": "total_delay_ms",
}
_OF_RECEIVED = {**_TIMES, "records": "records"}
"""What a gauge of a batch is called, and the attribute of the batch."""


class SparkViews:
    """Shows a model in Spark's own views until it is stopped.

    Args:
        spark_context: The program's.
        model: What is shown.
        address: Of the program's page; None: it has none.
    """

    def __init__(self, spark_context: SparkContext, model: Model, address: str | None) -> None:
        self._jvm: Any = spark_context._jvm
        self._spark: Any = spark_context._jsc.sc()
        self._model = model
        self._has_batches = model.application.batch_ms is not None
        self._address = address
        self._stopped = threading.Event()
        self._undo: list[Callable[[], None]] = []
        self._gauges: dict[str, Any] = {}
        self._shown: dict[str, int] = {}
        self._thread = OwnedThread(self._run, "spark-views", again=True)

    def start(self) -> None:
        """Begin; once."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Take it back, within a bound. May be called again."""
        self._stopped.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        self._try(self._lead_to_page, "Spark's page does not lead to that of this program")
        if self._has_batches:
            self._try(self._register, "Spark's metrics do not have the gauges of streams")
        seen = None
        is_told = False
        while True:
            changes = self._model.changes
            if self._gauges and changes != seen:
                level = logging.DEBUG if is_told else logging.WARNING
                if self._try(self._show, "Spark's gauges of streams stand still", level):
                    seen, is_told = changes, False
                else:
                    is_told = True
            if self._stopped.wait(_EVERY_S):
                break
        for undo in self._undo:
            self._try(undo, "Spark keeps what it shows of streams")

    def _try(self, do: Callable[[], None], what: str, level: int = logging.INFO) -> bool:
        """Return whether it was done; the program does not depend on it."""
        try:
            do()
        except Exception as error:  # noqa: BLE001  # whatever Spark's JVM says
            # After the end of Spark there is no one to take it back from.
            _log.log(logging.DEBUG if self._stopped.is_set() else level, "%s: %s", what, error)
            return False
        return True

    def _lead_to_page(self) -> None:
        found = self._spark.ui()
        if self._address is None or not found.isDefined():
            return
        page = found.get()
        jetty = self._jvm.org.apache.spark.ui.JettyUtils
        make = jetty.createRedirectHandler
        # Its later arguments have defaults; how many there are differs between versions of Spark.
        given = [getattr(jetty, f"createRedirectHandler$default${n}")() for n in (3, 4, 5)]
        try:
            given.append(getattr(jetty, "createRedirectHandler$default$6")())
        except Exception:  # noqa: BLE001  # whatever says that there is none
            _log.debug("This Spark's redirects have five arguments")
        handler = make(_PATH if self._has_batches else _HOST_PATH, self._address, *given)
        page.attachHandler(handler)
        self._undo.append(lambda: page.detachHandler(handler))

    def _register(self) -> None:
        registry = self._jvm.com.codahale.metrics.MetricRegistry()
        made = {}
        for name in gauges(self._model):
            made[name] = self._jvm.com.codahale.metrics.DefaultSettableGauge()
            made[name].setValue(_UNKNOWN)
            registry.register(f"streaming.{name}", made[name])
        # The one source of Spark's that takes any name and any metrics.
        of_any = getattr(self._jvm.org.apache.spark.storage, "BlockManager$ShuffleMetricsSource")
        source = of_any(f"{self._model.application.name}.StreamingMetrics", registry)
        # By its field: asking the class for its methods needs classes that PySpark does not bring.
        field = self._jvm.java.lang.Class.forName("org.apache.spark.SparkEnv").getDeclaredField(
            "metricsSystem"
        )
        field.setAccessible(True)
        system = field.get(self._spark.env())
        system.registerSource(source)
        self._undo.append(lambda: system.removeSource(source))
        self._gauges = made

    def _show(self) -> None:
        for name, value in gauges(self._model).items():
            if self._shown.get(name) != value:
                self._gauges[name].setValue(value)
                self._shown[name] = value


def gauges(model: Model) -> dict[str, int]:
    """Return Spark Streaming's gauges by their names; times and durations in milliseconds."""
    totals = model.totals()
    batches = model.batches()
    received = batches[0] if batches else None
    completed = next((batch for batch in batches if batch.status is BatchStatus.COMPLETED), None)
    figures: dict[str, int | None] = {
        "receivers": len(model.receivers()),
        "totalCompletedBatches": totals.completed_batches,
        "totalReceivedRecords": totals.received_records,
        "totalProcessedRecords": totals.processed_records,
        "unprocessedBatches": totals.waiting + totals.running,
        "waitingBatches": totals.waiting,
        "runningBatches": totals.running,
        "retainedCompletedBatches": totals.retained,
    }
    for name, figure in _OF_COMPLETED.items():
        figures[f"lastCompletedBatch_{name}"] = getattr(completed, figure, None)
    for name, figure in _OF_RECEIVED.items():
        figures[f"lastReceivedBatch_{name}"] = getattr(received, figure, None)
    return {name: _UNKNOWN if value is None else value for name, value in figures.items()}


_log = logging.getLogger("penstock.monitor")

_TICK_S = 1.0

_ENDS_S = 5.0
"""How long what had begun may take to end when the rest did not."""

_PROVING = ("spark.acls.enable", "spark.ui.filters")
"""Settings that say that not everybody may look."""


class Monitor:
    """Takes a point of the history every second (``penstock-monitor``) until it is stopped.

    Args:
        model: What it feeds.
        clock: For the seconds.
        server: Shows it; None: no one does.
        routes: What the server shows.
        file: By which commands find it; removed at the end.
        spark_views: Show it in Spark's own page and metrics.
        otel: Sends it by OpenTelemetry.
    """

    def __init__(
        self,
        model: Model,
        clock: Clock | None = None,
        server: WebServer | None = None,
        routes: Routes | None = None,
        file: Path | None = None,
        spark_views: SparkViews | None = None,
        otel: OtelSender | None = None,
    ) -> None:
        self.model = model
        self._otel = otel
        self._spark_views = spark_views
        self._file = file
        self._routes = routes
        self._server = server
        self._ticks = Repeated(model.tick, _TICK_S, "monitor", clock)

    def start(self) -> None:
        """Begin; once."""
        self._ticks.start()
        if self._server is not None:
            self._server.start()
        if self._spark_views is not None:
            self._spark_views.start()
        if self._otel is not None:
            self._otel.start()

    def stop(self, timeout_s: float) -> None:
        """Take no more points and show nothing more. May be called again."""
        if self._file is not None:
            try:
                unregister(self._file)
            except OSError as error:
                _log.warning("The file by which commands find this program stays: %s", error)
        if self._spark_views is not None:
            self._spark_views.stop(timeout_s)
        if self._otel is not None:
            self._otel.stop(timeout_s)
        if self._routes is not None:
            self._routes.stop()
        if self._server is not None:
            self._server.stop(timeout_s)
        self._ticks.stop(timeout_s)


def start_monitor(
    application: Application,
    settings: Settings,
    add_listener: Callable[[Model], None],
    say: Callable[[str], None],
    clock: Clock | None = None,
) -> Monitor | None:
    """Begin to watch a context or a host that is about to start; what is interrupted is undone.

    Args:
        application: The context or host.
        settings: Its settings.
        add_listener: Has the model notified of what happens.
        say: Shows a line to the person who started the program, and logs it.
        clock: For tests.

    Returns:
        The monitor, running; None when `spark.penstock.ui.enabled` and OpenTelemetry are off.

    Raises:
        SettingError: The page's certificate or key cannot be used, or OpenTelemetry's endpoint.
        MissingPackageError: OpenTelemetry is on, and its packages are not installed.
    """
    if not settings.ui_enabled and not settings.otel_enabled:
        return None
    tls = PageTls.of(settings) if settings.ui_enabled else None
    model = Model(
        application,
        retained_batches=settings.retained_batches,
        shows_samples=settings.ui_samples,
        clock=clock,
    )
    otel = _make_otel(model, settings)
    add_listener(model)
    if not settings.ui_enabled:
        monitor = Monitor(model, clock, otel=otel)
        monitor.start()
        return monitor
    with ExitStack() as undo:
        try:
            shown = _make_server(model, settings, tls, say, undo)
        except Exception as error:  # noqa: BLE001  # the program does not depend on it
            undo.close()
            _log.warning(
                "The program cannot be looked at from outside: %s",
                typed_text(error),
                exc_info=error,
            )
            shown = None, None, None, None
        server, routes, file, address = shown
        spark = application.spark_context
        views = None if spark is None else SparkViews(spark, model, address)
        monitor = Monitor(model, clock, server, routes, file, views, otel)
        undo.callback(monitor.stop, _ENDS_S)
        monitor.start()
        undo.pop_all()
    return monitor


def _make_otel(model: Model, settings: Settings) -> OtelSender | None:
    if not settings.otel_enabled:
        return None
    # Imported here: its packages take a while.
    from penstock.monitor.otel import OtelSender

    return OtelSender(model, settings, os.environ)


def _make_server(
    model: Model,
    settings: Settings,
    tls: PageTls | None,
    say: Callable[[str], None],
    undo: ExitStack,
) -> tuple[WebServer | None, Routes | None, Path | None, str | None]:
    conf = model.application.spark_conf
    host = bare_host(listen_host(settings.ui_host, conf, os.environ))
    names = [
        *(settings.ui_hosts or ()),
        *(host, socket.gethostname()),
        *(conf.get("spark.driver.host", ""), os.environ.get("SPARK_PUBLIC_DNS", "")),
    ]
    is_open = all(conf.get(key, "false").strip().lower() in ("", "false") for key in _PROVING)
    access = Access(is_open=is_open, names=names)
    routes = Routes(model, access, model.application.job_ids, shows_samples=settings.ui_samples)
    try:
        context = None if tls is None else tls.context
        server = WebServer(host, ports_near(settings.ui_port), routes.answer, tls=context)
    except OSError as error:
        _log.warning(
            "The program cannot be looked at from outside: nothing can listen on %s (%s); set "
            "spark.penstock.ui.host to an address of this host",
            host,
            error,
        )
        return None, None, None, None
    undo.callback(server.stop, _ENDS_S)
    shown = conf.get("spark.driver.host", host) if host in ("0.0.0.0", "::") else host
    address = (
        f"{'http' if tls is None else 'https'}://{address_text(bare_host(shown), server.port)}/"
    )
    if access.is_open:
        say(f"It can be looked at on {address}")
    else:
        say(f"It can be looked at on {address}#code={access.new_code()} (once)")
    file = _register(model, address, access.token, tls)
    if file is not None:
        undo.callback(unregister, file)
    return server, routes, file, address


def _register(model: Model, address: str, token: str, tls: PageTls | None) -> Path | None:
    try:
        return register(
            runtime_folder(os.environ),
            application_id=model.application.application_id,
            name=model.application.name,
            url=address,
            token=token,
            certificate="" if tls is None else tls.certificate,
            started_ms=model.now_ms(),
        )
    except Exception as error:  # noqa: BLE001  # the page is there all the same
        _log.warning("The commands cannot find this program by itself: %s", error)
        return None


class TrackerEvents:
    """A tracker's `ReceiverTrackerEvents` that feed a model.

    Args:
        model: The model.
    """

    def __init__(self, model: Model) -> None:
        self._model = model

    def started(self) -> None:
        """Take note that the receivers are being started."""
        self._model.onStreamingStarted(StreamingStarted(self._model.now_ms()))

    def receiver_started(self, info: ReceiverTrackingInfo, /) -> None:
        self._model.onReceiverStarted(ReceiverStarted(ReceiverInfo.of(info)))

    def receiver_error(self, info: ReceiverTrackingInfo, /) -> None:
        self._model.onReceiverError(ReceiverError(ReceiverInfo.of(info)))

    def receiver_stopped(self, info: ReceiverTrackingInfo, /) -> None:
        self._model.onReceiverStopped(ReceiverStopped(ReceiverInfo.of(info)))

    def permanent_error(self, stream_id: int, message: str, error: str, /) -> None:
        self._model.given_up(stream_id, message, error)
