"""ReceiverSchedulingPolicy: on which executors receivers should run (Spark's class of that name).

The rules are those of ``ReceiverSchedulingPolicy.scala``. They are wishes: Spark's own scheduler
gives them as locality preferences to the task of each receiver.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.tracker.cluster import (
    ExecutorLocation,
    HostLocation,
    TaskLocation,
    parse_location,
)
from penstock.tracker.receivers.receiver_tracking_info import ReceiverState, ReceiverTrackingInfo


class ReceiverSchedulingPolicy:
    """Spreads receivers over executors. It keeps no state."""

    def schedule_receivers(
        self, receivers: Mapping[int, str | None], executors: Sequence[ExecutorLocation]
    ) -> dict[int, tuple[TaskLocation, ...]]:
        """Place all receivers at once, as evenly as their wishes allow.

        Args:
            receivers: The preferred location of each receiver (a host or an executor's location
                as text), or None, by stream.
            executors: The executors that are up.

        Returns:
            Candidate locations by stream, each list empty when there are no executors. A
            preferred host gets its least loaded executor, an unknown host is kept as it is; the
            others get the least loaded executor of all; executors that are idle then are added
            to the receivers with the fewest candidates.
        """
        if not executors:
            return dict.fromkeys(receivers, ())
        load = dict.fromkeys(executors, 0)
        places: dict[int, list[TaskLocation]] = {stream_id: [] for stream_id in receivers}
        for stream_id, preferred in receivers.items():
            if preferred is None:
                continue
            wish = parse_location(preferred)
            on_host = [executor for executor in load if executor.host == wish.host]
            if isinstance(wish, ExecutorLocation) and wish in load:
                on_host = [wish]
            if on_host:
                chosen = min(on_host, key=load.__getitem__)
                places[stream_id].append(chosen)
                load[chosen] += 1
            else:
                places[stream_id].append(HostLocation(wish.host))
        for candidates in places.values():
            if not candidates:
                chosen = min(load, key=load.__getitem__)
                candidates.append(chosen)
                load[chosen] += 1
        if places:
            for executor, receivers_there in load.items():
                if receivers_there == 0:
                    min(places.values(), key=len).append(executor)
        return {stream_id: tuple(candidates) for stream_id, candidates in places.items()}

    def reschedule_receiver(
        self,
        stream_id: int,
        preferred: str | None,
        infos: Mapping[int, ReceiverTrackingInfo],
        executors: Sequence[ExecutorLocation],
    ) -> tuple[TaskLocation, ...]:
        """Place one receiver that must start again.

        An executor that runs a receiver weighs 1 for each; one that is a candidate of a
        scheduled receiver weighs one part of that receiver's candidates.

        Args:
            stream_id: The receiver; what it was scheduled on before does not count.
            preferred: Its preferred location, or None.
            infos: All receivers by stream.
            executors: The executors that are up.

        Returns:
            The preferred location, if there is one, and all executors without weight, or else all
            of the least weight. Empty when there are no executors.
        """
        if not executors:
            return ()
        weights = dict.fromkeys(executors, 0.0)
        others = (info for info in infos.values() if info.stream_id != stream_id)
        for executor, weight in _weights(others):
            # Executors that have gone since are no place to run on.
            if executor in weights:
                weights[executor] += weight
        least = min(weights.values())
        places: dict[TaskLocation, None] = {}
        if preferred is not None:
            places[parse_location(preferred)] = None
        places.update(
            (executor, None)
            for executor, weight in weights.items()
            if abs(weight - least) < _SAME_WEIGHT
        )
        return tuple(places)


_SAME_WEIGHT = 1e-9


def _weights(infos: Iterable[ReceiverTrackingInfo]) -> Iterable[tuple[ExecutorLocation, float]]:
    for info in infos:
        if info.state is ReceiverState.ACTIVE and info.running is not None:
            yield info.running, 1.0
        elif info.state is ReceiverState.SCHEDULED:
            candidates = [
                place for place in info.scheduled_locations if isinstance(place, ExecutorLocation)
            ]
            for place in candidates:
                yield place, 1.0 / len(candidates)
