#!/bin/sh
# asn1tools 0.169.0, PER and UPER: of a constraint with several parts (0..10 | 255) the first one counts, and a
# value of another part is sent as another value: 255 is 15, and "abc" is "a".
#
# PER has as many bits as the whole range needs, from the least value of all parts to the greatest (X.691,
# 11.5 and 13.2.2; X.680, 50). The library takes as many as the first part needs and drops those above, without
# an error, and what it wrote it reads back as the other value. A number behind a gap is what protocols have for
# "unavailable" or "other". In OER, where lengths are whole bytes, the numbers are right. Seen (the type, the
# value, the bytes by pycrate 0.8.1 and by asn1tools, and what asn1tools reads from its own):
#
#   UPER, INTEGER (0..10 | 255), 3: 03, 30 is 3
#   UPER, INTEGER (0..10 | 255), 255: ff, f0 is 15
#   UPER, INTEGER (0 | 1 | 2), 2: 80, none is 0
#   UPER, INTEGER (5 | 10..20), 20: f0, none is 5
#   UPER, OCTET STRING (SIZE(1 | 3)), 616263: 985898c0, 616263 is 61
#   OER, INTEGER (0..10 | 255), 255: ff, ff is 255
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

TYPES = {
    "A": "INTEGER (0..10 | 255)",
    "B": "INTEGER (0 | 1 | 2)",
    "C": "INTEGER (5 | 10..20)",
    "D": "OCTET STRING (SIZE(1 | 3))",
}
types = "\n".join(f"{name} ::= {what}" for name, what in TYPES.items())
text = f"M DEFINITIONS AUTOMATIC TAGS ::= BEGIN\n{types}\nEND"
sys.path.insert(0, ".")
with contextlib.redirect_stdout(io.StringIO()):
    compile_text(text)
    generate_modules(PycrateGenerator, "generated.py")
    import generated


def shown(value):
    return value.hex() or "none" if isinstance(value, bytes) else value


for rules, name, value in (
    ("UPER", "A", 3),
    ("UPER", "A", 255),
    ("UPER", "B", 2),
    ("UPER", "C", 20),
    ("UPER", "D", b"abc"),
    ("OER", "A", 255),
):
    other = getattr(generated.M, name)
    other.set_val(value)
    right = other.to_uper() if rules == "UPER" else other.to_oer()
    asn1 = asn1tools.compile_string(text, rules.lower())
    written = asn1.encode(name, value)
    read = asn1.decode(name, written)
    print(f"{rules}, {TYPES[name]}, {shown(value)}: {shown(right)}, {shown(written)} is {shown(read)}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
