"""What a context's errors become on their way to who waits in `awaitTermination`."""

from __future__ import annotations

import pytest

from penstock.streaming.errors import SparkEndedError
from penstock.streaming.waiter import ContextWaiter


class Spark:
    """Ends when it is told to."""

    why_ended = ""
    times_told = 0

    def on_ended(self) -> None:
        self.times_told += 1


def test_the_end_of_spark_is_told_once_and_ends_the_context() -> None:
    spark = Spark()
    waiter = ContextWaiter(spark.on_ended)
    waiter.watch(lambda: spark.why_ended)
    spark.why_ended = "its SparkContext was stopped"
    for _ in range(2):
        waiter.tell(ValueError("what a batch met with"))
    with pytest.raises(SparkEndedError, match="its SparkContext was stopped") as raised:
        waiter.wait_for_stop_or_error(0)
    assert raised.value.__cause__ is None, "what follows from the end of Spark is not shown"
    assert spark.times_told == 1


def test_spark_may_end_after_the_context_was_stopped() -> None:
    """As with `stop()` in an output operation, which then fails for want of Spark."""
    spark = Spark()
    waiter = ContextWaiter(spark.on_ended)
    waiter.watch(lambda: spark.why_ended)
    waiter.stopping()
    waiter.stopped()
    waiter.notify_stop()
    spark.why_ended = "its SparkContext was stopped"
    waiter.tell(ValueError("what the operation met with after its own stop()"))
    assert waiter.wait_for_stop_or_error(0)
    assert spark.times_told == 0


def test_a_failed_operation_is_told_also_after_a_stop() -> None:
    waiter = ContextWaiter(lambda: None)
    waiter.stopping()
    waiter.stopped()
    waiter.tell(ValueError("its own"))
    with pytest.raises(ValueError, match="its own"):
        waiter.wait_for_stop_or_error(0)
