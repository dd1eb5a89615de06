#!/bin/sh
# spacepackets 0.32.0 (CCSDS and ECSS): every second time is a millisecond too early when it goes into a packet;
# those before 1970 are up to a day wrong, both when they are written and when they are read.
#
# A short CDS time is the day since 1958 and the millisecond of the day, both counted upwards (CCSDS 301.0-B-4,
# 3.3). The library takes the fraction of a float of seconds times 1000 and cuts it off, so that of the times with
# whole milliseconds, as clocks of instruments have them, half lose one; two packets may so seem to have one time.
# Before 1970 it subtracts the time of day from the day when it reads, and takes the day after when it writes: a
# clock that has not been set yet and counts from 1958 runs backwards. And a time to which something is added is
# itself changed; where that ends at midnight, the millisecond of the day is 86400000, of the old day. Seen:
#
#   2024-01-01 12:00:00.000 to .999 written: 496 of 1000 are one millisecond less
#   12:00:00.007 is 12:00:00.006, 12:00:00.011 is 12:00:00.010
#   day 0 since 1958, 06:00 read: 1957-12-31 18:00
#   day 0 since 1958, 07:00 read: 1957-12-31 17:00
#   1969-12-31 12:00 written: day 4383 since 1958, which is 1970-01-01, 12:00
#   23:00 and an hour: day 24106, 86400000 ms; the time it was added to is the same object: True
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q spacepackets==0.32.0
cd "$work"
cat > look.py <<'END'
from datetime import UTC, datetime, timedelta

from spacepackets.ccsds.time import CdsShortTimestamp

BEGIN = datetime(1958, 1, 1, tzinfo=UTC)


def written(time):
    """The day since 1958 and the time of day that stand in the seven bytes"""
    raw = bytes(CdsShortTimestamp.from_datetime(time).pack())
    return int.from_bytes(raw[1:3]), timedelta(milliseconds=int.from_bytes(raw[3:7]))


noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
less = 0
for millisecond in range(1000):
    time = noon + timedelta(milliseconds=millisecond)
    day, of_day = written(time)
    late = time - (BEGIN + timedelta(days=day) + of_day)
    assert late in (timedelta(0), timedelta(milliseconds=1))
    less += bool(late)
print(f"{noon:%F %T}.000 to .999 written: {less} of 1000 are one millisecond less")
texts = []
for millisecond in (7, 11):
    day, of_day = written(noon + timedelta(milliseconds=millisecond))
    texts.append(f"12:00:00.{millisecond:03} is {str(of_day)[:12]}")
print(", ".join(texts))
for hour in (6, 7):
    read = CdsShortTimestamp.unpack(bytes([0x40, 0, 0]) + (hour * 3_600_000).to_bytes(4)).as_datetime()
    print(f"day 0 since 1958, {hour:02}:00 read: {read:%F %H:%M}")
day, of_day = written(datetime(1969, 12, 31, 12, tzinfo=UTC))
date = BEGIN + timedelta(days=day)
print(f"1969-12-31 12:00 written: day {day} since 1958, which is {date:%F}, {str(of_day)[:5]}")
before = CdsShortTimestamp.from_datetime(noon.replace(hour=23))
after = before + timedelta(hours=1)
print(
    f"23:00 and an hour: day {after.ccsds_days}, {after.ms_of_day} ms;",
    f"the time it was added to is the same object: {after is before}",
)
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
