#!/bin/sh
# pyEDFlib 0.1.42: the fraction of the second at which a recording began (EDF+) is a tenth of it when it is read,
# ten times as much when it is written, and 0 from 0.1 s on.
#
# EDF+ has it as the onset of the first annotation (2.2.4, "Time keeping of data records"; edfplus.info, on
# fractions of a second). EDFlib, which the package wraps, counts it in steps of 100 ns; the package divides by 100
# to have microseconds, and multiplies by 100 to write them. So two devices that were started at once do not begin
# together, and below 0.1 s what it wrote it reads back as it was. edfio 0.4.18 reads and writes what the file
# has. Seen (the start; what pyEDFlib reads of edfio's file; the onset in pyEDFlib's own file, and what edfio and
# pyEDFlib read from that):
#
#   12:00:00.000: 12:00:00.000000; onset +0, 12:00:00.000000, 12:00:00.000000
#   12:00:00.001: 12:00:00.000100; onset +0.0100000, 12:00:00.010000, 12:00:00.001000
#   12:00:00.080: 12:00:00.008000; onset +0.8000000, 12:00:00.800000, 12:00:00.080000
#   12:00:00.250: 12:00:00.025000; onset +0, 12:00:00.000000, 12:00:00.000000
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyEDFlib==0.1.42 edfio==0.4.18 numpy==2.4.6
cd "$work"
cat > look.py <<'END'
import datetime
import re

import edfio
import numpy
import pyedflib

SAMPLES = numpy.zeros(200)


def clock(at):
    return at.time().isoformat("microseconds")


def by_pyedflib(name):
    with pyedflib.EdfReader(name) as file:
        return clock(file.getStartdatetime())


for milliseconds in (0, 1, 80, 250):
    at = datetime.datetime(2024, 1, 1, 12, 0, 0, 1000 * milliseconds)
    signal = edfio.EdfSignal(SAMPLES, sampling_frequency=100, physical_range=(-1, 1))
    day = edfio.Recording(startdate=at.date())
    edfio.Edf([signal], recording=day, starttime=at.time()).write("by-edfio.edf")
    writer = pyedflib.EdfWriter("by-pyedflib.edf", 1)
    writer.setStartdatetime(at)
    writer.writeSamples([SAMPLES])
    writer.close()
    with open("by-pyedflib.edf", "rb") as file:
        onset = re.search(rb"(\+[0-9.]+)\x14\x14", file.read())[1].decode()
    other = clock(edfio.read_edf("by-pyedflib.edf").startdatetime)
    print(
        f"{at.time().isoformat('milliseconds')}: {by_pyedflib('by-edfio.edf')}; "
        f"onset {onset}, {other}, {by_pyedflib('by-pyedflib.edf')}"
    )
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
