#!/bin/sh
# fitdecode 0.11.0 and fitparse 1.2.0: a total that is sent as its lowest bits falls back when the device
# writes its messages in two forms, and of eight heart beats with a time each one time remains, a wrong one.
#
# FIT sends such totals short (`cycles`, 8 bits), and the reader adds up what has gone round into
# `total_cycles`. A file may describe the same message under several local numbers, as watches do once a
# sensor comes or goes. Both libraries count for each local number by itself; Garmin's own decoder
# (garmin-fit-sdk 21.218.0) for the message. A message `hr` has eight times of 12 bits that go on from the
# last `event_timestamp`, here 2 s; fitdecode also takes the one that it keeps for a time of the day. Seen:
#
#   total_cycles, one form: fitparse 250 258 265 515; fitdecode 250 258 265 515; SDK 250 258 265 515
#   total_cycles, two forms: fitparse 250 258 9 259; fitdecode 250 258 9 259; SDK 250 258 265 515
#   event_timestamp: fitparse 1.0; fitdecode 2024-11-08 11:33:21+00:00; SDK [5, 5.25, 5.5, 5.75, 6, 6.25, 6.5, 6.75]
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q fitdecode==0.11.0 fitparse==1.2.0 garmin-fit-sdk==21.218.0
cd "$work"
cat > look.py <<'END'
import io
import struct

import fitdecode
import fitparse
import garmin_fit_sdk
from fitdecode.utils import compute_crc

UINT8, UINT16, UINT32, BYTE = 0x02, 0x84, 0x86, 0x0D
WHEN = (253, 4, UINT32)
RECORD, HR = 20, 132
NOW = 1_100_000_000


def definition(local, message, fields):
    head = struct.pack("<BBBHB", 0x40 | local, 0, 0, message, len(fields))
    return head + b"".join(bytes(field) for field in fields)


def show(what, body, message, name, last=False):
    head = struct.pack("<BBHI4s", 14, 0x20, 2100, len(body), b".FIT")
    head += struct.pack("<H", compute_crc(head))
    given = head + body + struct.pack("<H", compute_crc(head + body))
    first = [each.get_value(name) for each in fitparse.FitFile(io.BytesIO(given)).get_messages()]
    with fitdecode.FitReader(io.BytesIO(given)) as reader:
        frames = (frame for frame in reader if frame.frame_type == fitdecode.FIT_FRAME_DATA)
        second = [each.get_value(name) for each in frames]
    stream = garmin_fit_sdk.Stream.from_byte_array(bytearray(given))
    messages, _ = garmin_fit_sdk.Decoder(stream).read(merge_heart_rates=False)
    third = [each[name] for each in messages[f"{message}_mesgs"]]
    shown = (" ".join(map(str, each[-1:] if last else each)) for each in (first, second, third))
    print("{}: fitparse {}; fitdecode {}; SDK {}".format(what, *shown))


plain = definition(0, RECORD, [WHEN, (18, 1, UINT8)])
with_rate = definition(1, RECORD, [WHEN, (18, 1, UINT8), (3, 1, UINT8)])
some = b"".join(struct.pack("<BIB", 0, NOW + at, count) for at, count in enumerate((250, 2)))
more = b"".join(struct.pack("<BIB", 0, NOW + 2 + at, count) for at, count in enumerate((9, 3)))
other = b"".join(struct.pack("<BIBB", 1, NOW + 2 + at, n, 100) for at, n in enumerate((9, 3)))
show("total_cycles, one form", plain + some + more, "record", "total_cycles")
show("total_cycles, two forms", plain + some + with_rate + other, "record", "total_cycles")

beats = definition(0, HR, [WHEN, (0, 2, UINT16), (6, 1, UINT8), (9, 4, UINT32)])
beats += struct.pack("<BIHBI", 0, NOW, 0, 100, 2 * 1024)
beats += definition(0, HR, [(6, 8, UINT8), (10, 12, BYTE)])
bits = sum((1024 + 256 * at) % 4096 << 12 * at for at in range(8))
beats += bytes([0, *[100] * 8]) + bits.to_bytes(12, "little")
show("event_timestamp", beats, "hr", "event_timestamp", last=True)
END
"$work/venv/bin/python" look.py 2>errors | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
