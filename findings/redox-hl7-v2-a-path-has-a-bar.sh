#!/bin/sh
# @redoxengine/redox-hl7-v2 1.0.1 (npm): a path with a folder F, S, R or T in a message that it wrote itself comes back
# with a field's bar in it, D:\F\plan as D:\E|E\plan.
#
# \F\ stands for the field separator and \E\ for the escape character, which the message's second field names (HL7 v2,
# chapter 2, "Use of escape sequences"). The library writes D:\F\plan as D:\E\F\E\plan, and reads \F\ before \E\, where
# the first \E\ ends and the second one begins. Nothing is raised. hl7parser 1.0.1 (npm) reads the same messages. Seen:
#
#   A|B: A\F\B, read as A|B; hl7parser A|B
#   D:\E\plan: D:\E\E\E\plan, read as D:\E\plan; hl7parser D:\E\plan
#   D:\F\plan: D:\E\F\E\plan, read as D:\E|E\plan; hl7parser D:\F\plan
#   D:\T\plan: D:\E\T\E\plan, read as D:\E&E\plan; hl7parser D:\T\plan
#
# Needs Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts @redoxengine/redox-hl7-v2@1.0.1 hl7parser@1.0.1 > log 2>&1 \
    || { tail -n 20 log; exit 1; }
cat > look.js <<'END'
const { Generator, Parser } = require('@redoxengine/redox-hl7-v2');
const { create } = require('hl7parser');

const names = (text) => ({ MSH: { 1: '|', 2: '^~\\&', 3: { 1: text }, 9: { 1: 'ACK' } }, MSA: { 1: 'AA', 2: '1' } });
for (const text of ['A|B', 'D:\\E\\plan', 'D:\\F\\plan', 'D:\\T\\plan']) {
  const message = new Generator().write(names(text));
  const written = message.split('|')[2];
  const read = new Parser().parse(message).MSH[3][1];
  console.log(`${text}: ${written}, read as ${read}; hl7parser ${create(message.trim()).get('MSH.3').toString()}`);
}
END
node look.js | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
