#!/bin/sh
# @bacnet-js/client 3.3.2 (npm): the times at which an object's last events were (event-time-stamps) have the day of
# the week for the day of the month: what was on the 30th, a Monday, was on the 1st, and what was on a Sunday was on
# the last day of the month before.
#
# The date is made a Date of JavaScript and taken apart again by getDay where getDate is meant. All three
# transitions of every object (to off-normal, to fault, to normal) are read so, and the hours are right. bacpypes3
# 0.0.110 encodes the answer here, which comes to the client's readProperty over UDP, and reads it. Seen:
#
#   Monday 2026-11-30 08:15: bacnet-js 2026-11-01 08:15, bacpypes3 2026-11-30 mon
#   Sunday 2026-11-15 08:15: bacnet-js 2026-10-31 08:15, bacpypes3 2026-11-15 sun
#   Wednesday 2026-11-18 23:59: bacnet-js 2026-11-03 23:59, bacpypes3 2026-11-18 wed
#
# Needs python3 and Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q bacpypes3==0.0.110
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts @bacnet-js/client@3.3.2 > log 2>&1 ||
    { tail -n 20 log; exit 1; }
cat > ask.js <<'END'
const Client = require('@bacnet-js/client').default;
const { ObjectType, PropertyIdentifier } = require('@bacnet-js/client');

async function main() {
  const client = new Client({ port: Number(process.argv[3]), interface: '127.0.0.1', apduTimeout: 20000 });
  await new Promise((resolve) => client.on('listening', resolve));
  const { values } = await client.readProperty(
    { address: `127.0.0.1:${process.argv[2]}` },
    { type: ObjectType.ANALOG_INPUT, instance: 1 },
    PropertyIdentifier.EVENT_TIME_STAMPS,
  );
  const two = (number) => String(number).padStart(2, '0');
  const shown = values.map(({ value: at }) => {
    const date = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
    return `${date} ${two(at.getHours())}:${two(at.getMinutes())}`;
  });
  console.log(JSON.stringify(shown));
  client.close();
}

main();
END
cat > look.py <<'END'
import datetime
import json
import socket
import subprocess

from bacpypes3.basetypes import DateTime, TimeStamp
from bacpypes3.pdu import PDUData
from bacpypes3.primitivedata import Date, TagList, Time

TIMES = (
    datetime.datetime(2026, 11, 30, 8, 15),
    datetime.datetime(2026, 11, 15, 8, 15),
    datetime.datetime(2026, 11, 18, 23, 59),
)


def encoded(at):
    date = Date((at.year - 1900, at.month, at.day, at.isoweekday()))
    stamp = TimeStamp(dateTime=DateTime(date=date, time=Time((at.hour, at.minute, 0, 0))))
    return bytes(stamp.encode().encode().pduData)


def decoded(data):
    return str(TimeStamp.decode(TagList.decode(PDUData(data))).dateTime.date)


def free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


device = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
device.bind(("127.0.0.1", 0))
device.settimeout(60)
command = ["node", "ask.js", str(device.getsockname()[1]), free_port()]
client = subprocess.Popen(command, stdout=subprocess.PIPE)
try:
    request, sender = device.recvfrom(1500)
    invoke = request[8:9]  # after BVLC (4), NPDU (2), the PDU's type and its sizes
    stamps = [encoded(at) for at in TIMES]
    answer = b"\x01\x00\x30" + invoke + bytes.fromhex("0c0c000000011982") + b"\x3e" + b"".join(stamps) + b"\x3f"
    device.sendto(b"\x81\x0a" + (len(answer) + 4).to_bytes(2, "big") + answer, sender)
    found = json.loads(client.communicate(timeout=60)[0])
finally:
    client.kill()
for at, data, shown in zip(TIMES, stamps, found, strict=True):
    print(f"{at:%A %Y-%m-%d %H:%M}: bacnet-js {shown}, bacpypes3 {decoded(data)}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
