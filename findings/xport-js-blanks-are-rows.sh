#!/bin/sh
# xport-js 0.3.1 (npm, SAS transport files): three measurements are ten rows, of which the last seven are 3.69e-40; and the
# number of records that it states counts them, too.
#
# A file has records of 80 bytes, and blanks fill the last one (SAS, "The Record Layout of a Data Set in SAS Transport
# (XPORT) Format", TS-140). The library reads blanks as rows wherever one has room, and eight blanks are a very small
# number. pyreadstat 1.3.7, which wrote the files, leaves them out. Nothing is raised. Seen:
#
#   three numbers: 10 rows, stated 10; pyreadstat 3
#   21.5, -3, 0.1, 3.69e-40, 3.69e-40, 3.69e-40, 3.69e-40, 3.69e-40, 3.69e-40, 3.69e-40
#   two numbers with names: 6 rows, stated 6; pyreadstat 2
#   21.5 'north', -3 'south', 3.69e-40 '', 3.69e-40 '', 3.69e-40 '', 3.69e-40 ''
#   ten numbers: 10 rows, stated 10; pyreadstat 10
#
# Needs Python 3.11 and Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pandas==3.1.1 pyreadstat==1.3.7
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts xport-js@0.3.1 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > look.js <<'END'
const Library = require('xport-js').default;

(async () => {
  const rows = [];
  for await (const row of new Library('data.xpt').read({ skipHeader: true })) rows.push(row);
  const { records } = await new Library('data.xpt').getMetadata('dataset-json1.1');
  console.log(JSON.stringify([rows, records]));
})();
END
cat > look.py <<'END'
import json
import subprocess

import pandas
import pyreadstat


def shown(row):
    return " ".join(repr(value) if isinstance(value, str) else f"{value:.3g}" for value in row)


for name, columns in (
    ("three numbers", {"CELSIUS": [21.5, -3.0, 0.1]}),
    ("two numbers with names", {"CELSIUS": [21.5, -3.0], "PLACE": ["north", "south"]}),
    ("ten numbers", {"CELSIUS": [float(number) for number in range(10)]}),
):
    pyreadstat.write_xport(pandas.DataFrame(columns), "data.xpt", file_format_version=5)
    rows, stated = json.loads(subprocess.run(["node", "look.js"], check=True, stdout=-1).stdout)
    other, _ = pyreadstat.read_xport("data.xpt")
    print(f"{name}: {len(rows)} rows, stated {stated}; pyreadstat {len(other)}")
    if len(rows) != len(other):
        print(", ".join(map(shown, rows)))
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
