#!/bin/sh
# python-can 4.6.1 reads other frames from its own logs than it wrote: a frame of CAN FD without data is a
# remote frame after .asc, a remote frame for eight bytes one for none after .log, and after .csv and
# .db a frame of CAN FD is one of classic CAN, with more data than such a one can have.
#
# A remote frame asks another device to send: who plays the recording back puts questions on the bus
# that nobody had asked. Nothing is said at writing, but for .trc, which says what it leaves out. Of
# the formats of the package only .blf keeps all of these. Seen (kind, bytes of the length field, data):
#
#   was written: FD 0, remote 8, FD 12, classic 3
#   .asc: remote 0, remote 8, FD 12, classic 3
#   .log: FD 0, remote 0, FD 12, classic 3
#   .csv: classic 0, remote 8, classic 12, classic 3
#   .db: classic 0, remote 8, classic 12, classic 3
#   .blf: FD 0, remote 8, FD 12, classic 3
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q python-can==4.6.1
cd "$work"
cat > look.py <<'END'
import can

FRAMES = (
    {"is_fd": True},
    {"is_remote_frame": True, "dlc": 8},
    {"is_fd": True, "data": bytes(12)},
    {"data": bytes(3)},
)


def shown(frames):
    kinds = (
        "remote" if each.is_remote_frame else "FD" if each.is_fd else "classic" for each in frames
    )
    return ", ".join(f"{kind} {each.dlc}" for kind, each in zip(kinds, frames, strict=True))


written = [
    can.Message(
        timestamp=1_700_000_000 + at, arbitration_id=0x123, is_extended_id=False, check=True, **frame
    )
    for at, frame in enumerate(FRAMES)
]
print("was written:", shown(written))
for suffix in (".asc", ".log", ".csv", ".db", ".blf"):
    with can.Logger(f"frames{suffix}") as log:
        for frame in written:
            log(frame)
    with can.LogReader(f"frames{suffix}") as log:
        print(f"{suffix}: {shown(list(log))}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
