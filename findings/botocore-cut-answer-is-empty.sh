#!/bin/sh
# botocore 1.44.8 (urllib3 2.8.0) takes an answer whose connection ended in the middle of its body for
# a success without members, for each service with the JSON protocol.
#
# The server announces Content-Length: 67 and closes after 33 bytes. No error is raised, although
# fewer bytes came than announced and what came is no JSON: the call returns nothing but
# ResponseMetadata, which has the announced length. Seen:
#
#   botocore 1.44.8, urllib3 2.8.0
#   sqs receive_message: members [], 33 of 67 bytes: an empty queue
#   kinesis get_records: members [], 33 of 95 bytes: no records, and no NextShardIterator
#
# So a queue looks empty while its messages are hidden, and a shard looks as if it were read to its
# end: `NextShardIterator` is absent exactly there (Kinesis API reference, GetRecords).
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q botocore==1.44.8 urllib3==2.8.0
cat > "$work/show.py" <<'END'
import socket
import sys
import threading

import botocore
import botocore.session
import urllib3
from botocore.config import Config

SQS = b'{"Messages":[{"MessageId":"1","ReceiptHandle":"h","Body":"hello"}]}'
KINESIS = b'{"NextShardIterator":"next","MillisBehindLatest":0,"Records":[{"Data":"aGVsbG8=","Partiti":1}]}'
CAME = 33


def serve(listener, body):
    while True:
        client, _ = listener.accept()
        with client:
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(1 << 16)
            client.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.1\r\n"
                b"Content-Length: %d\r\n\r\n" % len(body) + body[:CAME]
            )


def answer(service, operation, body, **members):
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, args=(listener, body), daemon=True).start()
    client = botocore.session.get_session().create_client(
        service,
        region_name="eu-west-1",
        endpoint_url=f"http://127.0.0.1:{listener.getsockname()[1]}",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        config=Config(retries={"total_max_attempts": 1}, read_timeout=5),
    )
    return getattr(client, operation)(**members)


print(f"botocore {botocore.__version__}, urllib3 {urllib3.__version__}")
same = True
for service, operation, body, members, means in (
    ("sqs", "receive_message", SQS, {"QueueUrl": "http://127.0.0.1/1/q"}, "an empty queue"),
    ("kinesis", "get_records", KINESIS, {"ShardIterator": "i"}, "no records, and no NextShardIterator"),
):
    try:
        found = answer(service, operation, body, **members)
    except Exception as error:
        print(f"{service} {operation}: raised {type(error).__name__}")
        same = False
        continue
    names = sorted(set(found) - {"ResponseMetadata"})
    print(f"{service} {operation}: members {names}, {CAME} of {len(body)} bytes: {means}")
    same = same and not names
sys.exit(0 if same else 1)
END
"$work/venv/bin/python" -W ignore "$work/show.py"
