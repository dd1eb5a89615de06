#!/bin/sh
# cloudevents 2.2.0 (the SDK's `cloudevents.core`): an event that has no `time` has one when it has been
# read: that of the reading.
#
# `time` is optional (CloudEvents 1.0, 3.1), and means when the occurrence happened. The same request,
# read twice, gives two events that differ, none of which was sent; a consumer that orders, joins or
# drops late events by `time` cannot tell the invented ones from the sender's. Both ways of HTTP
# (binary and structured) do it, and so does the package's older `cloudevents.v1`. Seen:
#
#   binary: was sent False, has one True, the same when it is read again False
#   structured: was sent False, has one True, the same when it is read again False
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
import time

from cloudevents.core.bindings.http import HTTPMessage, from_http_event

event = {"specversion": "1.0", "id": "1", "source": "/meter", "type": "reading"}
binary = {"content-type": "application/json", **{f"ce-{name}": event[name] for name in event}}
messages = {
    "binary": HTTPMessage(binary, b'{"kwh": 1}'),
    "structured": HTTPMessage(
        {"content-type": "application/cloudevents+json"},
        json.dumps({**event, "data": {"kwh": 1}}).encode(),
    ),
}
for name, message in messages.items():
    sent = b'"time"' in message.body or "ce-time" in message.headers
    first = from_http_event(message).get_attributes().get("time")
    time.sleep(0.01)
    second = from_http_event(message).get_attributes().get("time")
    has = first is not None
    print(f"{name}: was sent {sent}, has one {has}, the same when it is read again {first == second}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
