"""SQS: messages a second by `SqsReceiver`, beside a bare loop of the same client.

``python -m benchmarks.sources.sqs [messages]``. The bare loop receives ten messages and deletes
them, without storing them. The server is moto's, which costs far more than either of them.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.sources.comparing import received_s, show
from penstock.sources.sqs import SqsReceiver
from tests.services.moto import KEYS, REGION, MotoServer, moto_server

_MESSAGES = 20_000
_BATCH = 10


def main() -> None:
    """Print the figures."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else _MESSAGES
    with tempfile.TemporaryDirectory() as folder, moto_server(Path(folder)) as server:
        for size in (100, 1000):
            client = server.client("sqs")
            bare_s = _bare(server, _filled(client, f"bare{size}", size, count), count)
            _filled(client, f"received{size}", size, count)
            ours_s = _received(server, f"received{size}", count)
            show(f"{size} B", count, bare_s, ours_s)


def _filled(client: Any, name: str, size: int, count: int) -> str:
    url: str = client.create_queue(QueueName=name)["QueueUrl"]
    entries = [{"Id": str(number), "MessageBody": "x" * size} for number in range(_BATCH)]
    for _ in range(count // _BATCH):
        client.send_message_batch(QueueUrl=url, Entries=entries)
    return url


def _bare(server: MotoServer, url: str, count: int) -> float:
    began_s = time.perf_counter()
    client = server.client("sqs")
    while count > 0:
        found = client.receive_message(QueueUrl=url, MaxNumberOfMessages=_BATCH)["Messages"]
        entries = [
            {"Id": str(number), "ReceiptHandle": each["ReceiptHandle"]}
            for number, each in enumerate(found)
        ]
        client.delete_message_batch(QueueUrl=url, Entries=entries)
        count -= len(found)
    return time.perf_counter() - began_s


def _received(server: MotoServer, name: str, count: int) -> float:
    receiver = SqsReceiver(
        name,
        region=REGION,
        endpointUrl=server.url,
        accessKeyId=KEYS["aws_access_key_id"],
        secretKey=KEYS["aws_secret_access_key"],
    )
    client = server.client("sqs")
    url = client.get_queue_url(QueueName=name)["QueueUrl"]
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]

    def until_deleted() -> None:
        while any(
            each != "0"
            for each in client.get_queue_attributes(QueueUrl=url, AttributeNames=names)[
                "Attributes"
            ].values()
        ):
            time.sleep(0.01)

    return received_s(receiver, count // _BATCH * _BATCH, until=until_deleted)


if __name__ == "__main__":
    main()
