"""The tag of each frame: what it costs both ends of a connection for a message such as `AddBlock`.

One thread makes the tag as the sender does and checks it as the receiver does, so the time is that
of both ends together.
"""

from __future__ import annotations

import itertools
import secrets
import time
from statistics import median

from benchmarks.programs._program import tell
from penstock.wire._authentication import Seal

FRAMES = 200_000
FRAME_BYTES = 300
ROUNDS = 9


def seconds(frame):
    """Return how long it takes to tag and check the frames."""
    key = secrets.token_bytes(32)
    sender, receiver = Seal(key), Seal(key)
    begun = time.perf_counter()
    for _ in itertools.repeat(None, FRAMES):
        receiver.check("the other end", sender.tag(frame), frame)
    return time.perf_counter() - begun


def main():
    frame = secrets.token_bytes(FRAME_BYTES)
    found = []
    for number in range(ROUNDS):
        tell({"progress": f"{number + 1} of {ROUNDS}"})
        found.append(seconds(frame))
    tell({"figures": {"us_per_frame": 1e6 * median(found) / FRAMES}})


if __name__ == "__main__":
    main()
