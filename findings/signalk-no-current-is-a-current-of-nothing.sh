#!/bin/sh
# @signalk/nmea0183-signalk 3.20.1 (npm): a receiver that has lost its satellites and repeats its last position gives a
# position, by RMC, not by GLL; revolutions that are marked void count; a current that is not known is one of nothing to
# the north, and a course that is not known has no error.
#
# V stands for void, invalid, and an empty field for a value that is not available (NMEA 0183, "RMC", "RPM", "VDR" and
# "RMB"). The library leaves out a void GLL, MWV or ROT, and gives null for an empty temperature. Nothing is raised.
# Seen:
#
#   GPGLL,4807.038,N,01131.000,E,123519,V,N: nothing
#   GPRMC,123519,V,4807.038,N,01131.000,E,,,230326,,: position {"latitude":48.1173,"longitude":11.516666666666667}
#   IIROT,-35.6,V: nothing
#   ERRPM,E,1,2400,10.5,V: revolutions 40
#   IIMTA,,C: temperature null
#   IIVDR,,T,,M,,N: current {"setTrue":0,"setMagnetic":0,"drift":0}
#   GPRMB,V,,,,,,,,,,,,V: position null, bearingTrue 0, crossTrackError 0
#
# Needs Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts @signalk/nmea0183-signalk@3.20.1 > log 2>&1 \
    || { tail -n 20 log; exit 1; }
cat > look.js <<'END'
const Parser = require('@signalk/nmea0183-signalk');

const parser = new Parser();
for (const body of [
  'GPGLL,4807.038,N,01131.000,E,123519,V,N',
  'GPRMC,123519,V,4807.038,N,01131.000,E,,,230326,,',
  'IIROT,-35.6,V',
  'ERRPM,E,1,2400,10.5,V',
  'IIMTA,,C',
  'IIVDR,,T,,M,,N',
  'GPRMB,V,,,,,,,,,,,,V',
]) {
  const sum = [...body].reduce((sum, letter) => sum ^ letter.charCodeAt(0), 0);
  const delta = parser.parse(`$${body}*${sum.toString(16).toUpperCase().padStart(2, '0')}`);
  const wanted = /position$|revol|current|temp|crossTrack|bearing/;
  const known = delta?.updates[0].values.filter(({ path }) => wanted.test(path));
  const shown = known?.map(({ path, value }) => `${path.split('.').at(-1)} ${JSON.stringify(value)}`).join(', ');
  console.log(`${body}: ${shown ?? 'nothing'}`);
}
END
node look.js | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
