"""`SqsReceiver`: messages of an SQS queue, deleted when they are durable.

What must hold
--------------

* A message is deleted only after its block is stored and known to the driver's log (I1). Until then
  it is held: its visibility is extended, so that it is not given to anyone else while blocks wait.
* No more messages are held than `maxUnacknowledged`, deletions that AWS has not taken included.
* A message that comes again while it is held is not stored again. It then has a new receipt handle,
  and the old one is forgotten.
* At a stop, what is durable is deleted, and what was received and not stored is given back at once.
* A kill loses nothing: what was held becomes visible after `visibilityTimeout`, and what of it was
  durable comes twice. SQS keeps no place that one could go on from.
"""

from __future__ import annotations

import base64
import logging
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel

from penstock._arguments import as_count
from penstock.receiver import ReceiverContext, ReceiverStoppedError
from penstock.runtime.threads import OwnedThread
from penstock.sources._aws import (
    Account,
    AwsError,
    AwsReceiver,
    Outage,
    Trouble,
    checked_text,
    meaning_of,
)
from penstock.sources._common import Messages
from penstock.sources.formats import ValueFormat

_BATCH = 10
"""The most messages that a call may be about."""

_READ_S = 5.0
_LOOK_S = 0.5
_STEP_S = 0.5
_STOP_S = 3.0
"""How long deletions are tried at a stop while none passes."""

_REMEMBERED = 10_000
_AGAIN_S = 1.0
_MOST_WAIT_S = 20
_MOST_VISIBILITY_S = 12 * 3600

_log = logging.getLogger("penstock.sources.sqs")

ENVELOPE = pa.schema(
    [
        ("messageId", pa.string()),
        ("sentTimestamp", pa.timestamp("us", "UTC")),
        ("receiveCount", pa.int64()),
        ("senderId", pa.string()),
        ("messageGroupId", pa.string()),
        ("sequenceNumber", pa.string()),
        ("messageAttributes", pa.map_(pa.string(), pa.string())),
    ]
)


class SqsReceiver(AwsReceiver):
    """Receives the messages of an SQS queue, and deletes each once it is durable.

    At least once: a message that was durable and not yet deleted when the process was killed comes
    again. A FIFO queue keeps the order of each message group.

    Args:
        queue: The queue's name or URL.
        region: Such as ``eu-west-1``; None: as boto3 finds it in the executor.
        columns: Whether a message is stored with all that SQS has of it, as columns for
            `foreachBatch`, its body in ``value``. Else its body is stored, as `bytes`.
        values: Makes typed values of bodies, such as `JsonFormat`.
        visibilityTimeout: For how many seconds at a time a message is hidden from others. It is
            extended as long as the message waits to be durable. After a kill it takes that long
            until the message comes again.
        waitSeconds: How long a call waits for messages, 0 to 20. A stop waits for it.
        maxUnacknowledged: How many messages may be held that are not deleted.
        threads: How many calls receive at a time. One gives ten messages in a round trip to AWS.
        endpointUrl: Another address than the region's own.
        accessKeyId: None: credentials are found as boto3 finds them in the executor.
        secretKey: Belongs to `accessKeyId`.
        sessionToken: Of temporary keys.
        roleArn: A role that is assumed with these credentials.
        roleSessionName: Names the role's sessions.
        roleExternalId: What the role's trust policy asks for.
        storageLevel: Which copies of a block must exist.

    Raises:
        MissingPackageError: boto3 is not installed.
        TypeError, ValueError: An argument is not accepted.
    """

    _is_reliable = True

    def __init__(
        self,
        queue: str,
        *,
        region: str | None = None,
        columns: bool = False,
        values: ValueFormat | None = None,
        visibilityTimeout: int = 60,
        waitSeconds: int = 5,
        maxUnacknowledged: int = 1000,
        threads: int = 1,
        endpointUrl: str | None = None,
        accessKeyId: str | None = None,
        secretKey: str | None = None,
        sessionToken: str | None = None,
        roleArn: str | None = None,
        roleSessionName: str = "penstock",
        roleExternalId: str | None = None,
        storageLevel: StorageLevel | str | None = None,
    ) -> None:
        super().__init__(storageLevel)
        self.queue = checked_text(queue, "queue", "the name or the URL of a queue")
        self.account = Account(
            region,
            endpointUrl,
            accessKeyId,
            secretKey,
            sessionToken,
            roleArn,
            roleSessionName,
            roleExternalId,
        )
        self.messages = Messages(ENVELOPE, columns=columns, values=values)
        self.schema = self.messages.schema
        self.visibility_s = as_count(
            visibilityTimeout, "visibilityTimeout", "seconds", 1, _MOST_VISIBILITY_S
        )
        self.wait_s = as_count(waitSeconds, "waitSeconds", "seconds", 0, _MOST_WAIT_S)
        self.most_held = as_count(maxUnacknowledged, "maxUnacknowledged", "messages", 1)
        self.threads = as_count(threads, "threads", "threads", 1)

    def _receive(self, context: ReceiverContext) -> bool:
        taking = _Taking(self)
        self._interrupt_with(taking.end)
        if context.stopped.is_set():
            taking.end()
        taking.run()
        return False


