"""The monitor: what is seen of a running program, and done with it, from outside.

What must hold
--------------

* One model, many views: page, REST, metrics and commands show what the model has and compute
  nothing themselves, so that no two of them disagree.
* The model is bounded: batches by `spark.streaming.ui.retainedBatches`, events and errors by
  number, texts by length, history by time. An hour and a year take the same memory.
* The program does not wait for it. It is fed by the listener bus (of a `ReceiverHost`, which has
  none, by the tracker) and by what receivers send in any case, looks at the rest once a second in a
  thread of its own, and its failures are logged and stop nothing. Nothing imports this room but the
  start of a context and of a host.
* No one changes anything without the token of this run, and where Spark's own page asks who may
  look (`spark.acls.enable`), no one looks without it. What goes into a page is text, never markup.

Layout
------

==================  =============================================================================
`application`       what the monitor asks a running context or host, and may have it do
`records`           what the model reports: batches, operations, events, receivers
`history`           points of one second for ten minutes and of ten seconds for a day; how a
                    receiver has been in the last minutes
`model`             takes events and readings, answers questions
`sentence`          how it goes, in one sentence that a person would say
`web`               all of it over HTTP: REST, metrics, health, status, actions
`otel`              figures, and traces of blocks, sent by OpenTelemetry's protocol
`figures`           what the model has, as families of metrics
`registry`          the file by which commands find a running program
`tables`            what the commands print
`cli`               the commands, and how they ask a running program
`doctor`            checks a machine or a cluster before a program runs
`monitor`           begins and ends all of it with a context or a host, and feeds the model where
                    there is no listener bus; the way to it from Spark's page, and Spark's gauges
==================  =============================================================================

Life
----

`start_monitor` makes the model, has it notified before the first event, and starts the thread
``penstock-monitor``, which takes a point of the history every second, the server, and the thread
``penstock-spark-views``. Where the server listens is said in one line. `Monitor.stop` ends them
all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._lazy_door import lazy_door

if TYPE_CHECKING:
    from penstock.monitor.application import Application
    from penstock.monitor.model import Model
    from penstock.monitor.monitor import Monitor, TrackerEvents, start_monitor

__all__ = ["Application", "Model", "Monitor", "TrackerEvents", "start_monitor"]

if not TYPE_CHECKING:
    # A command asks a program that runs; it needs neither Arrow nor PySpark.
    __getattr__ = lazy_door(
        __name__,
        {
            "application": ["Application"],
            "model": ["Model"],
            "monitor": ["Monitor", "TrackerEvents", "start_monitor"],
        },
    )
