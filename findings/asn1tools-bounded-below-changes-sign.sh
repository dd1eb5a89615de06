#!/bin/sh
# asn1tools 0.169.0, PER and UPER: an INTEGER that has a least value and no greatest is read with another sign
# or as a smaller number: of INTEGER (0..MAX), 200 is -56.
#
# Of such a type PER sends how far the value is from the least one, as a number without a sign (X.691, 11.7 and
# 13.2.3). The library reads and writes it as if it had no bounds, with a sign. What it wrote it reads back, so
# a test that has it on both sides finds nothing; up to 127 a type that begins at 0 is right, too. That
# pycrate 0.8.1 and X.691 agree is seen in the bytes. Seen (the type, the value, pycrate's bytes and what
# asn1tools reads from them, its own bytes and what pycrate reads):
#
#   UPER, INTEGER (0..MAX), 100: 0164 is 100; 0164 is 100
#   UPER, INTEGER (0..MAX), 200: 01c8 is -56; 0200c8 is 200
#   UPER, INTEGER (0..MAX), 40000: 029c40 is -25536; 03009c40 is 40000
#   UPER, INTEGER (10..MAX), 10: 0100 is 0; 010a is 20
#   UPER, INTEGER (-5..MAX), -5: 0100 is 0; 01fb is 246
#   PER, INTEGER (0..MAX), 200: 01c8 is -56; 0200c8 is 200
#   PER, INTEGER (-5..MAX), 0: 0105 is 5; 0100 is -5
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q asn1tools==0.169.0 pycrate==0.8.1
cd "$work"
cat > look.py <<'END'
import contextlib
import io
import sys

import asn1tools
from pycrate_asn1c.asnproc import PycrateGenerator, compile_text, generate_modules

RANGES = {"A": "0..MAX", "B": "10..MAX", "C": "-5..MAX"}
types = "\n".join(f"{name} ::= INTEGER ({bounds})" for name, bounds in RANGES.items())
text = f"M DEFINITIONS AUTOMATIC TAGS ::= BEGIN\n{types}\nEND"
sys.path.insert(0, ".")
with contextlib.redirect_stdout(io.StringIO()):
    compile_text(text)
    generate_modules(PycrateGenerator, "generated.py")
    import generated

for rules, cases in (
    ("UPER", (("A", 100), ("A", 200), ("A", 40000), ("B", 10), ("C", -5))),
    ("PER", (("A", 200), ("C", 0))),
):
    asn1 = asn1tools.compile_string(text, rules.lower())
    for name, value in cases:
        other = getattr(generated.M, name)
        other.set_val(value)
        right = other.to_uper() if rules == "UPER" else other.to_aper()
        written = asn1.encode(name, value)
        (other.from_uper if rules == "UPER" else other.from_aper)(written)
        print(
            f"{rules}, INTEGER ({RANGES[name]}), {value}: {right.hex()} is {asn1.decode(name, right)}; "
            f"{written.hex()} is {other.get_val()}"
        )
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
