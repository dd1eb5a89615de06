"""`Monitor`: the model and what shows it, begun and ended with a context or a host."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.clock import Clock
from penstock.errors import typed_text
from penstock.monitor.application import Application
from penstock.monitor.model import Model
from penstock.monitor.registry import register, runtime_folder, unregister
from penstock.monitor.spark_views import SparkViews
from penstock.monitor.web.access import Access
from penstock.monitor.web.ports import listen_host, ports_near
from penstock.monitor.web.routes import Routes
from penstock.monitor.web.server import WebServer
from penstock.monitor.web.tls import PageTls
from penstock.settings import Settings
from penstock.threads import Repeated
from penstock.wire.addresses import address_text, bare_host

if TYPE_CHECKING:
    from penstock.monitor.otel import OtelSender

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
        server: Shows it; None: nobody does.
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
        add_listener: Has the model be told of what happens.
        say: Says a line to who started the program, and logs it.
        clock: For tests.

    Returns:
        The monitor, running; None when `spark.penstock.ui.enabled` is off, and OpenTelemetry too.

    Raises:
        SettingError: The page's certificate or key cannot be used, or OpenTelemetry's endpoint.
        OtelNotInstalledError: OpenTelemetry is on, and its packages are not installed.
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
