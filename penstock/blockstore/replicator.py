"""`Replicator`: has a copy of each block made on another host, for one receiver attempt.

Which host, the driver says. A level for three copies has two of them, which share `CopyHosts`. One
thread (``penstock-copy-<stream>``) sends the blocks, one after the other, over one kept connection
(`PeerLink`), while the receiver's log takes them. `_changed` guards what is shared with it; nothing
is sent or asked under it.

=============  ===================================================================================
linked         a connection stands; each block waits for its copy
searching      there is none, or it broke: the block that is on its way waits until another stands
alone          the driver says that there is no other host, or none took a copy in time: blocks do
               not wait; another host is looked for every `LOOK_AGAIN_S`, without holding up blocks
=============  ===================================================================================

While the driver does not answer, blocks wait: they could not be acknowledged anyway, and a host
that is cut off must not take itself for the only one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass

from penstock.blockstore.server.peer_link import PeerLink
from penstock.errors import IllegalStateError, PenstockError
from penstock.runtime.backoff import Backoff
from penstock.runtime.threads import OwnedThread
from penstock.wire import ApplicationLink, WireError
from penstock.wire.messages import Message, ReplicaHostAt, ReplicaPlace

_log = logging.getLogger("penstock.blockstore")
SEARCH_S = 30.0
"""How long a block may wait for another host while the driver answers."""

LOOK_AGAIN_S = 5.0
"""Pause between searches for another host while there is none."""

SILENT_S = 30.0
"""How long a host is skipped after it did not answer or took no copy."""

SLOW_DRIVER_S = 5.0
"""A driver that takes longer to answer counts as unreachable, not as slow."""

_FIRST_PAUSE_S = 0.05
_MAX_PAUSE_S = 1.0
_STEP_S = 0.25
IDLE_S = 60.0
"""The longest single wait for a block."""

_JOIN_S = 10.0
FindReplicaHost = Callable[[tuple[str, ...]], "Future[Message]"]
"""Asks the driver for a host, but not one of these; answered by `ReplicaHostAt`."""


class CopyHosts:
    """Which hosts take the copies of an attempt's blocks: each another. From any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hosts: dict[Replicator, str] = {}

    def of_others(self, replicator: Replicator) -> tuple[str, ...]:
        """Return the hosts that others than this one have."""
        with self._lock:
            return tuple(host for other, host in self._hosts.items() if other is not replicator)

    def take(self, replicator: Replicator, host: str | None) -> bool:
        """Let it have a host, or none; False: another one has it."""
        with self._lock:
            self._hosts.pop(replicator, None)
            if host is None:
                return True
            if host in self._hosts.values():
                return False
            self._hosts[replicator] = host
            return True


@dataclass(frozen=True)
class _Copy:
    block_id: str
    payload: memoryview
    crc: int
    done: Future[ReplicaPlace | None]


