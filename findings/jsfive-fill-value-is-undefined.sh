#!/bin/sh
# jsfive 0.4.2 (npm; HDF5): where a data set was not written there is no number, though the file says which one it is;
# and integers of 64 bits are other ones beyond 2**53.
#
# A data set in pieces that were never written has its fill value there (HDF5 file format specification, "The Data
# Storage - Fill Value Message"), 0 if none was given; half-filled days of a recorder and sparse matrices are such.
# The library leaves holes in the array, which are undefined and become NaN in any sum, and null in JSON; 0 is not there
# either. h5py reads what the file says. Seen (jsfive; h5py):
#
#   half written, fill value -99: [1,2,null,null], sum NaN; [1, 2, -99, -99]
#   half written, no fill value: [1,2,null,null], sum NaN; [1, 2, 0, 0]
#   long integers: [9007199254740992,-4611686018427388000]; [9007199254740993, -4611686018427387905]
#
# Needs python3, node and npm. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q h5py==3.16.0
cd "$work"
npm install --no-audit --no-fund --silent jsfive@0.4.2
cat > look.py <<'END'
import h5py
import numpy

with h5py.File("data.h5", "w", libver="earliest") as file:
    for name, options in (("filled", {"fillvalue": -99}), ("plain", {})):
        file.create_dataset(name, shape=(4,), dtype="i4", chunks=(2,), **options)[:2] = [1, 2]
    file["long"] = numpy.array([2**53 + 1, -(2**62) - 1])
with h5py.File("data.h5") as file:
    for name in ("filled", "plain", "long"):
        print(file[name][:].tolist())
END
cat > look.mjs <<'END'
import { readFileSync } from "node:fs";
import { File } from "jsfive";

const data = readFileSync("data.h5");
const file = new File(data.buffer.slice(data.byteOffset, data.byteOffset + data.length), "data.h5");
const read = (name) => file.get(name).value;
const sum = (values) => [...values].reduce((one, other) => one + other);
for (const [name, what] of [
  ["filled", "half written, fill value -99"],
  ["plain", "half written, no fill value"],
]) {
  console.log(`${what}: ${JSON.stringify(read(name))}, sum ${sum(read(name))}`);
}
console.log(`long integers: ${JSON.stringify(read("long"))}`);
END
"$work/venv/bin/python" look.py > theirs
node look.mjs > ours
paste -d '|' ours theirs | sed 's/|/; /' | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
