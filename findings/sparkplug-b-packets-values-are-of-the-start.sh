#!/bin/sh
# sparkplug-b-packets 0.12.2025 (PyPI, Sparkplug B by MQTT): each value has the time at which its program began, for as
# long as that runs; the message around it has the right time. And the group in a topic is another one than was given.
#
# A metric's timestamp is when it was captured, the payload's when the message was published (Sparkplug 3.0.0, "Metric"
# and "Payload"); a host keeps the metric's where there is one. Here it is the default of an argument, which Python
# evaluates once, on import, and no class of the library passes another. A group ID is text of which only +, / and # may
# not be part: Plant.North is published as plantXnorth, which no host that was told of Plant.North has subscribed to.
# Nothing is raised. Seen (seconds since the program began):
#
#   after 0 s: message 0 s, metric 0 s, topic spBv1.0/plantXnorth/NDATA/pump
#   after 3 s: message 3 s, metric 0 s, topic spBv1.0/plantXnorth/NDATA/pump
#   after 6 s: message 6 s, metric 0 s, topic spBv1.0/plantXnorth/NDATA/pump
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q sparkplug-b-packets==0.12.2025 protobuf==7.36.2 pydantic==2.14.4
cd "$work"
cat > look.py <<'END'
import time

from sparkplub_b_packets.core.sparkplug_b import MetricDataType
from sparkplub_b_packets.core.sparkplug_b_pb2 import Payload
from sparkplub_b_packets.packets import Metric, NDataPacket

BEGAN = time.time()


def after(stamp):
    return f"{abs(stamp / 1000 - BEGAN) // 3 * 3:.0f} s"


for seconds in (0, 3, 6):
    time.sleep(max(0, BEGAN + seconds + 0.5 - time.time()))
    metric = Metric(alias="pressure", alias_map=1, data_type=MetricDataType.Double, value=1.5)
    packet = NDataPacket("Plant.North", "pump", {"pressure": metric})
    payload = Payload.FromString(packet.payload())
    times = f"message {after(payload.timestamp)}, metric {after(payload.metrics[0].timestamp)}"
    print(f"after {seconds} s: {times}, topic {packet.topic}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