class Replicator:
    """Copies the blocks of one attempt to another host, one block at a time.

    Args:
        stream_id: The stream.
        attempt: The receiver attempt, 32 hex digits.
        link: What opens connections.
        find: Asks the driver for a host.
        on_error: Notified once when blocks go on without the copy although there was, or should be,
            another host; on this object's thread.
        hosts: Shared by those of one attempt; None: there is one.
    """

    def __init__(
        self,
        stream_id: int,
        attempt: str,
        *,
        link: ApplicationLink,
        find: FindReplicaHost,
        on_error: Callable[[str, BaseException], None],
        hosts: CopyHosts | None = None,
    ) -> None:
        self.stream_id = stream_id
        self._attempt = attempt
        self._application = link
        self._find = find
        self._on_error = on_error
        self._hosts = hosts or CopyHosts()
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._wanted: _Copy | None = None
        self._last: _Copy | None = None
        self._alone = False
        self._look_at_s = 0.0
        self.copied = 0
        self.left_alone = 0
        self.switches = 0
        # Of the thread alone, but for `close`.
        self._link: PeerLink | None = None
        self._silent: dict[str, float] = {}
        self._reason = "none was named"
        self._told = False
        self._thread = OwnedThread(self._run, f"copy-{stream_id}")

    def begin(self, block_id: str, payload: memoryview, crc: int) -> Future[ReplicaPlace | None]:
        """Have a block copied; for one thread, one block at a time.

        Begun again for the same block, after its log had failed, it is the same copy.

        Args:
            block_id: The block.
            payload: The payload of its record; must not change until the future is done.
            crc: Its CRC-32C.

        Returns:
            A future for `wait`.
        """
        with self._changed:
            if self._thread.ident is None:
                self._thread.start()
            last = self._last
            if last is not None and last.block_id == block_id and not _has_failed(last.done):
                return last.done
            done: Future[ReplicaPlace | None] = Future()
            copy = _Copy(block_id, payload, crc, done)
            if self._alone:
                self.left_alone += 1
                done.set_result(None)
            else:
                self._wanted = copy
            self._last = copy
            self._changed.notify_all()
        return done

    def wait(self, copying: Future[ReplicaPlace | None]) -> ReplicaPlace | None:
        """Wait for a copy; return where it is, or None when the block goes on without one.

        It waits as long as the driver does not answer; `close` ends that.

        Raises:
            IllegalStateError: The attempt ends.
        """
        while True:
            try:
                return copying.result(_STEP_S)
            except FutureTimeoutError:
                if not self._thread.is_alive():
                    raise IllegalStateError(
                        f"nothing of stream {self.stream_id} is copied any more"
                    ) from None

    def close(self) -> None:
        """End the connection and the thread; a copy that is on its way fails."""
        self._closing.set()
        with self._changed:
            link = self._link
            self._changed.notify_all()
        if link is not None:
            link.close()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_S)

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing.is_set():
            copy = self._take()
            if copy is None:
                continue
            place: ReplicaPlace | None = None
            failure: BaseException | None = None
            try:
                place = self._make(copy)
            except BaseException as error:  # noqa: BLE001 - travels to the copy's waiter
                failure = error
            with self._changed:
                # First of all: a caller that hears of the end may have the same block copied again.
                self._wanted = None
            if failure is not None:
                copy.done.set_exception(failure)
                continue
            with self._changed:
                if place is None:
                    self.left_alone += 1
                else:
                    self.copied += 1
            copy.done.set_result(place)
        self._set_link(None)
        with self._changed:
            left, self._wanted = self._wanted, None
        if left is not None:
            left.done.set_exception(self._closed())

    def _take(self) -> _Copy | None:
        """Wait for a block; look for another host now and then while there is none."""
        with self._changed:
            while self._wanted is None and not self._closing.is_set():
                left_s = self._look_at_s - time.monotonic()
                if self._alone and left_s <= 0:
                    break
                self._changed.wait(left_s if self._alone else IDLE_S)
            if self._wanted is not None or self._closing.is_set():
                return self._wanted
        self._look_again()
        return None

    def _look_again(self) -> None:
        try:
            found = self._connect(0.0)
        except (WireError, IllegalStateError) as error:
            _log.debug("stream %d found no other host: %s", self.stream_id, error)
            found = False
        with self._changed:
            self._alone = not found
            self._look_at_s = time.monotonic() + LOOK_AGAIN_S

    def _make(self, copy: _Copy) -> ReplicaPlace | None:
        end_s = time.monotonic() + SEARCH_S
        while not self._closing.is_set():
            link = self._link
            if link is None:
                left_s = end_s - time.monotonic()
                if left_s <= 0 or not self._connect(left_s):
                    self._go_alone()
                    return None
                continue
            try:
                is_first = link.is_fresh
                place = link.keep(self.stream_id, self._attempt, copy.payload, copy.crc)
            except WireError as error:
                self._reason = str(error)
                # One that was idle may have been closed by the other end, and may be made again.
                if link.is_fresh or isinstance(error.__cause__, TimeoutError):
                    self._silent[link.host] = time.monotonic() + SILENT_S
                self._set_link(None)
                _log.info("stream %d: %s", self.stream_id, error)
            else:
                if is_first:
                    self._note_host(link.host)
                return place
        raise self._closed()

    def _note_host(self, host: str) -> None:
        """Say that a host takes copies: one that answers may have no room for a single one."""
        self.switches += 1
        _log.info("stream %d: blocks are copied to %s", self.stream_id, host)
        if self._told:
            self._told = False
            _log.warning("stream %d: blocks are copied to another host again", self.stream_id)

    def _go_alone(self) -> None:
        with self._changed:
            self._alone = True
            self._look_at_s = time.monotonic() + LOOK_AGAIN_S
        if self._told or not self._reason:
            return
        self._told = True
        others = self._hosts.of_others(self)
        where = " and ".join(("the receiver's host", *others))
        error = PenstockError(
            f"the blocks of stream {self.stream_id} are kept on {where} only, until another host "
            f"takes copies: {self._reason}"
        )
        what = "fewer copies than asked for" if others else "no copy on another host"
        self._on_error(f"Blocks have {what}", error)

    def _connect(self, patience_s: float) -> bool:
        """Connect to a host that the driver names; False when there is none.

        Args:
            patience_s: How long to wait, with answers of the driver, for one that is expected, and
                to try others than the first.
        """
        end_s = time.monotonic() + patience_s
        backoff = Backoff(_FIRST_PAUSE_S, _MAX_PAUSE_S)
        while True:
            asked_s = time.monotonic()
            found = self._ask()
            is_slow = time.monotonic() - asked_s > SLOW_DRIVER_S
            if found.host is None and self._silent and is_slow:
                # It was this host that was cut off: the others may not have been silent.
                self._silent.clear()
                continue
            if found.host is not None and found.address is not None:
                if self._try_host(found.host, found.address):
                    return True
                if time.monotonic() >= end_s:
                    return False
            elif not found.is_expected or time.monotonic() >= end_s:
                if found.is_alone and not self.switches:
                    self._reason = ""  # as it was from the beginning: nothing to report
                elif not self._silent:
                    self._reason = "the driver knows of no other host with a block server"
                return False
            elif self._closing.wait(backoff.next_s()):
                raise self._closed()

    def _try_host(self, host: str, address: tuple[str, int]) -> bool:
        context = self._application.client_context()
        try:
            link = PeerLink(host, address, self._application.secret, context)
        except WireError as error:
            self._reason = str(error)
            self._silent[host] = time.monotonic() + SILENT_S
            return False
        if not self._hosts.take(self, host):
            link.close()
            return False
        self._set_link(link)
        return True

    def _ask(self) -> ReplicaHostAt:
        """Ask the driver until it answers.

        Raises:
            IllegalStateError: The attempt ends.
        """
        backoff = Backoff(_FIRST_PAUSE_S, _MAX_PAUSE_S)
        while not self._closing.is_set():
            now_s = time.monotonic()
            self._silent = {host: end_s for host, end_s in self._silent.items() if end_s > now_s}
            asked = self._find((*self._silent, *self._hosts.of_others(self)))
            while not self._closing.is_set():
                try:
                    answer = asked.result(_STEP_S)
                except FutureTimeoutError:
                    if asked.done():
                        break
                except PenstockError as error:
                    _log.info("the driver was not asked for another host: %s", error)
                    break
                else:
                    if isinstance(answer, ReplicaHostAt):
                        return answer
                    _log.info("the driver names no other host: %s", answer)
                    break
            if self._closing.wait(backoff.next_s()):
                break
        raise self._closed()

    def _set_link(self, link: PeerLink | None) -> None:
        with self._changed:
            before, self._link = self._link, link
        if before is not None:
            before.close()
        if link is None:
            self._hosts.take(self, None)
        if link is not None and self._closing.is_set():
            link.close()

    def _closed(self) -> IllegalStateError:
        return IllegalStateError(f"the receiver of stream {self.stream_id} ends")


def _has_failed(future: Future[ReplicaPlace | None]) -> bool:
    return future.done() and future.exception() is not None
