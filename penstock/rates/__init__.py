"""Estimators of rates: how many records per second what processes them can do.

What must hold
--------------

* An estimator knows nothing of who asks: batches of a `StreamingContext`, or queries of Spark SQL.
* It is plain state and pickled with a checkpoint.

`estimators` has what one learns of a batch and what is asked of it, Spark's PID controller, one
that goes up a little after a good batch and down a good deal after a bad one, and which of them
the settings name.
"""

from penstock.rates.estimators import (
    AIMDRateEstimator,
    PIDRateEstimator,
    RateEstimator,
    create_rate_estimator,
)

__all__ = ["AIMDRateEstimator", "PIDRateEstimator", "RateEstimator", "create_rate_estimator"]
