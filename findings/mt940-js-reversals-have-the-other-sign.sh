#!/bin/sh
# mt940-js 1.0.0 (npm, bank statements): money that was taken back is money that came, and the other way round; and by
# it and by @centrapay/swift-parser 1.0.1 what is booked in January for a day of December is booked a year too early,
# what is booked in December for one of January a year too late. The latter makes 1.24 of 1.235 dinars.
#
# A line has C, D, RC or RD: a reversal of a credit is a debit (SWIFT MT940, field 61, subfield 3). mt940-js looks
# for the C alone. The second date has no year, and is near the first one (subfield 2); both give it the
# first one's year. Amounts have as many digits as the currency, dinars of Kuwait three (ISO 4217). Nothing is
# raised. mt-940 5.1.1 for Python gives the second date its year. Seen (the line; amount and second date by each):
#
#   251231 1231 C100,00: mt940-js came 100 2025-12-31; swift-parser 100 2025-12-31; mt-940 2025-12-31
#   251231 1231 RC100,00: mt940-js came 100 2025-12-31; swift-parser -100 2025-12-31; mt-940 2025-12-31
#   251231 1231 RD100,00: mt940-js went 100 2025-12-31; swift-parser 100 2025-12-31; mt-940 2025-12-31
#   251231 0102 C100,00: mt940-js came 100 2025-01-02; swift-parser 100 2025-01-02; mt-940 2026-01-02
#   260101 1231 C100,00: mt940-js came 100 2026-12-31; swift-parser 100 2026-12-31; mt-940 2025-12-31
#   260115 0115 C1,235: mt940-js came 1.235 2026-01-15; swift-parser 1.24 2026-01-15; mt-940 2026-01-15
#
# Needs python3 and Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q mt-940==5.1.1
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts mt940-js@1.0.0 tslib@2.8.1 \
    @centrapay/swift-parser@1.0.1 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > look.py <<'END'
import json
import subprocess

import mt940

PROGRAM = """
const first = require('mt940-js');
const second = require('@centrapay/swift-parser');
const day = (date) => new Date(date).toISOString().slice(0, 10);
(async () => {
  const answers = [];
  for (const text of JSON.parse(process.argv[1])) {
    const one = (await first.read(Buffer.from(text)))[0].transactions[0];
    const two = second.parse({ type: 'mt940', data: text, validate: false })[0].transactions[0];
    answers.push([`${one.isCredit ? 'came' : 'went'} ${one.amount} ${one.entryDate}`,
      `${two.amount} ${day(two.entryDate)}`]);
  }
  console.log(JSON.stringify(answers));
})();
"""
LINES = ("251231 1231 C100,00", "251231 1231 RC100,00", "251231 1231 RD100,00")
LINES += ("251231 0102 C100,00", "260101 1231 C100,00", "260115 0115 C1,235")


def statement(line):
    sign = -1 if " RC" in line else 1
    closing = 1000 + sign * float(line.split()[-1].lstrip("RCD").replace(",", "."))
    digits = f"{closing:.3f}" if ",235" in line else f"{closing:.2f}"
    currency = "KWD" if ",235" in line else "EUR"
    return "\r\n".join((
        ":20:STATEMENT", ":25:123456789", ":28C:1/1", f":60F:C251230{currency}1000,00",
        f":61:{line.replace(' ', '')}NTRFREFERENCE//BANKREFERENCE123", ":86:text",
        f":62F:C260131{currency}{digits.replace('.', ',')}", "-", ""
    ))


texts = list(map(statement, LINES))
command = ["node", "-e", PROGRAM, json.dumps(texts)]
answers = json.loads(subprocess.run(command, check=True, stdout=-1).stdout)
for line, text, (one, two) in zip(LINES, texts, answers, strict=True):
    (known,) = mt940.parse(text)
    print(f"{line}: mt940-js {one}; swift-parser {two}; mt-940 {known.data['guessed_entry_date']}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
