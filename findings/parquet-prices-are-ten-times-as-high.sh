#!/bin/sh
# parquet 1.3.1 (the library of that name on PyPI): every decimal is ten times as much as the file has, and every date
# is of the first century.
#
# A decimal is its integer times 10 to minus its scale, and a date is the number of days since 1970-01-01 (Parquet's
# LogicalTypes.md, "DECIMAL" and "DATE"). The library takes 10e-2 for 10 to minus 2, which is 0.1; and it counts the
# days from the first of January of the year 1. Days before 1970 raise an error, all others do not. Times of day and
# times in milliseconds are right. pyarrow 26.0.1 wrote the files, and fastparquet 2026.9.0 reads them. Seen:
#
#   decimal(9, 2) 12.34: parquet 123.40, fastparquet 12.34
#   decimal(18, 4) -0.0500: parquet -0.5000, fastparquet -0.05
#   date 2026-11-30: parquet 0057-11-29, fastparquet 2026-11-30
#   date 1970-01-02: parquet 0001-01-01, fastparquet 1970-01-02
#   timestamp[ms] 2026-11-30 12:00:00: parquet 2026-11-30 12:00:00, fastparquet 2026-11-30 12:00:00
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q parquet==1.3.1 fastparquet==2026.9.0 pyarrow==26.0.1
cd "$work"
cat > look.py <<'END'
import datetime
import decimal

import fastparquet
import parquet
import pyarrow
import pyarrow.parquet

CASES = (
    (pyarrow.decimal128(9, 2), decimal.Decimal("12.34")),
    (pyarrow.decimal128(18, 4), decimal.Decimal("-0.0500")),
    (pyarrow.date32(), datetime.date(2026, 11, 30)),
    (pyarrow.date32(), datetime.date(1970, 1, 2)),
    (pyarrow.timestamp("ms"), datetime.datetime(2026, 11, 30, 12)),
)


def known(kind):
    value = fastparquet.ParquetFile("file").to_pandas()["v"][0]
    return str(value.date()) if kind == pyarrow.date32() else str(value)


for kind, value in CASES:
    table = pyarrow.table({"v": pyarrow.array([value], kind)})
    pyarrow.parquet.write_table(
        table, "file", version="1.0", compression="none", use_dictionary=False, store_decimal_as_integer=True
    )
    with open("file", "rb") as file:
        ((found,),) = parquet.reader(file)
    print(f"{str(kind).removesuffix('[day]').replace('decimal128', 'decimal').replace('date32', 'date')} {value}: "
          f"parquet {found}, fastparquet {known(kind)}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
