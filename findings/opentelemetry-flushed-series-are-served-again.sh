#!/bin/sh
# opentelemetry-exporter-prometheus 0.66b2 (SDK 1.45.2): after a force_flush the next scrape has each series
# several times, its old values first.
#
# What force_flush of the MeterProvider collects waits inside the reader. A scrape adds its own, and gives one
# after the other, each time with all that came before, as one text; the text format of Prometheus has each
# name with its labels once, and what is not so, says its documentation, is undefined. A program that has a
# second reader and flushes it by its provider, each minute or before it forks, does this; no error is told,
# and the scrape after that is right. Seen, of a counter:
#
#   one: jobs_total 1.0
#   flushed at two and three: jobs_total 2.0, jobs_total 2.0, jobs_total 3.0, jobs_total 2.0, jobs_total 3.0, jobs_total 3.0
#   asked again: jobs_total 3.0
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q opentelemetry-exporter-prometheus==0.66b2 \
    opentelemetry-sdk==1.45.2 prometheus-client==0.26.0
cd "$work"
cat > look.py <<'END'
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import generate_latest


def scraped():
    lines = generate_latest().decode().splitlines()
    return ", ".join(line for line in lines if line.startswith("jobs_total"))


provider = MeterProvider(metric_readers=[PrometheusMetricReader(scope_info_enabled=False)])
jobs = provider.get_meter("look").create_counter("jobs")
jobs.add(1)
print("one:", scraped())
for _ in range(2):
    jobs.add(1)
    provider.force_flush()
print("flushed at two and three:", scraped())
print("asked again:", scraped())
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
