"""Benchmarks: Penstock and `pyspark.streaming` side by side, in one run, on one machine.

What must hold
--------------

* Both sides run the same program: one file in `programs`, whose import line is the only thing that
  the side decides. Same feeder, same Spark settings, same cores, same folder on the same disk.
* Every run has a fresh process tree, found again by a mark in its environment, and ends with none
  of its processes, files and shared memory left.
* A figure is of a steady state: the first seconds are left out, and the feeder never has more in
  flight than a few batches' worth, so that nobody is measured while drowning.
* Pairs are run next to each other, in changing order, several rounds; the median counts.
* No figure in a table or a chart is typed by hand.

Layout
------

======================  ==========================================================================
`case`, `cases`         what is run, what is set beside what, and what is to be reached
`streaming_run`         one streaming program with its feeder, from start to figures
`feeder`                the process that pushes records over TCP
`child`, `accounting`   a process tree: started, measured (CPU, memory), ended
`batches`               completed batches, and the steady part of them
`rounds`                all runs of all rounds, and medians of them
`results`, `page`,      what came out: table, Markdown, chart
`chart`, `machine`
`programs`              the programs themselves
======================  ==========================================================================
"""
