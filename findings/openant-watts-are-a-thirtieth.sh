#!/bin/sh
# openant 1.3.4 (ANT+): a power meter that sends torque has a thirtieth of its watts, until its counter of time turns
# over; a count of turns that turns over is millions of turns a minute backwards; and frost is 655 degrees.
#
# Such a meter sends sums: of torque in 1/32 Nm and of time in 1/2048 s, each in 16 bits which begin again at 0, and
# the receiver takes differences modulo 65536 (ANT+ Device Profile, Bicycle Power, "Crank Torque"). For time the
# library adds 65536 and takes no remainder, as it does for torque two lines above: each difference is 32 seconds too
# long, and the angular velocity and the power are too small by as much. Cadence is the difference of turns by
# that of time, without a remainder for the turns. The thermometer's temperature has a sign (ANT+ Environment
# profile); it is read without. Seen:
#
#   200 W at 80 rpm, by torque: 4 W
#   the same when the time has turned over: 200 W
#   same meter, page "power only": 200 W
#   80 rpm when the turns have turned over: -5242800 rpm
#   thermometer at 21.5 degrees: 21.5; at -0.5: 654.86
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q openant==1.3.4
cd "$work"
cat > look.py <<'END'
import math
from unittest.mock import MagicMock

from openant.devices.bike_speed_cadence import BikeCadence
from openant.devices.environment import Environment
from openant.devices.power_meter import PowerMeter


def words(*values):
    return [byte for value in values for byte in (value % 65536).to_bytes(2, "little")]


TURN = 1536  # of 0.75 s, in 1/2048 s: 80 turns a minute
TORQUE = round(32 * 200 / (2 * math.pi / 0.75))  # of 200 W


def watts(time, power_only=False):
    """The power after one turn of the crank that begins at `time`, as the device hands it out."""
    seen = []
    meter = PowerMeter(MagicMock())
    meter.on_device_data = lambda page, name, data: seen.append(data.average_power)
    for count in range(2):
        if power_only:
            meter.on_data([0x10, count, 0xFF, 80, *words(200 * count, 200)])
        else:
            meter.on_data([0x12, count, count, 80, *words(time + TURN * count, TORQUE * count)])
    return seen[-1]


print(f"200 W at 80 rpm, by torque: {watts(5000)} W")
print(f"the same when the time has turned over: {watts(65000)} W")
print(f'same meter, page "power only": {watts(0, True)} W')
cadence = BikeCadence(MagicMock())
for count in range(2):
    cadence.on_data([5, 0, 0, 0, *words(1024 + 768 * count, 65535 + count)])
rpm = cadence.data["bike_cadence"].calculated_cadence
print(f"80 rpm when the turns have turned over: {rpm:.0f} rpm")
seen = []
for degrees in (21.5, -0.5):
    thermometer = Environment(MagicMock())
    thermometer.on_data([1, 0, 0, 0, 0, 0, *words(int(degrees * 100))])
    seen.append(thermometer.data["environment"].temperature)
print(f"thermometer at 21.5 degrees: {seen[0]}; at -0.5: {seen[1]}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
