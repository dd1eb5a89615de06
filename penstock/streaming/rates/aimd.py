"""The name of `AIMDRateEstimator` in checkpoints of before there was `penstock.rates`."""

from penstock.rates.aimd import AIMDRateEstimator

__all__ = ["AIMDRateEstimator"]
