#!/bin/sh
# parsedbf 2.0.0 (npm, 256,000 downloads a month; shpjs reads tables of shapefiles by it): of a table of Visual FoxPro all rows
# are empty; in one of dBASE III a row that was deleted is a row, and an answer that nobody gave is no.
#
# The header says at which byte the rows begin; Visual FoxPro has 263 more there after its list of fields (Microsoft, "Table
# File Structure"). The library takes the end of the list. A row that begins with an asterisk is deleted, and of a logical
# value ? stands for one that is not known (there). Nothing is raised. dbfread 2.0.7 (PyPI) reads what was meant. Seen, for
# tables that dbf 0.99.11 (PyPI) wrote (kind of table; rows of each):
#
#   dBASE III, parsedbf: north 21.5 true, south 3 false, wrong 99 false, inlet 4 false
#   dBASE III, dbfread: north 21.5 True, south 3.0 None, inlet 4.0 False
#   Visual FoxPro, parsedbf: '' NaN false, '' NaN false, '' NaN false, '' NaN false
#   Visual FoxPro, dbfread: north 21.5 True, south 3.0 None, inlet 4.0 False
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
npm install --silent --no-fund --no-audit --ignore-scripts parsedbf@2.0.0 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > look.mjs <<'END'
import { readFileSync } from 'fs';
import parse from 'parsedbf';

const bytes = readFileSync('sites.dbf');
const rows = parse(new DataView(bytes.buffer, bytes.byteOffset, bytes.length));
console.log(rows.map(({ NAME, CELSIUS, OPEN }) => `${NAME || "''"} ${CELSIUS} ${OPEN}`).join(', '));
END
cat > look.py <<'END'
import subprocess

import dbf
import dbfread

for name, kind in (("dBASE III", "db3"), ("Visual FoxPro", "vfp")):
    table = dbf.Table("sites.dbf", "NAME C(10); CELSIUS N(8,1); OPEN L", dbf_type=kind)
    table.open(dbf.READ_WRITE)
    for row in (("north", 21.5, True), ("south", 3, None), ("wrong", 99, False), ("inlet", 4, False)):
        table.append(row)
    dbf.delete(table[2])
    table.close()
    ours = subprocess.run(["node", "look.mjs"], check=True, stdout=-1, text=True).stdout.strip()
    print(f"{name}, parsedbf: {ours}")
    theirs = [" ".join(map(str, row.values())) for row in dbfread.DBF("sites.dbf")]
    print(f"{name}, dbfread: {', '.join(theirs)}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
