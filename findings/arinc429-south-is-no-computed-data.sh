#!/bin/sh
# arinc429 0.1.7: a negative number of a BNR word is read as a positive one, -45 degrees as 315; writing it
# changes the word's status from "failure warning" to "no computed data"; and the word that the encoder gives as a
# number is read with its bytes in reverse, under another label.
#
# BNR is two's complement with its sign in bit 29, and bits 30 and 31 are the status (ARINC 429 part 1). The encoder
# takes one bit too many of the number, which for a negative one is set, into the status; the decoder has
# no sign. `word` has the label in its lowest bits; `decode` of a number takes the label from its highest. Nothing
# is raised. Bytes (`bword`) come back as they were written. Seen (label 0o310, 180/2**18 degrees a bit):
#
#   45 with status 3: read 45.0 with status 3
#   -45 with status 3: read 315.0 with status 3
#   45 with status 0: read 45.0 with status 0
#   -45 with status 0: read 315.0 with status 1
#   45 with status 3, as a number: label 0o47, read 213.75 with status 0
#   -45 of a whole number with bits 14 to 28: read 65491.0 with status 3
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q arinc429==0.1.7
cd "$work"
cat > look.py <<'END'
from arinc429 import Decoder, Encoder

DEGREES = 180 / 2**18


def encoded(value, status, **form):
    encoder = Encoder()
    encoder.encode(value=value, label=0o310, ssm=status, encoding="BNR", **form)
    return encoder


def shown(word, **form):
    read = Decoder().decode(word, "BNR", **form)
    return read.label, f"read {read.value} with status {read.ssm}"


for status in (3, 0):
    for value in (45, -45):
        _, text = shown(encoded(value, status, scale=DEGREES).bword, scale=DEGREES)
        print(f"{value} with status {status}: {text}")
label, text = shown(encoded(45, 3, scale=DEGREES).word, scale=DEGREES)
print(f"45 with status 3, as a number: label {label:#o}, {text}")
_, text = shown(encoded(-45, 3, lsb=14, msb=28).bword, lsb=14, msb=28)
print(f"-45 of a whole number with bits 14 to 28: {text}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
