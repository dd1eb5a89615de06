#!/bin/sh
# hl7-date 1.0.1 (npm, times of HL7 version 2): what it writes east of Greenwich has the zone "+-200" in Berlin and
# "+-6-30" in India, which readers drop, so that the time is one of their own zone, or take for another one.
#
# A time's zone is +ZZZZ or -ZZZZ, four digits (HL7 2.5.1, 2.A.22, "DTM"). The library makes it of JavaScript's minutes
# west of Greenwich; east of it hours and minutes are negative, the hours rounded away from zero. Its own parse finds no
# zone in it, and reads the time as one of the reader's computer. Nothing is raised. Seen (12:00:05 UTC on 30 June 2026,
# written in the zone, read by the library in New York):
#
#   America/New_York: 20260630080005-0400, read 2026-06-30T12:00:05.000Z
#   UTC: 20260630120005+0000, read 2026-06-30T12:00:05.000Z
#   Europe/Berlin: 20260630140005+-200, read 2026-06-30T18:00:05.000Z
#   Asia/Kolkata: 20260630173005+-6-30, read 2026-06-30T21:30:05.000Z
#
# Needs Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts hl7-date@1.0.1 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > write.js <<'END'
console.log(require('hl7-date').stringify(new Date('2026-06-30T12:00:05Z')));
END
cat > read.js <<'END'
console.log(require('hl7-date').parse(process.argv[2]).toISOString());
END
for zone in America/New_York UTC Europe/Berlin Asia/Kolkata; do
    written=$(TZ=$zone node write.js)
    echo "$zone: $written, read $(TZ=America/New_York node read.js "$written")"
done | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
