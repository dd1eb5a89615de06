"""What a batch of many small blocks costs beside one block of the same bytes.

``python -m benchmarks.small_blocks`` writes blocks of lines with the block store of a receiver,
and times the job of a batch over them on ``local[2]``: as they are read now, by Spark's rule (one
task for each block), and all their bytes as one block. Each is the median of some rounds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from operator import add
from typing import Any

from pyspark import SparkConf, SparkContext

from benchmarks.machine import describe
from penstock.blockstore import BlockAccess, BlockKind, BlockRDD, BlockStore
from penstock.blockstore.store import BlockStoreOptions

_PARTITION_BYTES = 8 << 20


def stored(store: BlockStore, name: str, data: bytes) -> Any:
    """Store lines as one block."""
    builder = store.open_block(BlockKind.LINES)
    builder.append_lines(data, data.count(b"\n"))
    return store.put(builder.seal(name, 0.0))


def jobs(rdd: BlockRDD) -> dict[str, Callable[[], object]]:
    """Return what is timed."""
    return {
        "count": rdd.count,
        "a function of each record": lambda: rdd.map(len).sum(),
        "word count": lambda: (
            rdd.in_parts()
            .flatMap(str.split)
            .map(lambda word: (word, 1))
            .reduceByKey(add, 2)
            .count()
        ),
    }


def main() -> None:
    """Run it and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, default=1000, help="of a block")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    line = b"a line of words that come again and again in a block 0123456789 and of lines\n"
    block = line * max(1, options.bytes // len(line))
    with tempfile.TemporaryDirectory() as folder:
        store = BlockStore(
            stream_id=0,
            attempt="0" * 32,
            host="here",
            log_folder=f"{folder}/log",
            options=BlockStoreOptions(memory_dir=folder, memory_bytes=1 << 30),
        )
        conf = SparkConf().set("spark.ui.showConsoleProgress", "false")
        sc = SparkContext("local[2]", "small blocks", conf=conf)
        sc.setLogLevel("ERROR")
        try:
            small = [stored(store, f"input-0-{at}", block) for at in range(options.blocks)]
            large = [stored(store, "input-0-all", block * options.blocks)]
            cases: dict[str, tuple[Sequence[Any], int]] = {
                "packed": (small, _PARTITION_BYTES),
                "one task a block": (small, 0),
                "one block": (large, 0),
            }
            took_s: dict[tuple[str, str], list[float]] = {}
            for at in range(options.rounds + 1):
                for case, (infos, size) in cases.items():
                    if case == "one task a block" and at > 1:
                        continue
                    for name in jobs(BlockRDD(sc, infos, BlockAccess(), size)):
                        # As a batch: its RDD is made within its time.
                        begin_s = time.perf_counter()
                        jobs(BlockRDD(sc, infos, BlockAccess(), size))[name]()
                        if at:
                            spent_s = time.perf_counter() - begin_s
                            took_s.setdefault((name, case), []).append(spent_s)
        finally:
            sc.stop()
            store.close()
    for name, value in describe(tempfile.gettempdir()).items():
        print(f"{name}: {value}")
    print(f"{options.blocks:,} blocks of {len(block):,} bytes; seconds, and times one block")
    for name in {name: None for name, _ in took_s}:
        one_s = statistics.median(took_s[name, "one block"])
        for case in cases:
            found_s = statistics.median(took_s[name, case])
            print(f"  {name:28}{case:20}{found_s:8.2f}{found_s / one_s:8.1f}")


if __name__ == "__main__":
    main()
