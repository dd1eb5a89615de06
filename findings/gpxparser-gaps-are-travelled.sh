#!/bin/sh
# gpxparser 3.0.8 (npm, tracks of GPS receivers): where the receiver was off, the way across is travelled; a height of
# 0 m is no height, for the highest and the lowest point; and one point without a height takes away the climb.
#
# A track's segments are parts without a gap: where reception was lost or the receiver was off a new one begins (GPX 1.1
# schema, trksegType). The library puts the points of all segments into one list, so that a flight between two walks
# counts as walked, up and down too. Heights are optional (wptType, ele). gpxpy 1.6.2 adds up the segments and
# skips what is not there. Nothing is raised. Seen (gpxparser; gpxpy, with climbs from its points):
#
#   two segments of 111 m, 111 km apart: 111306 m; 223 m
#   two segments of 111 m, up 10 and 0: up 10, down 15; up 10, down 0
#   heights -5, 0: lowest -5, highest null; lowest -5, highest 0
#   heights 0, 5: lowest null, highest 5; lowest 0, highest 5
#   heights 10, none, 30: up null, down null; up 20, down 0
#
# Needs python3 and Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q gpxpy==1.6.2
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts gpxparser@3.0.8 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > look.py <<'END'
import json
import subprocess

import gpxpy

PROGRAM = """
const Parser = require('gpxparser');
console.log(JSON.stringify(JSON.parse(process.argv[1]).map((text) => {
  const parser = new Parser();
  parser.parse(text);
  const [{ distance, elevation }] = parser.tracks;
  return { ...elevation, way: distance.total };
})));
"""


def track(*segments):
    """Return a track whose segments begin a degree apart, each point having its height, or None."""
    text = "".join(
        "<trkseg>"
        + "".join(
            f'<trkpt lat="0" lon="{degree + place / 1000}">'
            + ("" if height is None else f"<ele>{height}</ele>")
            + "</trkpt>"
            for place, height in enumerate(heights)
        )
        + "</trkseg>"
        for degree, heights in enumerate(segments)
    )
    head = '<gpx version="1.1" creator="look" xmlns="http://www.topografix.com/GPX/1/1">'
    return f"{head}<trk><name>track</name>{text}</trk></gpx>"


TEXTS = [track((10, 20), (5, 5)), track((-5, 0)), track((0, 5)), track((10, None, 30))]
command = ["node", "-e", PROGRAM, json.dumps(TEXTS)]
two, below, above, without = json.loads(subprocess.run(command, check=True, stdout=-1).stdout)
tracks = [gpxpy.parse(text).tracks[0] for text in TEXTS]
shown = json.dumps


def climb(values):
    return f"up {shown(values['pos'])}, down {shown(values['neg'])}"


def climbed(place):
    heights = [[p.elevation for p in s.points if p.elevation is not None] for s in tracks[place].segments]
    steps = [b - a for segment in heights for a, b in zip(segment, segment[1:])]
    return f"up {sum(s for s in steps if s > 0):g}, down {-sum(s for s in steps if s < 0):g}"


def ends(values):
    return f"lowest {shown(values['min'])}, highest {shown(values['max'])}"


def known(place):
    low, high = tracks[place].get_elevation_extremes()
    return f"lowest {low:g}, highest {high:g}"


print(f"two segments of 111 m, 111 km apart: {two['way']:.0f} m; {tracks[0].length_2d():.0f} m")
print(f"two segments of 111 m, up 10 and 0: {climb(two)}; {climbed(0)}")
print(f"heights -5, 0: {ends(below)}; {known(1)}")
print(f"heights 0, 5: {ends(above)}; {known(2)}")
print(f"heights 10, none, 30: {climb(without)}; {climbed(3)}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
