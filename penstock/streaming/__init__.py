"""Streaming: contexts, streams, batches and their jobs, as Spark Streaming has them.

A program changes its import line from ``pyspark.streaming`` to ``penstock.streaming``. The room
is Python on PySpark's RDDs; no streaming class of the JVM takes part.

What must hold
--------------

* An allocation of blocks is in the driver log before any job of its batch runs (I3).
* A batch has one RDD per stream and time, however many operations ask for it.
* Blocks are let go only when every batch up to theirs is complete and the time to remember them
  has passed; first the clean-up is logged (I4).
* A checkpoint is whole or absent. A restart makes each batch again that was not complete, under its
  time and with its blocks (I3); nothing that a checkpoint needs goes before a newer one that does
  not need it is on the disk.
* A failed output operation costs itself and nothing else: the others of its batch and the later
  batches run, the batch is cleared like any other, and `awaitTermination` raises.
* A graceful stop loses nothing (I10) within its timeout, and reports what it had to give up.
* A stop ends whatever hangs (I12). After it no output operation begins and no listener is called.
* No batch has a time later than now (I14), except where the clock was set back: then batches come
  half as often until it has caught up.
* No thread outlives `stop`, and none keeps the interpreter from exiting.

Layout
------

===========================  =====================================================================
`context`, `_running`        `StreamingContext`: inputs, settings, start, wait, stop
`dstream/`                   streams, their operations, and the graph of nodes behind them
`scheduler/`                 a batch at each tick, its jobs, executors
`checkpoint/`                the graph and the progress kept
`kernels/`                   what the operations do with records, in the tasks
`recovery`                   the context made again: `StreamingContext.getOrCreate`
`durations`                  durations and batch times, as programs give and get them
`errors`                     what goes wrong, with the way out
`_engine`, `_receivers`,     what runs between start and stop, in the order in which it starts;
`received_blocks`            where dead letters go; the numbers that the ledger has for streams
`console`, `stop_report`     what a program says on its terminal; what a stop gave up
`waiter`                     those who wait for the end, and errors on their way to them
`_call_site`                 names that people recognise
`_live_view`                 what a notebook shows of a context
===========================  =====================================================================

What is checked and decided before anything starts, and what runs receivers, is `penstock.host`;
what a program implements to be notified of all that, and the events, `penstock.listeners`.

Life of a batch
---------------

The timer ticks at a multiple of the batch interval. In the generator's thread the tracker
allocates all unallocated blocks to that time and logs it; each output that is due makes its RDD,
and so its parents make theirs; the jobs go to the scheduler (`onBatchSubmitted`). A job thread
runs them in order (`onBatchStarted`, `onOutputOperationStarted`, …, `onBatchCompleted`). When all
batches up to a time are complete, the generator forgets the RDDs that are no longer remembered
and has the tracker release their blocks.

With a checkpoint directory the graph and the progress go to the writer after a batch was made and
after it was complete, and blocks are released once that is on the disk. A recovered context first
makes the batches again that were not complete, then those of the downtime.

Threads, all daemons and named ``penstock-…``: ``batch-timer``, ``job-generator``, ``job-<n>``
(`spark.streaming.concurrentJobs` of them), ``listener-bus``, ``checkpoint-writer``,
``executor-allocation``, and the tracker's.
"""

from typing import TYPE_CHECKING

from penstock._lazy_door import lazy_door

if TYPE_CHECKING:
    from pyspark.storagelevel import StorageLevel

    from penstock.continuous import (
        DatabaseSink,
        Epoch,
        ExpiredTimers,
        FileSink,
        FunctionSink,
        HttpSink,
        KeyedState,
        Sink,
        SinkError,
        StateError,
        TimeDomain,
        Timers,
        Watermark,
    )
    from penstock.errors import StreamGraphError
    from penstock.host.errors import (
        ContinuousStreamError,
        NotEnoughCoresError,
        PermanentReceiverError,
    )
    from penstock.host.receiver_readings import ReceiverStatus, ReceiverWaits
    from penstock.host.spark.executor_python import ExecutorPythonError
    from penstock.listeners.events import SchedulerStatistics
    from penstock.listeners.listener import StatsReportListener, StreamingListener
    from penstock.rates import GroupRate, RateGroup, RateSource, StreamRate
    from penstock.sources.kafka.sink import KafkaSink as KafkaSink
    from penstock.streaming.checkpoint.errors import (
        CheckpointReadError,
        CheckpointVersionError,
        CheckpointWriteError,
        UnpicklableFunctionError,
    )
    from penstock.streaming.context import StreamingContext, StreamingContextState
    from penstock.streaming.dstream.arrow_stream import ArrowStream
    from penstock.streaming.dstream.dstream import DStream
    from penstock.streaming.dstream.inputs.input_dstream import InputDStream
    from penstock.streaming.dstream.inputs.receiver_dstream import (
        RatedDStream,
        ReceiverDStream,
        SplitDStream,
    )
    from penstock.streaming.dstream.states.map_with_state import MapWithStateDStream
    from penstock.streaming.dstream.states.state import State, StateSpec
    from penstock.streaming.errors import (
        JobGenerationError,
        OutputOperationError,
        SparkEndedError,
        StateSavingError,
    )
    from penstock.streaming.stop_report import GivenUpBatch, StopReport
    from penstock.tracker import EpochStatus
    from penstock.user_errors import FailedTaskError
    from penstock.wal import LogFolderInUseError

