#!/bin/sh
# netcdfjs 4.0.0 (npm): a byte of -1 is 255, and a record of three numbers has four, one of a single byte has four as
# well, of which the last are filling.
#
# NC_BYTE is an integer of 8 bits with a sign, and what is shorter than four bytes is filled up to them, which is
# no data ("The NetCDF Classic Format Specification", "nc_type" and "padding"). Packed temperatures and flags
# of quality are such bytes, whose mark for "missing" is -127 by default: the library has 129 for it, in
# values and in attributes, so that both agree and both are wrong. It takes the filling of bytes, shorts and
# characters for data; what that holds is chance. netCDF4 for Python wrote the file and reads it back as it was. Seen
# (netcdfjs; netCDF4):
#
#   quality, three bytes: 4 values: 255, 5, 129 and 1 more; [-1, 5, -127]
#   quality, its mark for missing: 129; -127
#   level, a byte a record: 8 values; [-1, 2]
#   counts, three shorts a record: 8 values: -2, 3, 4 and 5 more; [[-2, 3, 4], [5, -6, 7]]
#   name, five characters: 8 values; ['n', 'o', 'r', 't', 'h']
#   lowest, an attribute of a byte: 255; -1
#
# Needs python3, node and npm. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q netCDF4==1.7.5.1.post1
cd "$work"
npm install --no-audit --no-fund --silent netcdfjs@4.0.0
cat > look.py <<'END'
import netCDF4
import numpy

with netCDF4.Dataset("data.nc", "w", format="NETCDF3_64BIT_OFFSET") as file:
    file.createDimension("time", None)
    file.createDimension("place", 3)
    file.createDimension("letter", 5)
    file.createVariable("quality", "i1", ("place",), fill_value=-127)[:] = [-1, 5, -127]
    file.createVariable("level", "i1", ("time",))[:] = [-1, 2]
    file.createVariable("counts", "i2", ("time", "place"))[:] = [[-2, 3, 4], [5, -6, 7]]
    file.createVariable("name", "S1", ("letter",))[:] = numpy.array(list("north"), "S1")
    file.setncattr("lowest", numpy.int8(-1))
with netCDF4.Dataset("data.nc") as file:
    file.set_auto_mask(False)
    print(file["quality"][:].tolist())
    print(file["quality"].getncattr("_FillValue"))
    print(file["level"][:].tolist())
    print(file["counts"][:].tolist())
    print([letter.decode() for letter in file["name"][:]])
    print(file.getncattr("lowest"))
END
cat > look.mjs <<'END'
import { readFileSync } from "node:fs";
import { NetCDFReader } from "netcdfjs";

const file = new NetCDFReader(readFileSync("data.nc"));
const values = (name) => file.getDataVariable(name).flatMap((part) => [...part]);
const attribute = (attributes, name) => attributes.find((one) => one.name === name).value[0];
const first = (found) => `${found.length} values: ${found.slice(0, 3).join(", ")} and ${found.length - 3} more`;
const quality = file.variables.find((one) => one.name === "quality");
console.log(`quality, three bytes: ${first(values("quality"))}`);
console.log(`quality, its mark for missing: ${attribute(quality.attributes, "_FillValue")}`);
console.log(`level, a byte a record: ${values("level").length} values`);
console.log(`counts, three shorts a record: ${first(values("counts"))}`);
console.log(`name, five characters: ${file.getDataVariable("name").length} values`);
console.log(`lowest, an attribute of a byte: ${attribute(file.globalAttributes, "lowest")}`);
END
"$work/venv/bin/python" look.py > theirs
node look.mjs > ours
paste -d '|' ours theirs | sed 's/|/; /' | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
