#!/bin/sh
# obd 0.7.3 (PyPI, python-OBD): of fuel vapour 32 Pa above the air are 32 below it, and 100 are 36; oxygen sensors 1 and
# 2 of bank 1 are 4 and 3 of bank 2; a power take-off that is on is off, and on when a bit of no meaning is set.
#
# The vapour pressure is one number of two bytes with a sign, a quarter of a pascal each (PID 32, hexadecimal); sensors
# 1 to 4 of bank 1 are bits 0 to 3 of a byte, those of bank 2 bits 4 to 7 (PID 13), of four banks of two in the same
# order (PID 1D); the power take-off is bit 0 (PID 1E; SAE J1979, appendix B). The library gives each of the two bytes a
# sign, and reads bits from the highest on. Nothing is raised. Seen (bytes, number with a sign or bits set, obd):
#
#   vapour 007f, 31.75 Pa: 31.75 Pa
#   vapour 0080, 32 Pa: -32.0 Pa
#   vapour 00ff, 63.75 Pa: -0.25 Pa
#   vapour 0190, 100 Pa: 36.0 Pa
#   vapour ff80, -32 Pa: -96.0 Pa
#   vapour fe0c, -125 Pa: -125.0 Pa
#   sensors 03, of bank 1: bank 1 [], bank 2 [3, 4]
#   sensors 11, of bank 1 and 2: bank 1 [4], bank 2 [4]
#   sensors 30, of bank 2: bank 1 [3, 4], bank 2 []
#   sensors of four banks 05: [[], [], [2], [2]]
#   sensors of four banks 50: [[2], [2], [], []]
#   power take-off 01, on: off
#   power take-off 00, off: off
#   power take-off 80, off: on
#
# Needs python3. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q obd==0.7.3
cd "$work"
cat > look.py <<'END'
import obd
from obd.protocols import ISO_15765_4_11bit_500k

bus = ISO_15765_4_11bit_500k(["7E8 06 41 00 FF FF FF FF FC"])


def ask(name, data):
    command = obd.commands[name]
    answer = bytes([0x41]) + bytes.fromhex(command.command.decode()[2:]) + data
    return command(bus([f"7E8 {len(answer):02X} {answer.hex(' ').upper()}"])).value


for pressure in (31.75, 32, 63.75, 100, -32, -125):
    data = int(pressure * 4).to_bytes(2, "big", signed=True)
    print(f"vapour {data.hex()}, {pressure} Pa: {ask('EVAP_VAPOR_PRESSURE', data).magnitude} Pa")
for data, banks in ((b"\x03", "1"), (b"\x11", "1 and 2"), (b"\x30", "2")):
    found = [[number for number, there in enumerate(bank, 1) if there] for bank in ask("O2_SENSORS", data)[1:]]
    print(f"sensors {data.hex()}, of bank {banks}: bank 1 {found[0]}, bank 2 {found[1]}")
for data in (b"\x05", b"\x50"):
    found = [[number for number, there in enumerate(bank, 1) if there] for bank in ask("O2_SENSORS_ALT", data)[1:]]
    print(f"sensors of four banks {data.hex()}: {found}")
for data, state in ((b"\x01", "on"), (b"\x00", "off"), (b"\x80", "off")):
    print(f"power take-off {data.hex()}, {state}: {'on' if ask('AUX_INPUT_STATUS', data) else 'off'}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
