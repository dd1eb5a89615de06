#!/bin/sh
# dlms-cosem 25.1.0: the time of an electricity meter that says its clock is UTC comes out without a
# zone, as that of a meter which says that its zone is not known; and written again it says so, too.
#
# A time of DLMS/COSEM has how many minutes UTC is from it, and 0x8000 for "not specified" (Blue Book,
# 4.1.6.1). Of 0 the library makes None. So a meter in London, Dublin or Lisbon has times with a zone in
# summer and without one in winter: Python does not compare the two, and a reader that takes a time
# without a zone for its own is wrong by its own zone, half of the year. gurux_dlms 1.0.203 gives UTC
# for the same bytes. Seen (what UTC is from it, the zone by each library, and what is written again):
#
#   summer time, -60: dlms-cosem +1:00:00, gurux_dlms +1:00:00, again -60
#   an hour west, 60: dlms-cosem -1:00:00, gurux_dlms -1:00:00, again 60
#   winter time, 0: dlms-cosem no zone, gurux_dlms +0:00:00, again not specified
#   not specified: dlms-cosem no zone, gurux_dlms no zone, again not specified
#   winter and summer compared: TypeError
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q dlms-cosem==25.1.0 gurux_dlms==1.0.203
cd "$work"
cat > look.py <<'END'
from datetime import datetime

from dlms_cosem.time import datetime_from_bytes, datetime_to_bytes
from gurux_dlms import GXDLMSClient
from gurux_dlms.enums import DataType

NOT_SPECIFIED = -0x8000


def zone(time: datetime) -> str:
    if time.utcoffset() is None:
        return "no zone"
    minutes = time.utcoffset().total_seconds() / 60
    return f"{'-' if minutes < 0 else '+'}{abs(time.utcoffset())}"


def shown(deviation: int) -> str:
    return "not specified" if deviation == NOT_SPECIFIED else str(deviation)


found = {}
for name, month, deviation in (
    ("summer time", 7, -60),
    ("an hour west", 1, 60),
    ("winter time", 1, 0),
    ("", 1, NOT_SPECIFIED),
):
    # Year, month, day, day of the week (not said), hour, minute, second, hundredths.
    moment = (2026).to_bytes(2, "big") + bytes([month, 15, 0xFF, 12, 30, 0, 0])
    data = moment + deviation.to_bytes(2, "big", signed=True) + b"\0"
    found[name], _ = datetime_from_bytes(data)
    other = GXDLMSClient.changeType(data, DataType.DATETIME).value
    again = int.from_bytes(datetime_to_bytes(found[name])[9:11], "big", signed=True)
    label = ", ".join(filter(None, (name, shown(deviation))))
    print(
        f"{label}: dlms-cosem {zone(found[name])}, gurux_dlms {zone(other)}, again {shown(again)}"
    )
try:
    print("winter and summer compared:", found["winter time"] < found["summer time"])
except TypeError as error:
    print("winter and summer compared:", type(error).__name__)
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
