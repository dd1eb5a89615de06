#!/bin/sh
# prometheus-parse 0.2.5 (crates.io, a parser of Prometheus's text format): a label whose value has an equals sign or a
# comma is gone or cut, so that series are one; a series with a brace in a label or a colon in its name is not there.
#
# A value may have any character between its quotes, and a name may have colons, as those of recording rules do
# (Prometheus, "Exposition formats"; "Data model"). The library cuts at every comma and every equals sign, ends the
# labels at the first brace, and passes over what it does not understand. Buckets of two histograms that differ in such
# a label only are put together as one, with each bound twice. Routes such as /users/{id} and queries are such
# labels. prometheus-client 0.26.0 for Python reads all of it. Seen (what each has of a line, or of two histograms):
#
#   hits{path="/a"} 1: path=/a 1; prometheus-client path=/a 1
#   hits{path="/a,b"} 2: path=/a 2; prometheus-client path=/a,b 2
#   hits{path="/a?x=1"} 3: 3; prometheus-client path=/a?x=1 3
#   hits{path="/users/{id}"} 4: nothing; prometheus-client path=/users/{id} 4
#   job:hits:rate5m 5: nothing; prometheus-client 5
#   two histograms: 1 of 4 buckets; prometheus-client 2 of 2 buckets
#
# Needs python3 and cargo (1.95 was there). Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q prometheus-client==0.26.0
cd "$work"
mkdir src
cat > Cargo.toml <<'END'
[package]
name = "look"
version = "0.1.0"
edition = "2021"

[dependencies]
prometheus-parse = "=0.2.5"
END
cat > src/main.rs <<'END'
use prometheus_parse::{Scrape, Value};
use std::io::{self, BufRead};

fn main() {
    let scrape = Scrape::parse(io::stdin().lock().lines()).unwrap();
    for sample in scrape.samples {
        let labels: Vec<_> = sample.labels.iter().map(|(name, value)| format!("{name}={value} ")).collect();
        match sample.value {
            Value::Counter(value) | Value::Gauge(value) | Value::Untyped(value) => {
                println!("{}{value}", labels.concat())
            }
            Value::Histogram(buckets) => println!("{} buckets", buckets.len()),
            Value::Summary(_) => println!("a summary"),
        }
    }
}
END
cargo build -q 2> log || { tail -n 20 log; exit 1; }
cat > look.py <<'END'
import subprocess

from prometheus_client.parser import text_string_to_metric_families

LINES = (
    'hits{path="/a"} 1',
    'hits{path="/a,b"} 2',
    'hits{path="/a?x=1"} 3',
    'hits{path="/users/{id}"} 4',
    "job:hits:rate5m 5",
)
BUCKETS = "".join(
    f't_bucket{{path="/a?x={path}",le="{bound}"}} {path}\n' for path in (1, 2) for bound in ("1", "+Inf")
)


def ask(text):
    return subprocess.run("target/debug/look", input=text, capture_output=True, text=True, check=True).stdout


for line in LINES:
    (family,) = text_string_to_metric_families(f"{line}\n")
    (sample,) = family.samples
    known = "".join(f"{name}={value} " for name, value in sample.labels.items()) + f"{sample.value:g}"
    print(f"{line}: {ask(line).strip() or 'nothing'}; prometheus-client {known}")
text = f"# TYPE t histogram\n{BUCKETS}"
(family,) = text_string_to_metric_families(text)
paths = [sample.labels["path"] for sample in family.samples]
found = ask(text).splitlines()
sizes = {paths.count(path) for path in paths}
print(f"two histograms: {len(found)} of {found[0]}; prometheus-client {len(set(paths))} of {min(sizes)} buckets")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
