#!/bin/sh
# victron-ble 0.9.3: a battery whose charge is not known is 102.3 % full, one whose current is not known discharges,
# and one whose sensor has no temperature has 382.2 degrees.
#
# Each field of the adverts of Victron's devices has a value for "not available" (Victron, "Extra Manufacturer Data",
# column "NA Value"): 0x3FF for the ten bits of the charge, 0x3FFFFF for the 22 bits of a battery's current, 0xFFFF
# for its temperature and its midpoint voltage. The library looks for 0x3FFF in the charge of a Lynx BMS, which ten
# bits never are, and for 0x3FFFFF after it has read the current with its sign, by when it is -1. The charge of a
# battery monitor and the other fields are None, as one expects. Seen:
#
#   battery monitor: soc None, voltage None, remaining_mins None, current -0.001
#   battery monitor, temperature: 382.2; midpoint voltage: 655.35
#   Lynx Smart BMS: soc 102.3, voltage None, current None, battery_temperature None
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q victron-ble==0.9.3
cd "$work"
cat > look.py <<'END'
from Crypto.Cipher import AES
from Crypto.Util import Counter
from victron_ble.devices.battery_monitor import BatteryMonitor
from victron_ble.devices.lynx_smart_bms import LynxSmartBMS

KEY = bytes(range(16))


def advert(kind, *fields):
    """The fields, each a value and its bits from the lowest on, as a device would send them."""
    record = bits = 0
    for value, size in fields:
        record |= value << bits
        bits += size
    counter = Counter.new(128, initial_value=1, little_endian=True)
    plain = record.to_bytes((bits + 7) // 8, "little")
    hidden = AES.new(KEY, AES.MODE_CTR, counter=counter).encrypt(plain)
    return bytes([0x10, 0, 0x89, 0xA3, kind, 1, 0, KEY[0]]) + hidden


def monitor(auxiliary):
    data = BatteryMonitor(KEY.hex()).parse(
        advert(
            2,
            (0xFFFF, 16),  # minutes to go
            (0x7FFF, 16),  # voltage
            (0, 16),  # alarm
            (0xFFFF, 16),  # the auxiliary input
            (auxiliary, 2),
            (0x3FFFFF, 22),  # current
            (0xFFFFF, 20),  # consumed
            (0x3FF, 10),  # charge
        )
    )
    return data


cold = monitor(2)
print(
    f"battery monitor: soc {cold.get_soc()}, voltage {cold.get_voltage()}, "
    f"remaining_mins {cold.get_remaining_mins()}, current {cold.get_current()}"
)
middle = monitor(1).get_midpoint_voltage()
print(f"battery monitor, temperature: {cold.get_temperature()}; midpoint voltage: {middle}")
lynx = LynxSmartBMS(KEY.hex()).parse(
    advert(
        10,
        (0, 8),  # error
        (0xFFFF, 16),  # minutes to go
        (0x7FFF, 16),  # voltage
        (0x7FFF, 16),  # current
        (0, 16),
        (0, 18),
        (0x3FF, 10),  # charge
        (0xFFFFF, 20),  # consumed
        (0x7F, 7),  # temperature
    )
)
print(
    f"Lynx Smart BMS: soc {lynx.get_soc()}, voltage {lynx.get_voltage()}, "
    f"current {lynx.get_current()}, battery_temperature {lynx.get_battery_temperature()}"
)
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
