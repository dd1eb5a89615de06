#!/bin/sh
# npTDMS 1.13.0 writes an array whose bytes are in the other order, as those of a device's packets are, as other
# numbers.
#
# TdmsWriter looks up the type without its byte order and writes the array's memory as it lies, into a segment
# that is said to be little-endian: 1 is 256, and 1.5 is a number near zero. numpy has the array's values right
# until then, and other things that are done with it, sums or plots, are right, too; numpy.frombuffer with ">"
# is the usual way to read what came from a network. No error is raised. Seen:
#
#   int16 of a packet, to be written: [1, 2, -1]
#   as they are, read: [256, 512, -1]
#   turned, read: [1, 2, -1]
#   float64 1.5 and -2.0, read: [3.13984e-319, 9.5e-322]
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q npTDMS==1.13.0 numpy==2.4.6
cd "$work"
cat > look.py <<'END'
import io

import numpy
from nptdms import ChannelObject, TdmsFile, TdmsWriter


def written(values):
    file = io.BytesIO()
    with TdmsWriter(file) as writer:
        writer.write_segment([ChannelObject("group", "channel", values)])
    file.seek(0)
    return TdmsFile.read(file)["group"]["channel"][:].tolist()


packet = bytes.fromhex("0001 0002 ffff")
print("int16 of a packet, to be written:", numpy.frombuffer(packet, ">i2").tolist())
print("as they are, read:", written(numpy.frombuffer(packet, ">i2")))
print("turned, read:", written(numpy.frombuffer(packet, ">i2").astype("<i2")))
print("float64 1.5 and -2.0, read:", written(numpy.array([1.5, -2.0], ">f8")))
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
