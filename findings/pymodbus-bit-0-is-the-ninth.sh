#!/bin/sh
# pymodbus 3.16.1: of a register as bits, the lowest bit is the ninth, and the highest the eighth; with two
# registers in the order "little" the words are turned and the bytes are not.
#
# A register is one number of 16 bits that comes with its higher byte first (MODBUS Application Protocol 1.1b3,
# 4.2), and status words count their bits from the lowest (SunSpec's bitfield16, for one). DATATYPE.BITS goes byte by
# byte, as coils do, and so begins in the middle. It does so in both directions, so what it writes it reads; of a
# device with eight flags the first eight bits are never set. pyModbusTCP 0.3.0 counts from the lowest.
# Seen (a register, which of its bits are set as each says; and two registers, low word first):
#
#   0x0001, as UINT16 1: pymodbus [8], pyModbusTCP [0]
#   0x0005, as UINT16 5: pymodbus [8, 10], pyModbusTCP [0, 2]
#   0x0100, as UINT16 256: pymodbus [0], pyModbusTCP [8]
#   0x8000, as UINT16 32768: pymodbus [7], pyModbusTCP [15]
#   0x0001 0x0000, as UINT32 in order little 1: pymodbus [24], pyModbusTCP [0]
#   bit 0 alone, written: 0x0100
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pymodbus==3.16.1 pyModbusTCP==0.3.0
cd "$work"
cat > look.py <<'END'
from pymodbus.client.mixin import ModbusClientMixin
from pyModbusTCP.utils import get_bits_from_int

read, TYPE = ModbusClientMixin.convert_from_registers, ModbusClientMixin.DATATYPE


def which(bits):
    return [number for number, bit in enumerate(bits) if bit]


for register in (0x0001, 0x0005, 0x0100, 0x8000):
    print(
        f"{register:#06x}, as UINT16 {read([register], TYPE.UINT16)}: "
        f"pymodbus {which(read([register], TYPE.BITS))}, pyModbusTCP {which(get_bits_from_int(register))}"
    )
two = [0x0001, 0x0000]
number = read(two, TYPE.UINT32, "little")
print(
    f"0x0001 0x0000, as UINT32 in order little {number}: "
    f"pymodbus {which(read(two, TYPE.BITS, 'little'))}, pyModbusTCP {which(get_bits_from_int(number, 32))}"
)
(register,) = ModbusClientMixin.convert_to_registers([True] + 15 * [False], TYPE.BITS)
print(f"bit 0 alone, written: {register:#06x}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
