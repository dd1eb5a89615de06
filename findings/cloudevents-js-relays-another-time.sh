#!/bin/sh
# cloudevents 10.0.0 (npm, the SDK for JavaScript): an event that is read and sent on has another time, cut to
# milliseconds; a day that does not exist is another day; and a subject that is percent-encoded stays so.
#
# `time` is text by RFC 3339 and says when the thing happened (CloudEvents 1.0.2, "time"); who passes an event on has
# no business with it. The SDK makes a Date of it and writes that: of two events of one millisecond the order is
# lost, and a receiver that drops what it has by the time of its source has both as one. The header of HTTP has a
# character that is no plain ASCII, a blank, a quote or a percent sign as %xx (HTTP Protocol Binding 1.0.2, 3.1.3.2)
# and the receiver must decode it; the SDK neither does that, nor does it encode when it sends. Seen:
#
#   2026-01-01T00:00:00.123456789Z: sent on as 2026-01-01T00:00:00.123Z
#   2026-01-01T00:00:00.123456788Z: sent on as 2026-01-01T00:00:00.123Z
#   2026-01-01T05:30:00.5+05:30: sent on as 2026-01-01T00:00:00.500Z
#   2026-02-30T00:00:00Z: sent on as 2026-03-02T00:00:00.000Z
#   subject Hall%20%22A%22: read Hall%20%22A%22
#   subject 100%25 for Hall "A": sent as 100%25 for Hall "A"
#
# Needs node and npm. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
npm install --no-audit --no-fund --silent cloudevents@10.0.0
cat > look.js <<'END'
const { CloudEvent, HTTP } = require("cloudevents");

const headers = (more) => ({
  "ce-id": "1",
  "ce-source": "/hall",
  "ce-type": "reading",
  "ce-specversion": "1.0",
  ...more,
});
for (const time of [
  "2026-01-01T00:00:00.123456789Z",
  "2026-01-01T00:00:00.123456788Z",
  "2026-01-01T05:30:00.5+05:30",
  "2026-02-30T00:00:00Z",
]) {
  const event = HTTP.toEvent({ headers: headers({ "ce-time": time }), body: "" });
  console.log(`${time}: sent on as ${HTTP.binary(event).headers["ce-time"]}`);
}
const subject = "Hall%20%22A%22";
const read = HTTP.toEvent({ headers: headers({ "ce-subject": subject }), body: "" });
console.log(`subject ${subject}: read ${read.subject}`);
const plain = '100%25 for Hall "A"';
const made = new CloudEvent({ source: "/hall", type: "reading", subject: plain });
console.log(`subject ${plain}: sent as ${HTTP.binary(made).headers["ce-subject"]}`);
END
node look.js | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
