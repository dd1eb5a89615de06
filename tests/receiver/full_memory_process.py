"""Stores records while its memory file system, 16 MB at its first argument, is full for a while."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from pathlib import Path

from penstock.wal import LogOptions
from tests.receiver.test_block_generator import WAIT_S, Bench

MB = 1 << 20


def main(memory: Path, *, one_thread: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(
            Path(folder),
            # The one thread seals meanwhile, where it finds memory.
            **({"one_thread": True, "interval_s": 0.02} if one_thread else {}),
            memory_dir=str(memory),
            memory_bytes=12 * MB,
            block_max_bytes=5 * MB,
            log=LogOptions(segment_size=16 * MB),
        )
        records = [b"%d" % number * 2000 for number in range(2000)]
        bench.generator.store(records[:1])
        ballast = memory / "ballast"
        left = os.statvfs(memory)
        fd = os.open(ballast, os.O_CREAT | os.O_WRONLY)
        os.posix_fallocate(fd, 0, left.f_bavail * left.f_frsize)
        os.close(fd)
        ended = threading.Event()

        def store() -> None:
            for record in records[1:]:
                bench.generator.store(record)
            bench.generator.store(b"last", position=1)
            ended.set()

        threading.Thread(target=store, daemon=True).start()
        while not bench.errors:
            assert not ended.wait(0.01)
        print(bench.errors[0][0], flush=True)
        assert not ended.wait(0.2)
        ballast.unlink()
        assert ended.wait(WAIT_S), bench.errors
        assert bench.finish() == [*records, b"last"]
        assert len(bench.errors) == 1, bench.errors
        print("stored", flush=True)
        bench.store.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), one_thread=sys.argv[2:] == ["one"])
