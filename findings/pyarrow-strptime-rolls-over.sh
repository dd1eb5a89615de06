#!/bin/sh
# pyarrow 26.0.1 (Linux, glibc 2.36): `pyarrow.compute.strptime` takes a day that its month does not have for one of the
# next month, and reads the name of a zone (%Z) without using it.
#
# Expected: an error, or a null with `error_is_null=True`, as for any other text that is no time; its
# documentation names both. A cast of the same text to a timestamp does raise, and so does Python's
# own strptime. The 30th of February comes out as the 2nd of March; "10:00 CET" and "10:00 PST" come
# out as 10:00, both, in a type without a zone. A numeric offset (%z) is used, and its type has UTC.
# Seen:
#
#   strptime 2026-02-30: 2026-03-02 00:00:00
#   strptime 2026-04-31, error_is_null: 2026-05-01 00:00:00
#   cast 2026-02-30: ArrowInvalid
#   strptime 10:00 CET: 2026-11-28 10:00:00, type timestamp[s]
#   strptime 10:00 PST: 2026-11-28 10:00:00, type timestamp[s]
#   strptime 10:00 +0100: 2026-11-28 09:00:00+00:00, type timestamp[s, tz=UTC]
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyarrow==26.0.1
cd "$work"
cat > look.py << 'END'
import pyarrow as pa
import pyarrow.compute as pc

DAY, TIME = "%Y-%m-%d", "%Y-%m-%d %H:%M"


def read(text, format, **more):
    return pc.strptime(pa.array([text]), format=format, unit="s", **more)


print("strptime 2026-02-30:", read("2026-02-30", DAY)[0])
print("strptime 2026-04-31, error_is_null:", read("2026-04-31", DAY, error_is_null=True)[0])
try:
    pa.array(["2026-02-30"]).cast(pa.timestamp("s"))
except pa.ArrowInvalid as error:
    print("cast 2026-02-30:", type(error).__name__)
for zone, letter in (("CET", "Z"), ("PST", "Z"), ("+0100", "z")):
    found = read(f"2026-11-28 10:00 {zone}", f"{TIME} %{letter}")
    print(f"strptime 10:00 {zone}: {found[0]}, type {found.type}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
