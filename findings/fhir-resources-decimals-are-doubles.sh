#!/bin/sh
# fhir.resources 8.3.0 (fhir-core 1.1.12): a result of 1.10 is 1.1 after it was read or written, and digits beyond
# those of a double are others, also of what was given as Decimal.
#
# FHIR has it that the digits of a decimal say how exactly it was measured: 0.010 is not 0.01, and what was sent is
# to be preserved (R5, "Data Types", decimal). The library reads JSON's numbers by way of a float, and writes
# Decimals by way of one; its type of the value is Decimal all the while, and 1.10 and 1.1 are equal in Python, so
# a test sees nothing. Fractions of a second become six digits, or none: .1 is .100000, and .000 goes. Seen (read;
# and written again):
#
#   {"value":1.10}: Decimal('1.1'), {"value":1.1}
#   {"value":0.010}: Decimal('0.01'), {"value":0.01}
#   {"value":123456789012345.678901}: Decimal('123456789012345.67'), {"value":123456789012345.67}
#   Decimal('1.10'), written: {"value":1.1}
#   Decimal('123456789012345.678901'), written: {"value":123456789012345.67}
#   {"end":"2024-05-01T10:00:00.1Z"}: {"end":"2024-05-01T10:00:00.100000Z"}
#   {"end":"2024-05-01T10:00:00.000Z"}: {"end":"2024-05-01T10:00:00Z"}
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q fhir.resources==8.3.0 fhir-core==1.1.12 pydantic==2.14.4
cd "$work"
cat > look.py <<'END'
from decimal import Decimal

from fhir.resources.period import Period
from fhir.resources.quantity import Quantity

for digits in ("1.10", "0.010", "123456789012345.678901"):
    text = f'{{"value":{digits}}}'
    read = Quantity.model_validate_json(text)
    print(f"{text}: {read.value!r}, {read.model_dump_json()}")
for digits in ("1.10", "123456789012345.678901"):
    value = Decimal(digits)
    print(f"{value!r}, written: {Quantity(value=value).model_dump_json()}")
for end in ("10:00:00.1Z", "10:00:00.000Z"):
    text = f'{{"end":"2024-05-01T{end}"}}'
    print(f"{text}: {Period.model_validate_json(text).model_dump_json()}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
