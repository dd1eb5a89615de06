"""`run_receiver`: one attempt of a receiver, in a thread of the test's process."""

from __future__ import annotations

import contextlib
import functools
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.dead_letters import letters
from penstock.errors import IllegalStateError
from penstock.receiver import run_receiver as run_attempt
from penstock.runtime.threads import OwnedThread
from penstock.testing.driver import ReceiverTestError, TestDriver
from penstock.wal import LogFullError, LogWriter
from penstock.wire.messages import RestartReceiver, SealBlock

_WAIT_S = 300.0
_STOP_S = 300.0


class RunningReceiver:
    """A receiver that runs, as a test sees it. Made by `run_receiver`."""

    def __init__(self, driver: TestDriver, receiver: object) -> None:
        self._driver = driver
        self._receiver = receiver
        self._has_ended = threading.Event()
        self._has_ended.set()
        self.start()

    @property
    def records(self) -> list[Any]:
        """What is durable and reported, in the order of the stream."""
        return self._driver.records()

    @property
    def position(self) -> Any:
        """The stream's last durable position; None: there is none."""
        return self._driver.position

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where it listens; empty while it does not run, or if it does not listen."""
        with self._driver.changed:
            return self._driver.addresses

    @property
    def errors(self) -> list[str]:
        """What the receiver reported to its driver, each with its traceback."""
        with self._driver.changed:
            return list(self._driver.errors)

    @property
    def events(self) -> list[str]:
        """``registered`` for each start of an attempt, ``deregistered: <why>`` for each end."""
        with self._driver.changed:
            return list(self._driver.events)

    @property
    def dropped(self) -> int:
        """How many records were dropped by its `whenFull`."""
        with self._driver.changed:
            return sum(self._driver.dropped.values())

    @property
    def discarded(self) -> list[tuple[bytes, str]]:
        """The records that became dead letters: their bytes, and why."""
        folder = self._driver.folder
        if not (folder / "deadLetters").is_dir():
            return []
        return [(each.letter.data, each.letter.reason) for each in letters(str(folder))]

    def wait_for_records(self, count: int, timeout_s: float = _WAIT_S) -> list[Any]:
        """Wait until that many records are durable and reported, and return all.

        Raises:
            ReceiverTestError: They did not come within `timeout_s` seconds, or before the receiver
                ended. It says what came.
        """
        driver = self._driver
        self._wait_for(lambda: driver.count >= count, timeout_s, f"{count} records")
        return driver.records()

    def wait_for_addresses(self, timeout_s: float = _WAIT_S) -> tuple[str, ...]:
        """Wait until the receiver has reported where it listens, and return its `addresses`.

        Raises:
            ReceiverTestError: It did not within `timeout_s` seconds.
        """
        driver = self._driver
        self._wait_for(lambda: bool(driver.addresses), timeout_s, "address")
        return driver.addresses

    def wait_for_error(self, text: str, timeout_s: float = _WAIT_S) -> str:
        """Wait until the receiver has reported an error that holds a text, and return it.

        Raises:
            ReceiverTestError: It did not within `timeout_s` seconds.
        """
        driver = self._driver

        def found() -> list[str]:
            return [error for error in driver.errors if text in error]

        self._wait_for(lambda: bool(found()), timeout_s, f"error with {text!r}")
        return found()[0]

    def wait_for_event(self, event: str, count: int = 1, timeout_s: float = _WAIT_S) -> None:
        """Wait until something has been among the `events` that many times.

        Raises:
            ReceiverTestError: It has not within `timeout_s` seconds.
        """
        driver = self._driver
        what = f"{event!r} for the time no. {count}"
        self._wait_for(lambda: driver.events.count(event) >= count, timeout_s, what)

    def _wait_for(self, holds: Callable[[], bool], timeout_s: float, what: str) -> None:
        self._driver.wait_for(holds, timeout_s, what, self._has_ended.is_set)

    def hold(self) -> None:
        """Let the driver answer nothing: queue and `store` fill up, and nothing is acknowledged."""
        self._driver.hold(True)

    def go_on(self) -> None:
        """Let the driver answer again."""
        self._driver.hold(False)

    def fill_disk(self) -> None:
        """Let the log's disk be full: nothing becomes durable, and the queue becomes full."""
        _fill(str(self._driver.folder))

    def free_disk(self) -> None:
        """Let there be space on the log's disk again."""
        _free(str(self._driver.folder))

    def seal(self) -> None:
        """Have the open block sealed now, as at the end of a block interval.

        With ``spark.streaming.blockInterval`` an hour blocks end by this only, or when they are
        full. Waits until the receiver has registered, as before nothing could be sealed; where it
        has stored nothing since the last block, none is made.

        Raises:
            ReceiverTestError: It has not registered in time, or has ended.
        """
        ended = self._has_ended.is_set
        # The connection of one that has ended may be there for a moment longer.
        self._wait_for(lambda: self._driver.is_connected and not ended(), _WAIT_S, "receiver")
        self._driver.send(SealBlock())

    def restart(self) -> None:
        """Have the receiver stop and start in its process, as ``penstock restart`` does."""
        self._driver.send(RestartReceiver("the test asked for it"))

    def start(self) -> None:
        """Start another attempt after a `stop`, which goes on from the stream's last position.

        Raises:
            IllegalStateError: The last one has not ended.
        """
        if not self._has_ended.is_set():
            raise IllegalStateError("the receiver runs: call stop() before it is started again")
        self._error: BaseException | None = None
        launch = self._driver.launch(self._receiver)
        self._has_ended.clear()

        def run() -> None:
            try:
                run_attempt(launch, ensure_block_server=lambda launch: None)
            except BaseException as error:  # noqa: BLE001  # of an attempt; `stop` raises it
                self._error = error
            finally:
                self._has_ended.set()
                self._driver.note_end()

        self._thread = OwnedThread(run, "testing-receiver")
        self._thread.start()

    def stop(self, timeout_s: float = _STOP_S) -> None:
        """Stop gracefully; then all that was stored is durable. May be called again.

        Raises:
            ReceiverTestError: It has not ended within `timeout_s` seconds; or it cannot work.
            ReceiverFailedError: The attempt ended by an error.
        """

        def has_ended(wait_s: float) -> bool:
            self._thread.join(wait_s)
            return not self._thread.is_alive()

        self._driver.stop(has_ended, timeout_s)
        if self._error is not None:
            raise self._error
        if self._driver.failed_for_good is not None:
            raise ReceiverTestError(f"the receiver cannot work: {self._driver.failed_for_good}")


