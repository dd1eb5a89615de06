#!/bin/sh
# paho-mqtt 2.2.0 sends text with the character U+FEFF in a property of MQTT 5 (a content type, a
# response topic, a user property), and refuses to read what it has sent: MalformedPacket, by a rule
# that says the reverse. [MQTT-1.5.4-3] has a receiver keep the character and not strip it.
#
# Exports of spreadsheets and editors put it before a file's first word, from where it comes into such
# properties. It is refused in names and in values alike, and not in a payload. Seen:
#
#   plain, sent and read: text/plain
#   U+FEFF, sent: 16 bytes, the character is there
#   U+FEFF, read: MalformedPacket [MQTT-1.5.4-3] U+FEFF in UTF-8 data
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q paho-mqtt==2.2.0
cd "$work"
cat > look.py <<'END'
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import MalformedPacket, Properties


def packed(text):
    sent = Properties(PacketTypes.PUBLISH)
    sent.ContentType = text
    return sent.pack()


def read(data):
    came = Properties(PacketTypes.PUBLISH)
    came.unpack(data)
    return came.ContentType


print("plain, sent and read:", read(packed("text/plain")))
data = packed("\ufefftext/plain"[:10])
found = "the character is there" if b"\xef\xbb\xbf" in data else "it is not there"
print(f"U+FEFF, sent: {len(data)} bytes, {found}")
try:
    told = repr(read(data))
except MalformedPacket as error:
    told = f"{type(error).__name__} {error}"
print("U+FEFF, read:", told)
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
