#!/bin/sh
# moto 5.2.5, its SQS: a FIFO queue forgets a deduplication id when its message is deleted, so that a message that is
# sent twice is received twice.
#
# A message with an id that was used within five minutes is accepted and not delivered (API reference, SendMessage,
# MessageDeduplicationId), also when the first one was received and deleted (developer guide, "Amazon SQS FIFO queue
# key terms", note). A producer that sends again because it got no answer is what this is for, and a consumer is often
# faster than such a producer: a test with moto fails, or worse, is mended by code that the queue does not need. Of a
# queue that still has the message the second one is dropped. Seen:
#
#   second sent while the first is there: received 1 of 2
#   second sent when the first is deleted: received 2 of 2
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q "moto==5.2.5" "boto3==1.44.8"
cd "$work"
cat > look.py <<'END'
import os

import boto3
from moto import mock_aws

os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x", AWS_DEFAULT_REGION="us-east-1")
with mock_aws():
    sqs = boto3.client("sqs")
    queue = sqs.create_queue(QueueName="orders.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]

    def send(name):
        return sqs.send_message(
            QueueUrl=queue, MessageBody=name, MessageGroupId="shop", MessageDeduplicationId=name
        )

    def take():
        messages = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", [])
        for message in messages:
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
        return len(messages)

    send("a")
    send("a")
    print(f"second sent while the first is there: received {take()} of 2")
    send("b")
    received = take()
    send("b")
    print(f"second sent when the first is deleted: received {received + take()} of 2")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
