#!/bin/sh
# nodehl7 2.0.0 (npm, HL7 v2): of the characters that a sender has escaped, the field separator comes out as the
# component separator, and that one as the field separator.
#
# \F\ stands for the field separator, usually |, and \S\ for the one of components, ^ (HL7 v2.5.1, 2.7.1). The
# library has them the other way round, in the values that it hands out; \X41\, a character by its number, stays. A name
# or a unit such as 10^3/ul (which is sent as 10\S\3/ul) reads 10|3/ul, and what is made into a message again has one
# field more. Nothing is raised. hl7 0.4.5 for Python reads what was sent. Seen (the field of a message):
#
#   10\S\3/ul: nodehl7 10|3/ul, hl7 10^3/ul
#   a\F\b: nodehl7 a^b, hl7 a|b
#   a\T\b: nodehl7 a&b, hl7 a&b
#   a\R\b: nodehl7 a~b, hl7 a~b
#   a\E\b: nodehl7 a\b, hl7 a\b
#   \X41\: nodehl7 \X41\, hl7 A
#
# Needs python3 and Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q hl7==0.4.5
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts nodehl7@2.0.0 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > look.py <<'END'
import json
import subprocess

import hl7

PROGRAM = """
const Parser = require('nodehl7');
const results = [];
const parser = new Parser({ mapping: false });
for (const text of JSON.parse(process.argv[1])) {
  parser.parse(text, 'id', (error, message) => {
    if (error) throw error;
    results.push(message.segments[1].parts[2]);
    if (results.length === JSON.parse(process.argv[1]).length) console.log(JSON.stringify(results));
  });
}
"""
FIELDS = (r"10\S\3/ul", r"a\F\b", r"a\T\b", r"a\R\b", r"a\E\b", r"\X41" + "\\")
HEAD = r"MSH|^~\&|A|B|C|D|20261130||ORU^R01|1|P|2.5"
texts = [f"{HEAD}\rNTE|1||{field}\r" for field in FIELDS]
command = ["node", "-e", PROGRAM, json.dumps(texts)]
answers = json.loads(subprocess.run(command, check=True, stdout=-1).stdout)
for field, text, answer in zip(FIELDS, texts, answers, strict=True):
    message = hl7.parse(text)
    print(f"{field}: nodehl7 {answer}, hl7 {message.unescape(str(message.segment('NTE')[3]))}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
