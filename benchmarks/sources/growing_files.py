"""A growing file: MB/s that `GrowingFilesReceiver` stores, beside ``tail -F`` into a pipe.

``python -m benchmarks.sources.growing_files [MB] [folder]``. The file is there and in the page
cache; the pipe is read and its bytes are dropped. Both are timed from their start to the last byte.
The receiver writes each byte to its log, which ``tail`` does not. So in each round it is measured,
too, how long the disk needs for as many bytes that are only written, past the page cache and
forced, as the log does. With a folder in memory it is seen what the receiver itself needs.
"""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.sources.comparing import received_s
from penstock.sources.growing_files import GrowingFilesReceiver

_MB = 4000
_ROUNDS = 3
_PIECE = 1 << 20
_WRITE = 8 << 20


def main() -> None:
    """Print the figures."""
    size = (int(sys.argv[1]) if len(sys.argv) > 1 else _MB) * 1_000_000
    tempfile.tempdir = sys.argv[2] if len(sys.argv) > 2 else None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "app.log"
        for length in (100, 1000):
            lines = (b"x" * (length - 1) + b"\n") * (size // length // 1000)
            with open(path, "wb") as file:
                for _ in range(1000):
                    file.write(lines)
            total = path.stat().st_size
            for _ in range(_ROUNDS):
                tail_s = _tail(path, total)
                disk_s = _forced(Path(folder) / "forced", total)
                ours_s = received_s(GrowingFilesReceiver(path), total // length)
                tail, disk, ours = (total / took_s / 1e6 for took_s in (tail_s, disk_s, ours_s))
                print(
                    f"growing file, lines of {length} B: stored {ours:,.0f} MB/s, tail -F "
                    f"{tail:,.0f} ({ours / tail:.2f}), the disk alone {disk:,.0f} "
                    f"({ours / disk:.2f}); of the slower one {ours / min(tail, disk):.2f}",
                    flush=True,
                )


def _tail(path: Path, total: int) -> float:
    began_s = time.perf_counter()
    command = ["tail", "-c", "+1", "-F", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as tail:
        assert tail.stdout is not None
        while total > 0:
            total -= len(os.read(tail.stdout.fileno(), _PIECE))
        took_s = time.perf_counter() - began_s
        tail.kill()
    return took_s


def _forced(path: Path, total: int) -> float:
    """Return the seconds in which as many bytes are forced to the disk of a folder."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
    except OSError:  # In memory there is no direct I/O.
        file = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        with mmap.mmap(-1, _WRITE) as data:  # An address that direct I/O accepts.
            data.write(b"x" * _WRITE)
            began_s = time.perf_counter()
            for place in range(0, total, _WRITE):
                os.pwritev(file, [data], place, os.RWF_DSYNC)
            return time.perf_counter() - began_s
    finally:
        os.close(file)
        path.unlink()


if __name__ == "__main__":
    main()
