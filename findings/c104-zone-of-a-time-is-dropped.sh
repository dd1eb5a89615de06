#!/bin/sh
# c104 2.2.1 (IEC 60870-5-104): the zone of a time that a measurement is given is dropped, and its hours and
# minutes are taken for local time, so that an instant in UTC is another one on the wire.
#
# The library's own example gives `recorded_at` a time with the zone UTC. Where the computer's zone is UTC that
# is right; elsewhere each value that is sent is wrong by the difference, twice a year by another one, and
# two instants that lie two hours apart are one. A value that is received has a local time without a zone,
# so that what was received and is sent on with its zone is moved. No error is raised. Seen (the time that was
# given on 2024-07-01, and the one in the frame, by the zone of the program):
#
#   TZ=UTC: 12:00+0000 is 12:00, 12:00+0200 is 12:00, 12:00 is 12:00
#   TZ=America/New_York: 12:00+0000 is 16:00, 12:00+0200 is 16:00, 12:00 is 16:00
#   TZ=Europe/Berlin: 12:00+0000 is 10:00, 12:00+0200 is 10:00, 12:00 is 10:00
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q c104==2.2.1
cd "$work"
cat > look.py <<'END'
import datetime
import os
import socket
import time

import c104

with socket.create_server(("127.0.0.1", 0)) as free:
    PORT = free.getsockname()[1]
HOUR = datetime.timedelta(hours=1)
frames = []


def received(connection: c104.Connection, data: bytes) -> None:
    frames.append(bytes(data))


def until(condition):
    for _ in range(200):
        if condition():
            return
        time.sleep(0.05)
    raise TimeoutError


server = c104.Server(ip="127.0.0.1", port=PORT)
client = c104.Client()
connection = client.add_connection(ip="127.0.0.1", port=PORT, init=c104.Init.NONE)
connection.on_receive_raw(callable=received)
point, copy = (
    end.add_station(common_address=1).add_point(io_address=1, type=c104.Type.M_ME_TF_1)
    for end in (server, connection)
)
server.start()
client.start()
until(lambda: connection.is_connected)
connection.unmute()
until(lambda: server.has_active_connections)
seen = []
for zone in (datetime.timezone.utc, datetime.timezone(2 * HOUR), None):
    at = datetime.datetime(2024, 7, 1, 12, tzinfo=zone)
    frames.clear()
    point.info = c104.ShortInfo(actual=1.5, quality=c104.Quality(), recorded_at=at)
    point.transmit(cause=c104.Cot.SPONTANEOUS)
    until(lambda: any(len(frame) > 20 for frame in frames))
    (frame,) = (frame for frame in frames if len(frame) > 20)
    minute, hour = frame[-5] & 63, frame[-4] & 31  # CP56Time2a: milliseconds, minute, hour, day...
    seen.append(f"{at.time().isoformat('minutes')}{at.strftime('%z')} is {hour:02}:{minute:02}")
print(f"TZ={os.environ['TZ']}:", ", ".join(seen))
client.stop()
server.stop()
END
for zone in UTC America/New_York Europe/Berlin; do
    TZ=$zone timeout 60 "$work/venv/bin/python" look.py
done | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
