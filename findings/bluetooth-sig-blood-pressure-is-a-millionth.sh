#!/bin/sh
# bluetooth-sig 0.6.0 (values of Bluetooth's services): a blood pressure of 114 mmHg is 0.00000114, glucose is a
# hundred million times too little or a thousand times too much, and a body has 10 to the 129 degrees.
#
# Medical devices send decimal numbers of 16 or 32 bits, whose mantissa and exponent are both in two's complement
# (IEEE 11073-20601; Bluetooth's Personal Health Devices Transcoding White Paper, which has 0x0072 for 114 mmHg and
# 0xB076 for 0.00118 kg/l). The library takes 8 or 128 off the exponent as if it were stored with an excess, and
# writes it so, too: what it wrote it reads back, so that its own tests find nothing. Seen:
#
#   blood pressure, 0x0072: systolic 1.14e-06 mmHg
#   body temperature, 36.3 as 363 and -1: 3.63e+129
#   SFLOAT 0xB076, 0.00118: 118000.0
#   SFLOAT written for 114: 0x8072, read back: 114.0
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q bluetooth-sig==0.6.0
cd "$work"
cat > look.py <<'END'
import struct

from bluetooth_sig import BluetoothSIGTranslator
from bluetooth_sig.gatt.characteristics.utils.ieee11073_parser import IEEE11073Parser

translator = BluetoothSIGTranslator()
pressure = translator.parse_characteristic("2A35", struct.pack("<BHHH", 0, 0x0072, 0x0050, 0x005B))
print(f"blood pressure, 0x0072: systolic {pressure.systolic:.3g} {pressure.unit.value}")
body = translator.parse_characteristic("2A1C", struct.pack("<BI", 0, 0xFF00016B))
print(f"body temperature, 36.3 as 363 and -1: {body.temperature:.3g}")
print(f"SFLOAT 0xB076, 0.00118: {IEEE11073Parser.parse_sfloat(struct.pack('<H', 0xB076))}")
written = bytes(IEEE11073Parser.encode_sfloat(114.0))
back = IEEE11073Parser.parse_sfloat(written)
print(f"SFLOAT written for 114: 0x{int.from_bytes(written, 'little'):04X}, read back: {back}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
