"""Kinesis: records a second by `KinesisReceiver`, beside a bare loop of the same client.

``python -m benchmarks.sources.kinesis [records]``. The bare loop reads the shards in turn, as many
records at a time as the receiver, none of them more often than AWS allows (five times a second),
and stores nothing. The server is moto's.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.sources.comparing import received_s, show
from penstock.sources.kinesis import KinesisReceiver
from tests.services.moto import KEYS, REGION, MotoServer, moto_server

_RECORDS = 100_000
_SHARDS = 4
_AT_ONCE = 500
_PACE_S = 0.2
_A_READ = 2000


def main() -> None:
    """Print the figures."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else _RECORDS
    count -= count % _AT_ONCE
    with tempfile.TemporaryDirectory() as folder, moto_server(Path(folder)) as server:
        for size in (100, 1000):
            client = server.client("kinesis")
            name = f"records{size}"
            _fill(client, name, size, count)
            bare_s = _bare(server, name, count)
            ours_s = _received(server, name, count)
            show(f"{size} B", count, bare_s, ours_s)


def _fill(client: Any, name: str, size: int, count: int) -> None:
    client.create_stream(StreamName=name, ShardCount=_SHARDS)
    for first in range(0, count, _AT_ONCE):
        numbers = range(first, first + _AT_ONCE)
        records = [{"Data": b"x" * size, "PartitionKey": str(number)} for number in numbers]
        client.put_records(StreamName=name, Records=records)


def _bare(server: MotoServer, name: str, count: int) -> float:
    began_s = time.perf_counter()
    client = server.client("kinesis")
    iterators = {}
    for shard in client.list_shards(StreamName=name)["Shards"]:
        answer = client.get_shard_iterator(
            StreamName=name, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )
        iterators[shard["ShardId"]] = answer["ShardIterator"]
    arn = client.describe_stream_summary(StreamName=name)["StreamDescriptionSummary"]["StreamARN"]
    while count > 0:
        round_s = time.perf_counter()
        for shard, iterator in iterators.items():
            answer = client.get_records(ShardIterator=iterator, StreamARN=arn, Limit=_A_READ)
            iterators[shard] = answer["NextShardIterator"]
            count -= len(answer["Records"])
        if count > 0:
            time.sleep(max(0.0, round_s + _PACE_S - time.perf_counter()))
    return time.perf_counter() - began_s


def _received(server: MotoServer, name: str, count: int) -> float:
    receiver = KinesisReceiver(
        name,
        region=REGION,
        initialPosition="TRIM_HORIZON",
        endpointUrl=server.url,
        accessKeyId=KEYS["aws_access_key_id"],
        secretKey=KEYS["aws_secret_access_key"],
    )
    return received_s(receiver, count)


if __name__ == "__main__":
    main()
