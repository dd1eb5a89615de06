"""SQS against moto's server, and behind a front that answers as AWS documents it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.receiver import ReceiverStoppedError
from penstock.sources import sqs
from penstock.sources.formats import JsonFormat
from penstock.sources.sqs import SqsReceiver, _Taking
from penstock.testing import run_receiver
from tests.bounds import HANG_S
from tests.services.aws_front import Answer, AwsFront, aws_front, error, wait_until
from tests.services.moto import KEYS, REGION, MotoServer, moto_server

SECRET = KEYS["aws_secret_access_key"]
SOON = {"spark.streaming.blockInterval": "20ms", "spark.streaming.receiverRestartDelay": "10"}


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    with moto_server(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture
def front(moto: MotoServer) -> Iterator[AwsFront]:
    with aws_front(moto.port) as server:
        yield server


class Queue:
    """A queue of a test's own."""

    def __init__(self, moto: MotoServer, **attributes: str) -> None:
        self.name = f"q-{uuid.uuid4().hex}" + (".fifo" if "FifoQueue" in attributes else "")
        self.client = moto.client("sqs")
        created = self.client.create_queue(QueueName=self.name, Attributes=attributes)
        self.url = created["QueueUrl"]
        self.sent: list[bytes] = []

    def send(self, *bodies: str, **more: Any) -> None:
        for body in bodies:
            self.client.send_message(QueueUrl=self.url, MessageBody=body, **more)
        self.sent += [body.encode() for body in bodies]

    def send_many(self, count: int) -> None:
        for first in range(0, count, 10):
            bodies = [str(number) for number in range(first, min(first + 10, count))]
            entries = [{"Id": body, "MessageBody": body} for body in bodies]
            self.client.send_message_batch(QueueUrl=self.url, Entries=entries)
            self.sent += [body.encode() for body in bodies]

    def counts(self) -> tuple[int, int]:
        """How many messages are to be had, and how many somebody has."""
        names = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
        answer = self.client.get_queue_attributes(QueueUrl=self.url, AttributeNames=list(names))
        found = answer["Attributes"]
        return int(found[names[0]]), int(found[names[1]])

    def wait_until_empty(self) -> None:
        wait_until(lambda: self.counts() == (0, 0), "every message is deleted")


def receiver(queue: Queue | str, url: str, kind: type[SqsReceiver] = SqsReceiver, **more: Any):
    return kind(
        queue if isinstance(queue, str) else queue.name,
        **{
            "region": REGION,
            "endpointUrl": url,
            "accessKeyId": KEYS["aws_access_key_id"],
            "secretKey": SECRET,
            "waitSeconds": 1,
            **more,
        },
    )


def test_messages_are_stored_and_then_deleted(moto: MotoServer) -> None:
    queue = Queue(moto)
    queue.send_many(45)
    with run_receiver(receiver(queue, moto.url, threads=2), settings=SOON) as running:
        assert sorted(running.wait_for_records(45)) == sorted(queue.sent)
        queue.wait_until_empty()
        queue.send("späte Nachricht")
        assert running.wait_for_records(46)[-1] == "späte Nachricht".encode()
    assert queue.counts() == (0, 0)
    assert not running.errors


def test_a_queue_may_be_given_by_its_url(moto: MotoServer) -> None:
    queue = Queue(moto)
    queue.send("one")
    with run_receiver(receiver(queue.url, moto.url), settings=SOON) as running:
        assert running.wait_for_records(1) == [b"one"]


