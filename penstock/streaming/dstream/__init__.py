"""Streams: their operations, and the graph of nodes behind them.

A program holds `DStream` objects; each is a handle on a node of the `DStreamGraph`. Nodes bear
the names of Spark's DStream classes. A batch has one RDD per node and time, however many
operations ask for it.

===========================  =====================================================================
`stream_handle`, `dstream`,  the operations of a stream, as a program calls them
`pair_operations`,
`arrow_stream`
`inputs/`                    where records come from: methods of the context, and their nodes
`states/`                    what is kept from batch to batch, and saved
`node`                       what every node does: one RDD per time, remembered for a while
`derived_streams`            nodes of narrow operations, shuffles, functions of RDDs
`windowed_streams`           nodes of windows
`output`                     `foreachRDD` and `foreachBatch`; saving to existing folders
`job`                        one output operation of one batch; the set of them that a batch is
`graph`                      inputs, outputs, time; jobs, which save first what is due
`names`                      names of streams and states, which hold over restarts
`arity`                      with or without the batch time: what a user's function takes
===========================  =====================================================================
"""

from penstock.streaming.dstream.dstream import DStream

__all__ = ["DStream"]
