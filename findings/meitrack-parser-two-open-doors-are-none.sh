#!/bin/sh
# meitrack-parser 2.0.0 (npm, of what Meitrack's trackers of vehicles send): inputs 3 and 4 are on together, and none is; inputs 1
# and 4 are seen. Below the level of the sea there is no message.
#
# A tracker has the state of its inputs and outputs as four hexadecimal digits, of which each stands for four of them. The
# library reads each digit as a decimal one, and has no bits for A to F, which come as soon as 2 and 4 are on, or 3 and 4. For
# the altitude, which has a sign, it expects digits alone; what does not fit is handed on as of no known type. Length and
# checksum of the messages are right. Seen (state or altitude: inputs that are on, outputs that are on):
#
#   0100: inputs 1, outputs none
#   0800: inputs 4, outputs none
#   0900: inputs 1 4, outputs none
#   0A00: inputs none, outputs none
#   0C00: inputs none, outputs none
#   000F: inputs none, outputs none
#   0003: inputs none, outputs 1 2
#   altitude 35: data
#   altitude -415: UNKNOWN
#
# Needs Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts meitrack-parser@2.0.0 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > look.js <<'END'
const meitrack = require('meitrack-parser');

function message(state, altitude) {
  const fields = [
    '100000000000001', 'AAA', 35, '31.500000', '35.480000', '260701080000', 'A', 8, 27, 0, 289, 1.3, altitude, 318379,
    2338885, '425|1|32D3|A03F', state, '0000|0000|0000|02DA|0106', '00000001', '',
  ].join(',');
  // From the comma behind the length to the line's end.
  const front = `$$e${fields.length + 6},${fields}*`;
  const sum = [...Buffer.from(front)].reduce((before, byte) => (before + byte) & 255, 0);
  return Buffer.from(`${front}${sum.toString(16).toUpperCase().padStart(2, '0')}\r\n`);
}

const on = ports => Object.keys(ports).filter(port => ports[port]).join(' ') || 'none';

for (const state of ['0100', '0800', '0900', '0A00', '0C00', '000F', '0003']) {
  const { input, output } = meitrack.parse(message(state, 35)).status;
  console.log(`${state}: inputs ${on(input)}, outputs ${on(output)}`);
}
for (const altitude of [35, -415]) console.log(`altitude ${altitude}: ${meitrack.parse(message('0000', altitude)).type}`);
END
node look.js | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
