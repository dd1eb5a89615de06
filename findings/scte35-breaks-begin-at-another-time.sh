#!/bin/sh
# scte35 0.2.4 (npm, marks of breaks in broadcasts by SCTE 35): a break that begins at 21514.5 s begins at no time or, where
# a splicer has shifted the clock by 100 s, at 63427.2 s; and its length, programme and number are bytes of other fields.
#
# A splice_insert may have the time at which to leave the programme (SCTE 35, splice_insert() and splice_time()), in ticks
# of 90 kHz. The library reads it in the seventh byte of the message, a part of pts_adjustment (splice_info_section()),
# where it is the seventh of the command; what follows is read at another place then, unless the bit that says that there is
# a time is set there by chance. A line goes to standard error, and the answer is given. A time_signal, whose time stands
# first, is right. threefive 3.1.5, which wrote the messages, reads what was meant. Seen (each: begin and length in seconds,
# programme, number, of how many):
#
#   splice_insert: threefive 21514.5, 60.0, 5, 1, 2; scte35 none, 67420.1, 82, 101, 192
#   splice_insert, clock + 100 s: threefive 21514.5, 60.0, 5, 1, 2; scte35 63427.2, 60.0, 5, 1, 2
#   splice_insert at once: threefive none, 60.0, 5, 1, 2; scte35 none, 60.0, 5, 1, 2
#   time_signal: threefive 21514.5; scte35 21514.5
#
# Needs python3 and Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q threefive==3.1.5
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts scte35@0.2.4 esbuild@0.25.10 > log 2>&1 ||
    { tail -n 20 log; exit 1; }
cat > look.mjs <<'END'
import { SCTE35 } from 'scte35/build/lib/scte35';

const { spliceCommand } = SCTE35.parseFromB64(process.argv[2]);
console.log(JSON.stringify(spliceCommand));
END
node_modules/.bin/esbuild look.mjs --bundle --platform=node --outfile=look.js --log-level=error
cat > look.py <<'END'
import json
import subprocess

from threefive import Cue
from threefive.encode import mk_splice_insert, mk_time_signal


def seconds(ticks):
    return round(ticks / 90000, 1)


def insert(adjustment=0.0, **when):
    cue = mk_splice_insert(9, duration=60.0, out=True, **when)
    cue.info_section.pts_adjustment = adjustment
    cue.command.unique_program_id, cue.command.avail_num, cue.command.avails_expected = 5, 1, 2
    return cue


for name, cue in (
    ("splice_insert", insert(pts=21514.5)),
    ("splice_insert, clock + 100 s", insert(100.0, pts=21514.5)),
    ("splice_insert at once", insert()),
    ("time_signal", mk_time_signal(pts=21514.5)),
):
    text = cue.encode()
    read = Cue(text)
    read.decode()
    here = read.command
    run = subprocess.run(["node", "look.js", text], check=True, stdout=-1, stderr=subprocess.DEVNULL)
    there = json.loads(run.stdout)
    ours = ["none" if here.pts_time is None else here.pts_time]
    time = there if name == "time_signal" else there.get("spliceTime", {})
    theirs = [seconds(time["pts"]) if "pts" in time else "none"]
    if name != "time_signal":
        ours += [here.break_duration, here.unique_program_id, here.avail_num, here.avails_expected]
        theirs.append(seconds(there["breakDuration"]["duration"]))
        theirs += [there["uniqueProgramId"], there["available"], there["expected"]]
    print(f"{name}: threefive {', '.join(map(str, ours))}; scte35 {', '.join(map(str, theirs))}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
