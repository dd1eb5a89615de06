#!/bin/sh
# kpn-senml 1.0.1 (PyPI, readings of sensors by SenML): of what a gateway sends for another device only the first record
# is that device's; the next one of a name that we have, too, sets our own value. Readings have neither their times nor
# their units, and a sum is under a label that nobody reads.
#
# A base name holds from its record on until another record has another one (RFC 8428, 4.1 and 4.6); a record's name is
# "n" after that. The library looks for the name alone among its own records. In CBOR a base sum has the label -6 (section
# 6 there); the library writes and reads -16, which there is not, so that the sum a meter counted from is lost. Nothing is raised. Seen (the pack is urn:dev:a: and has a record "temperature" of 20):
#
#   sent: urn:dev:b: temperature 5 at 1782820800 Cel, temperature 6 at 1782820860 Cel
#   temperature of urn:dev:a: 6
#   records of urn:dev:b: temperature 5 at None in None
#   energy 1005 with a base sum of 1000 as CBOR: {0: 'energy', 5: 5, -2: 'urn:dev:a:', -16: 1000}
#
# Needs python3 (3.11 or later). Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q kpn-senml==1.0.1 cbor2==6.3.0
cd "$work"
cat > look.py <<'END'
import json

import cbor2
from kpn_senml import SenmlPack, SenmlRecord

own, others = SenmlRecord("temperature", value=20), []
pack = SenmlPack("urn:dev:a:", lambda record, device=None: others.append((device.name, record)))
pack.add(own)
first = {"bn": "urn:dev:b:", "bt": 1782820800, "bu": "Cel", "n": "temperature", "v": 5}
second = {"n": "temperature", "t": 60, "v": 6}
pack.from_json(json.dumps([first, second]))
print("sent: urn:dev:b: temperature 5 at 1782820800 Cel, temperature 6 at 1782820860 Cel")
print(f"temperature of urn:dev:a: {own.value}")
for device, record in others:
    print(f"records of {device} {record.name} {record.value} at {record.time} in {record.unit}")
meter = SenmlPack("urn:dev:a:")
meter.base_sum = 1000
meter.add(SenmlRecord("energy", sum=1005))
print(f"energy 1005 with a base sum of 1000 as CBOR: {cbor2.loads(meter.to_cbor())[0]}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
