"""Rates: how fast each receiver may be, who says so, and how it gets there.

What must hold
--------------

* The lowest of what the program asks for, what the settings allow, the stream's share of a group
  and what batches or queries can do is in force, and `StreamRate` says whose it is. No one with a
  say undoes what another said.
* A decision holds for the open block (I8), and for receivers that start later.
* The shares of a group never add up to more than its total: a share grows only by what a receiver
  has confirmed to have given up.
* With backpressure and no rate known, the first batches are bounded (slow start).
* An estimator does not know what it serves: batches of a `StreamingContext`, or queries of Spark
  SQL. It is plain state and pickled with a checkpoint.

Layout
------

==================  ==============================================================================
`estimators`        what one learns of a batch and what is asked of it, Spark's PID controller, one
                    that goes up a little after a good batch and down a good deal after a bad one,
                    and which of them the settings name
`decision`          whose limit holds, as one pure function
`memory`            what a stream keeps: a context has it on the stream's node, pickled with the
                    graph
`book`              `RateBook`: the rates of all streams of a context or a host, before and while it
                    runs; `RateGroup`: a total that several streams share
`division`          how a total is divided, as one pure function, and what is in force where
==================  ==============================================================================

The way of a rate
-----------------

A batch is complete, and the stream's `RateController` (of `penstock.streaming`) asks the estimator;
or a query is (`penstock.sql`); or the program calls ``set_rate``; or a receiver reports that it
waits while another one of its group does not. The `RateBook` decides again, and what has changed
goes to the tracker: ``UpdateRateLimit`` to the receiver, whose limiter drops the lease at the old
rate, and into the answer to the next registration. The receiver confirms by a ``ReportRateStatus``,
as it sends four times a second while there is news.
"""

from penstock.rates.book import RateBook, RateGroup
from penstock.rates.decision import RateLimits, StreamRate
from penstock.rates.estimators import (
    AIMDRateEstimator,
    PIDRateEstimator,
    RateEstimator,
    create_rate_estimator,
)
from penstock.rates.memory import GroupRate, RateMemory, RateSource

__all__ = [
    "AIMDRateEstimator",
    "GroupRate",
    "PIDRateEstimator",
    "RateBook",
    "RateEstimator",
    "RateGroup",
    "RateLimits",
    "RateMemory",
    "RateSource",
    "StreamRate",
    "create_rate_estimator",
]
