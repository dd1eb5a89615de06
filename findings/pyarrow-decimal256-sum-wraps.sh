#!/bin/sh
# PyArrow 26.0.1: the sum of decimal256 values that has no room in 76 digits is no error and no null.
# It wraps around: twelve times 0.9 at a scale of 76 is a negative number. (An addition by `add` of
# two such columns is refused, as it would need more digits.) Seen:
#
#   sum of 12 times 0.9 as decimal256(76, 76): -0.77920892373161954235709850086879078532699846656405...
#   add: ArrowInvalid
#
# Needs python3. Ends with 0 while it is so, with 1 when it changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyarrow==26.0.1
cat > "$work/finding.py" <<'END'
import sys
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

values = pa.array([Decimal("0.9")] * 12, pa.decimal256(76, 76))
total = pc.sum(values).as_py()
print("sum of 12 times 0.9 as decimal256(76, 76):", total)
try:
    added = str(pc.add(values, values)[0])
except pa.ArrowException as error:
    added = type(error).__name__
print("add:", added)
sys.exit(not (total < 0 and added == "ArrowInvalid"))
END
"$work/venv/bin/python" "$work/finding.py"
