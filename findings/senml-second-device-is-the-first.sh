#!/bin/sh
# senml 0.1.0 (PyPI, readings of sensors by SenML): what a second device measured is a reading of the first one, at the
# first one's time; a base value that comes later, or a base sum, is not added; and a pack that was read is written as
# another one.
#
# A base name, time, unit, value or sum holds from its record on until another record has another one (RFC 8428, 4.1 and
# 4.6, "Resolved Records"); version 5 is not that of the RFC, which is 10, and a version other than 10 is to be read by
# those who know it. The library takes the base fields of the first record for all. Nothing is raised. Seen (as the RFC
# resolves it, then of the library):
#
#   urn:dev:a:temperature 1782820800 20 Cel: urn:dev:a:temperature 1782820800 20 Cel
#   urn:dev:a:humidity 1782820860 50 %RH: urn:dev:a:humidity 1782820860 50 %RH
#   urn:dev:b:temperature 1782907200 5 Cel: urn:dev:a:temperature 1782820800 5 Cel
#   urn:dev:b:pressure 1782907200 1013 hPa: urn:dev:a:pressure 1782820800 13 hPa
#   urn:dev:b:energy 1782907200 sum 1005 Wh: urn:dev:a:energy 1782820800 sum 5 Wh
#   read and written: version 5, base names urn:dev:a:
#
# Needs python3 (3.11 or later). Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q senml==0.1.0 attrs==26.1.0
cd "$work"
cat > look.py <<'END'
from senml import SenMLDocument

PACK = [
    {"bn": "urn:dev:a:", "bt": 1782820800, "bu": "Cel", "n": "temperature", "v": 20},
    {"n": "humidity", "t": 60, "u": "%RH", "v": 50},
    {"bn": "urn:dev:b:", "bt": 1782907200, "n": "temperature", "v": 5},
    {"bv": 1000, "n": "pressure", "u": "hPa", "v": 13},
    {"bs": 1000, "n": "energy", "u": "Wh", "s": 5},
]


def resolved(pack):
    base = {}
    for record in pack:
        base |= {key: value for key, value in record.items() if key[0] == "b"}
        name, time = base.get("bn", "") + record["n"], base.get("bt", 0) + record.get("t", 0)
        value = f"{base.get('bv', 0) + record['v']}" if "v" in record else f"sum {base.get('bs', 0) + record['s']}"
        yield f"{name} {time} {value} {record.get('u', base.get('bu'))}"


document = SenMLDocument.from_json(PACK)
for line, measurement in zip(resolved(PACK), document.measurements, strict=True):
    found = measurement.to_absolute(document.base)
    value = f"{found.value:.0f}" if found.value is not None else f"sum {found.sum:.0f}"
    print(f"{line}: {found.name} {found.time:.0f} {value} {found.unit}")
written = document.to_json()
names = ", ".join(record["bn"] for record in written if "bn" in record)
print(f"read and written: version {written[0]['bver']}, base names {names}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
