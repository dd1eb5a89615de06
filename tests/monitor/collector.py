"""A collector of OpenTelemetry: a real HTTP server that reads what is sent by its own protocol."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

__all__ = ["Collector", "collecting", "value_of"]


class Collector:
    """What was sent.

    Attributes:
        refuses: The status with which everything is refused; None: it is taken.
        refuses_path: The same for one path only.
        retry_after: What is sent with that as `Retry-After`; empty: nothing.
        hold: Clear: nobody is answered.
    """

    def __init__(self) -> None:
        self.refuses: int | None = None
        self.refuses_path: dict[str, int] = {}
        self.retry_after = ""
        self.hold = threading.Event()
        self.hold.set()
        self.asked = 0
        self.paths: list[str] = []
        self._lock = threading.Lock()
        self._metrics: list[Any] = []
        self._spans: list[Any] = []
        self.resources: list[dict[str, Any]] = []
        self.address = ""

    def take(self, path: str, body: bytes) -> bytes:
        """Read a request; an error where it is none of the protocol."""
        with self._lock:
            if path == "/v1/metrics":
                sent = ExportMetricsServiceRequest.FromString(body)
                for group in sent.resource_metrics:
                    self.resources.append(attributes(group.resource))
                    self._metrics = [
                        metric for scope in group.scope_metrics for metric in scope.metrics
                    ]
                return ExportMetricsServiceResponse().SerializeToString()
            if path == "/v1/traces":
                traced = ExportTraceServiceRequest.FromString(body)
                for spans in traced.resource_spans:
                    self.resources.append(attributes(spans.resource))
                    self._spans += [span for scope in spans.scope_spans for span in scope.spans]
                return ExportTraceServiceResponse().SerializeToString()
            raise ValueError(path)

    def metrics(self) -> dict[str, Any]:
        """Return the metrics that came last, by name."""
        with self._lock:
            return {metric.name: metric for metric in self._metrics}

    def spans(self) -> list[Any]:
        """Return all spans that came."""
        with self._lock:
            return list(self._spans)

    def traces(self) -> list[list[Any]]:
        """Return the spans by their traces, each in the order of their begin."""
        found: dict[bytes, list[Any]] = {}
        for span in self.spans():
            found.setdefault(span.trace_id, []).append(span)
        return [
            sorted(spans, key=lambda span: (bool(span.parent_span_id), span.start_time_unix_nano))
            for spans in found.values()
        ]


def attributes(named: Any) -> dict[str, Any]:
    return {each.key: value_of(each.value) for each in named.attributes}


def value_of(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))


@contextlib.contextmanager
def collecting(port: int = 0) -> Iterator[Collector]:
    """Run one on a port of this host."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.asked += 1
            collector.paths.append(self.path)
            if not collector.hold.wait(30):
                return
            status, answer = collector.refuses_path.get(self.path, collector.refuses), b""
            if status is None:
                status, answer = 200, collector.take(self.path, body)
            with contextlib.suppress(OSError):
                self.send_response(status)
                self.send_header("Content-Type", "application/x-protobuf")
                if status != 200 and collector.retry_after:
                    self.send_header("Retry-After", collector.retry_after)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    collector.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        collector.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()
