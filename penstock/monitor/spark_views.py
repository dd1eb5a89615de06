"""`SparkViews`: what Spark's own page and metrics system show of a program.

Spark's page leads from ``/streaming``, where its tab of streams was, to the page of this program;
from ``/penstock`` to that of a `ReceiverHost`, which may be in the same program. Where there are
batches, Spark's metrics system, and so each of its sinks, gets the gauges of Spark Streaming under
their names,
``<application>.driver.<name>.StreamingMetrics.streaming.*``; -1 is not known.

All of it is asked of Spark's JVM through classes that are Spark's own business, in a thread of its
own (``penstock-spark-views``): what a version of Spark does not have is left out with a line in
the log, and a JVM that does not answer holds nobody up.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from pyspark import SparkContext

from penstock.monitor.model import Model
from penstock.monitor.records import BatchStatus
from penstock.threads import OwnedThread

_log = logging.getLogger("penstock.monitor")

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
            # After the end of Spark there is nobody to take it back from.
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
        # Its later arguments have defaults; how many there are, differs between versions of Spark.
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
