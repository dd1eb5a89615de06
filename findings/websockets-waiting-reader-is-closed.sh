#!/bin/sh
# websockets 17.4 (its asyncio client) closes the connection of a program that takes its time between
# two `recv`, though the server is there and answers: the answer to the client's ping stands behind
# the messages that wait, and is not read before them.
#
# The client reads up to `max_queue` messages ahead (16), then nothing more, so that a slow program
# slows its server down. But it goes on to ask for a sign of life, and after `ping_interval` and
# `ping_timeout` (20 s each) without one it closes with 1011 "keepalive ping timeout". What the server
# had sent by then is gone. Here both are half a second, the server sends 100 messages, and the
# program waits three seconds after the first. Seen:
#
#   with pings: all came False, closed by the client: 1011 keepalive ping timeout
#   ping_interval=None: all came True, closed by the client: -
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q websockets==17.4
cd "$work"
cat > look.py <<'END'
import asyncio

from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

MESSAGES, WAIT_S = 100, 3


async def feed(connection):
    try:
        for number in range(MESSAGES):
            await connection.send(str(number))
        await connection.wait_closed()
    except ConnectionClosed:
        pass


async def read(address, **options):
    """Return whether all came, and how the client closed the connection."""
    async with connect(address, **options) as connection:
        for number in range(MESSAGES):
            try:
                await connection.recv()
            except ConnectionClosed as error:
                return False, error.rcvd or f"{int(error.sent.code)} {error.sent.reason}"
            if number == 0:
                await asyncio.sleep(WAIT_S)
        return True, "-"


async def main():
    ways = {
        "with pings": {"ping_interval": 0.5, "ping_timeout": 0.5},
        "ping_interval=None": {"ping_interval": None},
    }
    for name, options in ways.items():
        async with serve(feed, "127.0.0.1", 0, ping_interval=None) as server:
            port = server.sockets[0].getsockname()[1]
            came, closed = await read(f"ws://127.0.0.1:{port}", **options)
            print(f"{name}: all came {came}, closed by the client: {closed}")


asyncio.run(main())
END
timeout 60 "$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
