#!/bin/sh
# avwx-engine 1.9.10: in American METARs the lowest visibilities, less than a quarter or an eighth of a mile and
# 3/16, are gone, and there is a wind of M14KT among what was not understood.
#
# Automatic stations say M1/4SM where one sees less than a quarter of a mile (FMH-1, 12.6.6, and the table of
# reportable values, which has M1/4, 1/16, 1/8, 3/16). The library takes the group for a wind with a typing error,
# mends that, and then has no use for it. `visibility` is None as if the station had sent none, so the minimum of a
# night of fog is that of the hours before it. Visibilities of 1/4 and above are right. metar 2.0.2 reads all.
# Seen (the group; avwx's visibility, and what it did not understand; metar's):
#
#   1/2SM: avwx 0.5 []; metar 0.5
#   1/4SM: avwx 0.25 []; metar 0.25
#   M1/4SM: avwx None ['M14KT']; metar less than 0.25
#   3/16SM: avwx None ['316KT']; metar 0.1875
#   1/8SM: avwx 0.125 []; metar 0.125
#   M1/8SM: avwx None ['M18KT']; metar less than 0.125
#   1/16SM: avwx None ['116KT']; metar 0.0625
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q avwx-engine==1.9.10 metar==2.0.2
cd "$work"
cat > look.py <<'END'
from avwx import Metar as Avwx
from metar.Metar import Metar

for group in ("1/2SM", "1/4SM", "M1/4SM", "3/16SM", "1/8SM", "M1/8SM", "1/16SM"):
    report = f"KORD 301151Z 36010KT {group} FG OVC001 00/00 A2992"
    one = Avwx.from_report(report).data
    other = Metar(f"METAR {report}", month=11, year=2026).vis
    less = "less than " if other.string("MI").startswith("less than") else ""
    seen = one.visibility and one.visibility.value
    print(f"{group}: avwx {seen} {one.other}; metar {less}{other.value('MI')}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