@dataclass(eq=False)
class _Held:
    """A message that was received and is not deleted."""

    id: str
    handle: str
    hidden_until_s: float
    """By the clock of this process; how long no one else gets it."""
    is_durable: bool = False
    is_lost: bool = False
    """Its visibility cannot be extended: it comes again."""


class _Taking:
    """One start of the receiver.

    `_changed` guards `_held`, `_asked_for` and `_to_delete`. No call is made with it.
    """

    def __init__(self, receiver: SqsReceiver) -> None:
        self._receiver = receiver
        self._what = f"queue {receiver.queue!r}"
        self._stopped = threading.Event()
        self._changed = threading.Condition()
        self._held: dict[str, _Held] = {}
        self._asked_for = 0
        self._to_delete: deque[_Held] = deque()
        self._deleted: dict[str, None] = {}
        """The last ones: what comes again as it was deleted is not stored again."""
        self._receiving = Outage(receiver.reportError, f"SQS {self._what}")
        self._keeping = Outage(receiver.reportError, f"SQS {self._what}, to delete its messages")
        self._stop_by_s = 0.0
        self._extending = Outage(receiver.reportError, f"SQS {self._what}, to extend its messages")
        self._opening = threading.Lock()
        self._client: Any = None
        self._url = ""
        number = receiver.streamId
        self._threads = [
            OwnedThread(self._receive, f"sqs-{number}-{each}") for each in range(receiver.threads)
        ]

    def run(self) -> None:
        """Receive, extend and delete, until it is to end."""
        for thread in self._threads:
            thread.start()
        try:
            self._keep()
        except BaseException:
            self.end()
            raise
        for thread in self._threads:
            thread.join()

    def end(self) -> None:
        """Delete what is durable, give the rest back, and end. All acknowledgements have come."""
        self._stop_by_s = time.monotonic() + _STOP_S
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()

    # -- receiving -------------------------------------------------------------------------------

    def _receive(self) -> None:
        attempt: dict[str, str] = {}
        while not self._stopped.is_set():
            wanted = self._room()
            if not wanted:
                continue
            try:
                self._open()
                if self._url.endswith(".fifo") and not attempt:
                    # A call whose answer was lost, made again, gives the same messages; they would
                    # hold up their groups otherwise.
                    attempt = {"ReceiveRequestAttemptId": f"{id(self)}-{time.monotonic_ns()}"}
                answer = self._client.receive_message(
                    QueueUrl=self._url,
                    MaxNumberOfMessages=wanted,
                    WaitTimeSeconds=self._receiver.wait_s,
                    VisibilityTimeout=self._receiver.visibility_s,
                    **attempt,
                    **(
                        {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]}
                        if self._receiver.messages.has_envelope
                        else {}
                    ),
                )
            except Exception as error:  # noqa: BLE001  # what is none of botocore's is raised again
                self._give_room_back(wanted)
                self._wait_after(self._receiving, meaning_of(error, self._what))
                continue
            attempt = {}
            self._receiving.passed()
            fresh = self._hold(answer.get("Messages", []), wanted)
            if fresh and not self._store(fresh):
                return

    def _open(self) -> None:
        """Make the client and find the queue, once."""
        with self._opening:
            if self._url:
                return
            receiver = self._receiver
            if self._client is None:
                connections = 2 * receiver.threads
                self._client = receiver.account.client(
                    "sqs", connections, receiver.wait_s + _READ_S
                )
            if "://" in receiver.queue:
                self._url = receiver.queue
            else:
                self._url = self._client.get_queue_url(QueueName=receiver.queue)["QueueUrl"]

    def _wait_after(self, outage: Outage, error: AwsError) -> None:
        if not self._stopped.is_set():
            outage.failed(error)
            self._stopped.wait(outage.left_s)

    def _room(self) -> int:
        """Reserve room for a call, waiting for some; 0: look whether it goes on."""
        with self._changed:
            left = self._receiver.most_held - len(self._held) - self._asked_for
            if left <= 0:
                self._changed.wait(_LOOK_S)
                return 0
            wanted = min(left, _BATCH)
            self._asked_for += wanted
            return wanted

    def _give_room_back(self, wanted: int) -> None:
        with self._changed:
            self._asked_for -= wanted
            self._changed.notify_all()

    def _hold(self, messages: Sequence[Mapping[str, Any]], wanted: int) -> list[Mapping[str, Any]]:
        """Note messages, and return those that are not held already."""
        until_s = time.monotonic() + self._receiver.visibility_s
        fresh = []
        with self._changed:
            self._asked_for -= wanted
            for message in messages:
                number, handle = message["MessageId"], message["ReceiptHandle"]
                held = self._held.get(number)
                if held is None:
                    held = self._held[number] = _Held(number, handle, until_s)
                    held.is_durable = number in self._deleted
                    if not held.is_durable:
                        fresh.append(message)
                held.handle, held.hidden_until_s, held.is_lost = handle, until_s, False
                if held.is_durable and held not in self._to_delete:
                    self._to_delete.append(held)
            self._changed.notify_all()
        return fresh

    def _store(self, messages: Sequence[Mapping[str, Any]]) -> bool:
        """Store messages; False: the receiver has stopped, and they were given back."""
        ids = [each["MessageId"] for each in messages]
        try:
            self._receiver.messages.store(
                self._receiver,
                [each["Body"].encode("utf-8", "surrogatepass") for each in messages],
                _envelope(messages) if self._receiver.messages.has_envelope else {},
                ack=partial(self._durable, ids),
            )
        except BaseException as error:
            self._give_back(ids)
            if isinstance(error, ReceiverStoppedError):
                return False
            raise
        return True

    def _give_back(self, ids: Sequence[str]) -> None:
        with self._changed:
            given = [self._held.pop(each) for each in ids]
            self._changed.notify_all()
        try:
            self._client.change_message_visibility_batch(
                QueueUrl=self._url, Entries=_entries(given, VisibilityTimeout=0)
            )
        except Exception as error:  # noqa: BLE001  # what is none of botocore's is raised again
            told = meaning_of(error, self._what)
            _log.info("Messages come again when their visibility runs out: %s", told)

    # -- deleting and extending ------------------------------------------------------------------

    def _durable(self, ids: Sequence[str]) -> None:
        """Take note that messages are durable; called by the thread that makes blocks durable."""
        with self._changed:
            for each in ids:
                held = self._held[each]
                held.is_durable = True
                self._to_delete.append(held)
            self._changed.notify_all()

    def _keep(self) -> None:
        threads = self._receiver.threads
        error: AwsError | None = None
        with ThreadPoolExecutor(threads, f"penstock-sqs-{self._receiver.streamId}-calls") as pool:
            while not self._is_done():
                deletions, extensions = self._due(_BATCH * threads)
                deleting = [pool.submit(self._delete, part) for part in _parts(deletions)]
                extending = [pool.submit(self._extend, part) for part in _parts(extensions)]
                # Each has its own pause: deletions may be allowed where the others are not.
                self._failure_of(extending, self._extending)
                error = self._failure_of(deleting, self._keeping)
                if error is None:
                    continue
                if not self._stopped.wait(self._keeping.left_s):
                    continue
                if error.trouble is Trouble.REFUSED:
                    break
                time.sleep(_STEP_S)
        with self._changed:
            left = len(self._to_delete)
        if left:
            self._receiver.reportError(
                f"{left} messages of SQS {self._what} are stored and were not deleted before the "
                f"stop: they come again, and are stored twice ({error})",
                error,
            )

    def _is_done(self) -> bool:
        """Whether it has stopped, and nothing is left to do or nothing was done for some time."""
        if not self._stopped.is_set():
            return False
        if time.monotonic() >= self._stop_by_s:
            return True
        with self._changed:
            is_left = bool(self._to_delete)
        return not is_left and not any(thread.is_alive() for thread in self._threads)

    def _failure_of(self, calls: Sequence[Future[None]], outage: Outage) -> AwsError | None:
        """Wait for calls, and note whether they were answered; return what one of them raised."""
        wait_for(calls)
        found = [error for each in calls if (error := each.exception()) is not None]
        if not found:
            if calls:
                outage.passed()
            return None
        error = meaning_of(found[0], self._what)
        if not self._stopped.is_set():
            outage.failed(error)
        return error

    def _due(self, most: int) -> tuple[list[_Held], list[_Held]]:
        """Wait for what is to be done, and return what to delete and what to extend."""
        with self._changed:
            if not self._to_delete:
                self._changed.wait(_LOOK_S)
            deletions = [self._to_delete.popleft() for _ in range(min(most, len(self._to_delete)))]
            now_s, half_s = time.monotonic(), self._receiver.visibility_s / 2
            extensions = [
                each
                for each in self._held.values()
                if each.hidden_until_s - now_s < half_s and not each.is_lost
            ]
            if self._extending.left_s:
                extensions = []
        return deletions, [each for each in extensions if each not in deletions]

    def _delete(self, held: Sequence[_Held]) -> None:
        ask = self._client.delete_message_batch
        try:
            failed = _failed(ask(QueueUrl=self._url, Entries=_entries(held)), len(held))
        except BaseException:
            with self._changed:
                self._to_delete.extend(held)
            raise
        now_s = time.monotonic()
        with self._changed:
            for number, each in enumerate(held):
                if number not in failed or failed[number].get("SenderFault"):
                    self._held.pop(each.id, None)
                    self._stop_by_s = max(self._stop_by_s, now_s + _STOP_S)
                    self._deleted[each.id] = None
                    if len(self._deleted) > _REMEMBERED:
                        del self._deleted[next(iter(self._deleted))]
                else:
                    self._to_delete.append(each)
            self._changed.notify_all()
        self._tell(failed, "deleted")

    def _extend(self, held: Sequence[_Held]) -> None:
        now_s, visibility_s = time.monotonic(), self._receiver.visibility_s
        ask = self._client.change_message_visibility_batch
        entries = _entries(held, VisibilityTimeout=visibility_s)
        failed = _failed(ask(QueueUrl=self._url, Entries=entries), len(held))
        with self._changed:
            for number, each in enumerate(held):
                if number not in failed:
                    each.hidden_until_s = now_s + visibility_s
                elif failed[number].get("SenderFault"):
                    each.is_lost = True
        self._tell(failed, "kept from others")

    def _tell(self, failed: Mapping[int, Mapping[str, Any]], what: str) -> None:
        """Report what cannot be mended by asking again; wait before the rest is asked again."""
        lost = [each for each in failed.values() if each.get("SenderFault")]
        if lost:
            why = f"{lost[0].get('Code')}: {lost[0].get('Message', '')}"
            self._receiver.reportError(
                f"{len(lost)} messages of SQS {self._what} could not be {what} and come again: "
                f"{why:.300}"
            )
        if len(failed) > len(lost):
            _log.info("%d messages of %s are to be %s again", len(failed), self._what, what)
            if self._stopped.wait(_AGAIN_S):
                time.sleep(_STEP_S)