def test_the_envelope_comes_as_columns(moto: MotoServer) -> None:
    queue = Queue(moto, FifoQueue="true", ContentBasedDeduplication="true")
    attributes = {
        "kind": {"DataType": "String", "StringValue": "order"},
        "raw": {"DataType": "Binary", "BinaryValue": b"\x00\xff"},
    }
    queue.send('{"id": 1}', MessageGroupId="g", MessageAttributes=attributes)
    values = JsonFormat(pa.schema([("id", pa.int64())]))
    made = receiver(queue, moto.url, columns=True, values=values)
    with run_receiver(made, settings=SOON) as running:
        (row,) = running.wait_for_records(1)
        queue.wait_until_empty()
    assert row["value"] == {"id": 1}
    assert row["messageGroupId"] == "g"
    assert row["receiveCount"] == 1
    assert dict(row["messageAttributes"]) == {"kind": "order", "raw": "AP8="}
    assert row["messageId"]
    assert row["sentTimestamp"].year >= 2026


def test_a_fifo_queue_keeps_the_order_of_each_group(moto: MotoServer) -> None:
    queue = Queue(moto, FifoQueue="true", ContentBasedDeduplication="true")
    for number in range(15):
        queue.send(f"a{number:02}", MessageGroupId="a")
        queue.send(f"b{number:02}", MessageGroupId="b")
    # The service holds a group back while some of it is in flight; moto does not for two at once.
    with run_receiver(receiver(queue, moto.url, threads=1), settings=SOON) as running:
        found = running.wait_for_records(30)
        queue.wait_until_empty()
    for group in (b"a", b"b"):
        of_group = [each for each in found if each[:1] == group]
        assert of_group == sorted(of_group)
        assert len(of_group) == 15


def test_what_cannot_be_read_is_a_dead_letter_and_deleted(moto: MotoServer) -> None:
    queue = Queue(moto)
    queue.send('{"id": 1}', "no JSON", '{"id": 2}', '{"id": ' * 100)
    made = receiver(queue, moto.url, values=JsonFormat(pa.schema([("id", pa.int64())])))
    with run_receiver(made, settings=SOON) as running:
        assert [each["id"] for each in running.wait_for_records(2)] == [1, 2]
        queue.wait_until_empty()
        letters = [data for data, _ in running.discarded]
    assert sorted(letters) == sorted([b"no JSON", b'{"id": ' * 100])


def test_the_largest_message_is_stored_and_one_above_a_block_is_a_dead_letter(
    moto: MotoServer,
) -> None:
    queue = Queue(moto)
    large = "x" * (256 << 10)
    queue.send(large, "small")
    with run_receiver(receiver(queue, moto.url), settings=SOON) as running:
        assert running.wait_for_records(2) == [large.encode(), b"small"]
        queue.wait_until_empty()
    queue.send(large, "small")
    settings = {**SOON, "spark.penstock.block.maxSize": "64k"}
    with run_receiver(receiver(queue, moto.url), settings=settings) as running:
        assert running.wait_for_records(1) == [b"small"]
        queue.wait_until_empty()
        assert "RecordTooLarge" in str(running.errors)


# -- messages that are held ----------------------------------------------------------------------


def test_what_waits_to_be_durable_is_kept_from_others_and_bounded(
    moto: MotoServer, front: AwsFront
) -> None:
    queue = Queue(moto)
    queue.send_many(40)
    made = receiver(queue, front.url, visibilityTimeout=2, maxUnacknowledged=15, threads=2)
    with run_receiver(made, settings=SOON) as running:
        running.hold()
        wait_until(lambda: queue.counts()[1] == 15, "as many are held as may be")
        # Longer than they would have been hidden without it.
        front.wait_for_calls("ChangeMessageVisibilityBatch", 8)
        assert queue.counts() == (25, 15)
        assert not front.calls["DeleteMessageBatch"]
        running.go_on()
        assert sorted(running.wait_for_records(40)) == sorted(queue.sent)
        queue.wait_until_empty()
        assert len(running.records) == 40
    assert not running.errors


