#!/bin/sh
# asterix4py 1.0.6 (ASTERIX, the messages of radars and ADS-B): an aircraft that turns left turns right, at 32
# degrees a second; and the height that a radar measured is a hundredth of itself, and has no sign either.
#
# Both are in two's complement: the rate of turn in steps of 1/32 degree a second (EUROCONTROL-SPEC-0149-12,
# I021/165), the height of a 3D radar in steps of 25 feet (0149-4, I048/110). The library's own tables have them
# without a sign, and 0.25 for 25; other values of the same message are right. asterix_decoder 0.7.11 reads what
# was sent. Seen (item, what was sent, and what each reads):
#
#   I021/165 rate of turn, 0.5: asterix4py 0.5, asterix_decoder 0.5
#   I021/165 rate of turn, -0.03125: asterix4py 31.96875, asterix_decoder -0.03125
#   I021/165 rate of turn, -3: asterix4py 29.0, asterix_decoder -3.0
#   I048/110 height, 10000: asterix4py 100.0, asterix_decoder 10000.0
#   I048/110 height, -25: asterix4py 4095.75, asterix_decoder -25.0
#   I021/145 flight level, -1: asterix4py -1.0, asterix_decoder -1.0
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q asterix4py==1.0.6 asterix_decoder==0.7.11
cd "$work"
cat > look.py <<'END'
import struct

import asterix
import asterix4py


def message(category, place, data):
    """One record with its source (the first item) and the item at `place` in the category's order."""
    octets = [0] * ((place + 6) // 7)
    for number in (1, place):
        octets[(number - 1) // 7] |= 0x80 >> (number - 1) % 7
    octets = [octet | 1 for octet in octets[:-1]] + octets[-1:]
    body = bytes(octets) + b"\x01\x02" + data
    return struct.pack(">BH", category, 3 + len(body)) + body


for category, place, item, name, what, value, data in (
    (21, 27, "165", "TA_rate", "rate of turn", 0.5, 16),
    (21, 27, "165", "TA_rate", "rate of turn", -0.03125, -1 % 2**10),
    (21, 27, "165", "TA_rate", "rate of turn", -3, -96 % 2**10),
    (48, 19, "110", "3D_Height", "height", 10000, 400),
    (48, 19, "110", "3D_Height", "height", -25, -1 % 2**14),
    (21, 21, "145", "FL", "flight level", -1, -4 % 2**16),
):
    sent = message(category, place, struct.pack(">H", data))
    one = asterix4py.AsterixParser(sent).get_result()[1][item][name]
    other = asterix.parse(sent)[0][f"I{item}"][name]["val"]
    print(f"I{category:03}/{item} {what}, {value}: asterix4py {one}, asterix_decoder {other}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
