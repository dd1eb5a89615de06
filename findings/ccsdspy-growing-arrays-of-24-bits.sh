#!/bin/sh
# ccsdspy 2.0.1 (CCSDS packets, by NASA's missions): an array that differs in length from packet to packet has
# other numbers, and another count of them, where its numbers have 12, 24, 40, 48 or 56 bits.
#
# `array_shape` may be the name of a field that says how many there are, or "expand", and `bit_length` is that of
# each number (user guide, "Variable Length Packets"). The library takes the bytes as if each number filled the
# next larger size of the machine: samples of 24 bits, as of recorders of waves and sound, are read as 32. Nothing
# is raised, also where the packet itself says 8 and 6 come. An array of 8 bits, 16, 32 or 64 is right, and one of
# 12 or 24 with a fixed length is, also in the same class. Seen (8 numbers each, from 1 to 260, that the packets
# have in these bits, one after the other, as CCSDS 133.0-B-2 leaves it to the mission):
#
#   24 bits, fixed: 8 numbers: 1, 38, 75, 112, 149, 186, 223, 260
#   16 bits, growing: 8 numbers: 1, 38, 75, 112, 149, 186, 223, 260
#   24 bits, growing: 6 numbers: 256, 2490368, 1258291312, 38144, 12189696, 3741319428
#   24 bits, of which the packet says 8: 6 numbers: 256, 2490368, 1258291312, 38144, 12189696, 3741319428
#   12 bits, growing: 12 numbers: 0, 16, 38, 4, 176, 112, 9, 80, 186, 13, 241, 4
#   48 bits, growing: 6 numbers: 65536, 163208757248, 21110623253299312, 9764864, 798863917056, 62768919806476548
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q ccsdspy==2.0.1 numpy==2.4.6
cd "$work"
cat > look.py <<'END'
import io

from ccsdspy import PacketArray, PacketField, VariableLength

NUMBERS = [1 + 37 * i for i in range(8)]


def packet(body, sequence):
    head = 5, 0xC000 | sequence, len(body) - 1
    return b"".join(part.to_bytes(2) for part in head) + body


for bits, text, shape in (
    (24, "fixed", 8),
    (16, "growing", "expand"),
    (24, "growing", "expand"),
    (24, "of which the packet says 8", "count"),
    (12, "growing", "expand"),
    (48, "growing", "expand"),
):
    numbers = PacketArray(name="numbers", data_type="uint", bit_length=bits, array_shape=shape)
    count = PacketField("count", "uint", 8)
    whole = 0
    for number in NUMBERS:
        whole = whole << bits | number
    body = bytes([8]) + whole.to_bytes(bits)
    read = VariableLength([count, numbers]).load(io.BytesIO(packet(body, 0) + packet(body, 1)))
    first, second = (values.tolist() for values in read["numbers"])
    assert first == second and read["count"].tolist() == [8, 8]
    print(f"{bits} bits, {text}: {len(first)} numbers:", ", ".join(map(str, first)))
END
"$work/venv/bin/python" look.py 2> log | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
