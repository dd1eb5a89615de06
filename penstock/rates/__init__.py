"""Estimators of rates: how many records per second what processes them can do.

What must hold
--------------

* An estimator knows nothing of who asks: batches of a `StreamingContext`, or queries of Spark SQL.
* It is plain state and pickled with a checkpoint. So its class stays where it is found by name:
  `penstock.streaming.rates` has the names of before there was this room.

Layout
------

===========  ===========================================================
`estimator`  `RateEstimator`: what it learns of a batch, and what is asked
`pid`        Spark's PID controller
`aimd`       a little more after a good batch, a good deal less after a bad one
`choice`     the one that the settings name
===========  ===========================================================
"""

from penstock.rates.aimd import AIMDRateEstimator
from penstock.rates.choice import create_rate_estimator
from penstock.rates.estimator import RateEstimator
from penstock.rates.pid import PIDRateEstimator

__all__ = ["AIMDRateEstimator", "PIDRateEstimator", "RateEstimator", "create_rate_estimator"]
