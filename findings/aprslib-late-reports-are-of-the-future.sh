#!/bin/sh
# aprslib 0.7.2: a report that was sent before midnight and is read behind it is of the end of this day or of this
# month, up to a month from now, and at times of 1970.
#
# A time of APRS has the day of the month and the time, or the time of day (APRS Protocol Reference 1.0.1,
# "Time Formats"): the rest must come from when it is read, as the latest such time that is not in the future.
# The library takes year, month and day of the reader's clock as they are; a day that this month does not have is
# 0, 1970. It takes local time (/) for UTC, too. A report from a buffer, or of the minute of midnight, sorts behind
# all others, and a watermark jumps. Seen (when it is read, the report's time, and the library's):
#
#   2024-03-01 00:00:05, 292358z: 2024-03-29 23:58:00
#   2024-03-01 00:00:05, 235958h: 2024-03-01 23:59:58
#   2024-02-01 00:00:05, 302358z: 1970-01-01 00:00:00
#   2025-01-01 00:00:05, 312358z: 2025-01-31 23:58:00
#   2024-03-15 12:00:00, 151159z: 2024-03-15 11:59:00
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q aprslib==0.7.2 freezegun==1.5.5
cd "$work"
cat > look.py <<'END'
import datetime

import aprslib
from freezegun import freeze_time

for now, sent in (
    ("2024-03-01 00:00:05", "292358z"),
    ("2024-03-01 00:00:05", "235958h"),
    ("2024-02-01 00:00:05", "302358z"),
    ("2025-01-01 00:00:05", "312358z"),
    ("2024-03-15 12:00:00", "151159z"),
):
    with freeze_time(now):
        report = aprslib.parse(f"N0CALL>APRS,TCPIP*:@{sent}4903.50N/07201.75W>")
    at = datetime.datetime.fromtimestamp(report["timestamp"], datetime.timezone.utc)
    print(f"{now}, {sent}: {at:%Y-%m-%d %H:%M:%S}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
