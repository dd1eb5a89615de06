"""`Driver`: the tracker, as one receiver attempt sees it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from penstock.errors import IllegalStateError, PenstockError
from penstock.receiver._ending import error_text
from penstock.receiver._parts import Connect, TrackerConnection
from penstock.receiver.block_generator import RefusedError
from penstock.wire import WireError
from penstock.wire.messages import (
    AddBlock,
    DeregisterReceiver,
    Message,
    Ok,
    ReceivedBlockInfo,
    Refused,
    RegisterReceiver,
    ReportError,
)

__all__ = ["BlocksNotAddedError", "Driver"]

logger = logging.getLogger("penstock.receiver")

MESSAGE_LIMIT = 4_000
"""Characters of an error message that travel to the driver."""


class BlocksNotAddedError(PenstockError):
    """The tracker could not write blocks to its log now; asking again may help.

    Attributes:
        reason: What the tracker said.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the driver did not add the blocks: {reason}")
        self.reason = reason


class Driver:
    """Asks and tells the tracker, in the name of one attempt. Usable from any thread.

    After a reconnect the client first says the registration again, if the receiver runs, so that
    the tracker can send to it.
    """

    def __init__(self, registration: RegisterReceiver) -> None:
        self._registration = registration
        self._lock = threading.Lock()
        self._connection: TrackerConnection | None = None

    def connect(
        self,
        connect: Connect,
        *,
        on_message: Callable[[Message], None],
        on_hello_answer: Callable[[Message, Message], None],
        on_closed: Callable[[WireError], None],
        is_registered: Callable[[], bool],
    ) -> None:
        """Connect; raises what the client raises."""

        def hello() -> Sequence[Message]:
            return [self._registration] if is_registered() else []

        connection = connect(
            on_message=on_message,
            on_reconnect=hello,
            on_hello_answer=on_hello_answer,
            on_closed=on_closed,
        )
        with self._lock:
            self._connection = connection

    @property
    def connection(self) -> TrackerConnection:
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
        return self.connection.ask_async(self._registration)

    def deregister(self, message: str, error: BaseException | None) -> Future[Message]:
        """Ask to be counted as stopped."""
        return self.connection.ask_async(
            DeregisterReceiver(
                stream_id=self._registration.stream_id,
                attempt=self._registration.attempt,
                message=message[:MESSAGE_LIMIT],
                error=error_text(error),
            )
        )

    def report_error(
        self, message: str, error: BaseException | None, *, permanent: bool = False
    ) -> None:
        """Tell of an error. Never raises: a lost driver is found out elsewhere."""
        report = ReportError(
            stream_id=self._registration.stream_id,
            attempt=self._registration.attempt,
            message=message[:MESSAGE_LIMIT],
            error=error_text(error),
            permanent=permanent,
        )
        try:
            self.connection.send(report)
        except (WireError, IllegalStateError) as failure:
            logger.warning("not reported to the driver (%s): %s", failure, message)

    def report_blocks(self, blocks: tuple[ReceivedBlockInfo, ...]) -> Future[None]:
        """Ask that `blocks` be added; see `penstock.receiver._parts.ReportBlocks`."""
        added: Future[None] = Future()
        try:
            asked = self.connection.ask_async(
                AddBlock(self._registration.stream_id, self._registration.attempt, blocks)
            )
        except (WireError, IllegalStateError) as error:
            added.set_exception(error)
            return added
        asked.add_done_callback(lambda answer: self._settle(added, answer))
        return added

    def close(self) -> None:
        """Close the connection, if there is one."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _settle(self, added: Future[None], answer: Future[Message]) -> None:
        error = answer.exception()
        if error is None:
            reply = answer.result()
            if isinstance(reply, Ok):
                added.set_result(None)
                return
            if isinstance(reply, Refused):
                error = RefusedError(
                    f"the driver refused blocks of receiver {self._registration.stream_id} "
                    f"(attempt {self._registration.attempt}): {reply.reason}"
                )
            else:
                error = BlocksNotAddedError(str(getattr(reply, "reason", reply)))
        added.set_exception(error)
