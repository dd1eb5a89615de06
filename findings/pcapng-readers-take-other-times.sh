#!/bin/sh
# dpkt 1.9.8, scapy 2.8.0 and python-pcapng 2.1.1 give packets other times than a pcapng file has, each in
# other files, and without a word.
#
# Each interface of a capture has its own unit of time (if_tsresol) and may have an offset in seconds
# (if_tsoffset), and interfaces are counted anew in each section (pcapng, draft-ietf-opsawg-pcapng, 4.1,
# 4.2): captures of two cards, captures that were merged, and files put one behind another have more
# than one. Of nanoseconds that are read as microseconds the year is 55840. Seen (seconds since 1970):
#
#   two interfaces, by the format: 1700000000 1700000001
#   two interfaces, by dpkt: 1700000000 1700000001000
#   two interfaces, by scapy: 1700000000 1700000001
#   two interfaces, by python-pcapng: 1700000000 1700000001
#   two sections, by the format: 1700000000 1700000001
#   two sections, by dpkt: 1700000000 1700000001000
#   two sections, by scapy: 1700000000 1700000001000
#   two sections, by python-pcapng: 1700000000 1700000001
#   an offset of 1,000 s, by the format: 1700000000
#   an offset of 1,000 s, by dpkt: 1700000000
#   an offset of 1,000 s, by scapy: 1699999000
#   an offset of 1,000 s, by python-pcapng: 1699999000
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q dpkt==1.9.8 scapy==2.8.0 python-pcapng==2.1.1
cd "$work"
cat > look.py <<'END'
import logging
import struct

logging.disable(logging.CRITICAL)
import dpkt
import pcapng
from scapy.utils import RawPcapNgReader

T = 1_700_000_000
MICROSECONDS, NANOSECONDS = 6, 9
RAW = 147


def block(kind, body):
    size = struct.pack("<I", 12 + len(body))
    return struct.pack("<I", kind) + size + body + size


def option(number, value):
    return struct.pack("<HH", number, len(value)) + value + bytes(-len(value) % 4)


def interface(resolution, offset_s=None):
    options = option(9, bytes([resolution]))
    if offset_s is not None:
        options += option(14, struct.pack("<q", offset_s))
    return block(1, struct.pack("<HHI", RAW, 0, 0) + options + option(0, b""))


def packet(number, time):
    head = struct.pack("<IIIII", number, time >> 32, time & 0xFFFFFFFF, 4, 4)
    return block(6, head + b"data")


SECTION = block(0x0A0D0D0A, struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1))
FILES = {
    "two interfaces": (
        SECTION
        + interface(MICROSECONDS)
        + interface(NANOSECONDS)
        + packet(0, T * 10**6)
        + packet(1, (T + 1) * 10**9),
        [T, T + 1],
    ),
    "two sections": (
        SECTION
        + interface(MICROSECONDS)
        + packet(0, T * 10**6)
        + SECTION
        + interface(NANOSECONDS)
        + packet(0, (T + 1) * 10**9),
        [T, T + 1],
    ),
    "an offset of 1,000 s": (
        SECTION + interface(MICROSECONDS, 1000) + packet(0, (T - 1000) * 10**6),
        [T],
    ),
}


def by_dpkt(file):
    return [time for time, _ in dpkt.pcapng.Reader(file)]


def by_scapy(file):
    found = [about for _, about in RawPcapNgReader(file)]
    return [((each.tshigh << 32) + each.tslow) / each.tsresol for each in found]


def by_python_pcapng(file):
    return [
        each.timestamp
        for each in pcapng.FileScanner(file)
        if isinstance(each, pcapng.blocks.EnhancedPacket)
    ]


for name, (data, wanted) in FILES.items():
    with open("capture.pcapng", "wb") as file:
        file.write(data)
    print(f"{name}, by the format:", *wanted)
    for reader, read in (
        ("dpkt", by_dpkt),
        ("scapy", by_scapy),
        ("python-pcapng", by_python_pcapng),
    ):
        with open("capture.pcapng", "rb") as file:
            print(f"{name}, by {reader}:", *(round(float(time)) for time in read(file)))
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
