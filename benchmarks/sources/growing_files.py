"""A growing file: MB/s that `GrowingFilesReceiver` stores, beside ``tail -F`` into a pipe.

``python -m benchmarks.sources.growing_files [MB]``. The file is there and in the page cache; the
pipe is read and its bytes are dropped. Both are timed from their start to the last byte.
"""

from __future__ import annotations

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


def main() -> None:
    """Print the figures."""
    size = (int(sys.argv[1]) if len(sys.argv) > 1 else _MB) * 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "app.log"
        for length in (100, 1000):
            lines = (b"x" * (length - 1) + b"\n") * (size // length // 1000)
            with open(path, "wb") as file:
                for _ in range(1000):
                    file.write(lines)
            total = path.stat().st_size
            for _ in range(_ROUNDS):
                tail_s, ours_s = (
                    _tail(path, total),
                    received_s(GrowingFilesReceiver(path), total // length),
                )
                print(
                    f"growing file, lines of {length} B: tail -F {total / tail_s / 1e6:,.0f} MB/s, "
                    f"stored {total / ours_s / 1e6:,.0f} MB/s ({tail_s / ours_s:.2f})",
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


if __name__ == "__main__":
    main()