__all__ = [
    "ArrowStream",
    "CheckpointReadError",
    "CheckpointVersionError",
    "CheckpointWriteError",
    "ContinuousStreamError",
    "DStream",
    "DatabaseSink",
    "Epoch",
    "EpochStatus",
    "ExecutorPythonError",
    "ExpiredTimers",
    "FailedTaskError",
    "FileSink",
    "FunctionSink",
    "GivenUpBatch",
    "GroupRate",
    "HttpSink",
    "InputDStream",
    "JobGenerationError",
    "KeyedState",
    "LogFolderInUseError",
    "MapWithStateDStream",
    "NotEnoughCoresError",
    "OutputOperationError",
    "PermanentReceiverError",
    "RateGroup",
    "RateSource",
    "RatedDStream",
    "ReceiverDStream",
    "ReceiverStatus",
    "ReceiverWaits",
    "SchedulerStatistics",
    "Sink",
    "SinkError",
    "SparkEndedError",
    "SplitDStream",
    "State",
    "StateError",
    "StateSavingError",
    "StateSpec",
    "StatsReportListener",
    "StopReport",
    "StorageLevel",
    "StreamGraphError",
    "StreamRate",
    "StreamingContext",
    "StreamingContextState",
    "StreamingListener",
    "TimeDomain",
    "Timers",
    "UnpicklableFunctionError",
    "Watermark",
]

_MODULES = {
    "penstock.continuous": [
        "DatabaseSink",
        "Epoch",
        "ExpiredTimers",
        "FileSink",
        "FunctionSink",
        "HttpSink",
        "KeyedState",
        "Sink",
        "SinkError",
        "StateError",
        "TimeDomain",
        "Timers",
        "Watermark",
    ],
    "penstock.errors": ["StreamGraphError"],
    "penstock.host.errors": [
        "ContinuousStreamError",
        "NotEnoughCoresError",
        "PermanentReceiverError",
    ],
    "penstock.host.spark.executor_python": ["ExecutorPythonError"],
    "penstock.host.receiver_readings": ["ReceiverStatus", "ReceiverWaits"],
    "penstock.listeners.events": ["SchedulerStatistics"],
    "penstock.listeners.listener": ["StatsReportListener", "StreamingListener"],
    "penstock.rates": ["GroupRate", "RateGroup", "RateSource", "StreamRate"],
    "penstock.sources.kafka.sink": ["KafkaSink"],
    "penstock.streaming.checkpoint.errors": [
        "CheckpointReadError",
        "CheckpointVersionError",
        "CheckpointWriteError",
        "UnpicklableFunctionError",
    ],
    "penstock.streaming.context": ["StreamingContext", "StreamingContextState"],
    "penstock.streaming.dstream.arrow_stream": ["ArrowStream"],
    "penstock.streaming.dstream.dstream": ["DStream"],
    "penstock.streaming.dstream.inputs.input_dstream": ["InputDStream"],
    "penstock.streaming.dstream.states.map_with_state": ["MapWithStateDStream"],
    "penstock.streaming.dstream.inputs.receiver_dstream": [
        "RatedDStream",
        "ReceiverDStream",
        "SplitDStream",
    ],
    "penstock.streaming.dstream.states.state": ["State", "StateSpec"],
    "penstock.streaming.errors": [
        "JobGenerationError",
        "OutputOperationError",
        "SparkEndedError",
        "StateSavingError",
    ],
    "penstock.streaming.stop_report": ["GivenUpBatch", "StopReport"],
    "penstock.tracker": ["EpochStatus"],
    "penstock.user_errors": ["FailedTaskError"],
    "penstock.wal": ["LogFolderInUseError"],
    "pyspark.storagelevel": ["StorageLevel"],
}

if not TYPE_CHECKING:
    # A task imports a kernel, and needs none of what makes streams.
    __getattr__ = lazy_door(__name__, _MODULES)
