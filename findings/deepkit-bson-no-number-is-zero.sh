#!/bin/sh
# @deepkit/bson 1.0.19 (npm): NaN, which a sensor or a division by zero has left in a document, is read as 0; and the
# least integer of 64 bits is written as a positive one.
#
# NaN is a double like others in BSON, and MongoDB keeps and sorts it. The library writes it as it is, and has 0 for it
# when it reads, its own bytes or those of others, so that a mean or a least value of what was not measured is
# changed. An infinite one is right. -(2n ** 63n) loses its sign when it is written. Nothing is raised. bson 7.3.4,
# MongoDB's own library, reads both. Seen (what was given; what deepkit reads, what bson reads from deepkit's bytes):
#
#   NaN: deepkit 0, bson NaN
#   NaN by bson: deepkit 0, bson NaN
#   Infinity: deepkit Infinity, bson Infinity
#   -9223372036854775807n: deepkit -9223372036854775807, bson -9223372036854775807
#   -9223372036854775808n: deepkit 9223372032559808512, bson 9223372032559808512
#
# Needs Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts @deepkit/bson@1.0.19 @deepkit/core@1.0.19 \
    @deepkit/type@1.0.19 bson@7.3.4 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > look.js <<'END'
const { serializeBSONWithoutOptimiser, deserializeBSONWithoutOptimiser } = require('@deepkit/bson');
const { serialize, deserialize } = require('bson');

const CASES = [['NaN', NaN], ['NaN by bson', NaN], ['Infinity', Infinity],
  ['-9223372036854775807n', -(2n ** 63n) + 1n], ['-9223372036854775808n', -(2n ** 63n)]];
for (const [name, value] of CASES) {
  const bytes = (name.endsWith('bson') ? serialize : serializeBSONWithoutOptimiser)({ value });
  const found = deserializeBSONWithoutOptimiser(bytes).value;
  console.log(`${name}: deepkit ${found}, bson ${deserialize(bytes, { useBigInt64: true }).value}`);
}
END
node look.js | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
