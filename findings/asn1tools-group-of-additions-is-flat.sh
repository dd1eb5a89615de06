#!/bin/sh
# asn1tools 0.169.0, OER: in a SEQUENCE that was extended by a group, [[ ... ]], a number that was sent is read
# back as the boolean of another field.
#
# A group of additions is one addition, with one bit that says whether it is there and one length (X.696, 16.4
# and 16.5). The library writes a bit and a length for each of its members, and when it reads, takes the first bit
# for another one: of `c` alone, it finds `d`. Such groups are how protocols tell their versions apart. In UPER it
# treats the group as pycrate 0.8.1 does. Seen (what was sent; the bytes, and what asn1tools reads
# from them: its own, then pycrate's; of the type a INTEGER, ..., c INTEGER OPTIONAL, [[ d BOOLEAN, e INTEGER
# OPTIONAL ]]):
#
#   OER, a 1: 000101 is a 1; 000101 is a 1
#   OER, a 1, c 2: 800101020540020102 is a 1, d True; 800101020680020102 is a 1, c 2
#   OER, a 1, d True: 80010102054001ff is a 1, d True; 8001010206400200ff is a 1, d False
#   OER, a 1, c 2, d True: 8001010205c002010201ff is a 1, c 2, d True; 8001010206c00201020200ff is a 1, c 2, d False
#   UPER, a 1, c 2: 80808180804080 is a 1, c 2; 80808180804080 is a 1, c 2
#   UPER, a 1, d True: 808081405000 is a 1, d True; 808081405000 is a 1, d True
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

TEXT = """M DEFINITIONS AUTOMATIC TAGS ::= BEGIN
A ::= SEQUENCE { a INTEGER, ..., c INTEGER OPTIONAL, [[ d BOOLEAN, e INTEGER OPTIONAL ]] }
END"""
sys.path.insert(0, ".")
with contextlib.redirect_stdout(io.StringIO()):
    compile_text(TEXT)
    generate_modules(PycrateGenerator, "generated.py")
    import generated


def shown(value):
    return ", ".join(f"{name} {value[name]}" for name in sorted(value))


for rules, value in (
    ("OER", {"a": 1}),
    ("OER", {"a": 1, "c": 2}),
    ("OER", {"a": 1, "d": True}),
    ("OER", {"a": 1, "c": 2, "d": True}),
    ("UPER", {"a": 1, "c": 2}),
    ("UPER", {"a": 1, "d": True}),
):
    other = generated.M.A
    other.set_val(value)
    asn1 = asn1tools.compile_string(TEXT, rules.lower())
    written = asn1.encode("A", value), other.to_uper() if rules == "UPER" else other.to_oer()
    seen = "; ".join(f"{data.hex()} is {shown(asn1.decode('A', data))}" for data in written)
    print(f"{rules}, {shown(value)}: {seen}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
