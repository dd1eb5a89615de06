"""A program with a direct stream, for tests that kill its driver.

Each batch writes a file named after its time and the process, with its ranges and its numbers.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from penstock.sources.kafka import ConsumerStrategies, KafkaUtils, LocationStrategies
from penstock.streaming import StreamingContext

BATCH_S = 0.5
RATE = "2000"


def main() -> None:
    from pyspark import SparkConf, SparkContext

    given = json.loads(sys.argv[1])
    results = given["results"]

    def keep(time: Any, rdd: Any) -> None:
        numbers = rdd.map(lambda record: int(record.value)).collect()
        if rdd.offsetRanges and numbers:
            path = os.path.join(results, f"{time.timestamp():.3f}-{os.getpid()}")
            with open(path + ".part", "w") as file:
                json.dump([list(map(list, rdd.offsetRanges)), numbers], file)
            os.rename(path + ".part", path)

    def build() -> StreamingContext:
        ssc = StreamingContext(sc, BATCH_S)
        stream = KafkaUtils.createDirectStream(
            ssc,
            LocationStrategies.PreferConsistent,
            ConsumerStrategies.Subscribe([given["topic"]], given["params"]),
        )
        stream.foreachRDD(keep)
        return ssc

    conf = SparkConf().setMaster("local[2]").set("spark.ui.enabled", "false")
    conf.set("spark.streaming.kafka.maxRatePerPartition", RATE)
    sc = SparkContext(conf=conf)
    ssc = StreamingContext.getOrCreate(given["checkpoint"], build)
    ssc.start()
    ssc.awaitTermination()


if __name__ == "__main__":
    main()
