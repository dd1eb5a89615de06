#!/bin/sh
# sav-reader 2.0.8 (npm, files of SPSS): of twenty rows that pyreadstat wrote compressed it reads the first one, also if all
# are asked for; and a value that is missing is -1.8e308 in a file that is not compressed.
#
# A compressed file has a byte for each value, in blocks of eight; 0 stands for nothing, with which a writer may fill a block,
# and 255 for a value that is missing. Without compression the lowest double stands for that (PSPP developers' manual, "System
# File Format", "Data Record"). pyreadstat 1.3.7 begins a block with each row. The library takes a rest of zeros in a block for
# the end of the file, though the header tells it how many rows there are. Nothing is raised, unless
# the rows fill their blocks. Seen (rows written; how many the header says; what is read):
#
#   20 whole numbers: 20, 20 rows
#   20 whole numbers, compressed: 20, 1 row
#   20 numbers with names, compressed: 20, 1 row
#   8 numbers a row, 20 rows, compressed: 20, an error
#   21.5 and a missing one: 2, 21.5 -1.7976931348623157e+308
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
npm install --silent --no-fund --no-audit --ignore-scripts sav-reader@2.0.8 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > look.py <<'END'
import pandas
import pyreadstat

NUMBERS = [float(number) for number in range(1, 21)]
NAMES = ["north"] * 20
EIGHT = {f"N{number}": NUMBERS for number in range(8)}
for name, columns, packed in (
    ("20 whole numbers", {"N": NUMBERS}, False),
    ("20 whole numbers, compressed", {"N": NUMBERS}, True),
    ("20 numbers with names, compressed", {"N": NUMBERS, "PLACE": NAMES}, True),
    ("8 numbers a row, 20 rows, compressed", EIGHT, True),
    ("21.5 and a missing one", {"N": [21.5, None]}, False),
):
    frame = pandas.DataFrame(columns)
    pyreadstat.write_sav(frame, f"{name}.sav", row_compress=packed)
    other, _ = pyreadstat.read_sav(f"{name}.sav")
    assert len(other) == len(frame)
    print(name)
END
cat > look.js <<'END'
const { SavBufferReader } = require('sav-reader');
const { readFileSync } = require('fs');

(async () => {
  for (const name of readFileSync(0, 'utf8').trim().split('\n')) {
    const reader = new SavBufferReader(readFileSync(`${name}.sav`));
    await reader.open();
    let rows;
    try {
      rows = await reader.readAllRows();
    } catch (error) {
      console.log(`${name}: ${reader.meta.header.n_cases}, an error`);
      continue;
    }
    const count = `${rows.length} row${rows.length > 1 ? 's' : ''}`;
    const read = name.includes('missing') ? rows.map((row) => row.N).join(' ') : count;
    console.log(`${name}: ${reader.meta.header.n_cases}, ${read}`);
  }
})();
END
"$work/venv/bin/python" look.py > names
node look.js < names | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
