#!/bin/sh
# @dsnp/parquetjs 1.8.9 (npm): a DECIMAL is written a cent too small for some amounts, 0.29 as 0.28; and one
# of up to nine digits is read from its own file with the values of other rows.
#
# The amount is multiplied by ten to the scale, as a double, and rounded down: 0.29 makes 28.999999999999996 cents,
# and -1.10 makes -110.00000000000001. hyparquet-writer 0.17.0 is given the same numbers and rounds to the
# nearest. Columns of up to nine digits are written as 64 bits for each value and read as 32, so that every
# second row has a zero and the others what belongs to the row at half their place. Parquet has both widths for so
# many digits ("Logical Types", DECIMAL); pyarrow 26.0.1 and hyparquet 1.31.5 read the file well. Seen:
#
#   decimal(18,2) 0.29, 1.15, 4.35, 8.20, -1.10: written 0.28, 1.14, 4.34, 8.19, -1.11
#   decimal(18,2) 0.29, 1.15, 4.35, 8.20, -1.10: hyparquet-writer 0.29, 1.15, 4.35, 8.20, -1.10
#   amounts from 0.00 to 9.99 that are less: 69 of 1000, by hyparquet-writer 0
#   decimal(9,2) 1.00, 2.00, 3.00, 4.00: parquetjs 1, 0, 2, 0; hyparquet 1, 2, 3, 4; pyarrow 1.00, 2.00, 3.00, 4.00
#
# (1.9.3, the newest, came to npm without its compiled files, and cannot be imported.) Needs python3 and Node 20.
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyarrow==26.0.1
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts @dsnp/parquetjs@1.8.9 hyparquet@1.31.5 \
    hyparquet-writer@0.17.0 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > write.mjs <<'END'
import { writeFileSync } from 'node:fs';
import parquetjs from '@dsnp/parquetjs';
import { asyncBufferFromFile, parquetReadObjects } from 'hyparquet';
import { parquetWriteFile } from 'hyparquet-writer';

async function write(filename, precision, values) {
  const schema = new parquetjs.ParquetSchema({ x: { type: 'DECIMAL', precision, scale: 2 } });
  const writer = await parquetjs.ParquetWriter.openFile(schema, filename);
  for (const x of values) await writer.appendRow({ x });
  await writer.close();
}

function writeByHyparquet(filename, data) {
  const decimal = { type: 'INT64', converted_type: 'DECIMAL', precision: 18, scale: 2 };
  parquetWriteFile({
    filename,
    columnData: [{ name: 'x', data }],
    schema: [{ name: 'root', num_children: 1 }, { name: 'x', repetition_type: 'REQUIRED', ...decimal }],
  });
}

const some = [0.29, 1.15, 4.35, 8.2, -1.1];
const all = Array.from({ length: 1000 }, (_, cents) => cents / 100);
await write('some.parquet', 18, some);
await write('all.parquet', 18, all);
writeByHyparquet('some-hyparquet.parquet', some);
writeByHyparquet('all-hyparquet.parquet', all);
await write('small.parquet', 9, [1, 2, 3, 4]);
const reader = await parquetjs.ParquetReader.openFile('small.parquet');
const cursor = reader.getCursor();
const own = [];
for (let row = await cursor.next(); row; row = await cursor.next()) own.push(row.x);
await reader.close();
const file = await asyncBufferFromFile('small.parquet');
const others = (await parquetReadObjects({ file })).map((row) => row.x);
writeFileSync('small.txt', `parquetjs ${own.join(', ')}; hyparquet ${others.join(', ')}`);
END
cat > read.py <<'END'
import pathlib
from decimal import Decimal

import pyarrow.parquet


def read(name):
    return pyarrow.parquet.read_table(f"{name}.parquet")["x"].to_pylist()


def less(name):
    return sum(found < Decimal(cents) / 100 for cents, found in enumerate(read(name)))


GIVEN = "decimal(18,2) 0.29, 1.15, 4.35, 8.20, -1.10:"
print(GIVEN, "written", ", ".join(map(str, read("some"))))
print(GIVEN, "hyparquet-writer", ", ".join(map(str, read("some-hyparquet"))))
print(
    f"amounts from 0.00 to 9.99 that are less: {less('all')} of 1000,",
    f"by hyparquet-writer {less('all-hyparquet')}",
)
small = ", ".join(map(str, read("small")))
print(f"decimal(9,2) 1.00, 2.00, 3.00, 4.00: {pathlib.Path('small.txt').read_text()}; pyarrow {small}")
END
node write.mjs
"$work/venv/bin/python" read.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
