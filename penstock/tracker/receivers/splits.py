"""`SplitStream`: which receiver of a stream has which splits of its source, and how that changes.

What must hold
--------------

* *A split is in one place.* Who has which splits stands in the ledger, and a receiver learns of its
  own when it registers. They change only for receivers that are at rest: whose job is over, or
  whose attempt has not registered yet, and that have no connection. The record that says so fences
  the attempts before, so that also a process that Spark has lost sight of adds nothing of a split
  that is another's; and it is not written if one has registered meanwhile.
* *Its position goes with it*, in that same record: a receiver that gets a split begins behind its
  last block.
* *Moves are sticky.* A split stays where it is unless its receiver has too many, or is not wanted;
  receivers whose splits stay are not touched.
* *One that dies keeps its splits*: its restart, which takes no one else down, is sooner there than
  others would be, and lasts as long as a move. The others take over what no one starts again: of
  a receiver that is given up, or whose executor was lost and leaves too few slots for all.
* *One that starts goes on starting*, and has what it has when it registers; else moves that come
  faster than starts would keep it from ever reading. Only one that is to have nothing is cancelled.
* What cannot be done now is done later: nothing that hangs holds up who is not concerned.

Each of the most receivers that the stream may have is a stream of the ledger of its own, with its
own attempts, blocks and rates; those without splits do not run.

The life of a move: the splits are divided again (`divided`); receivers that would have others are
asked to stop, and store their last blocks; their jobs' threads wait in `await_turn`; when they are
at rest, it is divided among them alone, logged, and they start. One that does not end is cancelled,
and if that is of no use it keeps what it has, and the move is tried again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotDoneError
from dataclasses import dataclass
from typing import Any

from penstock.errors import IllegalStateError, typed_text
from penstock.receiver import Receiver, SplitsError
from penstock.receiver.splits import names_of
from penstock.runtime.clock import Clock
from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.runtime.threads import OwnedThread
from penstock.settings import Settings
from penstock.tracker.errors import LedgerWriteError
from penstock.tracker.ledger.events import SplitsEvent
from penstock.tracker.ledger.received_block_tracker import ReceivedBlockTracker
from penstock.tracker.receivers.receiver_tracking_info import ReceiverState
from penstock.tracker.receivers.registry import Receivers

_ASK_S = 30.0
"""How long `splits` may take."""
_STOP_S = 30.0
"""How long a receiver may take to store its last blocks; what is not durable is read again."""
_LOOK_S = 0.25
_ASK_AGAIN_S = 1.0
"""How long to wait with that as one has ended, which a receiver may not let go."""
_TELL_S = 1.0
_TURN_S = 60.0
"""How often one that waits for its turn looks by itself: a thousand may wait."""
_UNREACHED_S = 5.0
"""After that long without a connection a receiver that is to stop is cancelled."""
_CANCEL_S = 10.0
_ROOM_S = 5.0
"""How often it is looked whether there are slots for all."""
_TAKE_OVER_S = 30.0
"""How long there must be too few until others take over: a lost executor may be replaced."""

_log = logging.getLogger("penstock.tracker")

Splits = tuple[str, ...] | None
"""A receiver's splits; None: it is not wanted."""
_Answer = tuple[tuple[str, ...], dict[str, Any]]
"""All splits, and changes of their places."""


def divided(
    splits: Iterable[str],
    now: Mapping[int, Splits],
    wanted: int,
    fixed: Collection[int] = (),
    gone: Collection[int] = (),
) -> dict[int, Splits]:
    """Divide splits among receivers, evenly, with as few moves as that takes.

    Args:
        splits: All there are.
        now: Which receiver has which; an earlier one is taken before later ones.
        wanted: How many receivers there are to be.
        fixed: Receivers that keep what they have.
        gone: Those that can have none.
    """
    if all(one in fixed or one in gone for one in now):
        return dict(now)  # No one could take them.
    then: dict[int, Splits] = {one: now[one] if one in fixed else None for one in now}
    taken = {split for kept in then.values() for split in kept or ()}
    free = dict.fromkeys(split for split in splits if split not in taken)
    others = [one for one in now if one not in fixed and one not in gone]
    others.sort(key=lambda one: now[one] is None)
    room = wanted - sum(kept is not None for kept in then.values())
    chosen = others[: max(1 if free else 0, room)]
    if not chosen:
        return then
    has = {one: [split for split in now[one] or () if split in free] for one in chosen}
    few, more = divmod(len(free), len(chosen))
    by_most = sorted(chosen, key=lambda one: -len(has[one]))
    most = {one: few + (rank < more) for rank, one in enumerate(by_most)}
    kept = {one: has[one][: most[one]] for one in chosen}
    stay = {split for each in kept.values() for split in each}
    rest = [split for split in free if split not in stay]
    for one in chosen:
        new = most[one] - len(kept[one])
        then[one] = (*kept[one], *rest[:new])
        del rest[:new]
    return then


