"""The name of `PIDRateEstimator` in checkpoints of before there was `penstock.rates`."""

from penstock.rates.pid import PIDRateEstimator

__all__ = ["PIDRateEstimator"]
