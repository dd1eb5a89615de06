#!/bin/sh
# pyfive 1.3.0 (PyPI, a reader of HDF5): a sample of -1 of a converter of 12 bits is 4095, and 1 of one whose bits are the
# upper ones is 16; values that stand in a file of their own are zeros; a virtual dataset is None.
#
# An integer has a precision, a number of bits, and an offset, where they begin; the sign is the highest bit of the
# precision (HDF5 File Format Specification 3.0, IV.A.2.d, class 0, "Fixed-Point Numbers"); a dataset may have its values
# in other files (IV.A.2.h, "External Data Files"). The library has all bits of the bytes, and looks into no other file.
# Nothing is raised and nothing warned of. h5py 3.16.0 wrote the file and reads it. Seen (h5py, then pyfive):
#
#   12 bits with a sign: -1 2047 -2048, 4095 2047 2048
#   12 bits from bit 4 on: 1 2047 4095, 16 32752 65520
#   16 bits: -1 2047 -2048, -1 2047 -2048
#   in a file beside it: 1 2 3, 0 0 0
#   virtual: 1 2 3, None
#
# Needs python3 (3.11 or later). Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyfive==1.3.0 h5py==3.16.0 numpy==2.4.6
cd "$work"
cat > look.py <<'END'
import h5py
import numpy
import pyfive

SIGNED, UNSIGNED = numpy.array([-1, 2047, -2048], "i2"), numpy.array([1, 2047, 4095], "u2")


def integers(name, kind, offset, values):
    kind.set_precision(12)
    kind.set_offset(offset)
    written = h5py.h5d.create(file.id, name, kind, h5py.h5s.create_simple((3,)))
    written.write(h5py.h5s.ALL, h5py.h5s.ALL, values)


with h5py.File("one.h5", "w") as file:
    integers(b"12 bits with a sign", h5py.h5t.STD_I16LE.copy(), 0, SIGNED)
    integers(b"12 bits from bit 4 on", h5py.h5t.STD_U16LE.copy(), 4, UNSIGNED)
    file["16 bits"] = SIGNED
    numpy.array([1, 2, 3], "<i4").tofile("beside.bin")
    file.create_dataset("in a file beside it", (3,), dtype="<i4", external=[("beside.bin", 0, 12)])
    layout = h5py.VirtualLayout((3,), "i4")
    layout[:] = h5py.VirtualSource(".", "in a file beside it", shape=(3,))
    file.create_virtual_dataset("virtual", layout)


def text(values):
    return "None" if values is None else " ".join(str(value) for value in values)


with h5py.File("one.h5") as file, pyfive.File("one.h5") as other:
    for name in ("12 bits with a sign", "12 bits from bit 4 on", "16 bits", "in a file beside it", "virtual"):
        print(f"{name}: {text(file[name][()])}, {text(other[name][()])}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
