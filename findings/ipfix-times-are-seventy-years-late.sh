#!/bin/sh
# ipfix 0.9.7 (PyPI, flows of networks): a time in microseconds or nanoseconds is 70 years late, and one that it writes
# is 70 years too early for everybody else; times in seconds and milliseconds are right.
#
# dateTimeMicroseconds and dateTimeNanoseconds are NTP timestamps, seconds since 1900 and a fraction (RFC 7011, 6.1.9
# and 6.1.10; RFC 5905); the other two count from 1970 (6.1.7, 6.1.8). The library counts all four from
# 1970. It reads back what it wrote, so that its own tests find nothing. Of a flow whose start is sent in
# milliseconds and whose end in microseconds the duration is 70 years. Nothing is raised. ntplib 0.4.0 has
# the NTP time. Seen (2026-11-30 12:00:00.25 as an exporter sends it; then as the library writes it, read as NTP time):
#
#   flowStartSeconds: 2026-11-30 12:00:00
#   flowStartMilliseconds: 2026-11-30 12:00:00.250000
#   flowStartMicroseconds: 2096-11-29 12:00:00.250000
#   flowStartNanoseconds: 2096-11-29 12:00:00.250000
#   flowStartMicroseconds, written: 1956-11-30 12:00:00.250000
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q ipfix==0.9.7 ntplib==0.4.0 setuptools==80.9.0
cd "$work"
cat > look.py <<'END'
import datetime
import struct

import ipfix.ie
import ipfix.message
import ipfix.template
import ntplib

ipfix.ie.use_iana_default()
UTC = datetime.timezone.utc
TIME = datetime.datetime(2026, 11, 30, 12, 0, 0, 250_000, UTC)
NTP = struct.pack("!II", int(ntplib.system_to_ntp_time(TIME.timestamp())), 1 << 30)
FIELDS = {
    "flowStartSeconds": (150, struct.pack("!I", int(TIME.timestamp()))),
    "flowStartMilliseconds": (152, struct.pack("!Q", int(TIME.timestamp() * 1000))),
    "flowStartMicroseconds": (154, NTP),
    "flowStartNanoseconds": (156, NTP),
}


def message(number, value):
    """Return an IPFIX message with a template of one field, and one record."""
    template = struct.pack("!HHHHHH", 2, 12, 256, 1, number, len(value))
    data = struct.pack("!HH", 256, 4 + len(value)) + value
    head = struct.pack("!HHIII", 10, 16 + len(template) + len(data), int(TIME.timestamp()), 0, 1)
    return head + template + data


for name, (number, value) in FIELDS.items():
    buffer = ipfix.message.MessageBuffer()
    buffer.from_bytes(message(number, value))
    (record,) = buffer.namedict_iterator()
    print(f"{name}: {record[name]}")
name = "flowStartMicroseconds"
buffer = ipfix.message.MessageBuffer()
buffer.begin_export(1)
buffer.add_template(ipfix.template.from_ielist(256, ipfix.ie.spec_list((name,))))
buffer.export_new_set(256)
buffer.export_namedict({name: TIME.replace(tzinfo=None)})
seconds, fraction = struct.unpack("!II", bytes(buffer.to_bytes())[-8:])
read = ntplib.ntp_to_system_time(seconds + fraction / 2**32)
print(f"{name}, written: {datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=read)}")
END
"$work/venv/bin/python" -W ignore look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
