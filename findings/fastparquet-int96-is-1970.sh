#!/bin/sh
# fastparquet 2026.9.0, with pandas 3.1.1: times="int96" writes each time as one of January 1970.
#
# INT96 is how Hive, Impala and old versions of Spark have times: nanoseconds of the day, and the day. The numbers of a
# column are taken for nanoseconds, whatever its unit is. Since version 3 that is microseconds, for what pandas
# parses, reads or makes of Python's times, so that what was right with pandas 2 became 2024-01-01 is 1970-01-20
# without a change of the program, nor an error; milliseconds are less than half an hour. Both pyarrow 26.0.1 and the
# library itself read what is written, and by "int64" the same column is right. Seen:
#
#   datetime64[us], int64: pyarrow 2024-01-01 00:00:05, fastparquet 2024-01-01 00:00:05
#   datetime64[us], int96: pyarrow 1970-01-20 17:21:07.205000, fastparquet 1970-01-20 17:21:07.205000
#   datetime64[ms], int96: pyarrow 1970-01-01 00:28:24.067205, fastparquet 1970-01-01 00:28:24.067205
#   datetime64[ns], int96: pyarrow 2024-01-01 00:00:05, fastparquet 2024-01-01 00:00:05
#   datetime64[us, UTC], int96: pyarrow 1970-01-20 17:21:07.205000, fastparquet 1970-01-20 17:21:07.205000+00:00
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q fastparquet==2026.9.0 pyarrow==26.0.1 pandas==3.1.1
cd "$work"
cat > look.py <<'END'
import warnings

import pandas
import pyarrow.parquet

warnings.simplefilter("ignore")
parsed = pandas.Series(pandas.to_datetime(["2024-01-01 00:00:05"]))
for column, times in (
    (parsed, "int64"),
    (parsed, "int96"),
    (parsed.dt.as_unit("ms"), "int96"),
    (parsed.dt.as_unit("ns"), "int96"),
    (parsed.dt.tz_localize("UTC"), "int96"),
):
    frame = pandas.DataFrame({"x": column})
    frame.to_parquet("rows.parquet", engine="fastparquet", times=times)
    (by_pyarrow,) = pyarrow.parquet.read_table("rows.parquet")["x"].to_pylist()
    (own,) = pandas.read_parquet("rows.parquet", engine="fastparquet")["x"]
    print(f"{column.dtype}, {times}: pyarrow {by_pyarrow}, fastparquet {own}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
