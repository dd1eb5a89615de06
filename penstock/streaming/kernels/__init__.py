"""Kernels: how the operations work on records, in the tasks.

No wrapper per record where a bulk operation exists. What goes through Spark's shuffle is placed
and pickled here, in lists; what is placed alike is read side by side.

=====================  ==========================================================================
`_deferred`            RDDs that are made in the JVM when something asks for them
`_fusion`              narrow operations as one function per partition
`_recognition`,        functions that every word count has, known by their code; words of a block
`_words`
`_combine`             combining by key
`_shuffle`             placing records in partitions
`_sections`            reading what is placed alike, partition by partition
`_grouping`            groups and joins
`_slide`, `_update`    from one window, and from one batch's states, to the next
`_counting`,           counting in C; the garbage collector made to look less often
`_collector`
=====================  ==========================================================================
"""
