#!/bin/sh
# garmin-fit-sdk 21.218.0, Garmin's own decoder of FIT: a scale that is still weighing weighs 655.34 kg, a
# speed that the file has is overwritten by a coarser one, and "no value" of a developer's field is a value.
#
# FIT's profile names 65534 of a weight "calculating"; a value of a base type that is all ones (0x7fff for
# sint16) is invalid, and fields that the SDK knows are left out then; `enhanced_speed` and
# `enhanced_altitude` are fields of their own, in 32 bits, because 16 bits end at 65.5 m/s and 12,607 m,
# and a watch may write both. The SDK expands `speed` into `enhanced_speed` also where the message has
# that one, and what was sent is gone; fitdecode 0.11.0 has both (though its get_value gives the first).
# Seen (fitdecode; SDK):
#
#   weight: calculating; 655.34
#   speed 60.0, enhanced_speed 90.0: 60.0, 60.0 and 90.0; 60.0, 60
#   altitude 100.0, enhanced_altitude 14000.0: 100.0, 100.0 and 14000.0; 100.0, 100
#   sint16 of a developer, invalid: None; 32767
#   sint16 of the profile, invalid: None; left out
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q garmin-fit-sdk==21.218.0 fitdecode==0.11.0
cd "$work"
cat > look.py <<'END'
import io
import struct

import fitdecode
import garmin_fit_sdk
from fitdecode.utils import compute_crc

ENUM, SINT16, UINT8, UINT16, UINT32, STRING, BYTE = 0, 0x83, 0x02, 0x84, 0x86, 0x07, 0x0D
WHEN = (253, 4, UINT32)
RECORD, WEIGHT_SCALE, DEVELOPER, DESCRIPTION = 20, 30, 207, 206
NOW = 1_100_000_000


def definition(message, fields, developer=()):
    head = struct.pack("<BBBHB", 0x60 if developer else 0x40, 0, 0, message, len(fields))
    body = head + b"".join(bytes(field) for field in fields)
    return body + (bytes([len(developer), *sum(developer, ())]) if developer else b"")


def file(body):
    head = struct.pack("<BBHI4s", 14, 0x20, 2100, len(body), b".FIT")
    head += struct.pack("<H", compute_crc(head))
    return head + body + struct.pack("<H", compute_crc(head + body))


def both(body, message, names):
    given = file(body)
    with fitdecode.FitReader(io.BytesIO(given), error_handling=fitdecode.ErrorHandling.RAISE) as reader:
        *_, last = (frame for frame in reader if frame.frame_type == fitdecode.FIT_FRAME_DATA)
    one = [
        " and ".join(str(field.value) for field in last.fields if field.name == name) for name in names
    ]
    stream = garmin_fit_sdk.Stream.from_byte_array(bytearray(given))
    messages, errors = garmin_fit_sdk.Decoder(stream).read()
    assert not errors, errors
    fields = messages[f"{message}_mesgs"][-1]
    own = fields.get("developer_fields", {})
    other = [fields.get(name, own.get(0, "left out")) for name in names]
    return f"{', '.join(one)}; {', '.join(map(str, other))}"


body = definition(WEIGHT_SCALE, [WHEN, (0, 2, UINT16)]) + struct.pack("<BIH", 0, NOW, 65534)
print("weight:", both(body, "weight_scale", ["weight"]))

body = definition(RECORD, [WHEN, (6, 2, UINT16), (73, 4, UINT32)])
body += struct.pack("<BIHI", 0, NOW, 60_000, 90_000)
print("speed 60.0, enhanced_speed 90.0:", both(body, "record", ["speed", "enhanced_speed"]))

body = definition(RECORD, [WHEN, (2, 2, UINT16), (78, 4, UINT32)])
body += struct.pack("<BIHI", 0, NOW, (100 + 500) * 5, (14_000 + 500) * 5)
read = both(body, "record", ["altitude", "enhanced_altitude"])
print("altitude 100.0, enhanced_altitude 14000.0:", read)

body = definition(DEVELOPER, [(0, 16, BYTE), (3, 1, UINT8)]) + bytes([0, *range(16), 0])
fields = [(0, 1, UINT8), (1, 1, UINT8), (2, 1, UINT8), (3, 5, STRING)]
body += definition(DESCRIPTION, fields) + bytes([0, 0, 0, SINT16]) + b"heat\0"
body += definition(RECORD, [WHEN], [(0, 2, 0)]) + struct.pack("<BIh", 0, NOW, 0x7FFF)
print("sint16 of a developer, invalid:", both(body, "record", ["heat"]))

body = definition(RECORD, [WHEN, (9, 2, SINT16)]) + struct.pack("<BIh", 0, NOW, 0x7FFF)
print("sint16 of the profile, invalid:", both(body, "record", ["grade"]))
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
