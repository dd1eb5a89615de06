"""What the clients of AWS make of answers that are cut, on moto's server behind a proxy."""

from __future__ import annotations

import contextlib
import socketserver
import threading
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from penstock.sources._aws import Account, AwsError, Trouble, _check_whole, meaning_of
from penstock.sources.kinesis import KinesisReceiver
from penstock.sources.sqs import SqsReceiver
from penstock.testing import run_receiver
from tests.bounds import HANG_S
from tests.receiver.conftest import run, shared, tracker
from tests.services.moto import KEYS, REGION, MotoServer, moto_server
from tests.services.proxy import Proxy

__all__ = ["run", "shared", "tracker"]

SOON = {"spark.streaming.blockInterval": "20ms", "spark.streaming.receiverRestartDelay": "10"}
HEAD_BYTES = 180
"""Fewer than any head has."""


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    with moto_server(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture
def proxy(moto: MotoServer) -> Iterator[Proxy]:
    made = Proxy(moto.port)
    yield made
    made.close()


def account(port: int, **more: str) -> Account:
    keys = {"access_key_id": KEYS["aws_access_key_id"], "secret_key": KEYS["aws_secret_access_key"]}
    return Account(REGION, f"http://127.0.0.1:{port}", **keys, **more)


@pytest.fixture
def stream(moto: MotoServer) -> str:
    name = f"s{uuid.uuid4().hex}"
    moto.client("kinesis").create_stream(StreamName=name, ShardCount=1)
    return name


@pytest.fixture
def queue(moto: MotoServer) -> str:
    return str(moto.client("sqs").create_queue(QueueName=f"q{uuid.uuid4().hex}")["QueueUrl"])


@pytest.mark.parametrize(
    ("code", "told", "trouble"),
    [
        ("KmsThrottled", "AWS slows down", Trouble.THROTTLED),  # of SQS
        ("KMS.ThrottlingException", "AWS slows down", Trouble.THROTTLED),  # its older name
        ("KMSThrottlingException", "AWS slows down", Trouble.THROTTLED),  # of Kinesis
        ("KmsAccessDenied", "do not allow Ask of", Trouble.REFUSED),
        ("KMSNotFoundException", "do not allow Ask of", Trouble.REFUSED),
        ("ResourceNotFoundException", "there is no", Trouble.REFUSED),
        ("InvalidClientTokenId", "does not accept the credentials", Trouble.REFUSED),
        ("ExpiredNextTokenException", "AWS answered for", Trouble.REFUSED),
    ],
)
def test_an_error_means_what_its_code_says(code: str, told: str, trouble: Trouble) -> None:
    answer: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    error = meaning_of(ClientError(answer, "Ask"), "queue 'orders'")
    assert told in str(error)
    assert (error.code, error.trouble) == (code, trouble)


def test_an_answer_that_is_shorter_than_it_says_is_none() -> None:
    """An older urllib3 does not look at that."""
    model = SimpleNamespace(name="ReceiveMessage")
    answer = {"headers": {"content-length": "10"}, "body": b'{"a":', "status_code": 200}
    with pytest.raises(AwsError, match="was cut: 5 of 10 bytes") as found:
        _check_whole(model, answer)
    assert found.value.trouble is Trouble.AWAY


def check_cuts(proxy: Proxy, ask: Callable[[], Any]) -> None:
    """Cut the answer to a question within its head, and see that each is taken for an outage."""
    for count in range(1, HEAD_BYTES, 7):
        proxy.cut_after(count)
        with pytest.raises((AwsError, BotoCoreError, ResponseParserError)) as found:
            ask()
        assert meaning_of(found.value, "it").trouble is Trouble.AWAY


def test_an_answer_of_kinesis_that_is_cut_in_its_head_is_none(proxy: Proxy, stream: str) -> None:
    client = account(proxy.port).client("kinesis", 1, 5)
    where = {"StreamName": stream}
    first = {**where, "ShardId": "shardId-000000000000", "ShardIteratorType": "TRIM_HORIZON"}
    iterator = client.get_shard_iterator(**first)["ShardIterator"]
    check_cuts(proxy, lambda: client.describe_stream_summary(**where))
    check_cuts(proxy, lambda: client.list_shards(**where))
    check_cuts(proxy, lambda: client.get_shard_iterator(**first))
    check_cuts(proxy, lambda: client.get_records(ShardIterator=iterator))


def test_an_answer_of_sqs_that_is_cut_in_its_head_is_none(proxy: Proxy, queue: str) -> None:
    client = account(proxy.port).client("sqs", 1, 5)
    entry = {"Id": "0", "ReceiptHandle": "unknown"}
    check_cuts(proxy, lambda: client.get_queue_url(QueueName=queue.rpartition("/")[2]))
    check_cuts(proxy, lambda: client.receive_message(QueueUrl=queue))
    check_cuts(proxy, lambda: client.delete_message_batch(QueueUrl=queue, Entries=[entry]))


def test_a_role_whose_answer_is_cut_in_its_head_is_assumed_later(
    proxy: Proxy, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{proxy.port}")
    role = "arn:aws:iam::123456789012:role/reader"
    client = account(proxy.port, role_arn=role).client("kinesis", 1, 5)
    check_cuts(proxy, lambda: client.list_shards(StreamName=stream))
    assert client.list_shards(StreamName=stream)["Shards"]
    check_cuts(proxy, lambda: client.list_shards(StreamName=stream))


@contextlib.contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """Answer each question with these bytes, and close the connection; give the port."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            head = list(iter(self.rfile.readline, b"\r\n"))
            lengths = [int(line.split()[1]) for line in head if line.startswith(b"Content-Length")]
            self.rfile.read(lengths[0])
            self.wfile.write(answer)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join(HANG_S)


@pytest.mark.parametrize(
    ("answer", "trouble"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", Trouble.AWAY),
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", Trouble.REFUSED),
        (
            b"HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            Trouble.REFUSED,
        ),
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 9\r\n\r\n<p>No</p>", Trouble.REFUSED),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n<p>No</p>", Trouble.AWAY),
    ],
)
def test_a_refusal_without_a_word_is_one_where_its_head_is_whole(
    answer: bytes, trouble: Trouble
) -> None:
    with answering(answer) as port:
        client = account(port).client("kinesis", 1, 5)
        with pytest.raises((AwsError, ClientError)) as found:
            client.list_shards(StreamName="any")
    assert meaning_of(found.value, "it").trouble is trouble


@pytest.mark.parametrize("status", [b"200 OK", b"403 Forbidden"])
@pytest.mark.parametrize("page", [b"<html><p>Log in</p></html>", b"<html><br>Log in"])
def test_a_page_in_place_of_the_answer_for_a_role_is_no_defect(
    status: bytes, page: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, len(page), page)
    with answering(answer) as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{port}")
        client = account(port, role_arn="arn:aws:iam::123456789012:role/reader")
        with pytest.raises((AwsError, ClientError, ResponseParserError)) as found:
            client.client("kinesis", 1, 5).list_shards(StreamName="any")
    is_refusal = isinstance(found.value, ClientError)
    assert is_refusal == (status.startswith(b"403") and page.endswith(b"</html>"))
    trouble = Trouble.REFUSED if is_refusal else Trouble.AWAY
    assert meaning_of(found.value, "it").trouble is trouble


@pytest.mark.parametrize("kind", ["kinesis", "sqs"])
def test_a_receiver_whose_answers_are_cut_in_their_heads_stores_each_message(
    kind: str, moto: MotoServer, proxy: Proxy, stream: str, queue: str
) -> None:
    options: dict[str, Any] = {
        "region": REGION,
        "endpointUrl": f"http://127.0.0.1:{proxy.port}",
        "accessKeyId": KEYS["aws_access_key_id"],
        "secretKey": KEYS["aws_secret_access_key"],
    }
    if kind == "kinesis":
        made = KinesisReceiver(stream, initialPosition="TRIM_HORIZON", readInterval=0.05, **options)
    else:
        made = SqsReceiver(queue, visibilityTimeout=1, waitSeconds=0, **options)

    def send(data: bytes) -> None:
        if kind == "kinesis":
            moto.client("kinesis").put_record(StreamName=stream, Data=data, PartitionKey="a")
        else:
            moto.client("sqs").send_message(QueueUrl=queue, MessageBody=data.decode())

    expected = [b"one", b"two", b"three"]
    with run_receiver(made, settings=SOON) as running:
        for number, data in enumerate(expected):
            before = proxy.connections
            proxy.cut_after(20 + 60 * number)
            proxy.wait_for_connections(before + 2)
            send(data)
            assert set(running.wait_for_records(number + 1)) == set(expected[: number + 1])
        assert len(running.records) == len(expected)
        assert not [told for told in running.errors if "is asked again" not in told]
