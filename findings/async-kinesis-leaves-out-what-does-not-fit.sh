#!/bin/sh
# async-kinesis 3.0.1: records that find no place in the consumer's queue for 30 seconds are left out. It goes on
# behind them, and its checkpoint says that they have been read: a program that is busy for half a minute loses the
# rest of what was fetched, and is not given it after a restart either.
#
# A record that finds no place within 30 s ends the batch ("Queue put timed out, skipping record" in the log). The
# place in the shard, though, is the batch's end, and what is fetched next is put in the queue and acknowledged. The
# queue holds 10,000 unless it is told otherwise, and a fetch brings as many. Seen (moto 5.2.5 for Kinesis; a queue
# for four; ten records, then one more; after the first the program is busy for 40 s, or not; then another
# consumer with the same checkpoints, and one record after them):
#
#   not busy: 0 1 2 3 4 5 6 7 8 9 and one more; then: the last
#   busy for 40 s: 0 1 2 3 4 and one more; then: the last
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q async-kinesis==3.0.1 moto==5.2.5 flask==3.1.3 flask-cors==6.0.5
cd "$work"
cat > look.py <<'END'
import asyncio
import logging
import os

from aiobotocore.session import AioSession
from kinesis import Consumer, MemoryCheckPointer, StringProcessor
from moto.server import ThreadedMotoServer

os.environ.update(AWS_ACCESS_KEY_ID="none", AWS_SECRET_ACCESS_KEY="none", AWS_DEFAULT_REGION="us-east-1")
logging.disable(logging.CRITICAL)


async def read(consumer):
    """Return what is given until nothing has come for six seconds."""
    found = []
    while True:
        try:
            found.append(await asyncio.wait_for(anext(consumer), 6))
        except (StopAsyncIteration, TimeoutError):
            return found


async def look(url, stream, wait):
    session = AioSession()
    checkpoints = MemoryCheckPointer()
    options = {
        "endpoint_url": url,
        "region_name": "us-east-1",
        "processor": StringProcessor(),
        "checkpointer": checkpoints,
        "sleep_time_no_records": 0.2,
    }
    async with session.create_client("kinesis", endpoint_url=url, region_name="us-east-1") as client:
        await client.create_stream(StreamName=stream, ShardCount=1)
        records = [{"Data": str(number).encode(), "PartitionKey": "k"} for number in range(10)]
        await client.put_records(StreamName=stream, Records=records)
        async with Consumer(stream, max_queue_size=4, idle_timeout=8, **options) as consumer:
            asyncio.get_running_loop().call_later(
                wait + 3,
                lambda: asyncio.ensure_future(
                    client.put_record(StreamName=stream, Data=b"and one more", PartitionKey="k")
                ),
            )
            first = [await anext(consumer)]
            await asyncio.sleep(wait)
            first += await read(consumer)
        await client.put_record(StreamName=stream, Data=b"the last", PartitionKey="k")
        async with Consumer(stream, idle_timeout=4, **options) as consumer:
            second = await read(consumer)
    return " ".join(first), " ".join(second) or "nothing"


async def main(url):
    quick, slow = await asyncio.gather(look(url, "quick", 0), look(url, "slow", 40))
    for name, (first, second) in (("not busy", quick), ("busy for 40 s", slow)):
        print(f"{name}: {first}; then: {second}")


server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
try:
    asyncio.run(asyncio.wait_for(main("http://{}:{}".format(*server.get_host_and_port())), 150))
finally:
    server.stop()
END
timeout 200 "$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
