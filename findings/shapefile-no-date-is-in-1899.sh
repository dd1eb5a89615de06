#!/bin/sh
# shapefile 0.6.6 (npm, 1.4 million downloads a month), the table of a shapefile or any other of dBASE: a date that is not there
# is 30 November 1899.
#
# A date is eight digits, and eight blanks where there is none (dBASE, "Table File Structure"). The library makes year 0, the
# month before the first and day 0 of the blanks, in the computer's zone. Numbers and answers that are not there are null.
# Nothing is raised. dbfread 2.0.7 (PyPI) reads what was meant. Seen, for a table that dbf 0.99.11
# (PyPI) wrote (rows of the table; what each reads):
#
#   north 21.5 T 2026-12-01: shapefile north 21.5 true 2026-12-01; dbfread north 21.5 True 2026-12-01
#   south 3.0 ? blank: shapefile south 3 null 1899-11-30; dbfread south 3.0 None None
#   inlet blank F 2026-12-03: shapefile inlet null false 2026-12-03; dbfread inlet None False 2026-12-03
#
# Needs python3 and Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q dbf==0.99.11 dbfread==2.0.7
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts shapefile@0.6.6 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > look.js <<'END'
const { openDbf } = require('shapefile');

(async () => {
  const source = await openDbf('sites.dbf');
  const rows = [];
  for (let next = await source.read(); !next.done; next = await source.read()) {
    const { NAME, CELSIUS, OPEN, DAY } = next.value;
    rows.push([NAME, CELSIUS, OPEN, DAY.toISOString().slice(0, 10)].map(String));
  }
  console.log(JSON.stringify(rows));
})();
END
cat > look.py <<'END'
import datetime
import json
import os
import subprocess

import dbf
import dbfread

DAYS = [datetime.date(2026, 12, day) for day in (1, 3)]
table = dbf.Table("sites.dbf", "NAME C(10); CELSIUS N(8,1); OPEN L; DAY D", dbf_type="db3")
table.open(dbf.READ_WRITE)
for row in (
    ("north", 21.5, True, DAYS[0]),
    ("south", 3, None, None),
    ("inlet", None, False, DAYS[1]),
):
    table.append(row)
table.close()

run = subprocess.run(["node", "look.js"], check=True, stdout=-1, env={**os.environ, "TZ": "UTC"})
ours = {row[0]: row for row in json.loads(run.stdout)}
theirs = {row["NAME"]: list(map(str, row.values())) for row in dbfread.DBF("sites.dbf")}
for name, rest in (
    ("north", "21.5 T 2026-12-01"),
    ("south", "3.0 ? blank"),
    ("inlet", "blank F 2026-12-03"),
):
    print(f"{name} {rest}: shapefile {' '.join(ours[name])}; dbfread {' '.join(theirs[name])}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