def test_a_message_that_comes_again_while_it_is_held_is_stored_once(
    moto: MotoServer, front: AwsFront
) -> None:
    def refuse(name: str, members: dict[str, Any]) -> Answer | None:
        if name != "ChangeMessageVisibilityBatch":
            return None
        failed = {"Code": "MessageNotInflight", "Message": "", "SenderFault": True}
        return Answer({"Failed": [{**failed, "Id": each["Id"]} for each in members["Entries"]]})

    front.hook = refuse
    queue = Queue(moto)
    queue.send("one")
    received = threading.Event()

    def look(name: str, members: dict[str, Any], answer: Answer) -> Answer:
        if name == "ReceiveMessage" and answer.body.get("Messages"):
            if front.calls["received"]:
                received.set()
            front.calls["received"] += 1
        return answer

    front.after = look
    with run_receiver(receiver(queue, front.url, visibilityTimeout=1), settings=SOON) as running:
        running.hold()
        assert received.wait(HANG_S)
        assert "MessageNotInflight" in running.wait_for_error("could not be kept from others")
        running.go_on()
        queue.wait_until_empty()
        assert running.records == [b"one"]


def test_a_message_that_a_standard_queue_gives_again_is_stored_once(
    moto: MotoServer, front: AwsFront
) -> None:
    given: list[dict[str, Any]] = []
    deleted: list[str] = []

    def answer(name: str, members: dict[str, Any]) -> Answer | None:
        if name == "DeleteMessageBatch":
            deleted.extend(each["ReceiptHandle"] for each in members["Entries"])
            return Answer({"Successful": [{"Id": each["Id"]} for each in members["Entries"]]})
        if name == "ReceiveMessage" and len(deleted) == len(given) == 1:
            given.append({**given[0], "ReceiptHandle": "another"})
            return Answer({"Messages": [given[1]]})
        return None

    def look(name: str, members: dict[str, Any], answer: Answer) -> Answer:
        given.extend(answer.body.get("Messages", []) if name == "ReceiveMessage" else [])
        return answer

    front.hook, front.after = answer, look
    queue = Queue(moto)
    queue.send("one")
    with run_receiver(receiver(queue, front.url), settings=SOON) as running:
        front.wait_for_calls("DeleteMessageBatch", 2)
        assert deleted == [given[0]["ReceiptHandle"], "another"]
        assert running.records == [b"one"]


def test_a_deletion_that_fails_for_one_message_is_made_again(
    moto: MotoServer, front: AwsFront
) -> None:
    failed: list[str] = []

    def fail_once(name: str, members: dict[str, Any]) -> Answer | None:
        if name != "DeleteMessageBatch" or failed:
            return None
        first, *others = members["Entries"]
        failed.append(first["ReceiptHandle"])
        told = {"Id": first["Id"], "Code": "InternalError", "SenderFault": False}
        client = queue.client
        client.delete_message_batch(QueueUrl=queue.url, Entries=others) if others else None
        done = [{"Id": each["Id"]} for each in others]
        return Answer({"Successful": done, "Failed": [told]})

    front.hook = fail_once
    queue = Queue(moto)
    queue.send_many(10)
    with run_receiver(receiver(queue, front.url), settings=SOON) as running:
        running.wait_for_records(10)
        queue.wait_until_empty()
        assert len(running.records) == 10
    assert failed
    assert not running.errors


def test_a_deletion_that_can_never_pass_is_told(moto: MotoServer, front: AwsFront) -> None:
    def fail(name: str, members: dict[str, Any]) -> Answer | None:
        if name != "DeleteMessageBatch":
            return None
        told = {"Code": "ReceiptHandleIsInvalid", "SenderFault": True, "Message": "it is too old"}
        return Answer({"Failed": [{**told, "Id": each["Id"]} for each in members["Entries"]]})

    front.hook = fail
    queue = Queue(moto)
    queue.send("one")
    with run_receiver(receiver(queue, front.url), settings=SOON) as running:
        assert "it is too old" in running.wait_for_error("could not be deleted and come again")
        front.hook = lambda name, members: None


def test_what_a_stop_did_not_let_in_is_given_back_at_once(moto: MotoServer) -> None:
    queue = Queue(moto, FifoQueue="true", ContentBasedDeduplication="true")
    queue.send("one", "two", MessageGroupId="g")
    with run_receiver(receiver(queue, moto.url, Refusing, visibilityTimeout=600)) as running:
        wait_until(lambda: queue.counts() == (2, 0) and REFUSED.is_set(), "they are to be had")
        assert running.records == []


