#!/bin/sh
# sparkplug-payload 1.0.3 (npm, Sparkplug B): a metric that is an array has no type and is null, and a Date or a BigInt
# that is written is 0, so that a time becomes 1970.
#
# Sparkplug 3.0.0 has thirteen types of arrays, 22 to 34, whose values are bytes ("Data Types"); the library knows the
# types up to 21 and takes another one for none, and the value for null, as a sender marks what is not known. A DateTime
# is milliseconds; of a Date the library asks for low and high parts, which it has not. Nothing is raised. Eclipse Tahu
# 1.0.7 wrote the bytes and reads [200, 5]. Seen:
#
#   UInt8 200: UInt8 200
#   UInt8Array [200, 5] (type 26): undefined null
#   DateTime 1796040000250, written and read: 1796040000250
#   DateTime new Date(1796040000250), written and read: 0
#   Int64 5000000000, written and read: 5000000000
#   Int64 5000000000n, written and read: 0
#
# Needs Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts sparkplug-payload@1.0.3 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > look.js <<'END'
const sparkplug = require('sparkplug-payload').get('spBv1.0');

const READ = {
  'UInt8 200': '0800120c0a016d18002005380050c801',
  'UInt8Array [200, 5] (type 26)': '0800120e0a016d1800201a3800820102c805',
};
for (const [name, data] of Object.entries(READ)) {
  const [metric] = sparkplug.decodePayload(Buffer.from(data, 'hex')).metrics;
  console.log(`${name}: ${metric.type} ${metric.value}`);
}
const time = 1796040000250;
for (const [type, name, value] of [['DateTime', time, time], ['DateTime', `new Date(${time})`, new Date(time)],
  ['Int64', '5000000000', 5000000000], ['Int64', '5000000000n', 5000000000n]]) {
  const data = sparkplug.encodePayload({ timestamp: time, metrics: [{ name: 'm', type, value }] });
  const [metric] = sparkplug.decodePayload(data).metrics;
  console.log(`${type} ${name}, written and read: ${metric.value}`);
}
END
node look.js | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
