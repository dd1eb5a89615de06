#!/bin/sh
# netflow 0.12.2, IPFIX: of a flow that was counted in both directions one count remains, and bytes and
# packets of it may be of different directions. Elements of other makers take such places, too, and what
# is false is the number 2.
#
# An element of IPFIX is known by its number and by who gave it: that of the other direction has the
# number of the first with 29305 for a maker (RFC 5103, 6.1), and any maker has numbers of its own
# (RFC 7011, 3.2). The library looks at the number alone, keeps pairs of number and value in a set and
# makes a dict of it, so which one stays hangs on the values. A boolean false is 2 (RFC 7011, 6.1.5),
# and stays so, which is true in Python. Seen (what was sent, what is read):
#
#   1000 bytes in 10 packets, back 50 in 5: octetDeltaCount 50, packetDeltaCount 5
#   50 bytes in 5 packets, back 1000 in 10: octetDeltaCount 50, packetDeltaCount 5
#   123456 bytes in 100 packets, back 654321 in 200: octetDeltaCount 654321, packetDeltaCount 100
#   element 1 of maker 9, 7: octetDeltaCount 7
#   dataRecordsReliability false: dataRecordsReliability 2
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q netflow==0.12.2
cd "$work"
cat > look.py <<'END'
import struct

import netflow

IANA, REVERSE, CISCO = 0, 29305, 9
TEMPLATES, TEMPLATE = 2, 256
OCTETS, PACKETS, RELIABLE = 1, 2, 276


def section(number, body):
    return struct.pack("!HH", number, 4 + len(body)) + body


def read(elements, record):
    template = struct.pack("!HH", TEMPLATE, len(elements))
    for number, size, maker in elements:
        template += struct.pack("!HH", number | (0x8000 if maker else 0), size)
        template += struct.pack("!I", maker) if maker else b""
    body = section(TEMPLATES, template) + section(TEMPLATE, record)
    head = struct.pack("!HHIII", 10, 16 + len(body), 1_700_000_000, 0, 0)
    (flow,) = netflow.parse_packet(head + body, {"ipfix": {}}).flows
    return ", ".join(f"{name} {value}" for name, value in sorted(flow.data.items()))


for counts in ((1000, 10, 50, 5), (50, 5, 1000, 10), (123456, 100, 654321, 200)):
    elements = [(each, 8, maker) for maker in (IANA, REVERSE) for each in (OCTETS, PACKETS)]
    sent = "{} bytes in {} packets, back {} in {}".format(*counts)
    print(f"{sent}: {read(elements, struct.pack('!QQQQ', *counts))}")
print("element 1 of maker 9, 7:", read([(1, 8, CISCO)], struct.pack("!Q", 7)))
print("dataRecordsReliability false:", read([(RELIABLE, 1, IANA)], b"\2"))
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
