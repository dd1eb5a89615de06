"""The program that is hurt: ``python -m tests.system.chaos.program JSON``.

Like `recoverable`, with more that can go wrong: one stream with positions feeds batches, a state
and a window with an inverse function, another one without positions is only acknowledged. Each
output writes to a file of the batch's time, so that a batch that runs again writes the same again.

With brokers the first stream is a `KafkaReceiver`, and the second one a direct stream.
"""

from __future__ import annotations

import json
import os
import sys
from operator import add, sub
from pathlib import Path
from typing import Any

from penstock.sources.kafka import (
    ConsumerStrategies,
    KafkaRecord,
    KafkaUtils,
    LocationStrategies,
)
from penstock.streaming import DStream, StreamingContext
from tests.sources.kafka.receivers import Marked
from tests.system import recoverable
from tests.system.program import say
from tests.system.receivers import NumberedLines

BATCH_S = 5
WINDOW_S = 20
SLIDE_S = 10


def with_one(number: int) -> tuple[str, int]:
    return recoverable.word_of(number), 1


def some(pair: tuple[str, int]) -> bool:
    return pair[1] != 0


def value_of(record: KafkaRecord) -> bytes:
    value: bytes = record.value
    return value


def counts_of_window(pairs: list[tuple[str, int]]) -> dict[str, Any]:
    return {"counts": dict(pairs)}


def numbers_in_order(numbers: list[int]) -> dict[str, Any]:
    """The numbers of a batch as runs of [first, one after the last], in their order."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number:
            runs[-1][1] = number + 1
        else:
            runs.append([number, number + 1])
    return {"runs": runs}


def build(config: dict[str, Any]) -> StreamingContext:
    kafka = config.get("kafka")
    if kafka is None:
        receiver = None
    else:
        receiver = Marked(Path(kafka["marks"]), [kafka["numbers"]], kafka["params"])
    ssc, numbers = recoverable.build_with_numbers(config, receiver)
    if config["recoverable"]:
        counts = numbers.map(with_one).reduceByKeyAndWindow(
            add, sub, WINDOW_S, SLIDE_S, 2, filterFunc=some
        )
        counts.checkpoint(2 * SLIDE_S)
        counts.foreachRDD(recoverable.Write(config["windows"], counts_of_window))
    plain: DStream[Any]
    if kafka is None:
        plain = ssc.receiverStream(NumberedLines(tuple(config["plain_feeder"])))
    else:
        strategy = ConsumerStrategies.Subscribe([kafka["plain"]], kafka["params"])
        direct = KafkaUtils.createDirectStream(ssc, LocationStrategies.PreferConsistent, strategy)
        plain = direct.map(value_of)
    plain.map(recoverable.parse).foreachRDD(recoverable.Write(config["plain"], numbers_in_order))
    return ssc


def tell(ssc: StreamingContext) -> None:
    java: Any = ssc.sparkContext._jvm
    say(
        "identity",
        application=str(ssc.sparkContext.applicationId),
        jvm=int(java.java.lang.ProcessHandle.current().pid()),
    )


def obey(ssc: StreamingContext) -> None:
    """Do what standard input says: ``stop``, or ``die N MOMENT``; end with it."""
    for line in sys.stdin:
        what, _, rest = line.strip().partition(" ")
        if what == "stop":
            ssc.stop(stopSparkContext=True, stopGraceFully=True)
        elif what == "die":
            occasion, _, moment = rest.partition(" ")
            recoverable.MOMENTS[moment](int(occasion))
    os._exit(3)


if __name__ == "__main__":
    # Its functions belong to the modules, not to `__main__`, so that a checkpoint finds them.
    from tests.system.chaos import program

    recoverable.CONFIG.update(json.loads(sys.argv[1]))
    recoverable.main(program.build, program.tell, program.obey)
