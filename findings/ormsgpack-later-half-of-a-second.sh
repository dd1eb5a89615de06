#!/bin/sh
# ormsgpack 1.13.1: a time in the later half of its second is written without its fraction, and from 2106
# on as one of 136 years before.
#
# With OPT_DATETIME_AS_TIMESTAMP_EXT a time is MessagePack's extension -1. The form of 64 bits has the
# nanoseconds in its upper 30 bits; from 0.536870912 s on (2**29 ns) the topmost of the 64 is set, and
# then the library writes the form of 32 bits, which has seconds alone. 46 in 100 of all times lose up
# to a second, so that events which came one after another change places; and what does not fit into 32
# bits is cut. Times before 1970 have the form of 96 bits and are right, as is all that msgpack 1.2.4
# writes. Seen (the time, what each wrote, and as what it is read again by msgpack):
#
#   2026-01-01 12:00:00.536870: ormsgpack d7ff7ffff1c0695661c0, msgpack the same, 2026-01-01 12:00:00.536870
#   2026-01-01 12:00:00.536871: ormsgpack d6ff695661c0, msgpack d7ff80000160695661c0, 2026-01-01 12:00:00
#   2026-01-01 12:00:00.999999: ormsgpack d6ff695661c0, msgpack d7ffee6b1860695661c0, 2026-01-01 12:00:00
#   2026-01-01 12:00:01.000001: ormsgpack d7ff00000fa0695661c1, msgpack the same, 2026-01-01 12:00:01.000001
#   2107-01-01 00:00:00.750000: ormsgpack d6ff01b01100, msgpack d7ffb2d05e0101b01100, 1970-11-24 17:31:44
#   1969-12-31 23:59:59.999999: ormsgpack c70cff3b9ac618ffffffffffffffff, msgpack the same, 1969-12-31 23:59:59.999999
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q ormsgpack==1.13.1 msgpack==1.2.4
cd "$work"
cat > look.py <<'END'
from datetime import datetime, timezone

import msgpack
import ormsgpack

for text in (
    "2026-01-01 12:00:00.536870",
    "2026-01-01 12:00:00.536871",
    "2026-01-01 12:00:00.999999",
    "2026-01-01 12:00:01.000001",
    "2107-01-01 00:00:00.750000",
    "1969-12-31 23:59:59.999999",
):
    time = datetime.fromisoformat(text).replace(tzinfo=timezone.utc)
    written = ormsgpack.packb(time, option=ormsgpack.OPT_DATETIME_AS_TIMESTAMP_EXT)
    other = msgpack.packb(time, datetime=True)
    again = msgpack.unpackb(written, timestamp=3).replace(tzinfo=None)
    print(
        f"{text}: ormsgpack {written.hex()},",
        f"msgpack {'the same' if other == written else other.hex()}, {again}",
    )
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
