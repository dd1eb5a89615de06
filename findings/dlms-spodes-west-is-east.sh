#!/bin/sh
# dlms-spodes 0.74.13 (PyPI, electricity meters by DLMS/COSEM): a meter's time from New York is ten hours too early, as
# its zone is taken for one in the east; a zone in the east cannot be read, and what is written has the wrong one.
#
# The deviation is what is added to local time to have UTC: New York has +300 in winter, Berlin -60 (IEC 62056-6-2,
# 4.1.6.1; "in minutes of local time to UTC"). It is the other way round than the +01:00 of ISO 8601 and of Python,
# which the library has in mind; and it reads the number without its sign, so that Berlin raises an error. It writes +60
# for Berlin, and +1140 for New York, which is not allowed. pydlms-client 0.1.0 reads the same bytes. Seen (12:00:00
# with a deviation; then 12:00:00 in a zone, as bytes of the deviation):
#
#   deviation 0: dlms-spodes 2026-11-30 12:00:00+00:00; pydlms 2026-11-30 12:00:00+00:00
#   deviation 300: dlms-spodes 2026-11-30 07:00:00+00:00; pydlms 2026-11-30 17:00:00+00:00
#   deviation -60: dlms-spodes ValueError; pydlms 2026-11-30 11:00:00+00:00
#   12:00:00+01:00: dlms-spodes 60; pydlms -60
#   12:00:00-05:00: dlms-spodes 1140; pydlms 300
#
# Needs python3 (3.11 or later). Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q dlms-spodes==0.74.13 pydlms-client==0.1.0
cd "$work"
cp "$work"/venv/lib/python3*/site-packages/DLMS_SPODES/config.toml .
cat > look.py <<'END'
import contextlib
import datetime
import io

from pydlms.cosem.time import CosemDateTime

with contextlib.redirect_stdout(io.StringIO()):
    from DLMS_SPODES.types import cdt

UTC = datetime.timezone.utc
for deviation in (0, 300, -60):
    data = bytes.fromhex("07ea0b1e010c000000") + deviation.to_bytes(2, "big", signed=True) + b"\0"
    try:
        found = cdt.DateTime(bytes([cdt.DateTime.TAG[0]]) + data).decode().astimezone(UTC)
    except ValueError as error:
        found = type(error).__name__
    known = CosemDateTime.from_bytes(data).to_datetime().astimezone(UTC)
    print(f"deviation {deviation}: dlms-spodes {found}; pydlms {known}")
for hours in (1, -5):
    zone = datetime.timezone(datetime.timedelta(hours=hours))
    time = datetime.datetime(2026, 11, 30, 12, tzinfo=zone)
    written = bytes(cdt.DateTime(time).contents), CosemDateTime.from_datetime(time).to_bytes()
    found, known = (int.from_bytes(data[9:11], "big", signed=True) for data in written)
    print(f"{time.timetz()}: dlms-spodes {found}; pydlms {known}")
END
"$work/venv/bin/python" look.py 2> log | tee seen || { tail -n 20 log; exit 1; }
sed -n 's/^#   //p' "$this" > expected
diff expected seen
