#!/bin/sh
# smpplib 2.2.4: a character of two septets that lies where a long message is divided is cut in two, so that
# the bracket or the euro sign comes as another letter, or with a blank before it.
#
# In GSM's 7-bit alphabet [ ] { } \ ^ ~ | and the euro sign are an escape (1b) and a second septet; such a
# pair shall not be split between the parts of a message (3GPP TS 23.040, 9.2.3.24.1). `gsm.make_parts`
# counts octets, 153 a part. What is alone is shown on its own: 1b as a blank, 3c as <. Who takes in
# the parts decodes each when it comes, as gsm-7 says. Seen (end of the first part, beginning of
# the second):
#
#   152 letters, [, 20 letters: 61 1b, 3c 62
#   100 letters, 40 euro signs: 65 1b, 65 1b
#   151 letters, [, 20 letters: 1b 3c, 62 62
#   of 153 places of [ in 200 letters, divided: 1
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q smpplib==2.2.4
cd "$work"
cat > look.py <<'END'
from smpplib import gsm

UDH = 6


def parts_of(text):
    parts, *_ = gsm.make_parts(text)
    return [bytes(part)[UDH:] for part in parts]


for what, text in (
    ("152 letters, [, 20 letters", "a" * 152 + "[" + "b" * 20),
    ("100 letters, 40 euro signs", "a" * 100 + "\N{EURO SIGN}" * 40),
    ("151 letters, [, 20 letters", "a" * 151 + "[" + "b" * 20),
):
    first, second = parts_of(text)
    print(f"{what}: {first[-2:].hex(' ')}, {second[:2].hex(' ')}")
texts = ("a" * at + "[" + "b" * (200 - at) for at in range(153))
print("of 153 places of [ in 200 letters, divided:", sum(parts_of(t)[0][-1] == 0x1B for t in texts))
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
