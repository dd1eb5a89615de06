#!/bin/sh
# edifact 1.2.12 (npm, a streaming parser of UN/EDIFACT): where a chunk of the input ends behind a release character, what it
# releases is taken as a separator: IT?'S is two segments, and 12?:30 two components.
#
# The parser is written to in chunks, as they come from a socket or a file, and reads names, numbers and texts across their
# ends; only the ? is forgotten with the chunk that it ends. Nothing is raised for it, the segments after it are whole, and
# each test with a message in one piece passes. pydifact 0.2.3 (PyPI), which takes whole messages, reads all of them. Seen (text
# in the message; read by pydifact, by edifact in one chunk, and in two of which the first ends behind the first ?; | stands
# between components):
#
#   5 ?+ TAX: 5 + TAX; 5 + TAX; 5 | TAX
#   AT 12?:30: AT 12:30; AT 12:30; AT 12|30
#   A??+B: A?|B; A?|B; A+B
#   IT?'S: IT'S; IT'S; IT and a segment S
#
# Needs python3 and Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pydifact==0.2.3
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts edifact@1.2.12 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > texts <<'END'
5 ?+ TAX
AT 12?:30
A??+B
IT?'S
END
cat > look.py <<'END'
import warnings

from pydifact.segmentcollection import RawSegmentCollection

warnings.simplefilter("ignore")
for text in open("texts").read().splitlines():
    (segment,) = RawSegmentCollection.from_str(f"FTX+AAI+++{text}'").segments
    print("|".join(segment.elements[3:]))
END
cat > look.js <<'END'
const { readFileSync } = require('fs');
const { Parser } = require('edifact');

function read(...chunks) {
  const parser = new Parser();
  const segments = [];
  parser.on('opensegment', name => segments.push([name]));
  parser.on('component', text => segments[segments.length - 1].push(text));
  for (const chunk of chunks) parser.write(chunk);
  parser.end();
  const texts = segments.slice(1, -1).map(([name, ...texts]) => (name === 'FTX' ? texts.slice(3).join('|') : name));
  return texts.join(' and a segment ');
}

for (const text of readFileSync('texts', 'utf8').trim().split('\n')) {
  const message = `UNB+UNOC:3+A:1+B:1+260701:1200+1'FTX+AAI+++${text}'UNZ+1+1'`;
  const end = message.indexOf('?') + 1;
  console.log(`${read(message)}; ${read(message.slice(0, end), message.slice(end))}`);
}
END
"$work/venv/bin/python" look.py > by-pydifact
node look.js > by-edifact
paste -d '\t' texts by-pydifact by-edifact | awk -F '\t' '{ print $1 ": " $2 "; " $3 }' | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
