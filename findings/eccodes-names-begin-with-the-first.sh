#!/bin/sh
# ecCodes 2.50.0 and pybufrkit 0.2.25: of text in a compressed BUFR message that ecCodes wrote, pybufrkit reads the
# first subset's before each one: the stations A, BB and CCC are AA, ABB and ACCC. And no text is text.
#
# In compressed data an element has a reference value and for each subset what is to be added; of text, to which
# nothing can be added, the reference must be all zero bits (WMO Manual on Codes, FM 94, notes to 94.6.3). ecCodes
# writes the first subset's text there, and passes it over when it reads; pybufrkit puts it in front. So each is
# right with itself, and numbers are right by both. Text that is missing (all bits 1) is 20 bytes of 0xff by
# pybufrkit, where a number is None. Seen (names of stations without the zeros behind them, temperatures):
#
#   not compressed, by ecCodes: A 280.0, BB 281.0, CCC 282.0; by pybufrkit: A 280.0, BB 281.0, CCC 282.0
#   compressed, by ecCodes: A 280.0, BB 281.0, CCC 282.0; by pybufrkit: AA 280.0, ABB 281.0, ACCC 282.0
#   compressed, reference zero, by pybufrkit: A 280.0, BB 281.0, CCC 282.0
#   without both: ffffffffffffffffffffffffffffffffffffffff and None
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q eccodes==2.50.0 pybufrkit==0.2.25 bitstring==4.4.0 numpy==2.4.6
cd "$work"
cat > look.py <<'END'
import eccodes
from pybufrkit.decoder import Decoder

NAME, TEMPERATURE = 1015, 12101
NAMES, TEMPERATURES = ["A", "BB", "CCC"], [280.0, 281.0, 282.0]


def message(subsets, compressed, filled=True):
    bufr = eccodes.codes_bufr_new_from_samples("BUFR4")
    for key, value in (
        ("masterTablesVersionNumber", 31),
        ("localTablesVersionNumber", 0),
        ("numberOfSubsets", subsets),
        ("compressedData", compressed),
    ):
        eccodes.codes_set(bufr, key, value)
    eccodes.codes_set_array(bufr, "unexpandedDescriptors", [NAME, TEMPERATURE])
    if filled and compressed:
        eccodes.codes_set_string_array(bufr, "stationOrSiteName", NAMES)
        eccodes.codes_set_array(bufr, "airTemperature", TEMPERATURES)
    elif filled:
        for number, (name, value) in enumerate(zip(NAMES, TEMPERATURES), 1):
            eccodes.codes_set(bufr, f"#{number}#stationOrSiteName", name)
            eccodes.codes_set(bufr, f"#{number}#airTemperature", value)
    eccodes.codes_set(bufr, "pack", 1)
    return eccodes.codes_get_message(bufr)


def by_eccodes(data, compressed):
    bufr = eccodes.codes_new_from_message(data)
    eccodes.codes_set(bufr, "unpack", 1)
    if compressed:
        names = eccodes.codes_get_array(bufr, "stationOrSiteName")
        values = eccodes.codes_get_array(bufr, "airTemperature")
    else:
        names = [eccodes.codes_get(bufr, f"#{i}#stationOrSiteName") for i in (1, 2, 3)]
        values = [eccodes.codes_get(bufr, f"#{i}#airTemperature") for i in (1, 2, 3)]
    return ", ".join(f"{name} {value:.1f}" for name, value in zip(names, values))


def rows(data):
    return Decoder().process(data).template_data.value.decoded_values_all_subsets


def by_pybufrkit(data):
    return ", ".join(f"{name.replace(bytes(1), b'').decode()} {value}" for name, value in rows(data))


for compressed in (0, 1):
    data = message(3, compressed)
    print(
        f"{'compressed' if compressed else 'not compressed'}, by ecCodes: {by_eccodes(data, compressed)}; "
        f"by pybufrkit: {by_pybufrkit(data)}"
    )
reference = b"A" + bytes(19)
assert data.count(reference) == 1  # the first; those of the subsets do not begin with a byte
print("compressed, reference zero, by pybufrkit:", by_pybufrkit(data.replace(reference, bytes(20))))
((name, value),) = rows(message(1, 0, filled=False))
print("without both:", name.hex(), "and", value)
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
