"""Listeners: what a running context reports of its receivers, batches and output operations.

What must hold
--------------

* Listeners get events in order, and a slow or broken one delays no batch and no other listener.
* After the context has stopped no event comes any more.

================  ===============================================================================
`listener`        what a program implements to be notified; one that logs delays
`events`          what it gets, with PySpark's getters
`bus`             the thread that hands events to listeners
`rate_controller` a listener for each stream whose rate follows its batches
`input_info`      what the inputs of a batch report
================  ===============================================================================
"""
