#!/bin/sh
# earth2bufr 0.1.1 (PyPI, weather messages in BUFR): of a station's temperatures at 2 m and at the ground, one after the
# other as a report has them, there is only the last one; a wind is none if no gusts follow it.
#
# Elements stand in a message in the order of its descriptors, each with what the ones before it say of height and time,
# and one may stand there as often as it likes (WMO Manual on Codes I.2, FM 94 BUFR). The library has one
# column a descriptor, and in it the last value. It does so, too, where the pair is a replication of a fixed count. Nothing
# is raised, and no failure is listed. bufrust 1.0.4 and eccodes 2.50.0, which wrote the messages, read all. Seen:
#
#   290 K at 2 m, 285 K at 0.05 m: earth2bufr B007032 0.05, B012101 285.0; bufrust 2.0 290.0 0.05 285.0
#   the pair twice by replication: earth2bufr B007032 0.05, B012101 285.0; bufrust 2.0 290.0 0.05 285.0
#   280 K, then 281 K over 24 hours: earth2bufr B012101 281.0, B004024 -24.0; bufrust 280.0 -24.0 281.0
#   10 m/s, gusts of none: earth2bufr B011002 None; bufrust 10.0 None
#
# Needs python3 (3.11 or later). Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q eccodes==2.50.0 eccodeslib==2.50.0.33 earth2bufr==0.1.1 bufrust==1.0.4 pyarrow==26.0.1
cd "$work"
cat > look.py <<'END'
import pathlib

import bufrust
import earth2bufr
import eccodes

HEIGHT, TEMPERATURE, PERIOD, SPEED = 7032, 12101, 4024, 11002
AT = "heightOfSensorAboveLocalGroundOrDeckOfMarinePlatform"
PAIR = {f"#1#{AT}": 2.0, "#1#airTemperature": 290.0, f"#2#{AT}": 0.05, "#2#airTemperature": 285.0}
DAY = {"#1#airTemperature": 280.0, "timePeriod": -24, "#2#airTemperature": 281.0}


def message(descriptors, values, before=None):
    found = eccodes.codes_bufr_new_from_samples("BUFR4")
    eccodes.codes_set(found, "masterTablesVersionNumber", 34)
    for name, value in (before or {}).items():
        eccodes.codes_set(found, name, value)
    eccodes.codes_set_array(found, "unexpandedDescriptors", descriptors)
    for name, value in values.items():
        eccodes.codes_set(found, name, value)
    eccodes.codes_set(found, "pack", 1)
    return eccodes.codes_get_message(found)


for label, descriptors, values in (
    ("290 K at 2 m, 285 K at 0.05 m", [HEIGHT, TEMPERATURE, HEIGHT, TEMPERATURE], PAIR),
    ("the pair twice by replication", [102002, HEIGHT, TEMPERATURE], PAIR),
    ("280 K, then 281 K over 24 hours", [TEMPERATURE, PERIOD, TEMPERATURE], DAY),
    ("10 m/s, gusts of none", [SPEED, SPEED], {"#1#windSpeed": 10.0}),
):
    pathlib.Path("one.bufr").write_bytes(message(descriptors, values))
    [batch] = earth2bufr.read_bufr("one.bufr")
    columns = {name: column for name, [column] in batch.to_pydict().items() if name[0] == "B"}
    [other] = bufrust.open("one.bufr")
    found = ", ".join(f"{name} {value}" for name, value in columns.items())
    print(f"{label}: earth2bufr {found}; bufrust {' '.join(str(item.data) for item in other.decode())}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
