#!/bin/sh
# beacontools 2.1.0, the telemetry of Eddystone beacons: what is below zero is above 128 degrees, a beacon without
# a thermometer has 128 degrees, and the seconds since it was started are tenths.
#
# The temperature is a number with a sign, in 8.8 fixed point, and 0x8000 says that the beacon does not measure it
# (Eddystone specification, tlm-plain.md, "Field Notes"); a battery voltage of 0 says that there is no battery. The
# library reads it without a sign, so that half a degree of frost is the largest value there is. It has a sign for
# the power of the same beacons. An alarm for heat in a cold store rings at the first frost. The time since the start
# is counted in tenths of a second there, and `seconds_since_boot` is that count. Seen:
#
#   21.25 degrees: 21.25
#   0 degrees: 0.0
#   -0.5 degrees: 255.5
#   -20.0 degrees: 236.0
#   not measured, no battery: 128.0, voltage 0 mV
#   an hour after the start: seconds_since_boot 36000
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q beacontools==2.1.0
cd "$work"
cat > look.py <<'END'
import struct

from beacontools import parse_packet


def read(voltage, temperature):
    frame = struct.pack(">BBHHII", 0x20, 0, voltage, temperature & 0xFFFF, 1, 36000)
    service = b"\xaa\xfe" + frame
    return parse_packet(
        b"\x02\x01\x06\x03\x03\xaa\xfe" + bytes([len(service) + 1, 0x16]) + service
    )


for degrees in (21.25, 0, -0.5, -20.0):
    print(f"{degrees} degrees: {read(3000, int(degrees * 256)).temperature}")
none = read(0, 0x8000)
print(f"not measured, no battery: {none.temperature}, voltage {none.voltage} mV")
print(f"an hour after the start: seconds_since_boot {none.seconds_since_boot}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
