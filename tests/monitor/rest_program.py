"""One program, on `pyspark.streaming` or on Penstock, that is asked by its REST from outside.

``python -m tests.monitor.rest_program spark|penstock PORT``: counts lines of a socket in batches of
half a second, with an output operation that fails where a line is ``fail``. Says one line of JSON
(``url``: where its REST is; ``spark``: Spark's own page; ``id``), goes on until its input ends, and
stops.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import Any

BATCH_S = 0.5


def main() -> None:
    kind, port = sys.argv[1], int(sys.argv[2])
    from pyspark import SparkConf, SparkContext

    conf = (
        SparkConf()
        .setMaster("local[3]")
        .setAppName("rest")
        .set("spark.driver.host", "127.0.0.1")
        .set("spark.driver.bindAddress", "127.0.0.1")
        .set("spark.ui.port", "0")
        .set("spark.ui.showConsoleProgress", "false")
        .set("spark.penstock.ui.port", "0")
    )
    sc = SparkContext(conf=conf)
    sc.setLogLevel("OFF")
    ssc = _context(kind, sc)
    lines = ssc.socketTextStream("127.0.0.1", port)
    lines.foreachRDD(_count)
    lines.foreachRDD(_fail_when_told)
    ssc.start()
    told = {"url": _url(kind, sc), "spark": sc.uiWebUrl, "id": sc.applicationId}
    print(json.dumps(told), flush=True)
    sys.stdin.read()
    ssc.stop(stopSparkContext=True, stopGraceFully=False)


def _context(kind: str, sc: Any) -> Any:
    if kind == "penstock":
        from penstock.streaming import StreamingContext
    else:
        from pyspark.streaming import StreamingContext  # type: ignore[assignment]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # That it is deprecated is known.
        return StreamingContext(sc, BATCH_S)  # type: ignore[arg-type]


def _url(kind: str, sc: Any) -> str:
    if kind == "spark":
        return str(sc.uiWebUrl)
    from penstock.monitor.registry import registered, runtime_folder

    (app,) = registered(runtime_folder(os.environ))
    return app.url.rstrip("/")


def _count(rdd: Any) -> None:
    rdd.count()


def _fail_when_told(rdd: Any) -> None:
    if "fail" in rdd.collect():
        raise ValueError("no such table")


if __name__ == "__main__":
    main()
