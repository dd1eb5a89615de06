#!/bin/sh
# coboljsonifier 1.0.8 (PyPI, records of mainframes by their copybook): 9,999,999,999,999,999.99 are 10,000,000,000,000,000.00,
# though as a Decimal; and after a field with ten decimals all fields stand elsewhere.
#
# A number of COBOL has up to 18 digits, also as COMP-3, and the decimals are those of its picture, written out or counted,
# as 99 or 9(2) (IBM, Enterprise COBOL for z/OS Language Reference, "PICTURE clause"). The library divides a whole number
# by a power of ten as doubles, and makes a Decimal of that. Of S9(3)V9(10) it takes the last digit of the count, 0, for
# the decimals; without the S it takes all. Nothing is raised. Seen (picture, what the record has; what is read; the text
# of two characters after it, which is ON):
#
#   S9(13)V99 COMP-3, 1234567890123.45: 1234567890123.45, ON
#   S9(16)V99 COMP-3, 1234567890123456.78: 1234567890123456.75, ON
#   S9(16)V99 COMP-3, -9999999999999999.99: -10000000000000000.00, ON
#   S9(16)V99, 1234567890123456.78: 1234567890123456.75, ON
#   9(3)V9(10), 123.4567890123: 123.4567890123, ON
#   S9(3)V9(10), 123.4567890123: 123, 45
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q coboljsonifier==1.0.8
cd "$work"
cat > look.py <<'END'
from decimal import Decimal
from pathlib import Path

from coboljsonifier.config.parser_type_enum import ParseType
from coboljsonifier.copybookextractor import CopybookExtractor
from coboljsonifier.parser import Parser

COPYBOOK = """       01  METER-RECORD.
           05  METER-ID      PIC X(4).
           05  AMOUNT        PIC {}.
           05  STATE         PIC X(2).
"""


def as_bytes(picture, value):
    sign, digits, _ = Decimal(value).as_tuple()
    text = "".join(map(str, digits))
    if picture.endswith("COMP-3"):
        text += "CD"[sign]
        return bytes.fromhex("0" * (len(text) % 2) + text)
    zones = [0xF0] * len(text)
    if picture.startswith("S"):
        zones[-1] = (0xC0, 0xD0)[sign]
    return bytes(zone | digit for zone, digit in zip(zones, digits))


for picture, value in (
    ("S9(13)V99 COMP-3", "1234567890123.45"),
    ("S9(16)V99 COMP-3", "1234567890123456.78"),
    ("S9(16)V99 COMP-3", "-9999999999999999.99"),
    ("S9(16)V99", "1234567890123456.78"),
    ("9(3)V9(10)", "123.4567890123"),
    ("S9(3)V9(10)", "123.4567890123"),
):
    Path("book").write_text(COPYBOOK.format(picture))
    parser = Parser(CopybookExtractor("book").dict_book_structure, ParseType.BINARY_EBCDIC).build()
    parser.parse("M001".encode("cp037") + as_bytes(picture, value) + "ON".encode("cp037"))
    print(f"{picture}, {value}: {parser.value['AMOUNT']}, {parser.value['STATE']}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
