"""What a member of a group looks at while it reads: topics, ends, and what keeps it waiting."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.sources.kafka._driver_client import DriverClient
from penstock.sources.kafka._ledger import OffsetLedger
from penstock.sources.kafka.engines.interface import ClientError, GroupMember, PartitionState
from penstock.sources.kafka.errors import KafkaSourceError
from penstock.sources.kafka.records import TopicPartition, is_another

_ASK_S = 5.0
_ENDS_S = 1.0
_KNOWN_S = 0.1
_KNOWN_SHARE = 50
"""How long it is known which topic has a name: this long, or this many times what asking took."""

_AWAY_S = 10.0
"""How long leaders that did not answer are not asked again."""

_STALLED_S = 60.0
_STALLED_POLLS = 4
"""How long records may exist and not come, and in how many polls for each partition."""

_GROUP_S = 30.0
"""How long a receiver may be without partitions, a commit or a topic before it says why."""

_log = logging.getLogger("penstock.sources.kafka")


@dataclass
class _Place:
    """Where a partition is read, since when, and at which poll."""

    at: int
    since_s: float
    polls: int
    is_told: bool = False


class GroupWatch:
    """Watches over a member of a group. Used by the thread that polls it.

    Args:
        topics: What the member reads.
        client: Whom to ask.
        member: The member.
        offsets: Its offsets.
        start: `auto.offset.reset`.
        report: Takes what is to be reported to the driver.
        clock: The monotonic clock.

    """

    def __init__(
        self,
        topics: Sequence[str],
        client: DriverClient,
        member: GroupMember,
        offsets: OffsetLedger,
        start: str,
        report: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._topics = topics
        self._client = client
        self._member = member
        self._offsets = offsets
        self._start = start
        self._report = report
        self._clock = clock
        self._known_until_s: dict[str, float] = {}
        # Topics that are missing, since when; None: it is reported.
        self._missing: dict[str, float | None] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._ends_from_s = clock()
        self._begins: dict[TopicPartition, int] = {}
        self._places: dict[TopicPartition, _Place] = {}
        self._polls = 0
        self._is_unanswered = False
        self._waits_since_s: float | None = None
        self._ask_group_from_s = 0.0
        self._told: set[str] = set()

    def note_poll(self, begins: Mapping[TopicPartition, int]) -> None:
        """Take note of a poll, and of the first offsets that it gave."""
        self._polls += 1
        for partition, start in begins.items():
            self._begins.setdefault(partition, start)
        if begins:
            self._ask_ends(self._member.assignment())

    def lag(self) -> int | None:
        """Return how many records there are beyond what is stored, in the member's partitions.

        Only those count that the isolation level lets read. Any thread may ask.
        """
        # Other members count their own.
        begins = self._begins
        lags = []
        for each, end in self._ends.items():
            at = self._offsets.stored(each)
            at = begins.get(each) if at is None else at
            if at is not None:
                lags.append(max(0, end - at))
        return sum(lags) if lags else None

    def look(self, is_held_up: bool) -> None:
        """Look at all of it.

        Args:
            is_held_up: Whether the member could not poll or commit.
        """
        anew = self.made_anew(self._topics)
        assigned = {each for each in self._member.assignment() if each.topic not in anew}
        self._ask_ends(assigned)
        self._look_at_places(assigned)
        self._tell_missing()
        self._look_at_group(is_held_up or self._is_unanswered or not assigned)

    # -- topics ----------------------------------------------------------------------------------

    def ids_now(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the ids of topics now; none for those that do not exist, or if no one answers."""
        try:
            return _ids(self._client.partitions(topics, _ASK_S, False))
        except KafkaSourceError as error:
            _log.info("Whether topics are still the same is not known: %s", error)
            return {}

    def made_anew_in(self, begins: Mapping[TopicPartition, int]) -> set[str]:
        """Do as `made_anew`, for a poll that gave records from these offsets on.

        Where they go back it is asked at once: they may be the first of another topic.
        """
        for partition, start in begins.items():
            if start < (self._offsets.stored(partition) or 0):
                self._known_until_s.pop(partition.topic, None)
        return self.made_anew({partition.topic for partition in begins})

    def made_anew(self, topics: Iterable[str]) -> set[str]:
        """Start over with topics that were deleted and whose names others have now.

        What the member gave before the call and is of one of these must not be stored: it comes
        again, as the new topics are read from their first records.

        Returns:
            Their names.

        Raises:
            KafkaSourceError: `auto.offset.reset` is ``none``.
        """
        begin_s = self._clock()
        wanted = [each for each in topics if self._known_until_s.get(each, begin_s) <= begin_s]
        if not wanted:
            return set()
        try:
            found = self._client.partitions(wanted, _ASK_S, False)
        except KafkaSourceError as error:
            _log.info("Whether topics are still the same is not known: %s", error)
            self._is_unanswered = True
            return set()
        now_s = self._clock()
        until_s = now_s + max(_KNOWN_S, _KNOWN_SHARE * (now_s - begin_s))
        anew = set()
        ids = _ids(found)
        for topic in wanted:
            if topic in ids:
                self._missing.pop(topic, None)
            else:
                self._missing.setdefault(topic, now_s)
        for topic, topic_id in ids.items():
            known = self._offsets.topic_id(topic)
            if is_another(known, topic_id):
                anew.add(topic)
                if not self._begin_anew(topic, topic_id, found):
                    continue
            elif not known:
                self._offsets.note_topic(topic, topic_id)
            self._known_until_s[topic] = until_s
        self._is_unanswered = False
        return anew

    def _begin_anew(
        self, topic: str, topic_id: str, found: Mapping[TopicPartition, PartitionState]
    ) -> bool:
        told = (
            f"The topic {topic} was deleted, and another one has its name: what the old one had "
            f"from here on is lost ({self._where(topic)})"
        )
        if self._start == "none":
            raise KafkaSourceError(
                f"{told}. auto.offset.reset is none: set it to earliest or latest to read the new "
                "one from its first record"
            )
        try:
            partitions = [each for each in found if each.topic == topic]
            first = self._client.earliest(partitions, _ASK_S)
            for each in self._member.assignment() & set(partitions):
                self._member.seek(each, first[each])
        except (KafkaSourceError, ClientError) as error:
            _log.info("The new topic %s is not to be read yet: %s", topic, error)
            return False
        self._offsets.begin_anew(topic, topic_id, first)
        for each in partitions:
            self._begins.pop(each, None)
            self._ends.pop(each, None)
            self._places.pop(each, None)
        self._report(f"{told}. The new one is read from its first record")
        return True

    def _where(self, topic: str) -> str:
        stored = sorted(self._offsets.all_stored().items())
        return ", ".join(
            f"{partition} from {at}" for (name, partition), at in stored if name == topic
        )

    def _tell_missing(self) -> None:
        until_s = self._clock() - _GROUP_S
        new = [
            each
            for each, since_s in self._missing.items()
            if since_s is not None and since_s <= until_s
        ]
        if new:
            self._missing.update(dict.fromkeys(new))
            self._report(
                f"There is no topic {', '.join(sorted(new))}: it is read when it comes, by "
                f"auto.offset.reset={self._start}"
            )

    # -- places ----------------------------------------------------------------------------------

    def _ask_ends(self, assigned: set[TopicPartition]) -> None:
        now_s = self._clock()
        if not assigned:
            self._ends = {}
        elif now_s >= self._ends_from_s:
            try:
                self._ends = self._client.latest(assigned, _ENDS_S)
                self._ends_from_s = now_s + _ENDS_S
            except KafkaSourceError as error:
                _log.info("How far the source is ahead is not known: %s", error)
                self._ends_from_s = self._clock() + _AWAY_S

    def _look_at_places(self, assigned: set[TopicPartition]) -> None:
        now_s = self._clock()
        for gone in self._begins.keys() - assigned:
            del self._begins[gone]
        for gone in self._places.keys() - assigned:
            del self._places[gone]
        for each in assigned & self._ends.keys():
            end = self._ends[each]
            at = self._at(each, end)
            if at is None:
                continue
            place = self._places.get(each)
            if place is None or place.at != at or at >= end:
                self._places[each] = _Place(at, now_s, self._polls)
                continue
            waited_s, polls = now_s - place.since_s, self._polls - place.polls
            is_stalled = waited_s >= _STALLED_S and polls >= _STALLED_POLLS * len(assigned)
            if is_stalled and not place.is_told:
                place.is_told = True
                self._report(
                    f"{each.topic} {each.partition} has {end - at} records from offset {at} on, "
                    f"and none of them came for {waited_s:.0f} s: look at the partition's leader, "
                    "and start the receiver again if it answers"
                )

    def _at(self, partition: TopicPartition, end: int) -> int | None:
        """Return how far a partition is read, past markers of transactions."""
        at = self._offsets.stored(partition)
        if at is not None and at >= end:
            return at
        position = self._member.position(partition)
        if at is None:
            if position is not None:
                self._begins.setdefault(partition, position)
            return self._begins.get(partition)
        if position is not None and position > at:
            self._offsets.note_passed(partition, position)
            return position
        return at

    # -- the group -------------------------------------------------------------------------------

    def _look_at_group(self, waits: bool) -> None:
        now_s = self._clock()
        if not waits:
            self._waits_since_s = None
            self._told.clear()
            return
        if self._waits_since_s is None:
            self._waits_since_s = now_s
            self._ask_group_from_s = now_s + _GROUP_S
        if now_s < self._ask_group_from_s:
            return
        # Again and again: a member may have waited for its turn before something went away.
        self._ask_group_from_s = now_s + _GROUP_S
        waited_s = now_s - self._waits_since_s
        try:
            known = _ids(self._client.partitions(self._topics, _ASK_S, False))
            if known:
                self._client.committed([TopicPartition(next(iter(known)), 0)], _ASK_S)
        except KafkaSourceError as error:
            what = f"{type(error).__name__} {getattr(error, 'part', '')}"
            # Once in a wait.
            if what not in self._told:
                self._told.add(what)
                self._report(
                    f"Nothing is received, or nothing committed, for {waited_s:.0f} s: {error}"
                )


def _ids(found: Mapping[TopicPartition, PartitionState]) -> dict[str, str]:
    return {each.topic: state.topic_id for each, state in found.items()}
