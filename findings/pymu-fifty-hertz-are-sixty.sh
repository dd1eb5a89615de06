#!/bin/sh
# PyMU 0.2.23 (PyPI, synchrophasors of power grids by IEEE C37.118): a grid of 50 Hz is one of 60 Hz; a phasor of 40,000
# is one of -25,536; a voltage straight up has a real part of -60,042 of 134,000; an open breaker is closed, and the
# sixteenth one open.
#
# Bit 0 of a word of its own says 50 Hz; a magnitude of 16 bits has no sign; the first of sixteen names is that of the
# lowest bit, and there are sixteen to a word; a rate in floating point is in Hz/s (IEEE C37.118.2-2011, 6.3 "PHASORS",
# "DFREQ", "DIGITAL", 6.4 "CHNAM" and "FNOM"). The library looks for the 50 Hz in the next field, a count of changes;
# takes the cosine of the degrees as if they were radians; has as many bits as there are words, from the highest one on;
# and divides every rate by 100. Nothing is raised. pyc37 1.0.2 has the nominal frequency and the word. Seen:
#
#   nominal frequency, sent 50: HZ60, pyc37 50
#   polar of 16 bits, sent 40000 at 90 degrees: -25536 at 90.00
#   polar of floats, sent 134000 at 90 degrees: real -60042, imaginary 119795
#   rate of floats, sent 0.25 Hz/s: 0.0025
#   word of breakers, sent 0001 (breaker 1): BREAKER 1 0 of 1, pyc37 [1]
#   word of breakers, sent 8000 (breaker 16): BREAKER 1 1 of 1, pyc37 [32768]
#
# Needs python3 (3.11 or later). Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyc37==1.0.2 PyMU==0.2.23
cd "$work"
cat > look.py <<'END'
import collections.abc  # noqa: F401, pyc37 uses it without importing it
import math
import struct

from pyc37.frame import ConfigFrame2, DataFrame
from pyc37.utils import crc16xmodem
from pymu.pmuConfigFrame import ConfigFrame
from pymu.pmuDataFrame import DataFrame as Data

INTEGERS, FLOATS = 0b0001, 0b1011  # polar; of floats the phasors and the frequency


def frame(sync, body):
    head = struct.pack(">HHHII", sync, 14 + len(body) + 2, 7, 1782820800, 0)
    return head + body + struct.pack(">H", crc16xmodem(head + body, 0xFFFF))


def configuration(kind):
    names = [b"VA", b"POWER", *(b"BREAKER %d" % (i + 1) for i in range(16))]
    station = b"STATION A".ljust(16) + struct.pack(">HHHHH", 7, kind, 1, 1, 1) + b"".join(n.ljust(16) for n in names)
    units = struct.pack(">IIHH", 915527, 1, 0, 0xFFFF) + struct.pack(">HH", 1, 2)
    return frame(0xAA31, struct.pack(">IH", 1_000_000, 1) + station + units + struct.pack(">h", 30))


def read(kind, phasor, frequency, word):
    found = ConfigFrame(configuration(kind).hex())
    found.finishParsing()
    sent = frame(0xAA01, struct.pack(">H", 0) + phasor + frequency + struct.pack(">hH", 100, word))
    [station] = Data(sent.hex(), found).pmus
    return found.stations[0].fnom, station, sent


whole = (struct.pack(">Hh", 40000, 15708), struct.pack(">hh", -10, 25))
nominal, station, _ = read(INTEGERS, *whole, 1)
other = ConfigFrame2.convert2frame(configuration(INTEGERS))
print(f"nominal frequency, sent 50: {nominal}, pyc37 {other.get_fnom()}")
[phasor] = station.phasors
print(f"polar of 16 bits, sent 40000 at 90 degrees: {phasor.mag} at {phasor.deg:.2f}")
_, station, _ = read(FLOATS, struct.pack(">ff", 134000, math.pi / 2), struct.pack(">ff", 49.99, 0.25), 1)
[phasor] = station.phasors
print(f"polar of floats, sent 134000 at 90 degrees: real {phasor.real:.0f}, imaginary {phasor.imag:.0f}")
print(f"rate of floats, sent 0.25 Hz/s: {station.dfreq}")
for word, name in ((0x0001, "breaker 1"), (0x8000, "breaker 16")):
    _, station, sent = read(INTEGERS, *whole, word)
    [by_other] = DataFrame.convert2frame(sent, other).get_measurements()["measurements"]
    seen = ", ".join(f"{bit} {value}" for bit, value in station.digitals)
    print(f"word of breakers, sent {word:04x} ({name}): {seen} of {len(station.digitals)}, pyc37 {by_other['digital']}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
