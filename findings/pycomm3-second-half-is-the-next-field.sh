#!/bin/sh
# pycomm3 1.2.16: of a STRING2 the first half is read, "pump" as "pu", and the second half is taken for the
# field after it, a count of 7 for 109.
#
# A STRING2 of CIP (code D5) has two bytes for each character, and in front how many characters there are. It
# is written so, and read as if the count were of bytes. Of an odd number of characters a DataError is raised; of
# an even one nothing is. STRINGN with two bytes for each is read in full. Seen (as a field `name` before
# a UINT `count`):
#
#   STRING2 'pump', 7: name 'pu', count 109
#   STRING2 'tank', 7: name 'ta', count 110
#   STRING2 'fan', 7: DataError
#   STRINGN 'pump', 7: name 'pump', count 7
#   STRING 'pump', 7: name 'pump', count 7
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pycomm3==1.2.16
cd "$work"
cat > look.py <<'END'
from pycomm3 import STRING, STRING2, STRINGN, UINT, DataError, Struct

for kind, name, size in (
    (STRING2, "pump", ()),
    (STRING2, "tank", ()),
    (STRING2, "fan", ()),
    (STRINGN, "pump", (2,)),
    (STRING, "pump", ()),
):
    data = kind.encode(name, *size) + UINT.encode(7)
    try:
        read = Struct(kind("name"), UINT("count")).decode(data)
        text = f"name {read['name']!r}, count {read['count']}"
    except DataError as error:
        text = type(error).__name__
    print(f"{kind.__name__} {name!r}, 7: {text}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
