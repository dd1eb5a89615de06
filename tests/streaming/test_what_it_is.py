"""What contexts, streams, receivers and rates say of themselves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.host.receiver_readings import ReceiverStatus
from penstock.receiver import ReceiverContext, receiver
from penstock.receiver.forms.short_forms import as_receiver
from penstock.streaming import StreamingContext
from tests.bounds import HANG_S


@receiver(positions=True)
def numbers(ctx: ReceiverContext) -> Iterator[tuple[int, int]]:
    number = ctx.last_position or 0
    while not ctx.stopped.wait(0.01):
        number += 1
        yield number, number


def test_a_context_and_its_streams_say_what_they_are(sc: Any) -> None:
    ssc = StreamingContext(sc, 0.5)
    stream = ssc.receiverStream(numbers)
    assert (
        repr(ssc)
        == "<StreamingContext 'penstock-tests': a batch every 0.5 s, initialized, 1 inputs>"
    )
    assert repr(stream).startswith(
        "<ReceiverDStream 'numbers' of receiverStream at test_what_it_is"
    )
    assert repr(stream.map(str)).startswith("<DStream of map at test_what_it_is.py:")
    assert repr(as_receiver(numbers)) == "<receiver 'numbers'>"
    assert ssc.receivers() == ()


def test_records_are_tables_in_a_notebook() -> None:
    status = ReceiverStatus(0, "<b>-0", "running", "h", "1", "h:1", 1, 12345, 7, None, "", -1)
    assert "<td>12,345</td>" in status._repr_html_()
    assert "<td>&lt;b&gt;-0</td>" in status._repr_html_()


@pytest.mark.slow
def test_receivers_are_told_as_they_are(sc: Any) -> None:
    came = threading.Event()
    ssc = StreamingContext(sc, 0.5)
    ssc.receiverStream(numbers).foreachRDD(lambda rdd: came.set() if rdd.count() else None)
    ssc.start()
    try:
        # Its job may not have begun, and it is not stopped.
        assert ssc.receivers()[0].state in ("starting", "running")
        assert came.wait(HANG_S)
        (status,) = ssc.receivers()
        assert (status.name, status.state, status.attempts) == ("numbers-0", "running", 1)
        assert status.address.startswith("127.0.0.1:")
        assert status.records == status.position > 0
        assert status.blocks > 0
        assert status.waits is None or sum(status.waits.parts().values()) == pytest.approx(100)
        assert "numbers-0" in ssc._repr_html_()
    finally:
        ssc.stop(stopSparkContext=False)
    (status,) = ssc.receivers()
    assert (status.state, status.address) == ("stopped", "")
