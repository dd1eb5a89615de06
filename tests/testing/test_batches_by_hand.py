"""Streams whose batches come when a test says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.testing import ReceiverTestError, batches_by_hand

pytestmark = pytest.mark.slow


def numbers(ctx: Any) -> Iterator[int]:
    yield from range(10)
    ctx.stopped.wait()


def test_windows_of_minutes_are_seen_batch_by_batch(sc: Any) -> None:
    with batches_by_hand(sc, 60) as by_hand:
        lines = by_hand.ssc.queueStream([["a", "b"], ["c"], []])
        counts = by_hand.collect(lines.window(120, 60).count())
        by_hand.run(3)
        assert counts == [[2], [3], [1]]


def test_batches_come_until_all_records_of_a_receiver_came(sc: Any) -> None:
    with batches_by_hand(sc) as by_hand:
        found = by_hand.collect(by_hand.ssc.receiverStream(numbers))
        by_hand.run_until(lambda: sum(map(len, found)) == 10)
        assert [number for batch in found for number in batch] == list(range(10))
        with pytest.raises(ReceiverTestError, match=r"did not hold after|was not complete within"):
            by_hand.run_until(lambda: False, 0.1)
