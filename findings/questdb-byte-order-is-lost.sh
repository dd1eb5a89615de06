#!/bin/sh
# questdb 6.0.0, QuestDB's client: a column of a data frame whose bytes are in the other order, as those of a
# device's packets are, is sent as other numbers.
#
# `Buffer.dataframe` reads the memory of the column as if it were in the order of the machine, and so the table
# has 16777216 in place of 1. pandas shows the values as they are. What does not fit QuestDB's types, as a large
# uint64, raises an error; this does not. pyarrow 26.0.1 refuses such an array. Seen, of the line protocol:
#
#   int32 of a packet: pandas [1, 2], sent value=16777216i value=33554432i
#   turned: pandas [1, 2], sent value=1i value=2i
#   float64: pandas [1.5, -2.0], sent value=3.13984e-319 value=9.5e-322
#   pyarrow: Byte-swapped arrays not supported
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q questdb==6.0.0 pandas==3.1.1 numpy==2.4.6 pyarrow==26.0.1
cd "$work"
cat > look.py <<'END'
import numpy
import pandas
import pyarrow
from questdb.ingress import Buffer, TimestampNanos


def lines(name, column):
    frame = pandas.DataFrame({"value": column})
    buffer = Buffer(protocol_version=1)
    buffer.dataframe(frame, table_name="readings", at=TimestampNanos(0))
    sent = [line.split()[1].decode() for line in bytes(buffer).splitlines()]
    print(f"{name}: pandas {frame['value'].tolist()}, sent", *sent)


counts = numpy.frombuffer(bytes.fromhex("00000001 00000002"), ">i4")
lines("int32 of a packet", counts)
lines("turned", counts.astype("<i4"))
lines("float64", numpy.array([1.5, -2.0], ">f8"))
try:
    pyarrow.array(counts)
except pyarrow.ArrowNotImplementedError as error:
    print("pyarrow:", error)
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
