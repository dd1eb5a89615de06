"""The door to the model over HTTP: what may come in, who may see and do what, and what goes out.

What must hold
--------------

* Whatever comes in, the program goes on: connections, their time, the size of a request and what
  waits to be sent are bounded, and anyone who exceeds a bound is turned away, not queued.
* Looking and acting are distinguished. An action needs this run's token, and a page of another
  origin can neither act nor read (`Host` and `Origin` are checked).
* What goes out is made of the model alone.

==================  =============================================================================
`server`            where it listens, its certificate; connections: how many, for how long,
                    how large; a thread for each
`exchange`          a request and its answer, apart from connections
`access`            who may read, who may act
`routes`            which path shows what; the page, its files (``static``) and events;
                    ``/metrics`` for Prometheus; ``/health/live`` and ``/health/ready``
`rest`              Spark's endpoints under ``/api/v1``, with its field names
`status`            what page and commands show, under ``/api/penstock``; dead letters, counted
`actions`           what may be done, under ``/api/penstock/actions``; records as they pass
==================  =============================================================================

The server is the standard library's, with threads. A page that a few people look at needs no more,
and every user of the package would have to install another one; what it lacks, bounds, is here.
"""
