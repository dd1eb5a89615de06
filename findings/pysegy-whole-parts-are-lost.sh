#!/bin/sh
# pysegy 0.5.4 (PyPI, seismic traces in SEG-Y): a sample of 3.5 that it writes in IBM's floating point, the format of
# most files, is 0.5, and 1000 is 232; a file of whole numbers is read as numbers next to nothing.
#
# Format 1 is IBM's, a fraction of 24 bits below 1 and a power of 16; format 2 has integers of four bytes in two's
# complement (SEG-Y rev 1, bytes 3225-3226 and appendix E). The library scales a sample to a number from 1 to 16 and cuts
# what is above 1 off its fraction, and takes each format but 1 for IEEE floats of four bytes. Nothing is raised. segyio
# 1.9.14 wrote the files and reads them. Seen:
#
#   format 1, written by segyio, 0.1 3.5 -100.25 1000: pysegy 0.1 3.5 -100.25 1000
#   format 1, written by pysegy, 0.1 3.5 -100.25 1000: pysegy 0.0375 0.5 -4.25 232, segyio 0.0375 0.5 -4.25 232
#   format 5, written by pysegy, 0.1 3.5 -100.25 1000: pysegy 0.1 3.5 -100.25 1000, segyio 0.1 3.5 -100.25 1000
#   format 2, written by segyio, 0 3 -100 1000: pysegy 0 4.2e-45 nan 1.4e-42
#
# Needs python3 (3.11 or later). Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pysegy==0.5.4 segyio==1.9.14 numpy==2.4.6
cd "$work"
cat > look.py <<'END'
import numpy
import pysegy
import segyio

FLOATS, WHOLE = (0.1, 3.5, -100.25, 1000), (0, 3, -100, 1000)
TYPES = {1: numpy.float32, 2: numpy.int32, 5: numpy.float32}


def write(kind, samples):
    spec = segyio.spec()
    spec.format, spec.tracecount, spec.samples = kind, 1, numpy.arange(len(samples)) * 4.0
    field = segyio.TraceField
    with segyio.create("one.sgy", spec) as file:
        file.header[0] = {field.TRACE_SAMPLE_COUNT: len(samples), field.TRACE_SAMPLE_INTERVAL: 4000}
        file.trace[0] = numpy.array(samples, TYPES[kind])
        file.bin.update({segyio.BinField.Interval: 4000})


def text(samples):
    return " ".join(f"{sample:.2g}" if abs(sample) < 1e-9 and sample else f"{sample:.6g}" for sample in samples)


def by_pysegy(name):
    return text(numpy.asarray(pysegy.segy_read(name).data)[:, 0])


def by_segyio(name):
    with segyio.open(name, ignore_geometry=True) as file:
        return text(file.trace[0])


def shown(samples):
    return " ".join(map(str, samples))


write(1, FLOATS)
print(f"format 1, written by segyio, {shown(FLOATS)}: pysegy {by_pysegy('one.sgy')}")
for kind in (1, 5):
    write(kind, FLOATS)
    pysegy.segy_write("two.sgy", pysegy.segy_read("one.sgy"))
    found = f"pysegy {by_pysegy('two.sgy')}, segyio {by_segyio('two.sgy')}"
    print(f"format {kind}, written by pysegy, {shown(FLOATS)}: {found}")
write(2, WHOLE)
print(f"format 2, written by segyio, {shown(WHOLE)}: pysegy {by_pysegy('one.sgy')}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
