#!/bin/sh
# pyorc 0.12.0 writes integers that the column cannot hold, without an error: a tinyint wraps, and a
# smallint or an int is another number for each reader of the file.
#
# ORC's tinyint, smallint and int have 8, 16 and 32 bits (its specification, "Types"); for bigint, and for
# a decimal with too many digits, pyorc does raise. Its own reader gives back what was written, so that a
# check by round trip passes, while Arrow's reader (pyarrow 26.0.1) wraps to the column's type. Places
# behind the scale of a decimal are rounded half to even in silence. Seen:
#
#   tinyint: wrote 300, -129, 128; pyorc reads 44, 127, -128; pyarrow reads 44, 127, -128
#   smallint: wrote 70000, -40000; pyorc reads 70000, -40000; pyarrow reads 4464, 25536
#   int: wrote 2147483648, 1099511627776; pyorc reads 2147483648, 1099511627776; pyarrow reads -2147483648, 0
#   bigint: wrote 9223372036854775808; TypeError
#   decimal(4,2): wrote 1.005, 1.015; pyorc reads 1.00, 1.02; pyarrow reads 1.00, 1.02
#   decimal(4,2): wrote 123.45; InvalidOperation
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyorc==0.12.0 pyarrow==26.0.1
cd "$work"
cat > look.py <<'END'
import io
from decimal import Decimal

import pyarrow.orc
import pyorc


def shown(values):
    return ", ".join(str(value) for value in values)


for kind, values in (
    ("tinyint", [300, -129, 128]),
    ("smallint", [70000, -40000]),
    ("int", [2**31, 2**40]),
    ("bigint", [2**63]),
    ("decimal(4,2)", [Decimal("1.005"), Decimal("1.015")]),
    ("decimal(4,2)", [Decimal("123.45")]),
):
    print(f"{kind}: wrote {shown(values)}", end="; ")
    file = io.BytesIO()
    try:
        with pyorc.Writer(file, f"struct<a:{kind}>") as writer:
            for value in values:
                writer.write((value,))
    except (ArithmeticError, TypeError) as error:
        print(type(error).__name__)
        continue
    file.seek(0)
    rows = shown(a for (a,) in pyorc.Reader(file))
    column = shown(pyarrow.orc.ORCFile(file).read()["a"].to_pylist())
    print(f"pyorc reads {rows}; pyarrow reads {column}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
