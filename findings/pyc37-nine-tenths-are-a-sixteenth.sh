#!/bin/sh
# pyc37 1.0.2 (PyPI, synchrophasors of power grids by IEEE C37.118): a measurement of nine tenths of a second is one of
# 0.061139 s; an angle of 90 degrees has 143,810 radians; a rate of change of 0.25 Hz/s is 25.
#
# The fraction of a second has 24 bits, in units of the configuration's time base; an angle of 16 bits is in ten
# thousandths of a radian, while the factor of the phasor is of its magnitude alone; the rate of change of frequency is
# in hundredths (IEEE C37.118.2-2011, 6.2 "FRACSEC" and 6.3 "PHASORS", "DFREQ"). The library keeps 23 bits, and
# multiplies both parts of a phasor by its factor. PyMU 0.2.23 has the time, the angle and the rate right; what it has
# wrong is another script here. Nothing is raised. Seen (of 10,000,000 parts of a second; magnitude with its factor):
#
#   sent: 0.9 s, phasor 366210.8 at 1.5708, 49.99 Hz, 0.25 Hz/s
#   pyc37: 0.061139 s, phasor 366210.8 at 143810.98116, 49.99 Hz, 25 Hz/s
#   PyMU: 0.9 s, at 1.5708, 0.25 Hz/s
#   sent: 0.5 s, pyc37 0.5 s
#   sent: 0.8388608 s, pyc37 0.0 s
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
import struct

from pyc37.frame import ConfigFrame2, DataFrame
from pyc37.utils import crc16xmodem
from pymu.pmuConfigFrame import ConfigFrame
from pymu.pmuDataFrame import DataFrame as Data

SECOND, PARTS, FACTOR = 1782820800, 10_000_000, 915527


def frame(sync, body, parts=0):
    head = struct.pack(">HHHII", sync, 14 + len(body) + 2, 7, SECOND, parts)
    return head + body + struct.pack(">H", crc16xmodem(head + body, 0xFFFF))


def configuration():
    names = [b"VA", b"POWER", *(b"BREAKER %d" % (i + 1) for i in range(16))]
    station = b"STATION A".ljust(16) + struct.pack(">HHHHH", 7, 1, 1, 1, 1) + b"".join(n.ljust(16) for n in names)
    units = struct.pack(">IIHH", FACTOR, 1, 0, 0xFFFF) + struct.pack(">HH", 1, 1)
    return frame(0xAA31, struct.pack(">IH", PARTS, 1) + station + units + struct.pack(">h", 30))


def data(parts):
    return frame(0xAA01, struct.pack(">HHhhhhH", 0, 40000, 15708, -10, 25, 100, 1), parts)


def by_pyc37(parts):
    return DataFrame.convert2frame(data(parts), ConfigFrame2.convert2frame(configuration())).get_measurements()


print(f"sent: 0.9 s, phasor {40000 * FACTOR / 1e5} at 1.5708, 49.99 Hz, 0.25 Hz/s")
found = by_pyc37(9_000_000)
[of_station] = found["measurements"]
[(magnitude, angle)] = of_station["phasors"]
time = round(found["time"] - SECOND, 6)
rest = f"{of_station['frequency']} Hz, {of_station['rocof']} Hz/s"
print(f"pyc37: {time} s, phasor {magnitude:.1f} at {round(angle, 5)}, {rest}")
other = ConfigFrame(configuration().hex())
other.finishParsing()
whole = Data(data(9_000_000).hex(), other)
[station] = whole.pmus
print(f"PyMU: {round(whole.soc.utcSec - SECOND, 6)} s, at {station.phasors[0].rad}, {station.dfreq} Hz/s")
for parts in (5_000_000, 2**23):
    print(f"sent: {parts / PARTS} s, pyc37 {round(by_pyc37(parts)['time'] - SECOND, 6)} s")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
