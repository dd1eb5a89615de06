#!/bin/sh
# mllp-node 2.0.0 (npm, a server of MLLP, by which hospitals send HL7 v2): while two devices send, what comes of one is joined
# to what has come of the other: the glucose of one patient is in the message of another, and acknowledged.
#
# MLLP frames a message, of which TCP may bring any part by itself, as it does with what is larger than a packet. The server
# keeps one message for all of its connections: the beginning of a second one replaces what there was of the first, and what
# follows on either is put behind it. The end is looked for in each part alone, and the rest of a part behind it is kept. The
# server of hl7 0.4.5 (PyPI) takes each as it was sent. Two connections, each with a message in two parts, sent in turns. Seen
# (server: patient and result of each message; which message each device is answered for, none where it waits):
#
#   hl7: P1 GLU 5.1, P2 GLU 17.9; M1 M2
#   mllp-node: P2 GLU 5.1, P2 GLU 5.1 GLU 17.9; M2 M2
#
# Needs python3 and Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
server=
trap 'kill $server 2> /dev/null || true; rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q hl7==0.4.5
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts mllp-node@2.0.0 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > server.js <<'END'
const { createServer } = require('net');
const { appendFileSync, writeFileSync } = require('fs');
const { MLLPServer } = require('mllp-node');

const probe = createServer().listen(0, '127.0.0.1', () => {
  const { port } = probe.address();
  probe.close(() => {
    const server = new MLLPServer('127.0.0.1', port, () => {});
    server.on('hl7', message => appendFileSync('messages', `${JSON.stringify(message)}\n`));
    setTimeout(() => writeFileSync('port', `${port}\n`), 500);
  });
});
END
cat > server.py <<'END'
import asyncio
import json

import hl7.mllp


async def serve(reader, writer):
    while True:
        try:
            message = await reader.readmessage()
        except asyncio.IncompleteReadError:
            return
        with open("messages", "a") as file:
            file.write(json.dumps(str(message)) + "\n")
        writer.writemessage(message.create_ack())
        await writer.drain()


async def main():
    server = await hl7.mllp.start_hl7_server(serve, "127.0.0.1", 0)
    with open("port", "w") as file:
        file.write(f"{server.sockets[0].getsockname()[1]}\n")
    await server.serve_forever()


asyncio.run(main())
END
cat > devices.py <<'END'
import json
import re
import socket
import time

with open("port") as file:
    port = int(file.read())


def message(number, value):
    head = f"MSH|^~\\&|DEVICE{number}|WARD|LAB|SITE|20260701120000||ORU^R01|M{number}|P|2.5\r"
    return f"\x0b{head}PID|1||P{number}\r".encode(), f"OBX|1|NM|GLU||{value}\r\x1c\r".encode()


devices = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
messages = [message(1, 5.1), message(2, 17.9)]
for part in range(2):
    for device, parts in zip(devices, messages):
        device.sendall(parts[part])
        time.sleep(0.5)
answered = []
for device in devices:
    device.settimeout(2)
    try:
        found = re.search(rb"MSA\|AA\|(\w+)", device.recv(4096))
        answered.append(found[1].decode() if found else "other")
    except TimeoutError:
        answered.append("none")
seen = []
with open("messages") as file:
    for line in file:
        text = json.loads(line)
        patient = re.search(r"PID\|1\|\|(\w+)", text)[1]
        results = [f"{name} {value}" for name, value in re.findall(r"OBX\|1\|NM\|(\w+)\|\|([\d.]+)", text)]
        seen.append(" ".join([patient, *results]))
print(f"{', '.join(seen)}; {' '.join(answered)}")
END
look() {
    rm -f port messages
    "$@" > server-log 2>&1 &
    server=$!
    for _ in $(seq 100); do [ -s port ] && break; sleep 0.1; done
    "$work/venv/bin/python" devices.py
    kill $server
    wait $server 2> /dev/null || true
}
{
    printf 'hl7: '
    look "$work/venv/bin/python" server.py
    printf 'mllp-node: '
    look node server.js
} | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
