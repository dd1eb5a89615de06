"""The states of a receiver as the driver sees it."""

from __future__ import annotations

import pytest

from penstock.errors import IllegalStateError
from penstock.tracker.cluster import ExecutorLocation
from penstock.tracker.receivers.receiver_tracking_info import (
    NEVER,
    ReceiverState,
    ReceiverTrackingInfo,
)

WHERE = ExecutorLocation("host", "1")


def test_a_receiver_is_scheduled_then_active_then_inactive() -> None:
    info = ReceiverTrackingInfo(3).schedule("a1", (WHERE,))
    assert info.state is ReceiverState.SCHEDULED
    info = info.register("Source-3", WHERE)
    assert info.state is ReceiverState.ACTIVE
    assert info.scheduled_locations == ()
    assert info.active
    assert (info.name, info.location, info.executor_id) == ("Source-3", "host", "1")
    info = info.deregister("bye", "", 77)
    assert info.state is ReceiverState.INACTIVE
    assert (info.active, info.last_error_message) == (False, "bye")
    assert info.last_error_time_ms == NEVER


def test_a_deregistration_with_an_error_keeps_its_time() -> None:
    info = ReceiverTrackingInfo(0).schedule("a1", ()).register("R-0", WHERE)
    assert info.deregister("broke", "Traceback", 55).last_error_time_ms == 55


def test_reported_errors_keep_their_time_unlike_in_the_original() -> None:
    info = ReceiverTrackingInfo(0).schedule("a1", ()).register("R-0", WHERE)
    info = info.report_error("odd", "Traceback", 41)
    assert info.state is ReceiverState.ACTIVE
    assert (info.last_error, info.last_error_time_ms) == ("Traceback", 41)


def test_illegal_transitions_raise() -> None:
    with pytest.raises(IllegalStateError, match="before it was launched"):
        ReceiverTrackingInfo(0).register("R-0", WHERE)
    with pytest.raises(IllegalStateError, match="deregister while it is INACTIVE"):
        ReceiverTrackingInfo(0).deregister("", "", 1)
    active = ReceiverTrackingInfo(0).schedule("a1", ()).register("R-0", WHERE)
    with pytest.raises(IllegalStateError, match="schedule while it is ACTIVE"):
        active.schedule("a2", ())
