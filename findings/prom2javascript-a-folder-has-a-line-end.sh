#!/bin/sh
# prom2javascript 0.2.0 (npm, a parser of Prometheus's text format): the folder C:\new is C:, the end of a line and ew; and a
# summary that has seen nothing yet refuses the whole scrape.
#
# In a label \\ is a backslash and \n the end of a line; NaN, +Inf and -Inf are values; and a metric's name may have colons
# (Prometheus, "Exposition formats" and "Data model"). The library makes one backslash of two first and looks for \n then,
# which it finds in C:\new. What is not a number it has no value for, except +Inf: it raises an error for that, for names
# with colons, and for a label that ends with a backslash before another one. prometheus-client 0.23.1 (PyPI) reads them.
# Seen (line of the format; what each reads of it, a line's end as |):
#
#   disk_free{path="C:\\data"} 5: C:\data 5; C:\data 5
#   disk_free{path="C:\\new"} 5: C:|ew 5; C:\new 5
#   disk_free{path="C:\\",host="a"} 5: an error; C:\ 5
#   wait_seconds{quantile="0.9"} NaN: an error; nan
#   level -Inf: an error; -inf
#   job:wait_seconds:mean 5: an error; 5
#
# Needs python3 and Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q prometheus-client==0.23.1
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts prom2javascript@0.2.0 > log 2>&1 ||
    { tail -n 20 log; exit 1; }
cat > look.js <<'END'
const { getMetricsFromIterator } = require('prom2javascript');

(async () => {
  try {
    const metrics = await getMetricsFromIterator([process.argv[2]][Symbol.iterator]());
    const [{ labels, value }] = Object.values(metrics)[0].data;
    console.log(JSON.stringify([labels.path, value]));
  } catch (error) {
    if (!/^(Unable to parse metric|Cannot parse Prometheus label)/.test(error.message)) throw error;
    console.log('null');
  }
})();
END
cat > look.py <<'END'
import json
import subprocess

from prometheus_client.parser import text_string_to_metric_families

LINES = r"""
disk_free{path="C:\\data"} 5
disk_free{path="C:\\new"} 5
disk_free{path="C:\\",host="a"} 5
wait_seconds{quantile="0.9"} NaN
level -Inf
job:wait_seconds:mean 5
"""


def shown(path, value):
    return " ".join(([path.replace("\n", "|")] if path else []) + [f"{value:g}"])


for line in LINES.strip().splitlines():
    one = json.loads(subprocess.run(["node", "look.js", line], check=True, stdout=-1).stdout)
    (family,) = text_string_to_metric_families(line + "\n")
    (other,) = family.samples
    print(f"{line}: {shown(*one) if one else 'an error'}; {shown(other.labels.get('path'), other.value)}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
