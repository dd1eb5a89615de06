#!/bin/sh
# mt103 1.1.1 (PyPI, payments between banks, SWIFT MT 103): a receiver whose address has its parts (59F) is the end of the
# sender's address, a correspondent with an account is as well; of two banks' charges one is left; and a reference with a
# blank leaves a message without content.
#
# The receiver is field 59, 59A or 59F; 53A may have an account before the bank's code; 71F comes once for each bank that
# took charges, 23E for each instruction; and 20 is up to 16 of SWIFT's characters, of which the blank is one (SWIFT, Standards
# MT, "MT 103 Single Customer Credit Transfer"). The library has one expression for all, whose names and addresses go on
# until the next field that it knows. Nothing is raised; the text of the last two is false as a condition, and the message is
# true. Seen (the change; sender, receiver, charges of banks, amount; line ends as |):
#
#   none: /123|PUMPS LTD, /456|WATER PLC, EUR10,, 1234,5
#   :59F: /123|PUMPS LTD|:59F:/456|1/WATER PLC|3/DE/BERLIN, None, EUR10,, 1234,5
#   :53A: with an account: /123|PUMPS LTD|:53A:/789|DDDDUS33, /456|WATER PLC, EUR10,, 1234,5
#   two :71F: /123|PUMPS LTD, /456|WATER PLC, EUR5,, 1234,5
#   two :23E: None, None, None, None
#   reference REF 1: None, None, None, None
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q mt103==1.1.1
cd "$work"
cat > look.py <<'END'
from mt103 import MT103

HEADERS = "{1:F01AAAABEBBAXXX0000000000}{2:I103CCCCGB2LXXXXN}"
FIELDS = (
    ":20:REF-1",
    ":23B:CRED",
    ":32A:261201EUR1234,5",
    ":33B:EUR1244,5",
    ":50K:/123\nPUMPS LTD",
    ":59:/456\nWATER PLC",
    ":71A:SHA",
    ":71F:EUR10,",
)


def look(change, old="", new=""):
    text = "\n".join(FIELDS)
    assert old in text
    read = MT103(f"{HEADERS}{{4:\n{text.replace(old, new) if old else text}\n-}}")
    assert read
    text = read.text
    shown = (text.ordering_customer, text.beneficiary, text.sender_charges, text.interbank_settled_amount)
    print(f"{change}: {', '.join(str(part).strip().replace(chr(10), '|') for part in shown)}")


look("none")
look(":59F", ":59:/456\nWATER PLC", ":59F:/456\n1/WATER PLC\n3/DE/BERLIN")
look(":53A: with an account", ":59:", ":53A:/789\nDDDDUS33\n:59:")
look("two :71F", ":71F:EUR10,", ":71F:EUR10,\n:71F:EUR5,")
look("two :23E", ":23B:CRED", ":23B:CRED\n:23E:SDVA\n:23E:TELE")
look("reference REF 1", "REF-1", "REF 1")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
