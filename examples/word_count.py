"""Count the words of a text server: a `pyspark.streaming` program with another import line.

Run a server first, then this, and type into the server::

    nc -lk 9999
    python examples/word_count.py localhost 9999

What Penstock has to say, that the server is away for example, comes on standard error; for more,
with times, call ``logging.basicConfig(level=logging.INFO)`` first (docs/operation.md).
"""

from __future__ import annotations

import sys

from pyspark import SparkConf, SparkContext

from penstock.streaming import StreamingContext  # was: from pyspark.streaming import ...


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: word_count.py HOST PORT")
    host, port = sys.argv[1], int(sys.argv[2])
    conf = SparkConf().setIfMissing("spark.master", "local[2]").setAppName("word count")
    conf.set("spark.ui.showConsoleProgress", "false").set("spark.log.level", "ERROR")
    sc = SparkContext(conf=conf)
    ssc = StreamingContext(sc, 1)

    lines = ssc.socketTextStream(host, port)
    counts = (
        lines.flatMap(lambda line: line.split())
        .map(lambda word: (word, 1))
        .reduceByKey(lambda a, b: a + b)
    )
    counts.pprint()

    ssc.start()
    try:
        ssc.awaitTermination()
    except KeyboardInterrupt:
        ssc.stop(stopSparkContext=True, stopGraceFully=True)


if __name__ == "__main__":
    main()
