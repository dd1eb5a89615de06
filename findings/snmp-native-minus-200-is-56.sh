#!/bin/sh
# snmp-native 1.2.0 (npm): a negative number whose sign needs a byte of its own is sent as a positive one: -129 is 127,
# -200 is 56 and -40000 is 25536; and counters of 64 bits are other ones beyond 2**53.
#
# An INTEGER is two's complement in as few bytes as hold it with its sign (X.690, 8.3). The library counts bytes by the
# logarithm of the number, so that from -129 to -255, from -32769 to -65535 and so on there is one too few. What a
# device is set to is then another value, as a threshold of -20.0 degrees in tenths. What is sent to it it reads well.
# Nothing is raised. asn1crypto 1.5.1 stands beside it. Seen (the number; bytes, what asn1crypto reads; its own bytes):
#
#   -128: 020180 -128; 020180
#   -129: 02017f 127; 0202ff7f
#   -200: 020138 56; 0202ff38
#   -256: 0202ff00 -256; 0202ff00
#   -32769: 02027fff 32767; 0203ff7fff
#   -40000: 020263c0 25536; 0203ff63c0
#   Counter64 9007199254740993: read as 9007199254740992
#
# Needs python3 and Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q asn1crypto==1.5.1
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts snmp-native@1.2.0 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > look.py <<'END'
import json
import subprocess

from asn1crypto.core import Integer

PROGRAM = """
const ber = require('snmp-native/lib/asn1ber');
const [numbers, counter] = JSON.parse(process.argv[1]);
const answers = numbers.map((number) => ber.encodeInteger(number).toString('hex'));
console.log(JSON.stringify([answers, ber.parseInteger(Buffer.from(counter, 'hex'))]));
"""
NUMBERS = (-128, -129, -200, -256, -32769, -40000)
COUNTER = 2**53 + 1
command = ["node", "--no-deprecation", "-e", PROGRAM, json.dumps([NUMBERS, f"4607{COUNTER:014x}"])]
answers, counter = json.loads(subprocess.run(command, check=True, stdout=-1).stdout)
for number, text in zip(NUMBERS, answers, strict=True):
    found = Integer.load(bytes.fromhex(text)).native
    print(f"{number}: {text} {found}; {Integer(number).dump().hex()}")
print(f"Counter64 {COUNTER}: read as {counter}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
