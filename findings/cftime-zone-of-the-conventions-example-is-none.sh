#!/bin/sh
# cftime 1.6.6.1 beside xarray 2026.9.0 (PyPI, netCDF by the CF conventions): the conventions' own example of a unit
# with a zone is six hours apart in the two, and in xarray alone between a file's calendars.
#
# The example is "seconds since 1992-10-8 15:15:42.5 -6:00" (CF conventions 1.12, 4.4, "Time coordinate"). cftime, which
# netCDF4's num2date is, looks for a zone of two digits and passes over one of one digit without a word; where minutes
# are missing, too, it passes over the hour as well. xarray asks pandas for times of the usual calendar, and cftime for
# the others, or when it is told to. Nothing is raised and nothing warned of. Seen (value 0 in each unit):
#
#   1992-10-8 15:15:42.5 -6:00: cftime 15:15:42, xarray 21:15:42, xarray with calendar noleap 15:15:42
#   1992-10-8 15:15:42.5 -06:00: cftime 21:15:42, xarray 21:15:42, xarray with calendar noleap 21:15:42
#   1992-10-8 15:15:42.5 +5:30: cftime 15:15:42, xarray 09:45:42, xarray with calendar noleap 15:15:42
#   1992-10-8 15 -6:00: cftime 00:00:00, xarray 21:00:00, xarray with calendar noleap 00:00:00
#
# Needs python3 (3.11 or later). Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q cftime==1.6.6.1 xarray==2026.9.0 pandas==3.1.1 numpy==2.4.6
cd "$work"
cat > look.py <<'END'
import cftime
import numpy
import xarray

STARTS = ("1992-10-8 15:15:42.5 -6:00", "1992-10-8 15:15:42.5 -06:00", "1992-10-8 15:15:42.5 +5:30")
STARTS += ("1992-10-8 15 -6:00",)


def by_xarray(unit, calendar):
    time = xarray.Variable("time", numpy.array([0]), {"units": unit, "calendar": calendar})
    decoded = xarray.conventions.decode_cf_variable("time", time)
    return str(decoded.values[0]).replace("T", " ")[11:19]


for start in STARTS:
    unit = f"seconds since {start}"
    own = cftime.num2date(0, unit)
    usual, other = by_xarray(unit, "standard"), by_xarray(unit, "noleap")
    print(f"{start}: cftime {own:%H:%M:%S}, xarray {usual}, xarray with calendar noleap {other}")
END
"$work/venv/bin/python" look.py 2> log | tee seen
[ ! -s log ] || { tail -n 20 log; exit 1; }
sed -n 's/^#   //p' "$this" > expected
diff expected seen