@dataclass(frozen=True)
class SharedSource:
    """A stream whose receivers share a source that has splits.

    Attributes:
        name: Its name.
        streams: The ledger's streams of its receivers; each has one.
        receivers: How many the program asks for.
    """

    name: str
    streams: tuple[int, ...]
    receivers: int


class SplitStream:
    """The receivers of one stream that share its source. Safe to use from any thread.

    `_changed` guards all that changes; `_logging` is held while that is logged, and taken first.

    Attributes:
        streams: The ledger's streams: one for each of the most receivers that there may be.
    """

    def __init__(
        self,
        source: SharedSource,
        receiver: Receiver,
        *,
        ledger: ReceivedBlockTracker,
        receivers: Receivers,
        settings: Settings,
        clock: Clock,
        cancel: Callable[[int], None],
        room: Callable[[], int | None],
    ) -> None:
        """Make it; nothing is asked before `start`.

        Args:
            source: The stream.
            receiver: The program's receiver, which is asked for splits.
            ledger: Knows who has which.
            receivers: The table of receivers.
            settings: Say how long a stop may take, and how often to ask for splits.
            clock: Time.
            cancel: Cancels the job of a receiver.
            room: Returns for how many receivers there are slots; None: that is not known.
        """
        self.streams = source.streams
        self._name = source.name
        self._receiver = receiver
        self._declared = source.receivers
        self._ledger = ledger
        self._receivers = receivers
        self._stop_s = min(_STOP_S, settings.graceful_stop_timeout_ms / 1000)
        self._interval_s = settings.splits_interval_s
        self._clock = clock
        self._cancel = cancel
        self._room = room
        self._limited_log = RateLimitedLog(_log, clock)
        self._answer: Future[_Answer] | None = None
        self._asked_s = 0.0
        self._short_since_s: float | None = None
        self._logging = threading.Lock()
        self._changed = threading.Condition(threading.Lock())
        self._is_stopped = False
        self._is_due = False
        self._wanted = source.receivers
        self._splits: tuple[str, ...] = ()
        self._has: dict[int, Splits] = dict.fromkeys(self.streams)
        self._held: frozenset[int] = frozenset()
        self._late: frozenset[int] = frozenset()
        """Those that were asked to stop, and did not in time."""
        self._resting = set(self.streams)
        self._over: set[int] = set()
        self._gone: set[int] = set()
        self._thread = OwnedThread(self._run, f"splits-{self.streams[0]}", again=True)

    # -- for its owner ---------------------------------------------------------------------------

    def start(self) -> None:
        """Ask for the splits, and say who has which; before any receiver runs.

        Raises:
            SplitsError: There is no list of them, and the ledger has none either.
            LedgerWriteError: It could not be logged.
        """
        logged = self._ledger.splits(self.streams)
        self._has = dict(logged.streams)
        if logged.declared == self._declared:
            # A program that asks for another number than before gets it.
            self._wanted = min(logged.wanted, len(self.streams))
        changes: dict[str, Any] = {}
        self._ask()
        try:
            self._splits, changes = self._answered(_ASK_S)
        except SplitsError as error:
            self._splits = tuple(split for kept in self._has.values() for split in kept or ())
            if not self._splits:
                raise
            _log.warning("%s. The splits of the run before are read", error)
        if not self._splits:
            _log.warning("The source of the stream %r has no splits yet", self._name)
        with self._logging:
            self._log(divided(self._splits, self._has, self._wanted), changes)
            self._thread.start()

    def stop(self) -> None:
        """Let no receiver start any more, and move nothing."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def join(self, timeout_s: float) -> None:
        """Wait for the end of its thread."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def scale(self, count: int) -> None:
        """Have another number of receivers; returns when that is logged, and moves follow.

        Raises:
            IllegalStateError: `start` has not returned.
            LedgerWriteError: It could not be logged; nothing was changed.
        """
        with self._logging:
            if self._thread.ident is None:
                raise IllegalStateError("scale() has effect once the streams have started")
            event = SplitsEvent(tuple(self._has.items()), count, self._declared)
            self._ledger.divide(event)
            with self._changed:
                self._wanted = count
                self._is_due = True
                self._changed.notify_all()

    def scale_by(self, more: int) -> None:
        """Have that many receivers more, or less, within what the program asks for and allows.

        Raises:
            IllegalStateError, LedgerWriteError: See `scale`.
        """
        now = self._wanted
        least = min(now, self._declared)
        if (count := min(max(now + more, least), len(self.streams))) != now:
            _log.info("%d receivers share the stream %r, not %d", count, self._name, now)
            self.scale(count)

    @property
    def idle(self) -> frozenset[int]:
        """The streams of the receivers that do not run, as they have no splits."""
        with self._changed:
            if self._thread.ident is None:
                return frozenset(self.streams[self._declared :])
            return frozenset(one for one, splits in self._has.items() if not splits)

    @property
    def splits(self) -> dict[int, Splits]:
        """Which receiver has which splits."""
        with self._changed:
            return dict(self._has)

    # -- for the jobs of its receivers -----------------------------------------------------------

    def await_turn(self, stream_id: int) -> bool:
        """Wait until a receiver has splits and no move concerns it; False: it is to stop."""
        with self._changed:
            while not self._is_stopped:
                if self._has[stream_id] and stream_id not in self._held:
                    self._resting.discard(stream_id)
                    return True
                self._changed.wait(_TURN_S)
        return False

    def job_ended(self, stream_id: int) -> None:
        """Take note that a receiver's job is over; another may follow."""
        with self._changed:
            self._resting.add(stream_id)
            self._is_due |= stream_id in self._late
            self._changed.notify_all()

    def is_over(self, stream_id: int, *, gave_up: bool) -> None:
        """Take note that no other job follows: its source has ended, or it is given up."""
        with self._changed:
            (self._gone if gave_up else self._over).add(stream_id)
            self._is_due = True
            self._changed.notify_all()

    # -- its thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._is_stopped:
            now_s = self._clock.monotonic_s()
            self._look(now_s)
            self._move(self._wanted_now(now_s))
            with self._changed:
                wait_s = min(self._interval_s, _ROOM_S)
                self._changed.wait_for(lambda: self._is_due or self._is_stopped, wait_s)
                self._is_due = False

    def _look(self, now_s: float) -> None:
        """Ask for the splits now and then; no answer leaves them as they are."""
        pause_s = min(_ASK_AGAIN_S, self._interval_s) if self._has_one_ended() else self._interval_s
        if self._answer is None and now_s - self._asked_s >= pause_s:
            self._ask()
        if self._answer is None or not (self._answer.done() or now_s - self._asked_s >= _ASK_S):
            return
        try:
            splits, changes = self._answered(0)
            if changes:
                with self._logging:
                    self._log(self._has, changes)
        except (SplitsError, LedgerWriteError) as error:
            self._limited_log.log(f"{error}. The splits stay as they were")
            return
        if splits != self._splits:
            # Without any nothing is read any more.
            level = logging.INFO if splits else logging.WARNING
            _log.log(
                level, "The source of the stream %r has %d splits now", self._name, len(splits)
            )
        self._splits = splits

    def _has_one_ended(self) -> bool:
        end = self._receiver._end_place
        if end is None:
            return False
        places = self._ledger.split_places(self.streams)
        return any(places.get(split) == end for kept in self._has.values() for split in kept or ())

    def _ask(self) -> None:
        """Call `splits` in a thread of its own."""
        kind, receiver = self._receiver._receiver_type(), self._receiver
        places = self._ledger.split_places(self.streams)
        answer: Future[_Answer] = Future()
        answer.add_done_callback(lambda _: self._tell_thread())
        self._asked_s = self._clock.monotonic_s()

        def call() -> None:
            try:
                names, changes = receiver._splits_after(places)
                answer.set_result((names_of(kind, names), changes))
            except BaseException as error:  # noqa: BLE001 - of the program; reported with its name
                answer.set_exception(error)

        OwnedThread(call, f"splits-{self.streams[0]}-call").start()
        self._answer = answer

    def _tell_thread(self) -> None:
        with self._changed:
            self._is_due = True
            self._changed.notify_all()

    def _answered(self, timeout_s: float) -> _Answer:
        assert self._answer is not None
        kind = self._receiver._receiver_type()
        try:
            error = self._answer.exception(timeout_s)
        except NotDoneError:
            raise SplitsError(kind, f"has not returned for {_ASK_S:g} s") from None
        answer, self._answer = self._answer, None
        if error is None:
            return answer.result()
        if isinstance(error, SplitsError):
            raise error
        raise SplitsError(kind, f"raised {typed_text(error)}") from error

    def _wanted_now(self, now_s: float) -> int:
        """Return how many receivers there are to be, as far as slots are left for them."""
        room = self._room()
        if room is None or room >= self._wanted:
            self._short_since_s = None
            return self._wanted
        if self._short_since_s is None:
            self._short_since_s = now_s
        if now_s - self._short_since_s < _TAKE_OVER_S:
            return self._wanted
        return room

    def _move(self, wanted: int) -> None:
        with self._changed:
            now = self._by_activity()
            # They hold up no one: those that are concerned wait for each other.
            self._late -= self._at_rest(self._late)
            then = divided(self._splits, now, wanted, self._over | self._late, self._gone)
            concerned = frozenset(one for one in now if then[one] != now[one])
            self._held = concerned | self._late
        try:
            while concerned and self._bring_to_rest(concerned):
                if self._divide_among(concerned, wanted, tuple(now)):
                    break
        finally:
            with self._changed:
                self._held = self._late
                self._changed.notify_all()

    def _by_activity(self) -> dict[int, Splits]:
        """Return who has which splits, those first that run."""
        infos = self._receivers.infos()
        by_activity = sorted(
            self.streams, key=lambda one: infos[one].state is not ReceiverState.ACTIVE
        )
        return {one: self._has[one] for one in by_activity}

    def _divide_among(self, concerned: frozenset[int], wanted: int, order: tuple[int, ...]) -> bool:
        """Divide splits among those that are at rest; False: one of them has just registered."""
        with self._logging:
            starting = self._receivers.starting()
            with self._changed:
                able = self._at_rest(concerned, starting)
                fixed = {one for one in self.streams if one not in able} | self._over
                now = {one: self._has[one] for one in order}
                then = divided(self._splits, now, wanted, fixed, self._gone)
            moved = [one for one in able if then[one] != self._has[one]]
            # What comes of others from here on is of no attempt that is known.
            going_on = [one for one in moved if one in starting and then[one]]
            parked = [one for one in moved if one not in going_on and self._receivers.park(one)]
            unregistered = [starting[one] for one in moved if one in starting]
            try:
                is_divided = self._log(then, unregistered=unregistered)
            except LedgerWriteError as error:
                _log.error("%s; it is tried again", error)
                is_divided = True
        for one in parked:
            if one in starting:
                self._cancel(one)
        if not is_divided:
            return False
        late = concerned - able
        self._late |= late
        if late:
            _log.warning(
                "The receivers of the streams %s have not ended, and keep their splits for now",
                ", ".join(map(str, sorted(late))),
            )
        return True

    def _log(
        self,
        has: Mapping[int, Splits],
        changes: Mapping[str, Any] | None = None,
        unregistered: Collection[str] = (),
    ) -> bool:
        """Log who has which splits, and take note of it. `_logging` is held.

        False: one of the attempts that were not to have registered has; nothing was changed.
        """
        event = SplitsEvent(
            tuple((one, has[one]) for one in self.streams),
            self._wanted,
            self._declared,
            dict(changes or {}),
        )
        if event != self._ledger.splits(self.streams) and not self._ledger.divide(
            event, unregistered
        ):
            return False
        with self._changed:
            self._has = dict(event.streams)
        for one, splits in event.streams:
            _log.debug("receiver %d of the stream %r has %s", one, self._name, splits)
        return True

    def _at_rest(
        self, streams: frozenset[int], starting: Mapping[int, str] | None = None
    ) -> frozenset[int]:
        """Return those that have no connection, and read nothing. `_changed` is held.

        Args:
            streams: Of the receivers.
            starting: The attempts that have not registered; None: the present ones.
        """
        if starting is None:
            starting = self._receivers.starting()
        return streams & (self._resting - self._receivers.connected() | starting.keys())

    def _bring_to_rest(self, concerned: frozenset[int]) -> bool:
        """Have receivers stop, within a time; False: all is to stop."""
        begun_s = self._clock.monotonic_s()
        told_s = begun_s - _TELL_S
        cancelled: set[int] = set()
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._is_stopped or self._at_rest(concerned) == concerned, _LOOK_S
                )
                if self._is_stopped:
                    return False
                left = concerned - self._at_rest(concerned)
                running = left - self._resting
            now_s = self._clock.monotonic_s()
            if not left or now_s - begun_s > self._stop_s + _CANCEL_S:
                return True
            if now_s - told_s < _TELL_S:
                continue
            told_s = now_s
            for one in running:
                is_reached = self._receivers.move(one, self._stop_s)
                patience_s = self._stop_s if is_reached else min(self._stop_s, _UNREACHED_S)
                if one not in cancelled and now_s - begun_s > patience_s:
                    cancelled.add(one)
                    self._cancel(one)
