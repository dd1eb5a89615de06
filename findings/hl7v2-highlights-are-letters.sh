#!/bin/sh
# hl7v2 1.8.0 (npm, HL7 version 2): a highlighted "High" of a laboratory is "HHighN"; a line's end in a text is the letters
# ".br" for whoever gets the message from it.
#
# \H\ begins highlighting, \N\ ends it, \.br\ ends a line, and what stands between escape characters and is not known is to
# be left out of what is shown (HL7 2.5.1, 2.7, "Use of Escape Sequences in Text Fields"). The library puts the letters of
# those it does not know into the text; those with a point it leaves as they are, and writes their escape characters as
# text when it sends the message on, as \E\.br\E\. Nothing is raised. Seen (a field as sent, its value, as written again):
#
#   \H\High\N\ potassium: HHighN potassium, HHighN potassium
#   first\.br\second: first\.br\second, first\E\.br\E\second
#   5 \T\ 6 \F\ 7: 5 & 6 | 7, 5 \T\ 6 \F\ 7
#   \Z01\5.9: Z015.9, Z015.9
#
# Needs Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts hl7v2@1.8.0 hl7v2-dictionary@1.8.0 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > look.mjs <<'END'
import { HL7Message } from 'hl7v2';

const TEXTS = [String.raw`\H\High\N\ potassium`, String.raw`first\.br\second`, String.raw`5 \T\ 6 \F\ 7`, String.raw`\Z01\5.9`];

for (const text of TEXTS) {
  const head = String.raw`MSH|^~\&|LAB|A|EHR|B|20260630120000||ORU^R01|1|P|2.5`;
  const message = HL7Message.parse(`${head}\rOBX|1|TX|K^Potassium||${text}||||||F`);
  const [, found] = message.segments;
  const again = message.toHL7String().split('\r')[1].split('|')[5];
  console.log(`${text}: ${found.field(5).getValue()}, ${again}`);
}
END
node look.mjs | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
