"""The estimator that the settings name."""

from __future__ import annotations

from penstock.rates.aimd import AIMDRateEstimator
from penstock.rates.estimator import RateEstimator
from penstock.rates.pid import PIDRateEstimator
from penstock.settings import Settings


def create_rate_estimator(settings: Settings, batch_ms: int) -> RateEstimator:
    """Return the estimator that ``spark.streaming.backpressure.rateEstimator`` names."""
    if settings.rate_estimator == "aimd":
        return AIMDRateEstimator(
            batch_ms,
            increase=settings.aimd_increase,
            decrease=settings.aimd_decrease,
            min_rate=settings.aimd_min_rate,
        )
    return PIDRateEstimator(
        batch_ms,
        settings.pid_proportional,
        settings.pid_integral,
        settings.pid_derived,
        settings.pid_min_rate,
    )
