#!/bin/sh
# rosbags 0.11.9 (PyPI, recordings of robots): a message of ROS 1 that is stamped with 1 January 2040 has one of 25 November
# 1903, while the recording's own time of it is right; and it cannot be written with that stamp (that raises an error).
#
# A time of ROS 1 has seconds and nanoseconds of 32 bits without a sign, a duration with one (ROS wiki, "msg", "Primitive
# Types"), so that times end in 2106. The library has for both the type of ROS 2, whose seconds have a sign. Nothing is
# raised. mcap-ros1-support 0.9.0 (PyPI) decodes the same bytes right. Seen (seconds in the message's header):
#
#   2030-01-01, 1893456000: rosbags 1893456000, recorded at 1893456000, mcap-ros1-support 1893456000
#   2040-01-01, 2208988800: rosbags -2085978496, recorded at 2208988800, mcap-ros1-support 2208988800
#
# Needs python3 (3.11 or later). Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q rosbags==0.11.9 mcap-ros1-support==0.9.0
cd "$work"
cat > look.py <<'END'
import datetime
import pathlib
import struct

from mcap_ros1._vendor.genpy.dynamic import generate_dynamic
from rosbags.rosbag1 import Reader, Writer
from rosbags.typesys import Stores, get_typestore

STORE = get_typestore(Stores.ROS1_NOETIC)
HEADER = "uint32 seq\ntime stamp\nstring frame_id\n"
other = generate_dynamic("std_msgs/Header", HEADER)["std_msgs/Header"]

for year in (2030, 2040):
    seconds = int(datetime.datetime(year, 1, 1, tzinfo=datetime.UTC).timestamp())
    sent = struct.pack("<III", 7, seconds, 0) + struct.pack("<I", 3) + b"map"
    path = pathlib.Path(f"{year}.bag")
    with Writer(path) as writer:
        connection = writer.add_connection("/pose", "std_msgs/msg/Header", typestore=STORE)
        writer.write(connection, seconds * 10**9, sent)
    with Reader(path) as reader:
        [(connection, recorded, data)] = reader.messages()
    found = STORE.deserialize_ros1(data, connection.msgtype).stamp.sec
    right = other()
    right.deserialize(bytes(data))
    print(
        f"{year}-01-01, {seconds}: rosbags {found}, recorded at {recorded // 10**9}, mcap-ros1-support {right.stamp.secs}"
    )
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