@contextlib.contextmanager
def run_receiver(
    receiver: object,
    *,
    folder: str | Path | None = None,
    settings: Mapping[str, object] | None = None,
) -> Iterator[RunningReceiver]:
    """Run a receiver without Spark, on a log on this disk, until the `with` ends.

    Args:
        receiver: What `StreamingContext.receiverStream` takes; pickled and unpickled as by that.
        folder: An empty folder for its log; a temporary one when None, which is removed.
        settings: Settings by their keys, such as ``{"spark.streaming.blockInterval": "20ms"}``.

    Raises:
        PenstockError: It is none, cannot be pickled, or a setting is wrong.
        ReceiverTestError: At the end: it did not end. What ended it by then, if not the test.
    """
    with contextlib.ExitStack() as opened:
        where = opened.enter_context(tempfile.TemporaryDirectory()) if folder is None else folder
        driver = TestDriver(Path(where), settings or {})
        opened.callback(driver.close)
        running = RunningReceiver(driver, receiver)
        try:
            yield running
        finally:
            driver.hold(False)
            running.free_disk()
            running.stop()


_full: set[str] = set()
_lock = threading.Lock()
_is_watched = False


def _fill(folder: str) -> None:
    """Let the logs of this process below a folder find no space, as on a full disk."""
    global _is_watched
    with _lock:
        _full.add(folder)
        if not _is_watched:
            for name in ("append", "append_many", "append_slot"):
                _watch(name)
            _is_watched = True


def _free(folder: str) -> None:
    with _lock:
        _full.discard(folder)


def _watch(name: str) -> None:
    function = getattr(LogWriter, name)

    @functools.wraps(function)
    def appending(log: LogWriter, *args: Any, **named: Any) -> Any:
        with _lock:
            is_full = any(log.folder.startswith(f"{folder}/") for folder in _full)
        if is_full:
            raise LogFullError(log.folder, 0)
        return function(log, *args, **named)

    setattr(LogWriter, name, appending)
