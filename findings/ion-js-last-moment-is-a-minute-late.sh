#!/bin/sh
# ion-js 5.2.1 (npm, Amazon Ion): a time in the last half of a millisecond of a minute, as 12:00:59.9996, is a minute
# later once it was written in binary, and 23:59:59.9996 is of the next day; the fraction stays.
#
# An Ion time has a fraction of as many digits as one likes, and year to minute stand before it in UTC (Ion 1.0,
# "Timestamps", "Binary encoding"). The library takes those from a Date, which has milliseconds and is rounded up to the
# next minute, and the seconds with their fraction from the time itself. Text is right, and so is what it reads of
# others. Nothing is raised. amazon.ion 0.15.0 for Python reads what was written. Seen:
#
#   12:00:59.9994: ion-js 2026-11-30 12:00:59.999400, amazon.ion 2026-11-30 12:00:59.999400
#   12:00:59.9996: ion-js 2026-11-30 12:01:59.999600, amazon.ion 2026-11-30 12:01:59.999600
#   12:00:58.9996: ion-js 2026-11-30 12:00:58.999600, amazon.ion 2026-11-30 12:00:58.999600
#   23:59:59.9996: ion-js 2026-12-01 00:00:59.999600, amazon.ion 2026-12-01 00:00:59.999600
#   23:59:59.9996 as text: ion-js 2026-11-30 23:59:59.999600, amazon.ion 2026-11-30 23:59:59.999600
#
# Needs python3 and Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q amazon.ion==0.15.0
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts ion-js@5.2.1 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > look.js <<'END'
const ion = require('ion-js');

for (const time of ['12:00:59.9994', '12:00:59.9996', '12:00:58.9996', '23:59:59.9996']) {
  const value = ion.load(`2026-11-30T${time}Z`);
  const ways = { [time]: ion.dumpBinary(value), [`${time} as text`]: Buffer.from(ion.dumpText(value)) };
  for (const [name, data] of Object.entries(ways)) {
    console.log(`${name}|${ion.dumpText(ion.load(data))}|${Buffer.from(data).toString('hex')}`);
  }
}
END
cat > look.py <<'END'
import datetime
import sys

from amazon.ion import simpleion


def show(time):
    return f"{time:%Y-%m-%d %H:%M:%S.%f}"


for line in sys.stdin:
    name, found, data = line.strip().split("|")
    if name.endswith("text") and "23:59" not in name:
        continue
    found = datetime.datetime.fromisoformat(found.replace("Z", "00+00:00"))
    print(f"{name}: ion-js {show(found)}, amazon.ion {show(simpleion.loads(bytes.fromhex(data)))}")
END
node look.js > written
"$work/venv/bin/python" look.py < written | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
