#!/bin/sh
# advlib-ble-manufacturers 1.14.0 (npm, advertisements of Bluetooth sensors): of a Ruuvi Air a room with 40,000 ppm of carbon
# dioxide has -25,536, and a temperature that it does not have is -163.84 degrees.
#
# Data format 6 has carbon dioxide as an unsigned number of two bytes, from 0 to 40,000 ppm, and 0x8000 for a temperature that
# is not available (Ruuvi, "Data format 6"). The library reads the gas with a sign; and it compares the temperature with 32768
# after it has read it with a sign, which it cannot be then. Humidity, pressure and particles that are not available it leaves
# out. Nothing is raised. ruuvitag-sensor 4.1.0 (PyPI) reads what was meant. Seen (what was sent; this library;
# ruuvitag-sensor):
#
#   21.5 degrees, 600 ppm: 21.5, 600; 21.5, 600
#   21.5 degrees, 32767 ppm: 21.5, 32767; 21.5, 32767
#   21.5 degrees, 40000 ppm: 21.5, -25536; 21.5, 40000
#   no temperature, 600 ppm: -163.84, 600; None, 600
#   no temperature, no gas: -163.84, None; None, None
#
# Needs python3 and Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q ruuvitag-sensor==4.1.0
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts advlib-ble-manufacturers@1.14.0 > log 2>&1 ||
    { tail -n 20 log; exit 1; }
cat > look.js <<'END'
const { processManufacturerSpecificData: read } = require('advlib-ble-manufacturers');

const { temperature = null, carbonDioxideConcentration = null } = read(0x0499, process.argv[2]);
console.log(JSON.stringify([temperature, carbonDioxideConcentration]));
END
cat > look.py <<'END'
import json
import struct
import subprocess

from ruuvitag_sensor.decoder import Df6Decoder

NO_TEMPERATURE, NO_GAS = 0x8000, 0xFFFF

for name, temperature, gas in (
    ("21.5 degrees, 600 ppm", 4300, 600),
    ("21.5 degrees, 32767 ppm", 4300, 32767),
    ("21.5 degrees, 40000 ppm", 4300, 40000),
    ("no temperature, 600 ppm", NO_TEMPERATURE, 600),
    ("no temperature, no gas", NO_TEMPERATURE, NO_GAS),
):
    rest = bytes([50, 0, 100, 0xFF, 1, 0]) + bytes.fromhex("a1b2c3")
    data = (struct.pack(">BHHHHH", 6, temperature, 20000, 51300, 123, gas) + rest).hex()
    ours = json.loads(subprocess.run(["node", "look.js", data], check=True, stdout=-1).stdout)
    other = Df6Decoder().decode_data(data)
    theirs = [other["temperature"], other["co2"]]
    print(f"{name}: {', '.join(map(str, ours))}; {', '.join(map(str, theirs))}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
