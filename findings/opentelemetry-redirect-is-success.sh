#!/bin/sh
# opentelemetry-exporter-otlp-proto-http 1.45.2 takes a redirection for success: a collector that has
# moved (301 with a Location) gets nothing, neither at the old address nor at the new one, and the
# exporter returns SUCCESS without a warning. Seen:
#
#   result SUCCESS, asked ['/v1/traces'], at the new address 0 requests
#
# The exporter posts with `allow_redirects=False` and takes every status below 400 for done.
#
# Needs python3. Ends with 0 while it is so, with 1 when it changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q opentelemetry-exporter-otlp-proto-http==1.45.2 opentelemetry-sdk==1.45.2
cat > "$work/finding.py" <<'END'
import logging
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

logging.basicConfig(level=logging.WARNING)
asked, moved = [], []


class Old(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        asked.append(self.path)
        self.send_response(301)
        self.send_header("Location", f"http://127.0.0.1:{new.server_port}/v1/traces")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class New(Old):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        moved.append(self.path)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()


old, new = HTTPServer(("127.0.0.1", 0), Old), HTTPServer(("127.0.0.1", 0), New)
for server in (old, new):
    threading.Thread(target=server.serve_forever, daemon=True).start()
spans = []


class Kept(SpanExporter):
    def export(self, given):
        spans.extend(given)
        return SpanExportResult.SUCCESS


from opentelemetry.sdk.trace.export import SimpleSpanProcessor

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(Kept()))
with provider.get_tracer("t").start_as_current_span("a"):
    pass
exporter = OTLPSpanExporter(endpoint=f"http://127.0.0.1:{old.server_port}/v1/traces", timeout=10)
result = exporter.export(spans)
print(f"result {result.name}, asked {asked}, at the new address {len(moved)} requests")
sys.exit(not (result is SpanExportResult.SUCCESS and len(asked) == 1 and not moved))
END
"$work/venv/bin/python" "$work/finding.py"
