"""A webhook that answers when what it got is durable: 204 then means that it will be in a batch.

Try it with ``curl -d '{"order": 1}' http://127.0.0.1:8080``; kill the program right after the
answer, start it again over the same folder, and the order comes out.
"""

from __future__ import annotations

import argparse
import asyncio
import re

from pyspark import SparkConf
from pyspark.sql import SparkSession

from penstock.receiver import ReceiverContext
from penstock.streaming import StreamingContext


async def webhook(ctx: ReceiverContext, port: int) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        await ctx.store(await reader.readexactly(int(size[1]) if size else 0))  # durable from here
        writer.write(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", port) as server:
        await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="where what was received is kept, and the program's state")
    parser.add_argument("--port", type=int, default=8080)
    options = parser.parse_args()

    conf = SparkConf().setIfMissing("spark.master", "local[2]").setAppName("webhook")
    conf.set("spark.ui.showConsoleProgress", "false").set("spark.log.level", "FATAL")
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    ssc = StreamingContext(spark, 1)
    ssc.checkpoint(options.folder)
    port = options.port
    orders = ssc.receiverStream(lambda ctx: webhook(ctx, port), name="orders")
    orders.map(bytes.decode).pprint()
    ssc.start()
    try:
        ssc.awaitTermination()
    except KeyboardInterrupt:
        print("Stopping.")
    finally:
        ssc.stop(stopGraceFully=True)


if __name__ == "__main__":
    main()
