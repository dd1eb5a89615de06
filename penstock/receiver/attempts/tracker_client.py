"""`TrackerClient`: the tracker, as one receiver attempt sees it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError

from penstock.errors import IllegalStateError, PenstockError, encodable
from penstock.receiver.attempts.launch import ReceiverLaunch
from penstock.receiver.blocks.block_generator import BlocksRefusedError, RateUsage
from penstock.receiver.exit_report import ExitKind, ExitReport, error_text
from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.wire import Client, WireError
from penstock.wire.messages import (
    AddBlock,
    DeregisterReceiver,
    FindReplicaHost,
    LettersSent,
    Message,
    Ok,
    ReceivedBlockInfo,
    Refused,
    RegisterReceiver,
    ReportAddresses,
    ReportDropped,
    ReportError,
    ReportFullLog,
    ReportRateStatus,
    ShownBlock,
)

logger = logging.getLogger("penstock.receiver")

MESSAGE_LIMIT = 4_000
"""Characters of an error message that travel to the driver."""


class TrackerClient:
    """Talks to the tracker on behalf of one attempt. Usable from any thread.

    After a reconnect the client first says the registration again, if there is one, so that the
    tracker can send to it, and the addresses, which may have been on their way. `_lock` guards the
    connection, whether there is a registration, and the addresses.
    """

    def __init__(self, registration: RegisterReceiver) -> None:
        self._registration = registration
        self._limited_log = RateLimitedLog(logger)
        self._lock = threading.Lock()
        self._connection: Client | None = None
        self._registered = False
        self._addresses: tuple[str, ...] = ()

    def connect(
        self,
        launch: ReceiverLaunch,
        *,
        on_message: Callable[[Message], None],
        on_hello_answer: Callable[[Message, Message], None],
        on_closed: Callable[[WireError], None],
    ) -> None:
        """Connect as the settings say; raises what the client raises."""

        def hello() -> Sequence[Message]:
            if not self._registered:
                return []
            return [self._registration, *([self._report_of_addresses()] if self._addresses else [])]

        connection = Client(
            launch.link,
            on_message=on_message,
            on_reconnect=hello,
            on_hello_answer=on_hello_answer,
            on_closed=on_closed,
            name=f"receiver-{launch.stream_id}",
            options=launch.wire_options,
            loop=None if launch.threads is None else launch.threads.connections,
        )
        connection.connect()
        with self._lock:
            self._connection = connection

    @property
    def connection(self) -> Client:
        """The client.

        Raises:
            IllegalStateError: Before `connect`.
        """
        with self._lock:
            if self._connection is None:
                raise IllegalStateError("the receiver is not connected to its driver")
            return self._connection

    def register(self) -> Future[Message]:
        """Ask to be the stream's receiver."""
        self._set_registered(True)
        return self.connection.ask_async(self._registration)

    def deregister(
        self, message: str, error: BaseException | None, *, expected: bool = False
    ) -> Future[Message]:
        """Ask to be counted as stopped."""
        self._set_registered(False)
        with self._lock:
            self._addresses = ()
        return self.connection.ask_async(
            DeregisterReceiver(
                stream_id=self._registration.stream_id,
                attempt=self._registration.attempt,
                message=encodable(message[:MESSAGE_LIMIT]),
                error=error_text(error),
                expected=expected,
            )
        )

    def was_refused(self) -> None:
        """There is no registration: the tracker said no."""
        self._set_registered(False)

    def report_exit(self, exit_report: ExitReport, timeout_s: float) -> None:
        """Report how the attempt ended, if the tracker does not know and can be reached.

        Waits up to `timeout_s` seconds for the answer, and never raises: what is not reported, the
        tracker learns from the end of the task.
        """
        if exit_report.kind is ExitKind.LOST:
            return
        if exit_report.kind is ExitKind.PERMANENT:
            self.report_error(exit_report.message, exit_report.error, permanent=True)
        with self._lock:
            known = not self._registered and exit_report.kind is not ExitKind.FAILED
        if known:
            return
        try:
            expected = exit_report.kind in (ExitKind.FINISHED, ExitKind.DRIVER)
            told = self.deregister(exit_report.message, exit_report.error, expected=expected)
            told.result(timeout_s)
        except (WireError, IllegalStateError, FutureTimeoutError) as error:
            logger.warning(
                "the driver was not told of the end: %s", exit_report.message, exc_info=error
            )

    def report_error(
        self, message: str, error: BaseException | None, *, permanent: bool = False
    ) -> None:
        """Report an error. Never raises: a lost driver is found out elsewhere."""
        report = ReportError(
            stream_id=self._registration.stream_id,
            attempt=self._registration.attempt,
            message=encodable(message[:MESSAGE_LIMIT]),
            error=error_text(error),
            permanent=permanent,
        )
        try:
            self.connection.send(report)
        except (WireError, IllegalStateError) as failure:
            self._limited_log.log(f"not reported to the driver ({failure}): {message}", error=error)

    def report_addresses(self, addresses: tuple[str, ...]) -> None:
        """Report where the receiver listens. Never raises; a reconnect reports it again."""
        with self._lock:
            self._addresses = addresses
        try:
            self.connection.send(self._report_of_addresses())
        except (WireError, IllegalStateError) as failure:
            logger.debug("the addresses were not reported: %s", failure)

    def _report_of_addresses(self) -> ReportAddresses:
        mine = self._registration
        return ReportAddresses(mine.stream_id, mine.attempt, self._addresses)

    def report_dropped(self, records: int) -> None:
        """Report how many records were dropped so far. Never raises; the next report makes up."""
        mine = self._registration
        try:
            self.connection.send(ReportDropped(mine.stream_id, mine.attempt, records))
        except (WireError, IllegalStateError) as failure:
            logger.debug("the dropped records were not reported: %s", failure)

    def report_full_log(self, free_bytes: int) -> None:
        """Report that there is no room for the log. Never raises; the next attempt repeats it."""
        mine = self._registration
        report = ReportFullLog(mine.stream_id, mine.attempt, mine.host, free_bytes)
        try:
            self.connection.send(report)
        except (WireError, IllegalStateError) as failure:
            logger.debug("that the log finds no room was not reported: %s", failure)

    def report_letters(
        self,
        request: int,
        stored: int,
        left: Sequence[tuple[tuple[str, int], str]] = (),
        error: str = "",
    ) -> None:
        """Report what became of letters that were to be stored again. Never raises."""
        mine = self._registration
        report = LettersSent(mine.stream_id, mine.attempt, request, stored, tuple(left), error)
        try:
            self.connection.send(report)
        except (WireError, IllegalStateError) as failure:
            logger.warning("the driver was not told of letters that were sent: %s", failure)

    def report_rate_status(
        self, reading: RateUsage, rate_version: int, at_s: float, *, is_held: bool = False
    ) -> None:
        """Report how the rate is used. Never raises; the next report makes up for a lost one."""
        report = ReportRateStatus(
            stream_id=self._registration.stream_id,
            attempt=self._registration.attempt,
            rate_version=rate_version,
            records=reading.records,
            waited_s=reading.waited_s,
            is_waiting=reading.is_waiting,
            queue_fill=reading.queue_fill,
            at_s=at_s,
            bytes=reading.bytes,
            pipe=reading.pipe,
            is_held=is_held,
            byte_waited_s=reading.byte_waited_s,
        )
        try:
            self.connection.send(report)
        except (WireError, IllegalStateError) as failure:
            logger.debug("the use of the rate was not reported: %s", failure)

    def add_blocks(self, blocks: tuple[ReceivedBlockInfo, ...]) -> None:
        """Ask that `blocks` be added, and wait until they are in the driver log.

        Raises:
            BlocksRefusedError: Asking again cannot help.
            PenstockError: They could not be written.
            WireError, IllegalStateError: There is no connection, or no answer.
        """
        mine = self._registration
        reply = self.connection.ask_async(AddBlock(mine.stream_id, mine.attempt, blocks)).result()
        if isinstance(reply, Refused):
            raise BlocksRefusedError(
                f"the driver refused blocks of receiver {mine.stream_id} "
                f"(attempt {mine.attempt}): {reply.reason}"
            )
        if not isinstance(reply, Ok):
            reason = getattr(reply, "reason", reply)
            raise PenstockError(f"the driver did not add the blocks: {reason}")

    def show_block(self, block_id: str, payload: bytes) -> None:
        """Have a function see a block that is in no log yet. Never raises; it sees it later."""
        mine = self._registration
        try:
            self.connection.send(ShownBlock(mine.stream_id, mine.attempt, block_id, payload))
        except (WireError, IllegalStateError) as failure:
            logger.debug("block %s was not shown: %s", block_id, failure)

    def find_replica_host(self, silent: tuple[str, ...]) -> Future[Message]:
        """Ask for the host of second copies; see `penstock.blockstore.replicator`.

        Args:
            silent: Hosts that took none a moment ago.
        """
        mine = self._registration
        wanted = FindReplicaHost(mine.stream_id, mine.attempt, mine.host, silent)
        try:
            return self.connection.ask_async(wanted)
        except (WireError, IllegalStateError) as error:
            failed: Future[Message] = Future()
            failed.set_exception(error)
            return failed

    def close(self) -> None:
        """Close the connection, if there is one."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _set_registered(self, registered: bool) -> None:
        with self._lock:
            self._registered = registered
