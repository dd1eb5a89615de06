"""The data source ``penstock``: what a query has in its own process and in its tasks.

What must hold: nothing here needs what runs receivers. Spark starts a Python process for each query
and waits for it, so that what it imports is time before the first batch.

=================  ===============================================================================
`data_source`      the data source, as Spark makes it by its name; several streams as one
`_reader`          offsets, partitions and commits of one query
`_batch_reader`    partitions of a batch read
`_tasks`           what a task does with its partition
`_options`         what a query or a batch read may say
`host_client`      questions to the host
`_ended_host`      the same to the directory of one that has ended
=================  ===============================================================================
"""
