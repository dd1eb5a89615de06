#!/bin/sh
# deltalake 1.6.6: one negative decimal in a partition column, -1.50, and the table can be neither read nor
# written any more, nor restored.
#
# A partition's value stands in Delta's log as text. The library writes the digits behind the point with a
# sign of their own, -1.-50, commits that, and only then raises the error that it cannot read it, which is
# the answer to each further call. Values of whole numbers are right, and so is what is positive: a table of
# bookings works until the first one that is negative. The version before can still be opened. Seen, of a
# column of decimal(10,2) by which the table is partitioned:
#
#   1.50: written
#   -2.00: written
#   rows: 2
#   -1.50: raises: Failed to parse value '-1.-50' as 'decimal(10,2)'
#   in the log: 1.50, -2.00, -1.-50
#   rows: raises: Failed to parse value '-1.-50' as 'decimal(10,2)'
#   the next of 3.00: raises: Failed to parse value '-1.-50' as 'decimal(10,2)'
#   delete: raises: Failed to parse value '-1.-50' as 'decimal(10,2)'
#   restore: raises: Failed to parse value '-1.-50' as 'decimal(10,2)'
#   rows: raises: Failed to parse value '-1.-50' as 'decimal(10,2)'
#   version 1: 2
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q deltalake==1.6.6 pyarrow==26.0.1
cd "$work"
cat > look.py <<'END'
import decimal
import json
import pathlib

import pyarrow
from deltalake import DeltaTable, QueryBuilder, write_deltalake

KIND = pyarrow.decimal128(10, 2)


def rows(text):
    return pyarrow.table({"change": pyarrow.array([decimal.Decimal(text)], KIND), "at": [1]})


def shown(name, call):
    try:
        answer = call()
    except Exception as error:
        answer = f"raises: {str(error).split(': ', 1)[-1]}"
    print(f"{name}: {answer}")


def write(text):
    write_deltalake("table", rows(text), mode="append", partition_by=["change"])
    return "written"


shown("1.50", lambda: write("1.50"))
shown("-2.00", lambda: write("-2.00"))
shown("rows", lambda: DeltaTable("table").to_pyarrow_table().num_rows)
shown("-1.50", lambda: write("-1.50"))
values = [
    json.loads(line)["add"]["partitionValues"]["change"]
    for path in sorted(pathlib.Path("table/_delta_log").glob("*.json"))
    for line in path.read_text().splitlines()
    if "add" in json.loads(line)
]
print("in the log:", ", ".join(values))
shown("rows", lambda: DeltaTable("table").to_pyarrow_table().num_rows)
shown("the next of 3.00", lambda: write("3.00"))
shown(
    "delete",
    lambda: DeltaTable("table").delete("change = 1.50")["num_deleted_rows"],
)
shown("restore", lambda: bool(DeltaTable("table").restore(1)))
shown("rows", lambda: DeltaTable("table").to_pyarrow_table().num_rows)
shown("version 1", lambda: DeltaTable("table", version=1).to_pyarrow_table().num_rows)
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
