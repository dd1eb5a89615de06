"""Count the words of a text server, and go on after a crash of the program.

Run a server, then this, and type into the server::

    nc -lk 9999
    python examples/recoverable_word_count.py localhost 9999 /tmp/words

Kill it (``kill -9``) and start it again with the same folder: the totals go on. Each batch's
totals are written to a file of its time, so that a batch that runs again writes the same file.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from pyspark import RDD, SparkConf, SparkContext

from penstock.streaming import StreamingContext


def add(values: Iterable[int], total: int | None) -> int:
    return sum(values) + (total or 0)


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit("usage: recoverable_word_count.py HOST PORT FOLDER")
    host, port, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]).absolute()

    def write(time: datetime, totals: RDD[tuple[str, int]]) -> None:
        lines = [f"{word} {count}" for word, count in sorted(totals.collect())]
        (folder / f"totals-{time:%H%M%S}").write_text("\n".join(lines))
        print(f"{time:%H:%M:%S}", ", ".join(lines), flush=True)

    def program() -> StreamingContext:
        """Make the streams; called only when there is no checkpoint."""
        conf = SparkConf().setIfMissing("spark.master", "local[2]").setAppName("word totals")
        conf.set("spark.ui.showConsoleProgress", "false").set("spark.log.level", "ERROR")
        ssc = StreamingContext(SparkContext(conf=conf), 1)
        words = ssc.socketTextStream(host, port).flatMap(str.split)
        words.map(lambda word: (word, 1)).updateStateByKey(add, 2).foreachRDD(write)
        return ssc

    folder.mkdir(parents=True, exist_ok=True)
    ssc = StreamingContext.getOrCreate(str(folder / "checkpoint"), program)
    ssc.start()
    try:
        ssc.awaitTermination()
    except KeyboardInterrupt:
        ssc.stop(stopSparkContext=True, stopGraceFully=True)


if __name__ == "__main__":
    main()
