#!/bin/sh
# sbedecoder 0.1.10 (PyPI, market data by FIX Simple Binary Encoding): the two levels of a quote are two others when the
# sender's schema has a field more, or none when the reader's schema leaves a length to be added up; and no size is 0.
#
# A message says how long its block is, so that a sender may add fields and older readers skip them; the schema may leave
# it out, as it follows from the fields; an optional integer with a sign that names no null value has the lowest number as
# null (FIX Simple Binary Encoding 1.0, "Message Structure", "Schema Extension Mechanism" and "Field Encoding"). The
# library begins the levels after the length of its own schema; takes a named type for one without bytes when it adds up;
# forgets a null value that is 0, and has none for a field that does not name it. Nothing is raised. Seen (price size):
#
#   sent 100 7, 200 8, version 1: 100 7, 200 8
#   sent 100 7, 200 8, version 2 with a field of 4 bytes more: 131080 100, 7 200
#   sent 100 7, 200 8, version 1, schema without blockLength: none
#   size, null value 0, sent 0: 0
#   limit, optional, sent -2147483648: -2147483648
#   price, null value 2147483647, sent 2147483647: None
#
# Needs python3 (3.11 or later). Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q sbedecoder==0.1.10 lxml==6.1.3
cd "$work"
cat > look.py <<'END'
import pathlib
import struct

from sbedecoder import SBEMessage, SBESchema

SCHEMA = """<?xml version="1.0" encoding="UTF-8"?>
<messageSchema package="quotes" id="1" version="1" byteOrder="littleEndian">
  <types>
    <composite name="messageHeader">
      <type name="blockLength" primitiveType="uint16"/><type name="templateId" primitiveType="uint16"/>
      <type name="schemaId" primitiveType="uint16"/><type name="version" primitiveType="uint16"/>
    </composite>
    <composite name="groupSizeEncoding">
      <type name="blockLength" primitiveType="uint16"/><type name="numInGroup" primitiveType="uint16"/>
    </composite>
    <type name="Price" primitiveType="int32" presence="optional" nullValue="2147483647"/>
    <type name="Size" primitiveType="uint32" presence="optional" nullValue="0"/>
    <type name="Limit" primitiveType="int32" presence="optional"/>
  </types>
  <message name="Quote" id="5"LENGTH>
    <field name="price" id="1" type="Price"/><field name="size" id="2" type="Size"/>
    <field name="limit" id="3" type="Limit"/>
    <group name="levels" id="10" dimensionType="groupSizeEncoding">
      <field name="at" id="11" type="Price"/><field name="count" id="12" type="Size"/>
    </group>
  </message>
</messageSchema>"""


def schema(length):
    pathlib.Path("schema.xml").write_text(SCHEMA.replace("LENGTH", length))
    read = SBESchema()
    read.parse("schema.xml")
    return read


def message(version=1, added=b"", price=150, size=1, limit=2):
    block = struct.pack("<iIi", price, size, limit) + added
    levels = struct.pack("<HH", 8, 2) + struct.pack("<iIiI", 100, 7, 200, 8)
    return struct.pack("<HHHH", len(block), 5, 1, version) + block + levels


def levels(length, data):
    read = SBEMessage.parse_message(schema(length), data)
    found = [f"{level.at.value} {level.count.value}" for group in read.groups for level in group.repeating_groups]
    return ", ".join(found) or "none"


GIVEN = ' blockLength="12"'
print(f"sent 100 7, 200 8, version 1: {levels(GIVEN, message())}")
# the field that was added: two numbers of 16 bits, 8 and 2
longer = levels(GIVEN, message(2, struct.pack("<HH", 8, 2)))
print(f"sent 100 7, 200 8, version 2 with a field of 4 bytes more: {longer}")
print(f"sent 100 7, 200 8, version 1, schema without blockLength: {levels('', message())}")
null = SBEMessage.parse_message(schema(GIVEN), message(price=2**31 - 1, size=0, limit=-(2**31)))
print(f"size, null value 0, sent 0: {null.size.value}")
print(f"limit, optional, sent -2147483648: {null.limit.value}")
print(f"price, null value 2147483647, sent 2147483647: {null.price.value}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
