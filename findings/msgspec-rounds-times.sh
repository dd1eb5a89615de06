#!/bin/sh
# msgspec 0.22.0 rounds the time of a record to the next microsecond where Python and msgpack 1.2.4 cut
# it off: of nanoseconds, as Go and Java send them, the same bytes are two instants, which may lie in
# two seconds, days or years; and of the last time of the calendar msgspec makes an error.
#
# So a record that was read by msgspec in one program and by another library in the next is not found
# again by its time, and one of 23:59:59.9999999 belongs to another day. Seen (times in UTC):
#
#   RFC 3339 by msgspec: 2020-01-01 00:00:00, by Python: 2019-12-31 23:59:59.999999
#   MessagePack by msgspec: 2020-01-01 00:00:00, by msgpack: 2019-12-31 23:59:59.999999
#   9999-12-31T23:59:59.9999999Z by msgspec: ValidationError, by Python: 9999-12-31 23:59:59.999999
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q msgspec==0.22.0 msgpack==1.2.4 python-dateutil==2.9.0
cd "$work"
cat > look.py <<'END'
import datetime

import msgpack
import msgspec
from dateutil.parser import isoparse

LAST = "9999-12-31T23:59:59.9999999Z"


def shown(time):
    return time.astimezone(datetime.timezone.utc).replace(tzinfo=None)


def by_python(text):
    # Before Python 3.11 `fromisoformat` takes neither Z nor seven digits.
    return isoparse(text)


text = "2019-12-31T23:59:59.9999999Z"
ours = msgspec.convert(text, datetime.datetime)
print(f"RFC 3339 by msgspec: {shown(ours)}, by Python: {shown(by_python(text))}")
packed = msgpack.packb(msgpack.Timestamp(1577836799, 999_999_900))
ours = msgspec.msgpack.decode(packed)
print(f"MessagePack by msgspec: {shown(ours)}, by msgpack: {shown(msgpack.unpackb(packed, timestamp=3))}")
try:
    told = shown(msgspec.convert(LAST, datetime.datetime))
except msgspec.ValidationError as error:
    told = type(error).__name__
print(f"{LAST} by msgspec: {told}, by Python: {by_python(LAST).replace(tzinfo=None)}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
