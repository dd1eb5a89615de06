#!/bin/sh
# parse-prometheus-text-format 1.1.1 (npm): histograms of one metric that differ in their labels become one, which
# has the buckets of whichever came last, and neither labels nor sum nor count; summaries with quantiles do so, too.
#
# Each combination of labels, without `le` and `quantile`, is a series of its own (Prometheus, "Exposition
# formats", histograms and summaries); a histogram of requests has labels for path or status nearly always. The
# library says it aims at the output of prom2json, which has one entry for each. It keeps the labels of a summary
# without quantiles; where there are buckets, all go into one object by their boundary alone, so that one which
# only /a has stands beside those of /b, and counts that must grow may fall. Whatever alerts by it sees one path,
# and says nothing of the others. prometheus_client 0.26.0 for Python reads them all. Seen (of /a and /b, and of
# one without labels):
#
#   of two: labels none; buckets 0.1 1, 0.5 7, +Inf 8; sum none, count none
#   of one: labels none; buckets 0.5 1, +Inf 3; sum none, count none
#   without: labels none; buckets 0.5 1, +Inf 3; sum 2.5, count 3
#   summaries of two: labels none; quantiles 0.5 4; sum none, count none
#   prometheus_client, of two: /a buckets 0.1 1, 0.5 1, +Inf 3; sum 2.5, count 3
#   prometheus_client, of two: /b buckets 0.5 7, +Inf 8; sum 9, count 8
#
# Needs python3, node and npm. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q prometheus-client==0.26.0
cd "$work"
npm install --no-audit --no-fund --silent parse-prometheus-text-format@1.1.1
cat > one.txt <<'END'
# TYPE took histogram
took_bucket{path="/a",le="0.5"} 1
took_bucket{path="/a",le="+Inf"} 3
took_sum{path="/a"} 2.5
took_count{path="/a"} 3
END
sed 's/path="\/a",//; s/{path="\/a"}//' one.txt > without.txt
cat > two.txt <<'END'
# TYPE took histogram
took_bucket{path="/a",le="0.1"} 1
took_bucket{path="/a",le="0.5"} 1
took_bucket{path="/a",le="+Inf"} 3
took_sum{path="/a"} 2.5
took_count{path="/a"} 3
took_bucket{path="/b",le="0.5"} 7
took_bucket{path="/b",le="+Inf"} 8
took_sum{path="/b"} 9
took_count{path="/b"} 8
END
cat > summaries.txt <<'END'
# TYPE took summary
took{path="/a",quantile="0.5"} 1
took_sum{path="/a"} 2.5
took_count{path="/a"} 3
took{path="/b",quantile="0.5"} 4
took_sum{path="/b"} 9
took_count{path="/b"} 8
END
cat > look.js <<'END'
const fs = require("fs");
const module_ = require("parse-prometheus-text-format");
const parse = module_.default || module_;

const pairs = (values) => Object.entries(values).map((pair) => pair.join(" ")).join(", ");
for (const [text, file, kind] of [
  ["of two", "two.txt", "buckets"],
  ["of one", "one.txt", "buckets"],
  ["without", "without.txt", "buckets"],
  ["summaries of two", "summaries.txt", "quantiles"],
]) {
  for (const { labels, sum, count, ...rest } of parse(fs.readFileSync(file, "utf8"))[0].metrics) {
    const rests = [`labels ${labels ? pairs(labels) : "none"}`, `${kind} ${pairs(rest[kind])}`];
    console.log(`${text}: ${rests.join("; ")}; sum ${sum || "none"}, count ${count || "none"}`);
  }
}
END
cat > look.py <<'END'
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

(family,) = text_string_to_metric_families(Path("two.txt").read_text())
for path in ("/a", "/b"):
    samples = [sample for sample in family.samples if sample.labels["path"] == path]
    buckets = ", ".join(
        f"{sample.labels['le']} {sample.value:g}" for sample in samples if "le" in sample.labels
    )
    found = {sample.name: sample.value for sample in samples}
    print(
        f"prometheus_client, of two: {path} buckets {buckets};",
        f"sum {found['took_sum']:g}, count {found['took_count']:g}",
    )
END
{ node look.js; "$work/venv/bin/python" look.py; } | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
