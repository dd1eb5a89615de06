#!/bin/sh
# python-diameter 0.9.0: a time from February 2036 on is sent as one an hour later, and one that others send is read
# as an hour earlier.
#
# A Time of Diameter is the first 32 bits of an NTP timestamp, the seconds since 1900, which begin again with 0 at
# 06:28:16 UTC on February 7, 2036 (RFC 6733, 4.3.1, by which each node must take those below 2**31 so). The
# library names that second in its documentation and begins at 05:28:16, in whatever zone it runs; the last hour
# before is sent as the first one behind it. Both directions have the same mistake, so that it reads back what it
# wrote; a contract, a certificate or a quota that ends in 2040 ends an hour later for all others.
# Before that hour all is right. Seen (seconds that must be sent, those that are, and how it reads the right ones):
#
#   1970-01-01 00:00:00: 2208988800, sent 2208988800, read 1970-01-01 00:00:00
#   2036-02-07 05:28:15: 4294963695, sent 4294963695, read 2036-02-07 05:28:15
#   2036-02-07 05:28:16: 4294963696, sent 0, read 2036-02-07 05:28:16
#   2036-02-07 06:28:16: 0, sent 3600, read 2036-02-07 05:28:16
#   2040-01-01 00:00:00: 123010304, sent 123013904, read 2039-12-31 23:00:00
#   2100-07-01 12:00:00: 2032147904, sent 2032151504, read 2100-07-01 11:00:00
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q python-diameter==0.9.0
cd "$work"
cat > look.py <<'END'
from datetime import UTC, datetime

from diameter.message.avp import AvpTime
from diameter.message.constants import AVP_EVENT_TIMESTAMP

BEGIN = datetime(1900, 1, 1, tzinfo=UTC)

for time in (
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2036, 2, 7, 5, 28, 15, tzinfo=UTC),
    datetime(2036, 2, 7, 5, 28, 16, tzinfo=UTC),
    datetime(2036, 2, 7, 6, 28, 16, tzinfo=UTC),
    datetime(2040, 1, 1, tzinfo=UTC),
    datetime(2100, 7, 1, 12, tzinfo=UTC),
):
    right = int((time - BEGIN).total_seconds()) % 2**32
    avp = AvpTime(code=AVP_EVENT_TIMESTAMP)
    avp.value = time
    assert avp.value.astimezone(UTC) == time  # it is in local time, without a zone
    read = AvpTime(code=AVP_EVENT_TIMESTAMP, payload=right.to_bytes(4)).value.astimezone(UTC)
    print(f"{time:%F %T}: {right}, sent {int.from_bytes(avp.payload)}, read {read:%F %T}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
