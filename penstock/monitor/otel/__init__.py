"""OpenTelemetry: the figures and traces of blocks, sent to a collector by OTLP.

What must hold
--------------

* The program does not wait for a collector: one thread of its own sends (``penstock-otel``), what
  waits for it is bounded, and a stop gives it two seconds.
* A collector that is away is reported once, and once when it is back; figures and traces are sent
  and reported separately, since it may take only one of them.
* Traces that it does not take now wait, and it is asked again when it says (`Retry-After`).
* Switched off, nothing of it is imported, and receivers note no times.

Layout
------

=============  ==================================================================================
`sender`       the thread: sends figures and spans every so often
`signals`      figures or traces on their way: when they are sent, what became of them
`otlp_data`    a block's times, put together from its receiver and from its batch; these as spans,
               and the figures, as OpenTelemetry has them
=============  ==================================================================================

OpenTelemetry's packages come with the extra ``penstock[otel]``. Its environment variables say what
they say everywhere: where the collector is, headers, certificates, how often, the program's name.
Its periodic reader is not used: it sends what instruments recorded, and here the model has the
figures already, histograms included.
"""

from __future__ import annotations

from penstock.monitor.otel.sender import OtelSender

__all__ = ["OtelSender"]
