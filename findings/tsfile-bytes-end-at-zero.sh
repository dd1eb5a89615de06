#!/bin/sh
# tsfile 2.5.0 (Apache's library for the files of IoTDB): bytes and text end at the first zero byte, and beside
# a row without a value the integers of a column are rounded to what a double holds.
#
# A reading of a device that is kept as it came has zero bytes nearly always; what is behind the first one is
# gone, and one that begins with it is empty, without an error; the file has them, and reading leaves them
# out. Times in nanoseconds, as a column, are right until one of them is missing: then `to_dataframe` has all
# of them rounded, in a column whose type is still Int64. TsFileReader gives them as they are. Seen:
#
#   bytes: [b'\x01', b'', b'\x01\x02']
#   text: ['a', '', 'ab']
#   integers: [1704067200123456789, 0]
#   with a null: [1704067200123456768, <NA>]
#   bytes, by TsFileReader: [b'\x01', b'', b'\x01\x02']
#   text, by TsFileReader: ['a', '', 'ab']
#   null, by TsFileReader: [1704067200123456789, None]
#   in the file: True
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q tsfile==2.5.0 pandas==3.1.1 numpy==2.4.6 pyarrow==26.0.1
cd "$work"
cat > look.py <<'END'
import pathlib

import pandas
import tsfile


def kept(name, values):
    frame = pandas.DataFrame({"time": range(len(values)), "value": values})
    path = f"{name}.tsfile"
    tsfile.dataframe_to_tsfile(frame, path, table_name="t", time_column="time")
    return tsfile.to_dataframe(path, table_name="t")["value"].tolist()


print("bytes:", kept("bytes", [b"\x01\x00\x02", b"\x00\xff", b"\x01\x02"]))
print("text:", kept("text", ["a\x00b", "\x00", "ab"]))
BIG = 1_704_067_200_123_456_789
print("integers:", kept("integers", pandas.array([BIG, 0], "Int64")))
print("with a null:", kept("null", pandas.array([BIG, None], "Int64")))


def by_reader(name):
    with tsfile.TsFileReader(f"{name}.tsfile") as reader:
        with reader.query_table("t", ["value"]) as rows:
            found = []
            while rows.next():
                found.append(None if rows.is_null_by_index(2) else rows.get_value_by_index(2))
            return found


for one in ("bytes", "text", "null"):
    print(f"{one}, by TsFileReader:", by_reader(one))
print("in the file:", b"\x01\x00\x02" in pathlib.Path("bytes.tsfile").read_bytes())
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
