#!/bin/sh
# metar-taf-parser 9.1.3 (npm) and metar-taf-parser-mivek 1.13.1 (PyPI), weather reports of airports: a wind of 100 knots is
# one of 10, without its gusts; 10 km/h are 10 knots; and the first leaves out how far one sees along a runway where the
# report does not say how that changes.
#
# A speed of 100 knots or more has three digits; km/h is a unit; a runway's range may be followed by U, D or N (FMH-1,
# 12.6.5 and 12.6.7; ICAO Annex 3, table A3-2). The libraries take two digits, leave the rest of the group, and have knots
# for a unit that they do not find; the first looks for U, D or N. Nothing is raised. metar 2.0.2 (PyPI) reads the same
# reports. Seen (npm, mivek, metar):
#
#   24015G25KT: 15 KT, gusts 25; 15 KT, gusts 25; 15 knots, gusts 25 knots
#   240100KT: 10 KT; 10 KT; 100 knots
#   240100G120KT: 10 KT; 10 KT; 100 knots, gusts 120 knots
#   36010KMH: 10 KT; 10 KT; 10 km/h
#   R10/0400U: 400; 400; on runway 10, 400 meters, increasing
#   R10/0400: none; 400; on runway 10, 400 meters
#   R28L/M0600V1000FT: none; none; on runway 28L, from 600 to 1000 feet
#
# Needs python3 (3.11 or later) and Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q metar==2.0.2 metar-taf-parser-mivek==1.13.1
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts metar-taf-parser@9.1.3 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > look.mjs <<'END'
import { parseMetar } from 'metar-taf-parser';

for (const report of process.argv.slice(2)) {
  const { wind, runwaysInfo } = parseMetar(report, { issued: new Date('2026-06-30T12:00:00Z') });
  const gusts = wind.gust === undefined ? '' : `, gusts ${wind.gust}`;
  console.log(/ R\d/.test(report) ? (runwaysInfo[0]?.minRange ?? 'none') : `${wind.speed} ${wind.unit}${gusts}`);
}
END
cat > look.py <<'END'
import subprocess

from metar import Metar
from metar_taf_parser.parser.parser import MetarParser

GROUPS = ("24015G25KT", "240100KT", "240100G120KT", "36010KMH", "R10/0400U", "R10/0400", "R28L/M0600V1000FT")


def report(group):
    wind, runway = ("05002KT", f" {group}") if group[0] == "R" else (group, "")
    return f"METAR EDDF 301220Z {wind} 0350{runway} FG M05/M06 Q0998"


def by_mivek(group, sent):
    read = MetarParser().parse(sent.removeprefix("METAR "))
    if group[0] == "R":
        return read.runways_info[0].min_range if read.runways_info else "none"
    return f"{read.wind.speed} {read.wind.unit}" + (f", gusts {read.wind.gust}" if read.wind.gust else "")


reports = [report(group) for group in GROUPS]
found = subprocess.run(["node", "look.mjs", *reports], check=True, capture_output=True, text=True).stdout.splitlines()
for group, sent, line in zip(GROUPS, reports, found, strict=True):
    read = Metar.Metar(sent, year=2026, month=6)
    gusts = f", gusts {read.wind_gust}" if read.wind_gust else ""
    other = read.runway_visual_range() if group[0] == "R" else f"{read.wind_speed}{gusts}"
    print(f"{group}: {line}; {by_mivek(group, sent)}; {other}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
