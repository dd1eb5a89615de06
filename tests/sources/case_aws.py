"""SQS and Kinesis on moto's server, which keeps nothing when it is killed."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock.sources.kinesis import KinesisReceiver
from penstock.sources.sqs import SqsReceiver
from tests.services.aws_front import wait_until
from tests.services.moto import KEYS, REGION, MotoServer
from tests.sources.cases import SECRET, Source, SourceCase

MOST_UNACKNOWLEDGED = 40
_CUT = 5 * 10
"""Messages of answers that were lost: the server hides them until their time is over."""
_SENT_BYTES = 800 << 10


class AwsSource(Source):
    """A queue or a stream on a server of its own."""

    def __init__(self, folder: Path) -> None:
        self._name = f"s{uuid.uuid4().hex}"
        self._server = MotoServer(folder)
        self.port = self._server.port
        self.start()

    def kill(self) -> None:
        self._server.stop()

    def start(self) -> None:
        self._server.start()
        self._make()

    def _make(self) -> None:
        raise NotImplementedError

    def _account(self, port: int, secret: str) -> dict[str, Any]:
        return {
            "region": REGION,
            "endpointUrl": f"http://127.0.0.1:{port}",
            "accessKeyId": KEYS["aws_access_key_id"],
            "secretKey": secret,
        }


class SqsSource(AwsSource):
    def _make(self) -> None:
        self._client = self._server.client("sqs")
        self._url = self._client.create_queue(QueueName=self._name)["QueueUrl"]

    def receiver(self, port: int, secret: str = SECRET) -> object:
        return SqsReceiver(
            self._name,
            visibilityTimeout=2,
            waitSeconds=1,
            maxUnacknowledged=MOST_UNACKNOWLEDGED,
            **self._account(port, secret),
        )

    def send(self, payloads: Sequence[bytes]) -> None:
        for part in _parts(payloads, 10):
            entries = [
                {"Id": str(at), "MessageBody": each.decode()} for at, each in enumerate(part)
            ]
            assert not self._client.send_message_batch(QueueUrl=self._url, Entries=entries).get(
                "Failed"
            )

    def unacknowledged(self) -> int:
        name = "ApproximateNumberOfMessagesNotVisible"
        answer = self._client.get_queue_attributes(QueueUrl=self._url, AttributeNames=[name])
        return int(answer["Attributes"][name])


class KinesisSource(AwsSource):
    def _make(self) -> None:
        self._client = self._server.client("kinesis")
        self._client.create_stream(StreamName=self._name, ShardCount=2)
        wait_until(self._is_active, "the stream is active")

    def _is_active(self) -> bool:
        found = self._client.describe_stream_summary(StreamName=self._name)
        return bool(found["StreamDescriptionSummary"]["StreamStatus"] == "ACTIVE")

    def receiver(self, port: int, secret: str = SECRET) -> object:
        return KinesisReceiver(
            self._name,
            initialPosition="TRIM_HORIZON",
            readInterval=0.2,
            **self._account(port, secret),
        )

    def send(self, payloads: Sequence[bytes]) -> None:
        for part in _parts(payloads, 100):
            records = [{"Data": each, "PartitionKey": str(hash(each))} for each in part]
            answer = self._client.put_records(StreamName=self._name, Records=records)
            assert not answer["FailedRecordCount"]


def _parts(payloads: Sequence[bytes], most: int) -> Iterator[list[bytes]]:
    """Cut messages into parts that one call takes."""
    part: list[bytes] = []
    for payload in payloads:
        if part and (len(part) == most or sum(map(len, part)) + len(payload) > _SENT_BYTES):
            yield part
            part = []
        part.append(payload)
    if part:
        yield part


def _opened(kind: Callable[[Path], AwsSource]) -> Any:
    @contextlib.contextmanager
    def opened(folder: Path) -> Iterator[AwsSource]:
        source = kind(folder)
        try:
            yield source
        finally:
            source.kill()

    return opened


CASES = [
    SourceCase(
        "sqs",
        _opened(SqsSource),
        "at least once",
        most_unacknowledged=MOST_UNACKNOWLEDGED + _CUT,
        notices_stalls=True,
        keeps_connection=False,  # The server ends each after its answer.
        takes_empty=False,
    ),
    SourceCase(
        "kinesis",
        _opened(KinesisSource),
        "exactly once",
        notices_stalls=True,
        keeps_connection=False,
        largest_bytes=1 << 19,
        takes_empty=False,
    ),
]
