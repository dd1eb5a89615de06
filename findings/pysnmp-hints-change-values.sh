#!/bin/sh
# pysnmp 7.1.30, values with a DISPLAY-HINT: 0.29 is sent as 0.28, the number 29 as 2900, and an address
# comes with a wrong end.
#
# With the hint d-2 an INTEGER 29 reads 0.29 (RFC 2579, 3.1 (1)). pysnmp takes such text times 100 as a float
# and cuts it off: of the 2000 texts from 0.00 to 19.99 each fifteenth is one too small, in SET and in
# traps. A Python number is taken for the shown one, too, but not one that came from the wire. For octets,
# the last part of a hint is used again until they end (3.1 (2)); pysnmp starts over with the first part.
# So SnmpOSIAddress of SNMPv2-TM (RFC 3417, hint *1x:/1x:, one octet says how many follow before the /)
# ends in zeros that are not there, and has / for each colon. Seen (what was given: what is sent, or shown):
#
#   "0.29": 28, shown as 0.28
#   "1.15": 114, shown as 1.14
#   29: 2900, shown as 29.00
#   29 from the wire: 29, shown as 0.29
#   texts from "0.00" to "19.99": 137 of 2000 are one less
#   03 0a ff 01 00 05, which is 0a:ff:01/00:05: 0a/ff/01/00:0000000000
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pysnmp==7.1.30
cd "$work"
cat > look.py <<'END'
from pysnmp.proto.rfc1902 import Integer32, OctetString
from pysnmp.smi import builder, view
from pysnmp.smi.rfc1902 import ObjectIdentity, ObjectType

HEAT, ADDRESS = (1, 3, 6, 1, 4, 1, 99999, 1), (1, 3, 6, 1, 4, 1, 99999, 2)

mibs = builder.MibBuilder()
mibs.load_modules("SNMPv2-TM")
(Scalar,) = mibs.import_symbols("SNMPv2-SMI", "MibScalar")
(TextualConvention,) = mibs.import_symbols("SNMPv2-TC", "TextualConvention")
(SnmpOSIAddress,) = mibs.import_symbols("SNMPv2-TM", "SnmpOSIAddress")


class Hundredths(TextualConvention, Integer32):
    displayHint = "d-2"


mibs.export_symbols("SOME-MIB", heat=Scalar(HEAT, Hundredths()))
mibs.export_symbols("SOME-MIB", address=Scalar(ADDRESS, SnmpOSIAddress()))
controller = view.MibViewController(mibs)


def resolved(name, value):
    return ObjectType(ObjectIdentity((*name, 0)), value).resolve_with_mib(controller)[1]


for what, value in (
    ('"0.29"', "0.29"),
    ('"1.15"', "1.15"),
    ("29", 29),
    ("29 from the wire", Integer32(29)),
):
    made = resolved(HEAT, value)
    print(f"{what}: {int(made)}, shown as {made.prettyPrint()}")
less = sum(int(resolved(HEAT, f"{n // 100}.{n % 100:02}")) == n - 1 for n in range(2000))
print(f'texts from "0.00" to "19.99": {less} of 2000 are one less')
octets = bytes([3, 0x0A, 0xFF, 1, 0, 5])
shown = resolved(ADDRESS, OctetString(octets)).prettyPrint()
print(f"{octets.hex(' ')}, which is 0a:ff:01/00:05: {shown}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
