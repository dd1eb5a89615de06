"""A socket stream with backpressure on, and batches that are processed at a known speed."""

from __future__ import annotations

import json
import sys
import threading
import time as clock
from dataclasses import asdict, dataclass, field

from benchmarks.child import Child
from benchmarks.feeder import FeederOptions
from benchmarks.programs._program import LEVEL, ProgramOptions, spark_context, tell

__all__ = ["Observed", "folder", "observe"]

_START_BOUND_S = 60.0
_CORES = 3


@dataclass
class Observed:
    """A batch.

    Attributes:
        at_s: Its time, in seconds since the first with records.
        records: What it has.
        waited_s: From its time to the start of its first job; None while it has not started.
        took_s: From there to its end; None while it has not ended.
        speed: Records per second at which it was processed.
        rate: The rate in force when it ended, if that is known.
    """

    at_s: float
    records: int
    waited_s: float | None = None
    took_s: float | None = None
    speed: float = 0.0
    rate: float | None = None

    def as_dict(self):
        return asdict(self)


@dataclass
class _Series:
    """What listener and batch function tell; keys are batch times in ms."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    begun: threading.Event = field(default_factory=threading.Event)
    first_ms: int = 0
    batches: dict[int, Observed] = field(default_factory=dict)


def folder():
    """Return the folder that the harness gives."""
    return json.loads(sys.argv[1])["folder"]


def observe(side, estimator, speed, *, source_per_s, seconds, stall=None, batch_s=1.0):
    """Run for some seconds after the first record; return the batches in order.

    Args:
        side: ``penstock`` or ``pyspark``.
        estimator: ``pid`` or ``aimd``.
        speed: Gives records per second by the seconds since the first batch with records.
        source_per_s: Records per second of the source, more than any speed.
        seconds: How long.
        stall: When a batch takes longer, and by how much; both in seconds.
        batch_s: The batch interval.
    """
    heard = []
    told = FeederOptions(stamped_per_s=source_per_s, batch_s=batch_s).as_dict()
    feeder = Child("benchmarks.feeder", told, heard.append)
    try:
        feeder.wait("port of the feeder", lambda: bool(heard), 20)
        given = ProgramOptions(
            side=side,
            folder=folder(),
            cores=_CORES,
            batch_s=batch_s,
            block_ms=100,
            settings=(
                ("spark.streaming.backpressure.enabled", "true"),
                ("spark.streaming.backpressure.rateEstimator", estimator),
                ("spark.penstock.memory.dir", json.loads(sys.argv[1])["memory_folder"]),
            ),
        )
        series = _run(given, heard[0]["port"], speed, seconds, stall)
        return [found for _, found in sorted(series.batches.items()) if found.at_s >= 0]
    finally:
        feeder.end()


class _State:
    """What the functions of the stream need.

    They are functions of this module, pickled by name: both sides write the functions of a program
    to its checkpoints, and locks and listeners cannot be.
    """

    def __init__(self, speed, stall):
        self.series = _Series()
        self.speed = speed
        self.stall = stall


_state = _State(None, None)


def _process(time, rdd):
    begun = clock.monotonic()
    series = _state.series
    records = rdd.count()
    with series.lock:
        found = series.batches.get(round(time.timestamp() * 1000)) or Observed(0.0, 0)
    found.speed = _state.speed(max(0.0, found.at_s))
    pause = records / found.speed
    if _state.stall is not None and found.at_s >= _state.stall[0]:
        pause += _state.stall[1]
        _state.stall = None
    clock.sleep(max(0.0, begun + pause - clock.monotonic()))


def _run(given, port, speed, seconds, stall):
    global _state
    if given.side == "penstock":
        from penstock.streaming import StreamingContext, StreamingListener
    else:
        from pyspark.streaming import StreamingContext, StreamingListener

    _state = _State(speed, stall)
    series = _state.series
    sc = spark_context(given)
    ssc = StreamingContext(sc, given.batch_s)
    ssc.checkpoint(given.folder + "/checkpoint")

    class Listening(StreamingListener):
        def onBatchSubmitted(self, batchSubmitted):
            info = batchSubmitted.batchInfo()
            at_ms, records = info.batchTime().milliseconds(), info.numRecords()
            with series.lock:
                if records and not series.first_ms:
                    series.first_ms = at_ms
                    series.begun.set()
                at_s = (at_ms - series.first_ms) / 1000 if series.first_ms else -1.0
                series.batches[at_ms] = Observed(at_s, records)

        def onBatchCompleted(self, batchCompleted):
            info = batchCompleted.batchInfo()
            rate = ssc.rates()[0].effective if given.side == "penstock" else None
            with series.lock:
                found = series.batches[info.batchTime().milliseconds()]
                found.waited_s = info.schedulingDelay() / 1000
                found.took_s = info.processingDelay() / 1000
                found.rate = rate
            tell({"progress": f"{found.at_s:.0f} s, {found.records:,} records in the batch"})

    ssc.addStreamingListener(Listening())
    ssc.socketTextStream("127.0.0.1", port, LEVEL).foreachRDD(_process)
    ssc.start()
    if not series.begun.wait(_START_BOUND_S):
        raise SystemExit(f"no record within {_START_BOUND_S:g} s")
    clock.sleep(seconds)
    with series.lock:
        found = _Series(first_ms=series.first_ms, batches=dict(series.batches))
    # What waits, in the original, is not waited for: the processes are killed with this one.
    threading.Thread(target=ssc.stop, args=(True, False), daemon=True).start()
    return found
