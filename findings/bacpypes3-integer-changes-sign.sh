#!/bin/sh
# bacpypes3 0.0.110: an Integer of 2147483648 or more goes onto the wire as another number, of the other sign,
# and one of 2**63 - 1 as -1.
#
# Four octets of it are written, whatever it is; an Unsigned that is too large raises an error. It reads
# integers of five octets as they are, so it is not that it would know no others. A counter in an
# integer-value object that has grown beyond 31 bits is negative for who reads it, and a COV subscriber gets
# that, too. Seen (the value's octets, and what the library reads from them):
#
#   Integer 2147483647: 7fffffff, read 2147483647
#   Integer 2147483648: 80000000, read -2147483648
#   Integer 3000000000: b2d05e00, read -1294967296
#   Integer 9223372036854775807: ffffffff, read -1
#   Integer -9223372036854775808: 00000000, read 0
#   Unsigned 4294967296: raises error
#   Integer 2147483648 in five octets: read 2147483648
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q bacpypes3==0.0.110
cd "$work"
cat > look.py <<'END'
from bacpypes3.primitivedata import Integer, Unsigned

for kind, value in (
    (Integer, 2**31 - 1),
    (Integer, 2**31),
    (Integer, 3_000_000_000),
    (Integer, 2**63 - 1),
    (Integer, -(2**63)),
    (Unsigned, 2**32),
):
    try:
        (tag,) = tags = kind(value).encode()
        print(f"{kind.__name__} {value}: {tag.tag_data.hex()}, read {kind.decode(tags)}")
    except Exception as error:
        print(f"{kind.__name__} {value}: raises {type(error).__name__}")
print("Integer 2147483648 in five octets: read", end=" ")
(tag,) = tags = Integer(1).encode()
tag.tag_data = bytearray.fromhex("0080000000")
print(Integer.decode(tags))
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