def _parts(held: Sequence[_Held]) -> list[Sequence[_Held]]:
    return [held[start : start + _BATCH] for start in range(0, len(held), _BATCH)]


def _entries(held: Sequence[_Held], **more: int) -> list[dict[str, Any]]:
    """Return what a call says of messages, each by its number."""
    return [
        {"Id": str(number), "ReceiptHandle": each.handle, **more}
        for number, each in enumerate(held)
    ]


def _failed(answer: Mapping[str, Any], count: int) -> dict[int, Mapping[str, Any]]:
    """Return the entries of a call that were refused, by their number.

    Raises:
        AwsError: The answer does not say of each what became of it.
    """
    failed = {int(each["Id"]): each for each in answer.get("Failed", [])}
    told = len(failed) + len(answer.get("Successful", []))
    if told != count:
        text = f"the answer tells of {told} messages, and not of {count}"
        raise AwsError(text, "IncompleteRead", Trouble.AWAY)
    return failed


def _envelope(messages: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    found = [each.get("Attributes", {}) for each in messages]

    def number(each: Mapping[str, str], name: str) -> int | None:
        return int(each[name]) if name in each else None

    sent = [number(each, "SentTimestamp") for each in found]
    return {
        "messageId": [each["MessageId"] for each in messages],
        "sentTimestamp": [None if each is None else each * 1000 for each in sent],
        "receiveCount": [number(each, "ApproximateReceiveCount") for each in found],
        "senderId": [each.get("SenderId") for each in found],
        "messageGroupId": [each.get("MessageGroupId") for each in found],
        "sequenceNumber": [each.get("SequenceNumber") for each in found],
        "messageAttributes": [
            [(name, _text(value)) for name, value in each.get("MessageAttributes", {}).items()]
            for each in messages
        ],
    }


def _text(value: Mapping[str, Any]) -> str:
    """A number and text as they are; bytes in base64."""
    if "StringValue" in value:
        return str(value["StringValue"])
    return base64.b64encode(value.get("BinaryValue", b"")).decode()
