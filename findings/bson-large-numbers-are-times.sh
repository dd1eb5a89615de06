#!/bin/sh
# bson 0.5.10 (the library of that name on PyPI, not MongoDB's): a number from 2**63 on is a time of MongoDB's to
# everybody else, and such a time is a number; a Decimal is a double.
#
# It writes them with the type 0x11, which is "Timestamp: special internal type used by MongoDB replication and
# sharding" (bsonspec.org, version 1.1), and takes that for an unsigned integer when it reads, so that the place of an
# entry in an oplog is 7301444403200000005, which can be neither compared with one nor sent back as one. Decimals
# have a type of their own (0x13), but 1.10 and 0.1 lose their digits. What it wrote it reads back. No error. Seen
# (what bson 0.5.10 wrote, read by pymongo 4.20.1; what pymongo wrote, read by bson):
#
#   9223372036854775807: by pymongo 9223372036854775807
#   9223372036854775808: by pymongo Timestamp(2147483648, 0)
#   18446744073709551615: by pymongo Timestamp(4294967295, 4294967295)
#   Decimal('1.10'): by pymongo 1.1
#   Timestamp(1700000000, 5): by bson 7301444403200000005
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/one"
"$work/one/bin/pip" install -q bson==0.5.10
python3 -m venv "$work/two"
"$work/two/bin/pip" install -q pymongo==4.20.1
cd "$work"
cat > look.py <<'END'
import decimal
import sys

import bson

VALUES = (2**63 - 1, 2**63, 2**64 - 1, decimal.Decimal("1.10"))
if sys.argv[1] == "one":
    for value in VALUES:
        print(bson.dumps({"v": value}).hex())
    print(bson.loads(bytes.fromhex(sys.argv[2]))["v"])
elif len(sys.argv) == 2:
    print(bson.encode({"v": bson.Timestamp(1700000000, 5)}).hex())
else:
    *written, found = sys.argv[2:]
    for value, text in zip(VALUES, written, strict=True):
        print(f"{value!r}: by pymongo {bson.decode(bytes.fromhex(text))['v']!r}")
    print(f"Timestamp(1700000000, 5): by bson {found}")
END
time=$(two/bin/python look.py two)
one/bin/python look.py one "$time" > written
xargs two/bin/python look.py two < written | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
