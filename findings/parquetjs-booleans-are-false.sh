#!/bin/sh
# @dsnp/parquetjs 1.8.9 (npm): each boolean of a Parquet file with data pages of version 2 is false.
#
# In such pages pyarrow, as Parquet's Java library, writes booleans in the encoding RLE ("Encodings", "Run Length
# Encoding / Bit-Packing Hybrid", which names boolean values in data pages of version 2). The library
# takes the number of bits of a value from the column's length of type, which only fixed-length bytes have, so
# that it reads none: no error, and whatever was true is false, also in lists. What
# was null is null. Files of version 1, whose booleans are plain, are read well, and so are other types in
# pages of version 2; hyparquet 1.31.5 and pyarrow 26.0.1 read both. Seen (by pyarrow: true, true, null, false, true):
#
#   version 1.0, PLAIN: parquetjs true, true, null, false, true; hyparquet true, true, null, false, true
#   version 2.0, RLE: parquetjs false, false, null, false, false; hyparquet true, true, null, false, true
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
npm install --silent --no-fund --no-audit --ignore-scripts @dsnp/parquetjs@1.8.9 hyparquet@1.31.5 > log 2>&1 ||
    { tail -n 20 log; exit 1; }
cat > write.py <<'END'
import pyarrow
import pyarrow.parquet

VALUES = [True, True, None, False, True]
for version in "1.0", "2.0":
    pyarrow.parquet.write_table(
        pyarrow.table({"x": VALUES}),
        f"{version}.parquet",
        data_page_version=version,
        compression="none",
    )
    assert pyarrow.parquet.read_table(f"{version}.parquet")["x"].to_pylist() == VALUES
END
cat > read.mjs <<'END'
import parquetjs from '@dsnp/parquetjs';
import { asyncBufferFromFile, parquetMetadataAsync, parquetReadObjects } from 'hyparquet';

for (const version of ['1.0', '2.0']) {
  const name = `${version}.parquet`;
  const reader = await parquetjs.ParquetReader.openFile(name);
  const cursor = reader.getCursor();
  const values = [];
  for (let row = await cursor.next(); row; row = await cursor.next()) values.push(row.x);
  await reader.close();
  const file = await asyncBufferFromFile(name);
  const metadata = await parquetMetadataAsync(file);
  const { encodings } = metadata.row_groups[0].columns[0].meta_data;
  const encoding = encodings.includes('PLAIN') ? 'PLAIN' : encodings.join(' ');
  const others = (await parquetReadObjects({ file })).map((row) => String(row.x));
  console.log(`version ${version}, ${encoding}: parquetjs ${values.map(String).join(', ')};`,
    `hyparquet ${others.join(', ')}`);
}
END
"$work/venv/bin/python" write.py
node read.mjs | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
