#!/bin/sh
# ctd 1.5.0 (profiles of Sea-Bird's instruments in the ocean, .cnv): every scan is flagged, those that are good, too;
# and a value that is marked as bad is zero degrees.
#
# The last column of such a file is the flag, 0 where the scan is good and -9.99e-29 where it was marked bad, and
# the same number stands for a value that was taken out (Sea-Bird, "What is the flag variable column"; the
# header's bad_flag). The library makes a boolean of the column while it is still text, and any text is true: who
# leaves out what is flagged has nothing left, who asks for it has all, and which scans were bad cannot be told
# any more. The number of a bad value stays, which is so near zero that no range check finds it; the mean of the
# three temperatures is 13.3. Seen:
#
#   what the file has: flag 0.0000e+00, 0.0000e+00, -9.990e-29
#   flag: [True, True, True]
#   temperature: [20.1, -9.99e-29, 19.9], mean 13.33
#   bad_flag in the header: -9.990e-29
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q ctd==1.5.0
cd "$work"
cat > cast.cnv <<'END'
* Sea-Bird SBE 9 Data File:
* NMEA Latitude = 12 00.00 S
* NMEA Longitude = 038 00.00 W
# nquan = 4
# nvalues = 3
# units = specified
# name 0 = prDM: Pressure, Digiquartz [db]
# name 1 = t090C: Temperature [ITS-90, deg C]
# name 2 = sal00: Salinity, Practical [PSU]
# name 3 = flag: flag
# span 0 = 1, 3
# interval = seconds: 1
# start_time = Jan 01 2020 00:00:00
# bad_flag = -9.990e-29
# file_type = ascii
*END*
      1.000    20.1000    35.1000  0.0000e+00
      2.000 -9.990e-29 -9.990e-29  0.0000e+00
      3.000    19.9000    35.3000 -9.990e-29
END
cat > look.py <<'END'
from pathlib import Path

import ctd

lines = Path("cast.cnv").read_text().splitlines()
print(f"what the file has: flag {', '.join(line.split()[-1] for line in lines[-3:])}")
cast = ctd.from_cnv("cast.cnv")
print(f"flag: {cast['flag'].tolist()}")
warm = cast["t090C"]
print(f"temperature: {warm.tolist()}, mean {warm.mean():.2f}")
bad = next(line for line in lines if "bad_flag" in line)
print(f"bad_flag in the header: {bad.split()[-1]}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
