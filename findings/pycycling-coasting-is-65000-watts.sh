#!/bin/sh
# pycycling 0.4.1 (power meters and heart rate belts by Bluetooth): a power below zero is above 65000 watts, and a
# belt that has lost the skin has contact.
#
# The power is a number with a sign, and so are the least and greatest force and torque of a turn (Cycling Power
# Service 1.1, Cycling Power Measurement; sint16 in the GATT Specification Supplement). Trainers send small negative
# values where the wheel turns the motor, and the least torque of each turn is negative for most riders. The library
# reads them all without a sign, though it has one for the power of indoor bikes. Of the belt's two bits one says that
# it can tell contact, the other that there is contact (Heart Rate Service 1.0, 3.1.1.1.2); the library takes either
# for contact, so that the belt that lies on a table has it as well, and only one that cannot tell has none. Seen:
#
#   power 250 W: 250
#   power -3 W: 65533
#   torque of a turn from -1 to 40 Nm (in 1/32 Nm): 65504 to 1280
#   cannot tell contact: False; contact: True; no contact: True
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pycycling==0.4.1
cd "$work"
cat > look.py <<'END'
import asyncio
import struct

from pycycling.cycling_power_service import CyclingPowerService
from pycycling.heart_rate_service import HeartRateService


class Device:
    """A device that sends one notification as soon as one asks for them."""

    def __init__(self, data):
        self.data = data

    async def start_notify(self, characteristic, handler):
        handler(characteristic, bytearray(self.data))


def power(data):
    seen = []
    service = CyclingPowerService(Device(data))
    service.set_cycling_power_measurement_handler(seen.append)
    asyncio.run(service.enable_cycling_power_measurement_notifications())
    return seen[0]


def contact(flags):
    seen = []
    service = HeartRateService(Device([flags, 60]))
    service.set_hr_measurement_handler(seen.append)
    asyncio.run(service.enable_hr_measurement_notifications())
    return seen[0].sensor_contact


for watts in (250, -3):
    print(f"power {watts} W: {power(struct.pack('<Hh', 0, watts)).instantaneous_power}")
turn = power(struct.pack("<Hhhh", 1 << 7, 250, 40 * 32, -1 * 32))
print(
    "torque of a turn from -1 to 40 Nm (in 1/32 Nm): "
    f"{turn.minimum_torque_magnitude} to {turn.maximum_torque_magnitude}"
)
print(f"cannot tell contact: {contact(0)}; contact: {contact(0b110)}; no contact: {contact(0b100)}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
