"""Counts what is sent to it, with all that it keeps on an object store: the manifests run it.

``curl -d '{"order": 1}' http://records.penstock:8080/records``
"""

import os

from pyspark import SparkConf, SparkContext

from penstock.sources.http import HttpReceiver
from penstock.streaming import StreamingContext

FOLDER = os.environ["PENSTOCK_FOLDER"]


def program() -> StreamingContext:
    """Return a new context: what a driver makes that finds no checkpoint."""
    ssc = StreamingContext(SparkContext(conf=SparkConf().setAppName("records")), 5)
    records = ssc.receiverStream(HttpReceiver(8080, host="0.0.0.0", path="/records"))
    records.count().pprint()
    return ssc


if __name__ == "__main__":
    StreamingContext.getOrCreate(FOLDER, program).run()
