"""Kernels: how the operations work on records, in the tasks.

No wrapper per record where a bulk operation exists. What goes through Spark's shuffle is placed
and pickled here, in lists; what is placed alike is read side by side. The rooms above use each
file by its name: they are many, and a task imports only those that it needs.

=====================  ==========================================================================
`deferred`             RDDs that are made in the JVM when something asks for them
`fusion`               narrow operations as one function per partition; counting in C
`dead_letters`         functions whose failures go to the dead letters, record by record
`arrow`                operations on columns of record batches
`combine`              combining by key
`shuffle`              placing records in partitions
`sections`             reading what is placed alike, partition by partition
`grouping`             groups and joins
`slide`                from one window, and from one batch's states, to the next
`encrypted_rdds`       records that are encrypted where Spark puts them
=====================  ==========================================================================
"""
