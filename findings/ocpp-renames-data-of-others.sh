#!/bin/sh
# ocpp 2.1.0 (charging stations, OCPP 2.0.1): names inside what a vendor adds to a message are changed when it is
# received, changed in another way when it is sent, and of two that become one a value is lost.
#
# The library turns names of the protocol into Python's (`vendorId` into `vendor_id`) and back, at any depth, so
# also inside `data` of a DataTransfer, which may be any JSON ("without specified length or format"), and of
# customData beyond vendorId, whose names are the vendor's own. The same object, received and sent on, is
# another one: what a program looks for by the name that its vendor's manual has is not there. Nothing is
# logged. Seen (what was sent to a program that answers with what it got; what it got; what went out):
#
#   sent: {"L1": 230, "ACPower": 7, "kWh": 4, "associate": 5, "csms_url": "a", "is_on": true, "isOn": false}
#   got: {"l1": 230, "ac_power": 7, "k_wh": 4, "associate": 5, "csms_url": "a", "is_on": false}
#   answered: {"l1": 230, "acPower": 7, "kWh": 4, "asSoCiate": 5, "CSMSURL": "a", "isOn": false}
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q ocpp==2.1.0
cd "$work"
cat > look.py <<'END'
import asyncio
import json

from ocpp.routing import on
from ocpp.v201 import ChargePoint, call_result

DATA = '{"L1": 230, "ACPower": 7, "kWh": 4, "associate": 5, "csms_url": "a", "is_on": true, "isOn": false}'
seen = {}


class Connection:
    async def send(self, message):
        seen["answered"] = json.loads(message)[2]["data"]


class Program(ChargePoint):
    @on("DataTransfer")
    def take(self, vendor_id, data):
        seen["got"] = dict(data)
        return call_result.DataTransfer(status="Accepted", data=data)


async def main():
    program = Program("station", Connection())
    await program.route_message(
        f'[2, "1", "DataTransfer", {{"vendorId": "org.example", "data": {DATA}}}]'
    )


asyncio.run(main())
print("sent:", DATA)
print("got:", json.dumps(seen["got"]))
print("answered:", json.dumps(seen["answered"]))
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
