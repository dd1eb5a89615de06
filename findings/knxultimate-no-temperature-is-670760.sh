#!/bin/sh
# knxultimate 5.4.0 (npm): what a sensor sends in place of a temperature that it does not have is read as
# 670760.96 degrees, and times in tens or hundreds of milliseconds are read as if they were milliseconds.
#
# All types of DPT 9 have 7FFF for invalid data (KNX "Datapoint Types", 3.10); xknx 4.0.0 raises for
# it. A count of DPT 7.003 is of 10 ms, one of 7.004 of 100 ms, and both are ms in the library's tables too. What
# it writes is as it reads, so that a lamp which is told to fade for 500 ms fades for 50 s. Seen:
#
#   9.001 of 0c1a: knxultimate 21, xknx 21
#   9.001 of 7fff: knxultimate 670760.96, xknx ConversionError
#   9.007 of 7fff: knxultimate 670760.96, xknx ConversionError
#   7.002 of 01f4: knxultimate 500, xknx 500
#   7.003 of 01f4: knxultimate 500, xknx 5000
#   7.004 of 01f4: knxultimate 500, xknx 50000
#   500 as 7.004: knxultimate 01f4, xknx 0005
#
# Needs python3 and Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q xknx==4.0.0
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts knxultimate@5.4.0 > log 2>&1 ||
    { tail -n 20 log; exit 1; }
cat > ask.js <<'END'
const { dptlib } = require('knxultimate');
const [questions, number] = JSON.parse(process.argv[2]);
const answers = questions.map(([type, data]) =>
  String(dptlib.fromBuffer(Buffer.from(data, 'hex'), dptlib.resolve(`DPT${type}`))));
answers.push(dptlib.resolve('DPT7.004').formatAPDU(number).toString('hex'));
process.stdout.write(`${JSON.stringify(answers)}\n`, () => process.exit(0));
END
cat > look.py <<'END'
import json
import subprocess

from xknx.dpt import DPTArray, DPTBase
from xknx.exceptions import ConversionError

QUESTIONS = [("9.001", "0c1a"), ("9.001", "7fff"), ("9.007", "7fff")]
QUESTIONS += [(kind, "01f4") for kind in ("7.002", "7.003", "7.004")]


def kind(name):
    main, sub = map(int, name.split("."))
    return DPTBase.transcoder_by_dpt(main, sub)


def read(name, data):
    try:
        return f"{kind(name).from_knx(DPTArray(tuple(bytes.fromhex(data)))):g}"
    except ConversionError as error:
        return type(error).__name__


command = ["node", "ask.js", json.dumps([QUESTIONS, 500])]
answers = json.loads(subprocess.run(command, check=True, stdout=-1).stdout.splitlines()[-1])
*found, written = answers
for (name, data), answer in zip(QUESTIONS, found, strict=True):
    print(f"{name} of {data}: knxultimate {answer}, xknx {read(name, data)}")
print(f"500 as 7.004: knxultimate {written}, xknx {bytes(kind('7.004').to_knx(500).value).hex()}")
END
timeout 120 "$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