REFUSED = threading.Event()


class Refusing(SqsReceiver):
    """Stores nothing, as if it had been stopped."""

    def store(self, *args: Any, **named: Any) -> None:
        REFUSED.set()
        raise ReceiverStoppedError(self.streamId)


# -- what goes wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            error(
                "com.amazonaws.sqs#QueueDoesNotExist",
                "The specified queue does not exist.",
                query_error="AWS.SimpleQueueService.NonExistentQueue",
            ),
            "there is no queue 'orders' in this region and account",
        ),
        (
            error("InvalidClientTokenId", "The security token is invalid", 403),
            "AWS does not accept the credentials for queue 'orders'",
        ),
        (
            error("SignatureDoesNotMatch", f"It does not match.\n\nThe String was '{SECRET}'", 403),
            "AWS does not accept the credentials for queue 'orders'",
        ),
        (
            error("AccessDeniedException", "User: x is not authorized", 403),
            "the credentials do not allow GetQueueUrl of queue 'orders'",
        ),
    ],
)
def test_what_only_people_can_mend_is_told_at_once(answer: Answer, told: str) -> None:
    with aws_front() as front:
        front.hook = lambda name, members: answer
        with run_receiver(receiver("orders", front.url), settings=SOON) as running:
            assert SECRET not in running.wait_for_error(told)


def test_no_credentials_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    made = receiver("orders", "http://127.0.0.1:1", accessKeyId=None, secretKey=None)
    with run_receiver(made, settings=SOON) as running:
        running.wait_for_error("there are no credentials for queue 'orders' in the executor")


def test_a_queue_that_is_deleted_while_it_is_read_is_told(moto: MotoServer) -> None:
    queue = Queue(moto)
    queue.send("one")
    with run_receiver(receiver(queue, moto.url), settings=SOON) as running:
        running.wait_for_records(1)
        queue.wait_until_empty()
        queue.client.delete_queue(QueueUrl=queue.url)
        running.wait_for_error(f"there is no queue '{queue.name}'")


@pytest.mark.parametrize("kind", ["cut", "page", "stalled", "throttled", "failing"])
def test_an_answer_that_does_not_come_whole_stores_and_deletes_nothing(
    moto: MotoServer, front: AwsFront, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqs, "_READ_S", 0.5)
    go_on = threading.Event()
    broken: list[Answer] = []

    def fail_once(name: str, members: dict[str, Any], answer: Answer) -> Answer:
        if name != "ReceiveMessage" or not answer.body.get("Messages") or broken:
            return answer
        broken.append(answer)
        if kind == "stalled":
            go_on.wait(HANG_S)
        if kind == "throttled":
            return error("RequestThrottled", status=403)
        if kind == "failing":
            return error("InternalFailure", status=500)
        if kind == "page":
            return Answer({}, page=b"<html>Log in</html>")
        return Answer(answer.body, is_cut=True)

    front.after = fail_once
    queue = Queue(moto)
    queue.send("one")
    with run_receiver(receiver(queue, front.url, visibilityTimeout=1), settings=SOON) as running:
        assert running.wait_for_records(1) == [b"one"]
        queue.wait_until_empty()
        go_on.set()
        assert len(running.records) == 1
    assert broken
    assert len(running.errors) == 1


def test_messages_whose_deletion_is_not_told_of_are_deleted_again(
    moto: MotoServer, front: AwsFront
) -> None:
    queue = Queue(moto)
    queue.send("one")
    asked: list[str] = []

    def tell_nothing_once(name: str, members: dict[str, Any]) -> Answer | None:
        if name != "DeleteMessageBatch" or asked:
            return None
        asked.append(name)
        return Answer({})

    front.hook = tell_nothing_once
    # Long, so that no other delivery of the message has it deleted.
    with run_receiver(receiver(queue, front.url, visibilityTimeout=600), settings=SOON) as running:
        running.wait_for_error("the answer tells of 0 messages, and not of 1")
        queue.wait_until_empty()
        assert running.records == [b"one"]


