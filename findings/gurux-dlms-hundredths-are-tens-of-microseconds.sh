#!/bin/sh
# gurux-dlms 1.0.203 (DLMS/COSEM, the protocol of meters): half a second of a time of day is half a millisecond when
# it is read, and none when it is sent back.
#
# The fourth byte of a `time` is the hundredth of the second, 0 to 99, or FF where there is none, as the ninth of
# the twelve of a `date-time` is (IEC 62056-6-2, "Date and time formats"). The library reads that of a date-time as
# hundredths, and as tens of microseconds if the time stands alone, as the times of tariffs and schedules do. Of
# microseconds it writes whole hundredths, so that what was read is written back as 0, which says that there is a
# hundredth and it is the first. Nothing is raised. Seen (12:30:15 and the hundredths that the byte has):
#
#   date-time, 50 hundredths (32): 12:30:15.500000, sent again as 32
#   date-time, 99 hundredths (63): 12:30:15.990000, sent again as 63
#   time, 50 hundredths (32): 12:30:15.000500, sent again as 00
#   time, 99 hundredths (63): 12:30:15.000990, sent again as 00
#   time, none (ff): 12:30:15.000000, sent again as ff
#   12:30:15.99 of Python: date-time 63, time 63
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q gurux-dlms==1.0.203
cd "$work"
cat > look.py <<'END'
from datetime import UTC, datetime

from gurux_dlms import GXByteBuffer, GXDateTime, GXDLMSClient, GXTime
from gurux_dlms.enums import DataType
from gurux_dlms.internal._GXCommon import _GXCommon

CLOCK = bytes((12, 30, 15))
PLACES = {DataType.DATETIME: 9, DataType.TIME: 4}


def sent(value, kind):
    """The byte of the hundredth, of what stands behind the byte that names the type"""
    buffer = GXByteBuffer()
    _GXCommon.setData(GXDLMSClient().settings, buffer, kind, value)
    return bytes.fromhex(str(buffer))[PLACES[kind]]


for name, kind, hundredth in (
    ("date-time", DataType.DATETIME, 50),
    ("date-time", DataType.DATETIME, 99),
    ("time", DataType.TIME, 50),
    ("time", DataType.TIME, 99),
    ("time", DataType.TIME, 255),
):
    raw = CLOCK + bytes((hundredth,))
    if kind == DataType.DATETIME:
        raw = (2024).to_bytes(2) + bytes((2, 3, 6)) + raw + bytes(3)
    read = GXDLMSClient.changeType(raw, kind)
    text = f"{hundredth} hundredths" if hundredth < 255 else "none"
    print(
        f"{name}, {text} ({hundredth:02x}): {read.value:%H:%M:%S.%f},",
        f"sent again as {sent(read, kind):02x}",
    )
time = datetime(2024, 2, 3, 12, 30, 15, 990_000, tzinfo=UTC)
both = sent(GXDateTime(time), DataType.DATETIME), sent(GXTime(time), DataType.TIME)
print("12:30:15.99 of Python: date-time {:02x}, time {:02x}".format(*both))
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
