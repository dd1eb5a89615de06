"""A program that goes on after a crash of its driver: ``python -m tests.system.recoverable JSON``.

It counts numbered words. For each batch it writes what the batch has and what the state is then,
each to a file of the batch's time, so that a batch that runs again writes the same again. A second
result that differs from the first is kept beside it, as a broken promise.

On demand it kills itself with SIGKILL at a named moment (`MOMENTS`).
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext

from penstock.receiver import Receiver
from penstock.streaming import DStream, StreamingContext
from penstock.streaming.checkpoint.checkpointer import CheckpointWriter
from penstock.streaming.scheduler.job_generator import JobGenerator
from penstock.streaming.scheduler.job_scheduler import JobScheduler
from penstock.tracker import ReceivedBlockTracker
from penstock.tracker.ledger._driver_log import DriverLog
from penstock.tracker.ledger.events import CheckpointEvent
from tests.system.program import obey, say
from tests.system.receivers import NumberedLines
from tests.system.running import SMALL

WORDS = ("to", "be", "or", "not", "that", "is", "the", "question")


def word_of(number: int) -> str:
    return WORDS[number * 2654435761 % 4294967296 % len(WORDS)]


# -- the program -----------------------------------------------------------------------------------


def parse(line: Any) -> int:
    return int(line)


def with_word(number: int) -> tuple[str, tuple[int, int]]:
    return word_of(number), (1, number)


class Update:
    """The state of a word: how often it came, and the sum of its numbers.

    The file `trigger` tells it to kill the driver, whose process it names.
    """

    def __init__(self, trigger: str) -> None:
        self.trigger = trigger

    def __call__(
        self, values: Iterable[tuple[int, int]], state: tuple[int, int] | None
    ) -> tuple[int, int]:
        if os.path.exists(self.trigger):
            os.kill(int(Path(self.trigger).read_text()), signal.SIGKILL)
        count, total = state or (0, 0)
        for one, number in values:
            count, total = count + one, total + number
        return count, total


class Write:
    """Writes what `make` makes of a batch to the file of its time, whole or not at all."""

    def __init__(self, folder: str, make: Callable[[list[Any]], dict[str, Any]]) -> None:
        self.folder = folder
        self.make = make

    def __call__(self, time: Any, rdd: Any) -> None:
        made = json.dumps(self.make(rdd.collect()), sort_keys=True)
        path = Path(self.folder, str(round(time.timestamp() * 1000)))
        if path.exists() and path.read_text() != made:
            path = path.with_suffix(".other")
        temporary = path.with_suffix(f".{os.getpid()}.new")
        temporary.write_text(made)
        temporary.rename(path)


def numbers_of_batch(numbers: list[int]) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    for number in numbers:
        counts[word_of(number)] += 1
        sums[word_of(number)] += number
    order = zlib.crc32(" ".join(map(str, numbers)).encode())
    return {"counts": dict(counts), "sums": dict(sums), "order": order}


def state_of_batch(pairs: list[tuple[str, tuple[int, int]]]) -> dict[str, Any]:
    return {
        "counts": {word: count for word, (count, _) in pairs},
        "sums": {word: total for word, (_, total) in pairs},
    }


def build(config: dict[str, Any]) -> StreamingContext:
    return build_with_numbers(config)[0]


def build_with_numbers(
    config: dict[str, Any], receiver: Receiver | None = None
) -> tuple[StreamingContext, DStream[int]]:
    """Return the program, and its stream of numbers for more operations.

    Args:
        config: See `CONFIG`.
        receiver: Where the numbers come from; None for the feeder.
    """
    conf = SparkConf().setMaster(config["master"]).setAppName("penstock-recovery-test")
    plain = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.default.parallelism": "2",
        "spark.penstock.blockServer.lease": "3s",
        "spark.streaming.receiver.maxRate": str(config.get("rate", 2000)),
        "spark.log.level": "OFF",
    }
    for key, value in {**SMALL, **plain, **config.get("settings", {})}.items():
        conf.set(key, value)
    ssc = StreamingContext(SparkContext(conf=conf), config["batch_s"])
    if config.get("rdd_folder"):
        ssc.sparkContext.setCheckpointDir(config["rdd_folder"])
    receiver = receiver or NumberedLines(tuple(config["feeder"]), positions=True)
    numbers = ssc.receiverStream(receiver).map(parse)
    numbers.foreachRDD(Write(config["batches"], numbers_of_batch))
    if config.get("recoverable", True) and config["states"] is not None:
        states = numbers.map(with_word).updateStateByKey(Update(config["trigger"]), 2)
        states.checkpoint(config["state_s"])
        states.foreachRDD(Write(config["states"], state_of_batch))
    return ssc, numbers


# -- the moments -----------------------------------------------------------------------------------


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def at(owner: type, name: str, count: int, *, after: bool = False) -> None:
    """Die at the call with this number of a method, before or after it."""
    method = getattr(owner, name)
    calls = [0]

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if not after and calls[0] == count:
            die()
        result = method(self, *args, **kwargs)
        if after and calls[0] == count:
            die()
        return result

    setattr(owner, name, called)


def in_write(count: int) -> None:
    """Die when a part of a checkpoint is in the driver log."""
    written = ReceivedBlockTracker.write_checkpoint
    calls = [0]

    def half(self: ReceivedBlockTracker, checkpoint: bytes) -> None:
        calls[0] += 1
        if calls[0] == count:
            event = CheckpointEvent(0, False, checkpoint[: len(checkpoint) // 2])
            self._driver_log.append("half of a checkpoint", (event,))
            die()
        written(self, checkpoint)

    ReceivedBlockTracker.write_checkpoint = half  # type: ignore[method-assign]  # which is to die


def in_snapshot(count: int) -> None:
    """Let a snapshot follow each checkpoint, and die when one is written."""
    DriverLog.snapshot_is_due = property(  # type: ignore[assignment,method-assign]  # to die
        lambda self: True
    )
    at(DriverLog, "write_snapshot", count, after=count % 2 == 0)


def in_allocation(count: int) -> None:
    """Die when an allocation is in the driver log and nobody knows yet."""
    append = DriverLog.append
    calls = [0]

    def appended(self: DriverLog, what: str, events: Any) -> None:
        append(self, what, events)
        calls[0] += what.startswith("the allocation of batch")
        if calls[0] == count:
            die()

    DriverLog.append = appended  # type: ignore[method-assign]  # of this process


def in_state_update(count: int) -> None:
    """Let the state function, in a Python worker, kill the driver from a batch on."""
    submit = JobScheduler.submit_job_set
    calls = [0]

    def submitted(self: JobScheduler, job_set: Any) -> None:
        calls[0] += 1
        if calls[0] == count:
            temporary = Path(CONFIG["trigger"] + ".new")
            temporary.write_text(str(os.getpid()))
            temporary.rename(CONFIG["trigger"])
        submit(self, job_set)

    JobScheduler.submit_job_set = submitted  # type: ignore[method-assign]  # of this process


MOMENTS: dict[str, Callable[[int], None]] = {
    "before an allocation": lambda n: at(ReceivedBlockTracker, "allocate_blocks_to_batch", n),
    "in an allocation, logged and not applied": in_allocation,
    "between log and jobs": lambda n: at(JobScheduler, "submit_job_set", n),
    "after the jobs were submitted": lambda n: at(JobScheduler, "submit_job_set", n, after=True),
    "before a checkpoint is written": lambda n: at(ReceivedBlockTracker, "write_checkpoint", n),
    "in a checkpoint": in_write,
    "after a checkpoint is written": lambda n: at(
        ReceivedBlockTracker, "write_checkpoint", n, after=True
    ),
    "in a snapshot with a checkpoint": in_snapshot,
    "before old states go": lambda n: at(CheckpointWriter, "_prune", n),
    "after old states went": lambda n: at(CheckpointWriter, "_prune", n, after=True),
    "in a state update": in_state_update,
    "when a batch is complete": lambda n: at(JobScheduler, "_complete", n),
    "when a batch is cleared": lambda n: at(JobGenerator, "_clear", n, after=True),
    "before blocks go": lambda n: at(JobGenerator, "_release", n),
    "after blocks went": lambda n: at(JobGenerator, "_release", n, after=True),
    "when a job has ended": lambda n: at(JobScheduler, "_end", n),
}

CONFIG: dict[str, Any] = {}


def main(
    program: Callable[[dict[str, Any]], StreamingContext] = build,
    tell: Callable[[StreamingContext], object] | None = None,
    obey: Callable[[StreamingContext], object] = obey,
) -> None:
    """Run it until it is stopped.

    Args:
        program: Makes it, when there is no checkpoint.
        tell: Says more of it when it has started.
        obey: Does what standard input says.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    moment = CONFIG.get("moment")
    if moment is not None:
        MOMENTS[moment](CONFIG["occasion"])
    if CONFIG.get("recoverable", True):
        ssc = StreamingContext.getOrCreate(CONFIG["checkpoint"], lambda: program(CONFIG))
    else:
        ssc = program(CONFIG)
    ssc.start()
    if tell is not None:
        tell(ssc)
    say("started", conf=dict(ssc.sparkContext.getConf().getAll()))
    threading.Thread(target=obey, args=(ssc,), daemon=True).start()
    ssc.awaitTermination()
    say("ended")


if __name__ == "__main__":
    # Its functions belong to the module, not to `__main__`: so the state function finds its file.
    from tests.system import recoverable

    recoverable.CONFIG.update(json.loads(sys.argv[1]))
    recoverable.main()
