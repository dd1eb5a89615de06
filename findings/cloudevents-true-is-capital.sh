#!/bin/sh
# cloudevents 2.2.0 (the SDK's `cloudevents.core`) writes an extension that is a boolean as "True", and one
# of bytes as the text of Python's literal, into the headers of HTTP, Kafka and RabbitMQ.
#
# CloudEvents 1.0 ("Type System") has "true" and "false", with small letters, and Base64. Who reads
# by the specification finds no boolean there; the same event in structured mode does say true, so
# that it depends on the sender's mode what `sampled` is. Bytes are refused in structured mode. Seen:
#
#   HTTP, binary: sampled True, signature b'\x01\xff'
#   Kafka, binary: sampled True, signature b'\x01\xff'
#   RabbitMQ, binary: sampled True, signature b'\x01\xff'
#   HTTP, structured: sampled true, signature TypeError
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q cloudevents==2.2.0
cd "$work"
cat > look.py <<'END'
import json
from urllib.parse import unquote

from cloudevents.core.bindings import http, kafka, rabbitmq
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent


def event(**extensions):
    return CloudEvent({"id": "1", "source": "/s", "type": "t", **extensions}, {"n": 1})


whole = event(sampled=True, signature=b"\x01\xff")
for name, binding, prefix in (
    ("HTTP", http, "ce-"),
    ("Kafka", kafka, "ce_"),
    ("RabbitMQ", rabbitmq, "ce-"),
):
    headers = binding.to_binary(whole, JSONFormat()).headers
    texts = [headers[prefix + each] for each in ("sampled", "signature")]
    sampled, signature = (
        each.decode() if isinstance(each, bytes) else unquote(each) for each in texts
    )
    print(f"{name}, binary: sampled {sampled}, signature {signature}")
sampled = json.loads(http.to_structured(event(sampled=True), JSONFormat()).body)["sampled"]
try:
    signature = http.to_structured(whole, JSONFormat()).body.decode()
except TypeError as error:
    signature = type(error).__name__
print(f"HTTP, structured: sampled {json.dumps(sampled)}, signature {signature}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
