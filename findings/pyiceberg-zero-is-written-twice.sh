#!/bin/sh
# pyiceberg 0.12.0: a row with 0.0 is written twice, and so is one with -0.0, if both come in one append to a
# table that is partitioned by the column; and with NaN nothing can be appended.
#
# The library makes a partition of each value that differs, and 0.0 and -0.0 do; then it takes each one's rows
# by comparing them, and to that both are equal. A sum of changes, a difference that is rounded or a product
# with zero gives -0.0, so that a stream that counts rows counts too many, and no error is told. Of NaN it
# finds no row at all, and divides by their number. Without partitions all is right. Seen (id: value):
#
#   not partitioned: 1: 1.5, 2: 0.0, 3: -0.0
#   without -0.0: 1: 1.5, 2: 0.0
#   with both: 1: 1.5, 2: 0.0, 2: 0.0, 3: -0.0, 3: -0.0
#   with NaN: raises ZeroDivisionError, 0 rows
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q "pyiceberg[sql-sqlite]==0.12.0" pyarrow==26.0.1
cd "$work"
cat > look.py <<'END'
import logging
import pathlib
import warnings

import pyarrow
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import IdentityTransform

logging.disable()
warnings.simplefilter("ignore")
SCHEMA = pyarrow.schema([("change", pyarrow.float64()), ("id", pyarrow.int64())])
catalog = SqlCatalog("it", uri="sqlite:///catalog.db", warehouse=f"file://{pathlib.Path.cwd()}")
catalog.create_namespace("n")


def written(name, *rows, partitioned=True):
    table = catalog.create_table(f"n.{name}", schema=SCHEMA)
    if partitioned:
        with table.update_spec() as spec:
            spec.add_field("change", IdentityTransform(), "by_change")
    given = pyarrow.table([[change for change, _ in rows], [key for _, key in rows]], SCHEMA)
    try:
        table.append(given)
    except Exception as error:
        return f"raises {type(error).__name__}, {len(table.scan().to_arrow())} rows"
    found = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    return ", ".join(f"{row['id']}: {row['change']}" for row in found)


ROWS = (1.5, 1), (0.0, 2), (-0.0, 3)
print("not partitioned:", written("plain", *ROWS, partitioned=False))
print("without -0.0:", written("zero", *ROWS[:2]))
print("with both:", written("both", *ROWS))
print("with NaN:", written("nan", (1.5, 1), (float("nan"), 2)))
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
