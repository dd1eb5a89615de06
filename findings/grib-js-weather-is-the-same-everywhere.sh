#!/bin/sh
# grib-js 1.0.0 (npm, forecasts of weather in GRIB 2): a field whose scale factor is negative, as those of temperatures
# are, has one value at all its points, and a grid that begins in the south begins at -2137 degrees.
#
# In GRIB a negative number is its sign in the highest bit and then its magnitude (WMO Manual on Codes, FM 92, 92.1.5).
# The library reads the scale factors in two's complement: 2 to the power of -5 becomes 2 to that of -32763, which is 0,
# and what is left is the field's lowest value. The latitudes of a Mercator grid are read in the same way, and
# differences of the first order are added up as if they were of the second. Nothing is raised. ecCodes 2.50.0 wrote the
# messages and reads them. Seen (the first and the last three points of a field by each):
#
#   scale -5: grib-js 270, 270, 270 ... 270, 270, 270; eccodes 280, 280.906, 281.812 ... 270.5, 270.625, 270.781
#   scale 8: grib-js 100000, 104864, 109472 ... 100000, 100000, 100000; eccodes 100000, 104864, 109472 ... 100000, 100000, 100000
#   first latitude: grib-js -2137.483648, eccodes -10
#
# Needs python3 and Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q eccodes==2.49.0 eccodeslib==2.50.0.33 numpy==2.4.6
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts grib-js@1.0.0 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > look.js <<'END'
const parser = require('grib-js/lib/parser');
const { buffer } = new Uint8Array(require('fs').readFileSync('file.grib2'));
const [field] = parser.parseDataView(buffer)[0].fields;
console.log(JSON.stringify({ data: field.data, latitude: field.grid.definition.la1 }));
END
cat > look.py <<'END'
import json
import subprocess

import eccodes
import numpy

PLACES = numpy.arange(600)
GUSTS = PLACES % 100 < 50
WARM = 280 + 10 * numpy.sin(PLACES / 25) + numpy.where(GUSTS, (PLACES * 7919 % 13) / 4, 0)
PRESSURE = numpy.where(GUSTS, (PLACES * 7919 % 1300) * 40.0, (PLACES % 7) * 16.0) + 100000


def ask(values, bits, kind="regular_ll"):
    """Write a message, have it read by both, and return what they found."""
    grib = eccodes.codes_grib_new_from_samples("GRIB2")
    eccodes.codes_set(grib, "gridType", kind)
    eccodes.codes_set(grib, "latitudeOfFirstGridPointInDegrees", -10.0)
    eccodes.codes_set(grib, "Ni", len(values))
    eccodes.codes_set(grib, "Nj", 1)
    eccodes.codes_set(grib, "bitsPerValue", bits)
    eccodes.codes_set_values(grib, values)
    eccodes.codes_set(grib, "packingType", "grid_complex_spatial_differencing")
    eccodes.codes_set(grib, "orderOfSpatialDifferencing", 2)
    eccodes.codes_set(grib, "bitsPerValue", bits)
    eccodes.codes_set_values(grib, values)
    with open("file.grib2", "wb") as file:
        eccodes.codes_write(grib, file)
    found = json.loads(subprocess.run(["node", "look.js"], check=True, stdout=-1).stdout)
    scale = eccodes.codes_get(grib, "binaryScaleFactor")
    latitude = eccodes.codes_get(grib, "latitudeOfFirstGridPointInDegrees")
    return scale, found, eccodes.codes_get_values(grib), latitude


def ends(values):
    first, last = ([f"{value:.6g}" for value in part] for part in (values[:3], values[-3:]))
    return f"{', '.join(first)} ... {', '.join(last)}"


for values, bits in ((numpy.round(WARM, 2), 10), (numpy.round(PRESSURE), 8)):
    scale, found, known, _ = ask(values, bits)
    print(f"scale {scale}: grib-js {ends(found['data'])}; eccodes {ends(known)}")
_, found, _, latitude = ask(numpy.round(PRESSURE), 8, "mercator")
print(f"first latitude: grib-js {found['latitude']}, eccodes {latitude:g}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
