"""Placement of receivers, case by case as Spark's ReceiverSchedulingPolicySuite has them."""

from __future__ import annotations

from collections import Counter

from penstock.tracker.cluster import ExecutorLocation, HostLocation, TaskLocation
from penstock.tracker.receivers.receiver_scheduling_policy import ReceiverSchedulingPolicy
from penstock.tracker.receivers.receiver_tracking_info import ReceiverState, ReceiverTrackingInfo

policy = ReceiverSchedulingPolicy()


def executor(number: int, host: str | None = None) -> ExecutorLocation:
    return ExecutorLocation(host or f"host{number}", str(number))


def active(stream_id: int, running: ExecutorLocation) -> ReceiverTrackingInfo:
    return ReceiverTrackingInfo(stream_id, ReceiverState.ACTIVE, running=running)


def scheduled(stream_id: int, *places: TaskLocation) -> ReceiverTrackingInfo:
    return ReceiverTrackingInfo(stream_id, ReceiverState.SCHEDULED, scheduled_locations=places)


def test_reschedule_receiver_empty_executors() -> None:
    assert policy.reschedule_receiver(0, None, {}, []) == ()


def test_reschedule_receiver_preferred_location() -> None:
    executors = [executor(0), executor(1), executor(2)]
    infos = {0: active(0, executors[0])}
    places = policy.reschedule_receiver(1, "host9", infos, executors)
    assert set(places) == {HostLocation("host9"), executors[1], executors[2]}


def test_reschedule_receiver_all_idle_executors_if_there_are_any() -> None:
    executors = [executor(number) for number in range(5)]
    infos = {0: active(0, executors[0]), 1: scheduled(1, executors[1], executors[2])}
    places = policy.reschedule_receiver(2, None, infos, executors)
    assert set(places) == {executors[3], executors[4]}


def test_reschedule_receiver_all_executors_of_minimum_weight_if_none_is_idle() -> None:
    executors = [executor(number) for number in range(4)]
    infos = {
        0: active(0, executors[0]),
        1: scheduled(1, executors[1], executors[2]),
        2: scheduled(2, executors[1], executors[3]),
    }
    # Weights: 1, 1/2 + 1/2, 1/2, 1/2.
    places = policy.reschedule_receiver(3, None, infos, executors)
    assert set(places) == {executors[2], executors[3]}


def test_reschedule_receiver_ignores_executors_that_have_gone() -> None:
    infos = {0: active(0, executor(7)), 1: active(1, executor(0))}
    assert policy.reschedule_receiver(2, None, infos, [executor(0)]) == (executor(0),)


def test_schedule_receivers_more_receivers_than_executors() -> None:
    executors = [executor(number) for number in range(3)]
    places = policy.schedule_receivers(dict.fromkeys(range(6)), executors)
    assert all(len(candidates) == 1 for candidates in places.values())
    load = Counter(candidate for candidates in places.values() for candidate in candidates)
    assert load == dict.fromkeys(executors, 2)


def test_schedule_receivers_more_executors_than_receivers() -> None:
    executors = [executor(number) for number in range(6)]
    places = policy.schedule_receivers(dict.fromkeys(range(3)), executors)
    assert all(len(candidates) == 2 for candidates in places.values())
    used = [candidate for candidates in places.values() for candidate in candidates]
    assert set(used) == set(executors)
    assert len(used) == 6


def test_schedule_receivers_preferred_locations_are_even() -> None:
    executors = [executor(2 * number + i, f"host{number}") for number in range(3) for i in (0, 1)]
    wishes: dict[int, str | None] = {
        **dict.fromkeys(range(3)),
        3: "host0",
        4: "host0",
        5: "host1",
    }
    places = policy.schedule_receivers(wishes, executors)
    assert {place.host for place in places[3] + places[4]} == {"host0"}
    assert {place.host for place in places[5]} == {"host1"}
    load = Counter(candidate for candidates in places.values() for candidate in candidates)
    assert load == dict.fromkeys(executors, 1)


def test_schedule_receivers_keeps_a_preferred_host_that_is_not_known_yet() -> None:
    places = policy.schedule_receivers({0: "elsewhere"}, [executor(0)])
    assert places[0][0] == HostLocation("elsewhere")


def test_schedule_receivers_takes_an_executor_as_a_wish() -> None:
    executors = [executor(0, "host"), executor(1, "host")]
    places = policy.schedule_receivers({0: "executor_host_1", 1: None}, executors)
    assert places == {0: (executors[1],), 1: (executors[0],)}


def test_schedule_receivers_no_receiver() -> None:
    assert policy.schedule_receivers({}, [executor(0)]) == {}


def test_schedule_receivers_no_executors() -> None:
    assert policy.schedule_receivers({0: "host1", 1: None}, []) == {0: (), 1: ()}
