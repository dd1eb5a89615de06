#!/bin/sh
# bufrust 1.0.4 (PyPI, weather messages in BUFR): a station without a name has the name 1020; a station 700 m below the
# sea is 23,984 m above it; a code 61 of 9 bits is read as one of 11, and all that follows is shifted; so it is with a text.
#
# An element that is missing has all its bits set, a text, too (WMO Manual on Codes I.2, FM 94 BUFR). Operator 203
# says which values are the references of the elements that follow; 205 that so many characters follow; 201 changes the
# width of elements, but not of those of a code or flag table (Table C there). The library has a number for the missing
# text; takes a reference for an element, and looks for no other; goes over no characters; and widens codes. Nothing is
# raised. eccodes 2.50.0 wrote the messages and reads them, pybufrkit 0.2.25 reads them as well. Seen (pybufrkit first):
#
#   no name, 281 K: 281.0; bufrust 1020.0, 281.0
#   reference -1000 for -700 m, then 281 K: -1000, -700, 281.0; bufrust 23984.0, 2003.0, 281.92
#   weather 61, 281 K, 50 %, in 201: 61, 281.0, 50; bufrust STEAM FOG (SEA, LAKE OR RIVER), 1124.01, 75.0
#   text abc, 281 K, 50 %: b'abc', 281.0, 50; bufrust 249.3, 49.0, 91.0
#
# Needs python3 (3.11 or later). Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q eccodes==2.50.0 eccodeslib==2.50.0.33 bufrust==1.0.4 pybufrkit==0.2.25 bitstring==4.3.1
cd "$work"
cat > look.py <<'END'
import pathlib

import bufrust
import eccodes
from pybufrkit.decoder import Decoder

NAME, HEIGHT, TEMPERATURE, WEATHER, HUMIDITY = 1015, 7001, 12101, 20003, 13003
WARM, DAMP = {"airTemperature": 281.0}, {"relativeHumidity": 50}


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


for label, descriptors, values, before in (
    ("no name, 281 K", [NAME, TEMPERATURE], WARM, {}),
    (
        "reference -1000 for -700 m, then 281 K",
        [203012, HEIGHT, 203255, HEIGHT, 203000, TEMPERATURE],
        {"heightOfStation": -700, **WARM},
        {"inputOverriddenReferenceValues": -1000},
    ),
    (
        "weather 61, 281 K, 50 %, in 201",
        [201130, WEATHER, TEMPERATURE, 201000, HUMIDITY, HUMIDITY],
        {"presentWeather": 61, **WARM, "#1#relativeHumidity": 50},
        {},
    ),
    ("text abc, 281 K, 50 %", [205003, TEMPERATURE, HUMIDITY, HUMIDITY], {"text": "abc", **WARM, "#1#relativeHumidity": 50}, {}),
):
    data = message(descriptors, values, before)
    pathlib.Path("one.bufr").write_bytes(data)
    [whole] = Decoder().process(data).template_data.value.decoded_values_all_subsets
    [other] = bufrust.open("one.bufr")
    shown = [value for value in whole if value is not None and value != b"\xff" * 20]
    found = ", ".join(str(item.data) for item in other.decode()[: max(len(shown), 2)])
    print(f"{label}: {', '.join(map(str, shown))}; bufrust {found}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
