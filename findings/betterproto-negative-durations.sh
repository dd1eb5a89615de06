#!/bin/sh
# betterproto 1.2.5 and 2.0.0b7 write a negative duration with a fraction as another one, a second later:
# of -1 ms they make 0.999 s. Version 1.2.5 does so with times before 1970, too.
#
# Seconds of a Duration are rounded down while its nanoseconds are those above them, and in the message
# both have the same sign (protobuf's duration.proto: seconds 0 and nanos -1,000,000 for -1 ms). So a
# clock's offset, or "how late" of what came early, is a large one with the other sign, for every
# reader, betterproto itself among them. What protobuf 7.36.2 writes it reads well. Seen:
#
#   betterproto 1.2.5
#   -1.5 s: by protobuf -0.5 s, by betterproto -0.5 s; written by protobuf -1.5 s
#   -0.001 s: by protobuf 0.999 s, by betterproto 0.999 s; written by protobuf -0.001 s
#   0.25 s: by protobuf 0.25 s, by betterproto 0.25 s; written by protobuf 0.25 s
#   1969-12-31 23:59:59.500000: by protobuf 1970-01-01 00:00:00.500000
#   betterproto 2.0.0b7
#   -1.5 s: by protobuf -0.5 s, by betterproto -0.5 s; written by protobuf -1.5 s
#   -0.001 s: by protobuf 0.999 s, by betterproto 0.999 s; written by protobuf -0.001 s
#   0.25 s: by protobuf 0.25 s, by betterproto 0.25 s; written by protobuf 0.25 s
#   1969-12-31 23:59:59.500000: by protobuf 1969-12-31 23:59:59.500000
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
for version in 1.2.5 2.0.0b7; do
    python3 -m venv "$work/$version"
    "$work/$version/bin/pip" install -q betterproto==$version protobuf==7.36.2
done
cd "$work"
cat > look.py <<'END'
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from importlib.metadata import version

import betterproto
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp


@dataclass
class Record(betterproto.Message):
    took: timedelta = betterproto.message_field(1)
    at: datetime = betterproto.message_field(2)


print("betterproto", version("betterproto"))
for took in (timedelta(seconds=-1.5), timedelta(milliseconds=-1), timedelta(seconds=0.25)):
    data = bytes(Record(took=took))
    # Behind the field's number and length.
    by_protobuf = Duration.FromString(data[2:]).ToTimedelta()
    by_itself = Record().parse(data).took
    right = Duration()
    right.FromTimedelta(took)
    right = right.SerializeToString()
    read = Record().parse(bytes([0x0A, len(right)]) + right).took
    print(
        f"{took.total_seconds()} s: by protobuf {by_protobuf.total_seconds()} s, by betterproto "
        f"{by_itself.total_seconds()} s; written by protobuf {read.total_seconds()} s"
    )
at = datetime(1969, 12, 31, 23, 59, 59, 500_000)
data = bytes(Record(at=at.replace(tzinfo=timezone.utc)))
print(f"{at}: by protobuf {Timestamp.FromString(data[2:]).ToDatetime()}")
END
for version in 1.2.5 2.0.0b7; do "$work/$version/bin/python" look.py; done | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
