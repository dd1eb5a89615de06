#!/bin/sh
# ais-stream-decoder 2.1.2 (npm): a ship that turns to port does not turn (NaN), and one that turns to starboard at 709
# degrees a minute turns at 5.2; so does each ship that sends no rate. By ggencoder 1.0.10 (npm) a ship that does
# not know its speed runs 102.3 knots, with course 360 and heading 511.
#
# What is sent is 4.733 times the root of degrees a minute, with the sign of the turn, and -128 if it is not known
# (ITU-R M.1371-5, annex 8, 3.3.1). The library divides by 4.733 and takes the root where the square is meant, and then
# looks for -128 among the results. 1023, 3600 and 511 are "not available" there; ggencoder has no word for it.
# Nothing is raised. pyais 3.3.1 reads what was sent. Seen (what is sent):
#
#   rate 126: ais-stream-decoder 5.2, pyais 709.0
#   rate 15: ais-stream-decoder 1.8, pyais 10.0
#   rate -15: ais-stream-decoder NaN, pyais -10.0
#   rate -128: ais-stream-decoder NaN, pyais not available
#   speed 1023, course 3600, heading 511: ggencoder 102.3, 360, 511; ais-stream-decoder null, null, null
#
# Needs python3 and Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyais==3.3.1
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts ais-stream-decoder@2.1.2 ggencoder@1.0.10 > log 2>&1 ||
    { tail -n 20 log; exit 1; }
cat > look.py <<'END'
import json
import subprocess

from pyais import decode

PROGRAM = """
const { default: AisDecoder } = require('ais-stream-decoder');
const { AisDecode } = require('ggencoder');
const shown = (number) => (typeof number === 'number' ? number.toFixed(1).replace('.0', '') : String(number));
const decoder = new AisDecoder();
decoder.on('data', (text) => {
  const ship = JSON.parse(text);
  results.push(ship);
});
const results = [];
const lines = JSON.parse(process.argv[1]);
for (const line of lines) decoder.write(line);
decoder.end(() => {
  const other = new AisDecode(lines.at(-1));
  console.log(JSON.stringify({ results, other: [other.sog, other.cog, other.hdg].map(shown).join(', ') }));
});
"""


def position(turn, speed=160, course=900, heading=90):
    """Return a report of a position at 10 N, 5 E as a sentence."""
    fields = [(1, 6), (0, 2), (244660000, 30), (0, 4), (turn % 256, 8), (speed, 10), (0, 1), (3000000, 28)]
    fields += [(6000000, 27), (course, 12), (heading, 9), (0, 6), (0, 2), (0, 3), (0, 1), (0, 19)]
    bits = "".join(f"{value:0{width}b}" for value, width in fields)
    numbers = [int(bits[place : place + 6], 2) for place in range(0, len(bits), 6)]
    body = f"AIVDM,1,1,,A,{''.join(chr(n + 48 if n < 40 else n + 56) for n in numbers)},0"
    check = 0
    for character in body:
        check ^= ord(character)
    return f"!{body}*{check:02X}"


TURNS = (126, 15, -15, -128)
lines = [*map(position, TURNS), position(0, 1023, 3600, 511)]
command = ["node", "-e", PROGRAM, json.dumps(lines)]
answer = json.loads(subprocess.run(command, check=True, stdout=-1).stdout)
for turn, line, found in zip(TURNS, lines, answer["results"], strict=False):
    known = "not available" if turn == -128 else f"{decode(line).turn:.1f}"
    rate = found["rateOfTurn"]
    print(f"rate {turn}: ais-stream-decoder {'NaN' if rate is None else f'{rate:.1f}'}, pyais {known}")
last = answer["results"][-1]
other = ", ".join(json.dumps(last[name]) for name in ("speedOverGround", "courseOverGround", "heading"))
print(f"speed 1023, course 3600, heading 511: ggencoder {answer['other']}; ais-stream-decoder {other}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
