#!/bin/sh
# syslog-parse 2.0.0 (npm): on 31 October a line of 30 September is of 30 October, on 31 January one of 10 February is
# of 10 March; on New Year's Day one of two seconds before is of the coming December. A line without a priority is the
# kernel's emergency.
#
# A line has the month's name, day and time, and no year; one without a priority is of the user, as a notice (RFC 3164,
# 4.1.2 and 4.3.3). The library takes today, sets the month and then the day: a 31st of September is the 1st of October
# by then. Milliseconds are those of the computer's clock. Nothing is raised. Seen (the clock, which the script sets;
# line; answer):
#
#   2026-10-30T12:00:00.000Z, <13>Sep 30 23:30:00: 2026-09-30T23:30:00.000Z user notice
#   2026-10-31T12:00:00.000Z, <13>Sep 30 23:30:00: 2026-10-30T23:30:00.000Z user notice
#   2027-01-31T12:00:00.250Z, <13>Feb 10 08:30:00: 2027-03-10T08:30:00.250Z user notice
#   2027-01-01T00:00:00.000Z, <13>Dec 31 23:59:58: 2027-12-31T23:59:58.000Z user notice
#   2026-11-30T12:00:00.000Z, Nov 30 11:59:59: 2026-11-30T11:59:59.000Z kern emerg
#
# Needs Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts syslog-parse@2.0.0 > log 2>&1 \
    || { tail -n 20 log; exit 1; }
cat > look.mjs <<'END'
const Clock = Date;
let now;
globalThis.Date = class extends Clock {
  constructor(...given) {
    super(...(given.length ? given : [now]));
  }
};
const { default: parse } = await import('syslog-parse');

for (const [clock, line] of [
  ['2026-10-30T12:00:00.000Z', '<13>Sep 30 23:30:00 pump control: stopped'],
  ['2026-10-31T12:00:00.000Z', '<13>Sep 30 23:30:00 pump control: stopped'],
  ['2027-01-31T12:00:00.250Z', '<13>Feb 10 08:30:00 pump control: stopped'],
  ['2027-01-01T00:00:00.000Z', '<13>Dec 31 23:59:58 pump control: stopped'],
  ['2026-11-30T12:00:00.000Z', 'Nov 30 11:59:59 pump control: stopped'],
]) {
  now = clock;
  const { time, facility, severity } = parse(line);
  console.log(`${clock}, ${line.split(' pump')[0]}: ${time.toISOString()} ${facility} ${severity}`);
}
END
TZ=UTC node look.mjs | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
