#!/bin/sh
# pycobol2csv 1.0.6 (PyPI, records of mainframes as CSV by their copybook): -12345 in characters is 1525354553, 12345.67 is
# 1234567, -1000 in binary is 64536; and a packed number is there only if its copybook says USAGE.
#
# A number without a usage has a character for each digit, with the sign in the last one's zone; V is where its point is;
# COMP-3 has two digits a byte, BINARY is two's complement, and the word USAGE may be left out (IBM, Enterprise COBOL for
# z/OS Language Reference, "USAGE clause", "PICTURE clause", "SIGN clause"). The library takes what has a sign for packed,
# and what has none for text; a binary number is below zero if its first byte is ff. Where USAGE is left out a line on
# standard output says that the row is not matched, and all that follows is read too early. coboljsonifier 1.0.8 reads
# what was meant, or raises an error. Seen (picture, what the record has; the field and the text ON after it; coboljsonifier):
#
#   S9(5), -12345: '1525354553' 'ON'; -12345 ON
#   9(5)V99, 12345.67: '1234567' 'ON'; 12345.67 ON
#   S9(5)V99 USAGE COMP-3, -12345.67: '-12345.67' 'ON'; -12345.67 ON
#   9(5) USAGE COMP-3, 12345: '\x12  ' 'ON'; an error
#   S9(5) COMP-3, 12345: None '\x12 '; 12345 ON
#   S9(4)  BINARY, -1000: '64536' 'ON'; -1000 ON
#   S9(4)  BINARY, -100: '-100' 'ON'; -100 ON
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pycobol2csv==1.0.6 ebcdic==2.0.1 coboljsonifier==1.0.8
cd "$work"
cat > look.py <<'END'
import contextlib
import csv
import io
import json
from decimal import Decimal
from pathlib import Path

from coboljsonifier.config.parser_type_enum import ParseType
from coboljsonifier.copybookextractor import CopybookExtractor
from coboljsonifier.parser import Parser
from pycobol2csv.convert import convert_cobol_file

COPYBOOK = """       01  METER-RECORD.
           05  METER-ID      PIC X(4).
           05  AMOUNT        PIC {}.
           05  STATE         PIC X(2).
           05  PLACE         PIC X(8).
"""
FORM = {"csv_config": {"delimiter": ",", "quoting_level": csv.QUOTE_MINIMAL, "quote_char": '"'}}


def as_bytes(picture, value):
    sign, digits, _ = Decimal(value).as_tuple()
    if "BINARY" in picture:
        return int(value).to_bytes(2, "big", signed=True)
    text = "".join(map(str, digits))
    if "COMP-3" in picture:
        text += "CD"[sign] if picture.startswith("S") else "F"
        return bytes.fromhex("0" * (len(text) % 2) + text)
    zones = [0xF0] * len(text)
    if picture.startswith("S"):
        zones[-1] = (0xC0, 0xD0)[sign]
    return bytes(zone | digit for zone, digit in zip(zones, digits))


Path("form").write_text(json.dumps(FORM))
for picture, value in (
    ("S9(5)", "-12345"),
    ("9(5)V99", "12345.67"),
    ("S9(5)V99 USAGE COMP-3", "-12345.67"),
    ("9(5) USAGE COMP-3", "12345"),
    ("S9(5) COMP-3", "12345"),
    ("S9(4)  BINARY", "-1000"),
    ("S9(4)  BINARY", "-100"),
):
    record = "M001".encode("cp037") + as_bytes(picture, value) + "ONSTATION1".encode("cp037")
    Path("book").write_text(COPYBOOK.format(picture))
    Path("records").write_bytes(record)
    with contextlib.redirect_stdout(io.StringIO()):
        convert_cobol_file("book", "records", "table", "form", "cp037")
    with open("table", newline="") as table:
        row = next(csv.DictReader(table))
    parser = Parser(CopybookExtractor("book").dict_book_structure, ParseType.BINARY_EBCDIC).build()
    try:
        parser.parse(record)
        other = f"{parser.value['AMOUNT']} {parser.value['STATE']}"
    except ValueError:
        other = "an error"
    print(f"{picture}, {value}: {row.get('AMOUNT')!r} {row['STATE']!r}; {other}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
