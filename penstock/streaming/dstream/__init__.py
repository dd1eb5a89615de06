"""Streams: their operations, and the graph of nodes behind them.

A program holds `DStream` objects; each is a handle on a node of the `DStreamGraph`. Nodes bear
the names of Spark's DStream classes. A batch has one RDD per node and time, however many
operations ask for it.

===========================  =====================================================================
`stream_handle`, `dstream`,  the operations of a stream, as a program calls them
`pair_operations`,
`map_with_state`, `state`,
`arrow_stream`
`input_operations`           the inputs, as methods of the context; the rates of all
`receiver_dstream`           streams whose rate can be set: direct ones, and those of receivers
`node`                       what every node does: one RDD per time, remembered for a while
`input_streams`              nodes of queues, receivers and direct streams
`input_dstream`              an input that a program writes
`file_input_stream`          the node of files that appear in a folder
`dead_letter_stream`         the node of the program's own dead letters
`derived_streams`            nodes of narrow operations, shuffles, functions of RDDs
`windowed_streams`,          nodes of windows and of states
`stateful`
`output`                     `foreachRDD` and `foreachBatch`; saving to folders that are there
`job`                        one output operation of one batch; the set of them that a batch is
`rdd_files`, `state_saver`,  RDDs that are saved, and read back; waiting for a full disk
`graph`                      inputs, outputs, time; jobs, which save first what is due
`arity`                      with or without the batch time: what a user's function takes
===========================  =====================================================================
"""

from penstock.streaming.dstream.dstream import DStream

__all__ = ["DStream"]
