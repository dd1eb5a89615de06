#!/bin/sh
# deltalake 1.6.6: rows of a decimal of 17 digits are not found by their value, and neither deleted nor
# updated; by a filter of the table also those below 0.00001 are not.
#
# A file's least and largest value are in Delta's log as JSON numbers. The library makes a double of a
# decimal first, so that 17 digits or more may be other ones, and each file that seems not to have the value
# is passed over: by the table's filters and those of its dataset (so by what DuckDB reads from that), by
# polars 2.1.0, and by the predicates of `update` and `delete`, which then say that there is no such row.
# Values that a double's text has with an exponent are read as null for the filters, and those files are
# passed over by each condition. Amounts of a large currency, numbers of 20 digits and payments in Satoshi
# are lost so; the same filter finds them in all rows. Seen, of tables with one row (rows found or changed):
#
#   decimal(12,2) 1234567890.12: filter 1, polars 1, update 1, delete 1, filter on all rows 1
#   decimal(18,8) 0.00000546: filter 0, polars 1, update 1, delete 1, filter on all rows 1
#   decimal(18,2) 1234567890123456.78: filter 0, polars 0, update 0, delete 0, filter on all rows 1
#   decimal(20,0) 12345678901234567891: filter 0, polars 0, update 0, delete 0, filter on all rows 1
#   statistics of them: 1234567890.12, 5.46e-6, 1234567890123456.8, 9223372036854775807
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q deltalake==1.6.6 polars==2.1.0 pyarrow==26.0.1
cd "$work"
cat > look.py <<'END'
import json
import pathlib
from decimal import Decimal

import polars
import pyarrow
import pyarrow.compute
from deltalake import DeltaTable, write_deltalake

statistics = []
for precision, scale, text in (
    (12, 2, "1234567890.12"),
    (18, 8, "0.00000546"),
    (18, 2, "1234567890123456.78"),
    (20, 0, "12345678901234567891"),
):
    value = Decimal(text)
    kind = pyarrow.decimal128(precision, scale)
    rows = pyarrow.table({"amount": pyarrow.array([value], kind), "paid": [False]})
    path = text
    write_deltalake(path, rows)
    for line in pathlib.Path(path, "_delta_log", f"{0:020}.json").read_text().splitlines():
        if "add" in (action := json.loads(line, parse_float=str)):
            found = json.loads(action["add"]["stats"], parse_float=str)
            statistics.append(str(found["minValues"]["amount"]))
    table = DeltaTable(path)
    condition = f"amount = cast('{text}' as decimal({precision}, {scale}))"
    seen = {
        "filter": table.to_pyarrow_table(filters=[("amount", "=", value)]).num_rows,
        "polars": polars.scan_delta(path).filter(polars.col("amount") == value).collect().height,
        "update": table.update(updates={"paid": "true"}, predicate=condition)["num_updated_rows"],
        "delete": DeltaTable(path).delete(condition)["num_deleted_rows"],
        "filter on all rows": rows.filter(
            pyarrow.compute.field("amount") == pyarrow.scalar(value, kind)
        ).num_rows,
    }
    print(f"decimal({precision},{scale}) {text}:", ", ".join(f"{k} {v}" for k, v in seen.items()))
print("statistics of them:", ", ".join(statistics))
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
