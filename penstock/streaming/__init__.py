"""Streaming: contexts, streams, batches and their jobs, as Spark Streaming has them.

A program changes its import line from ``pyspark.streaming`` to ``penstock.streaming``. The room
is Python on PySpark's RDDs; no streaming class of the JVM takes part.

What must hold
--------------

* An allocation of blocks is in the driver log before any job of its batch runs (I3).
* A batch has one RDD per stream and time, however many operations ask for it.
* Blocks are let go only when every batch up to theirs is complete and the time to remember them
  has passed; first the clean-up is logged (I4).
* A checkpoint is whole or not there. A restart makes each batch that was not complete again, under
  its time and with its blocks (I3); nothing that a checkpoint needs goes before a newer one that
  does not need it is on the disk.
* A failed output operation costs itself and nothing else: the others of its batch and the later
  batches run, the batch is cleared like any other, and `awaitTermination` raises.
* A graceful stop loses nothing (I10) and ends within its timeout.
* No thread outlives `stop`, and none keeps the interpreter from exiting.

Layout
------

A program holds `DStream` objects; each is a handle on a node of the `DStreamGraph`. Nodes bear
the names of Spark's DStream classes.

===========================  =====================================================================
`context`                    `StreamingContext`: inputs, settings, start, wait, stop
`dstream`, `pair_operations`, the operations of a stream
`window_operations`,
`save_operations`
`node`                       what every node does: one RDD per time, remembered for a while
`input_streams`              queues and receivers
`file_input_stream`          files that appear in a folder
`input_operations`           the streams of files and sockets, as methods of the context
`rated_dstream`,             streams whose rate can be set, of receivers and direct ones; the
`receiver_dstream`,          rates of all
`rate_operations`
`rates`                      a room of its own: whose limit holds, backpressure, groups
`derived_streams`            narrow operations, shuffles, functions of RDDs
`windowed_streams`           windows and state
`state`, `map_with_state`    `mapWithState`: states of keys, with timeouts
`output`                     `foreachRDD` and `foreachBatch`
`graph`                      inputs, outputs, time
`job_generator`              makes a batch at each tick of the `recurring_timer`, clears old ones
`job_scheduler`              runs the jobs of batches in its threads
`listener`, `listener_bus`,  events for programs
`listener_events`,
`stats_report`
`_fusion`, `_combine`,       why Python functions run fast: no wrapper per record
`_recognition`, `_counting`,
`_collector`
`_shuffle`, `_sections`,     placing records, and reading what is placed alike side by side
`_grouping`, `_slide`,       groups and joins; the step from one window, and from one batch's
`_update`                    states, to the next
`_deferred`                  RDDs that are made when something asks for them
`checkpoint`,                the graph and the progress in one file; the thread that writes it;
`checkpoint_writer`,         the context made again; what cannot be pickled
`checkpointer`, `_recovery`,
`_graph_pickling`,
`_culprits`, `_rdd_files`
`_engine`, `_receivers`      what runs between start and stop, in the order in which it starts
===========================  =====================================================================

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
makes the batches again that were not complete, then those of the time between.

Threads, all daemons and named ``penstock-…``: ``batch-timer``, ``job-generator``, ``job-<n>``
(`spark.streaming.concurrentJobs` of them), ``listener-bus``, ``checkpoint-writer``, and those of
the tracker.
"""

from pyspark import StorageLevel

from penstock.streaming.checkpoint_errors import (
    CheckpointError,
    CheckpointReadError,
    CheckpointVersionError,
    CheckpointWriteError,
    UnpicklableFunctionError,
)
from penstock.streaming.context import StreamingContext, StreamingContextState
from penstock.streaming.dstream import DStream
from penstock.streaming.errors import (
    JobGenerationError,
    NotEnoughCoresError,
    OutputOperationError,
    PermanentReceiverError,
    StreamGraphError,
)
from penstock.streaming.job_scheduler import SchedulerStatistics
from penstock.streaming.listener import StreamingListener
from penstock.streaming.map_with_state import MapWithStateDStream
from penstock.streaming.rated_dstream import RatedDStream
from penstock.streaming.rates import GroupRate, RateGroup, RateSource, StreamRate
from penstock.streaming.receiver_dstream import ReceiverDStream
from penstock.streaming.state import (
    IllegalStateChangeError,
    State,
    StateNotSetError,
    StateSpec,
)
from penstock.streaming.stats_report import StatsReportListener

__all__ = [
    "CheckpointError",
    "CheckpointReadError",
    "CheckpointVersionError",
    "CheckpointWriteError",
    "DStream",
    "GroupRate",
    "IllegalStateChangeError",
    "JobGenerationError",
    "MapWithStateDStream",
    "NotEnoughCoresError",
    "OutputOperationError",
    "PermanentReceiverError",
    "RateGroup",
    "RateSource",
    "RatedDStream",
    "ReceiverDStream",
    "SchedulerStatistics",
    "State",
    "StateNotSetError",
    "StateSpec",
    "StatsReportListener",
    "StorageLevel",
    "StreamGraphError",
    "StreamRate",
    "StreamingContext",
    "StreamingContextState",
    "StreamingListener",
    "UnpicklableFunctionError",
]
