#!/bin/sh
# ruuvitag-sensor 4.1.0, data format 5 (RAWv2): counts that the tag does not have are 255 movements and
# measurement 65535, and when one axis is missing all three accelerations are.
#
# Format 5 has a number for "not available" in each field: 0x8000 where it is signed, else all ones; the
# first line is the format's own example, of which Ruuvi's page says that no field has a value. The
# library says None for the measured values and gives the two counts as numbers. Who finds lost messages
# by the number of the measurement sees a gap of thousands, and who subtracts counts of movement sees a
# tag that is moved hard. Seen (what has a value though it has none, or none though it has one):
#
#   nothing available: movement_counter 255, measurement_sequence_number 65535
#   all fields at their greatest: nothing
#   only acceleration_x not available: acceleration_y None, acceleration_z None
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q ruuvitag-sensor==4.1.0
cd "$work"
cat > look.py <<'END'
from ruuvitag_sensor.decoder import Df5Decoder

FIELDS = (
    "temperature",
    "humidity",
    "pressure",
    "acceleration_x",
    "acceleration_y",
    "acceleration_z",
    "battery",
    "tx_power",
    "movement_counter",
    "measurement_sequence_number",
)

for what, given, missing in (
    ("nothing available", "058000FFFFFFFF800080008000FFFFFFFFFFFFFFFFFFFFFF", FIELDS),
    ("all fields at their greatest", "057FFFFFFEFFFE7FFF7FFF7FFFFFDEFEFFFECBB8334C884F", ()),
    (
        "only acceleration_x not available",
        "0512FC5394C37C8000FFFC040CAC364200CDCBB8334C884F",
        ("acceleration_x",),
    ),
):
    read = Df5Decoder().decode_data(given)
    wrong = [f"{name} {read[name]}" for name in FIELDS if (read[name] is None) != (name in missing)]
    print(f"{what}: {', '.join(wrong) or 'nothing'}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
