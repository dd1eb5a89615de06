"""Estimators are in checkpoints under the names that they had before `penstock.rates`."""

from __future__ import annotations

import pickle

import pytest

from penstock.rates import AIMDRateEstimator, PIDRateEstimator, RateEstimator

# Pickled after two batches of 500 records, each processed in 250 ms.
PID = (
    b"\x80\x04\x95\xf4\x00\x00\x00\x00\x00\x00\x00\x8c\x1cpenstock.streaming.rates.pid\x94\x8c\x10"
    b"PIDRateEstimator\x94\x93\x94)\x81\x94}\x94(\x8c\t_batch_ms\x94M\xe8\x03\x8c\r_proportional"
    b"\x94G?\xf0\x00\x00\x00\x00\x00\x00\x8c\t_integral\x94G?\xc9\x99\x99\x99\x99\x99\x9a\x8c\x0b"
    b"_derivative\x94G\x00\x00\x00\x00\x00\x00\x00\x00\x8c\t_min_rate\x94G@Y\x00\x00\x00\x00\x00"
    b"\x00\x8c\t_is_first\x94\x89\x8c\n_latest_ms\x94M\xd0\x07\x8c\x0c_latest_rate\x94G@\x9f@\x00"
    b"\x00\x00\x00\x00\x8c\r_latest_error\x94G\x00\x00\x00\x00\x00\x00\x00\x00ub."
)
AIMD = (
    b"\x80\x04\x95\xe0\x00\x00\x00\x00\x00\x00\x00\x8c\x1dpenstock.streaming.rates.aimd\x94\x8c\x11"
    b"AIMDRateEstimator\x94\x93\x94)\x81\x94}\x94(\x8c\t_batch_ms\x94M\xe8\x03\x8c\t_increase\x94"
    b"G?\x94z\xe1G\xae\x14{\x8c\t_decrease\x94G?\xeeffffff\x8c\t_min_rate\x94G@Y\x00\x00\x00\x00"
    b"\x00\x00\x8c\x05_rate\x94G@\x8f@\x00\x00\x00\x00\x00\x8c\x06_given\x94G@\x8f@\x00\x00\x00\x00"
    b"\x00\x8c\t_too_high\x94G\x00\x00\x00\x00\x00\x00\x00\x00\x8c\x07_cut_ms\x94N\x8c\n_latest_ms"
    b"\x94M\xd0\x07ub."
)


@pytest.mark.parametrize(
    ("pickled", "kind", "next_rate"),
    [(PID, PIDRateEstimator, 2000.0), (AIMD, AIMDRateEstimator, 1000.0)],
)
def test_an_estimator_of_an_earlier_checkpoint_goes_on(
    pickled: bytes, kind: type[RateEstimator], next_rate: float
) -> None:
    found = pickle.loads(pickled)
    assert type(found) is kind
    assert found.compute(3000, 500, 250, 0) == next_rate