def test_what_is_refused_while_deleting_holds_no_more_than_its_bound(
    moto: MotoServer, front: AwsFront
) -> None:
    refused = error("AccessDeniedException", "not authorized to perform: sqs:deletemessage", 403)
    front.hook = lambda name, members: refused if name == "DeleteMessageBatch" else None
    queue = Queue(moto)
    queue.send_many(30)
    made = receiver(queue, front.url, maxUnacknowledged=10)
    with run_receiver(made, settings=SOON) as running:
        running.wait_for_error("do not allow DeleteMessageBatch")
        running.wait_for_records(10)
        assert queue.counts() == (20, 10)


def test_arguments_that_contradict_are_refused() -> None:
    for wrong in (
        {"waitSeconds": 21},
        {"visibilityTimeout": 0},
        {"visibilityTimeout": 43201},
        {"maxUnacknowledged": 0},
        {"threads": 0},
        {"secretKey": None},
        {"accessKeyId": None},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))) as found:
            receiver("orders", "http://127.0.0.1:1", **wrong)
        assert SECRET not in str(found.value)
    with pytest.raises(ValueError, match="queue"):
        receiver("", "http://127.0.0.1:1")
    assert SECRET not in repr(receiver("orders", "http://127.0.0.1:1").account)


def test_a_role_is_assumed_and_its_keys_are_used(
    moto: MotoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", moto.url)
    made = receiver("orders", moto.url, roleArn="arn:aws:iam::111122223333:role/reader")
    client = made.account.client("sqs", 1, 5)
    # The account of the role.
    created = client.create_queue(QueueName="of-the-role")["QueueUrl"]
    assert "/111122223333/" in created


def test_what_may_not_be_extended_is_deleted_all_the_same(
    moto: MotoServer, front: AwsFront
) -> None:
    refused = error("AccessDeniedException", "not authorized: sqs:changemessagevisibility", 403)
    front.hook = lambda name, members: refused if name == "ChangeMessageVisibilityBatch" else None
    queue = Queue(moto)
    queue.send("one")
    with run_receiver(receiver(queue, front.url, visibilityTimeout=4), settings=SOON) as running:
        running.hold()
        running.wait_for_error("do not allow ChangeMessageVisibilityBatch")
        running.go_on()
        running.wait_for_records(1)
        queue.wait_until_empty()


def test_a_stop_does_not_wait_long_for_deletions_that_do_not_pass(
    moto: MotoServer, front: AwsFront
) -> None:
    def fail(name: str, members: dict[str, Any]) -> Answer | None:
        if name != "DeleteMessageBatch":
            return None
        told = {"Code": "InternalError", "SenderFault": False, "Message": "again, please"}
        return Answer({"Failed": [{**told, "Id": each["Id"]} for each in members["Entries"]]})

    front.hook = fail
    queue = Queue(moto)
    queue.send("one")
    with run_receiver(receiver(queue, front.url), settings=SOON) as running:
        running.wait_for_records(1)
        front.wait_for_calls("DeleteMessageBatch", 1)
        running.stop()
        running.wait_for_error("1 messages of SQS queue")
    assert queue.counts() == (0, 1)


def test_a_message_that_comes_again_is_kept_from_others_again() -> None:
    """One whose time ran out was not extended any more; its new handle can be."""
    taking = _Taking(SqsReceiver("q"))
    message = {"MessageId": "a", "ReceiptHandle": "1", "Body": "x"}
    assert taking._hold([message], 1) == [message]
    taking._held["a"].is_lost = True
    assert taking._hold([{**message, "ReceiptHandle": "2"}], 1) == []
    assert (taking._held["a"].handle, taking._held["a"].is_lost) == ("2", False)
