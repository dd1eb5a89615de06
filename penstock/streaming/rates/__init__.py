"""Rates: how fast each receiver may be, who says so, and how it gets there.

What must hold
--------------

* The lowest of what the program asks for, what the settings allow, the stream's share of a group
  and what backpressure found is in force, and `StreamRate` says whose it is.
* A decision holds for the open block (I8), and for receivers that start later.
* The shares of a group never add up to more than its total: a share grows only by what a receiver
  has confirmed to have given up.
* With backpressure and no rate known, the first batches are bounded (slow start).

Layout
------

==================  ==============================================================================
`decision`          whose limit holds, as one pure function
`memory`            what a stream keeps: it is on the stream's node and is pickled with the graph;
                    `RateGroup`: a total that several streams share
`book`              `RateBook`: the rates of all streams of a context, before and while it runs;
                    `RateController`: a listener per stream, asks its estimator after each batch
`division`          how a total is divided, as one pure function, and what is in force where
==================  ==============================================================================

The way of a rate
-----------------

A batch is complete; its `RateController` asks the estimator; or the program calls ``set_rate``; or
a receiver reports that it waits while another one of its group does not. The `RateBook` decides
again, and what has changed goes to the tracker: ``UpdateRateLimit`` to the receiver, whose limiter
drops the lease at the old rate, and into the answer to the next registration. The receiver confirms
by a ``ReportRateStatus``, as it sends four times a second while there is news.
"""

from penstock.rates import PIDRateEstimator, RateEstimator
from penstock.streaming.rates.book import RateBook, RateController
from penstock.streaming.rates.decision import RateSource, StreamRate
from penstock.streaming.rates.memory import GroupRate, RateGroup

__all__ = [
    "GroupRate",
    "PIDRateEstimator",
    "RateBook",
    "RateController",
    "RateEstimator",
    "RateGroup",
    "RateSource",
    "StreamRate",
]
