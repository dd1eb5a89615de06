#!/bin/sh
# opentelemetry-exporter-prometheus-remote-write 0.66b1 (SDK 1.45.2): no query of Prometheus for a histogram is
# right with what it sends: the buckets have no "_bucket", are not added up, and that of 0 has no limit.
#
# A bucket of Prometheus counts all values up to `le`, is called NAME_bucket, and the one of +Inf is the
# count. OpenTelemetry's buckets count what is between two limits, the first of which is 0 by default, and
# are sent as they are, as NAME; where the limit is 0 the label is left out. So histogram_quantile finds
# nothing by NAME_bucket, and something wrong by NAME. The exporter of the same project that is scraped,
# opentelemetry-exporter-prometheus 0.66b2, adds them up. Seen, of the values 0, 3, 7 and 20 with the limits
# 0, 5 and 10:
#
#   remote write: delay{} 1, delay{le="5"} 1, delay{le="10"} 1, delay{le="+Inf"} 1, delay_sum{} 30, delay_count{} 4
#   scraped: delay_bucket{le="0"} 1, delay_bucket{le="5"} 2, delay_bucket{le="10"} 3, delay_bucket{le="+Inf"} 4, delay_count{} 4, delay_sum{} 30
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q opentelemetry-exporter-prometheus-remote-write==0.66b1 \
    opentelemetry-exporter-prometheus==0.66b2 opentelemetry-sdk==1.45.2 prometheus-client==0.26.0
cd "$work"
cat > look.py <<'END'
import http.server
import threading

import snappy
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.exporter.prometheus_remote_write import PrometheusRemoteWriteMetricsExporter
from opentelemetry.exporter.prometheus_remote_write.gen.remote_pb2 import WriteRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExplicitBucketHistogramAggregation, View
from prometheus_client import REGISTRY

requests = []


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        requests.append(WriteRequest.FromString(snappy.uncompress(body)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
threading.Thread(target=server.serve_forever, daemon=True).start()
exporter = PrometheusRemoteWriteMetricsExporter(f"http://127.0.0.1:{server.server_port}/write")
reader = PeriodicExportingMetricReader(exporter, 3_600_000)
provider = MeterProvider(
    metric_readers=[reader, PrometheusMetricReader()],
    views=[View(instrument_name="delay", aggregation=ExplicitBucketHistogramAggregation([0, 5, 10]))],
)
delay = provider.get_meter("look").create_histogram("delay")
for value in (0, 3, 7, 20):
    delay.record(value)
reader.force_flush()


def shown(name, labels, value):
    limit = f'le="{labels["le"]}"' if "le" in labels else ""
    return f"{name}{{{limit}}} {value:g}"


sent = []
for series in requests[0].timeseries:
    labels = {label.name: label.value for label in series.labels}
    sent.append(shown(labels["__name__"], labels, series.samples[0].value))
print("remote write:", ", ".join(sent))
scraped = [
    shown(sample.name, sample.labels, sample.value)
    for family in REGISTRY.collect()
    if family.name == "delay"
    for sample in family.samples
]
print("scraped:", ", ".join(scraped))
provider.shutdown()
server.shutdown()
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
