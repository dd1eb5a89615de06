#!/bin/sh
# takproto 3.0.1: what a CoT event says of a contact, a status or a track beyond two attributes is lost on its
# way from XML to protobuf.
#
# TAK's protocol has fields for some elements of <detail>, and `xmlDetail` for the rest as XML. An element
# goes into its field only if it has the attributes of the field and no others; else all of it stays in
# `xmlDetail` (the comments of the protocol's detail.proto; TAK Server does so). takproto
# goes by the name of the element: it takes the attributes that it knows, and neither the others nor text
# nor children are anywhere. `xml2proto` is what PyTAK sends with, and it says nothing. Seen (what is left):
#
#   <contact callsign="A" phone="555"/>: contact: callsign "A"
#   <contact callsign="A"><alias name="B"/></contact>: contact: callsign "A"
#   <status battery="55" readiness="true"/>: status: battery 55
#   <status readiness="true"/>: nothing
#   <track speed="1.5" course="90" slope="2"/>: track: speed 1.5, course 90
#   <remarks source="C">text</remarks>: xmlDetail: <remarks source="C">text</remarks>
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q takproto==3.0.1
cd "$work"
cat > look.py <<'END'
from takproto import parse_proto, xml2proto

EVENT = (
    '<event version="2.0" uid="U1" type="a-f-G-U-C" how="m-g" time="2026-01-01T12:00:00.000Z"'
    ' start="2026-01-01T12:00:00.000Z" stale="2026-01-01T12:05:00.000Z">'
    '<point lat="52.5" lon="-13.4" hae="100.5" ce="10" le="20"/><detail>{}</detail></event>'
)


def shown(message):
    return ", ".join(str(message).replace(":", "").strip().split("\n"))


for given in (
    '<contact callsign="A" phone="555"/>',
    '<contact callsign="A"><alias name="B"/></contact>',
    '<status battery="55" readiness="true"/>',
    '<status readiness="true"/>',
    '<track speed="1.5" course="90" slope="2"/>',
    '<remarks source="C">text</remarks>',
):
    detail = parse_proto(xml2proto(EVENT.format(given))).cotEvent.detail
    left = [
        f"{field.name}: {value if field.name == 'xmlDetail' else shown(value)}"
        for field, value in detail.ListFields()
    ]
    print(f"{given}: {'; '.join(left) or 'nothing'}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
