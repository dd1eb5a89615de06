"""`Start`: one start of a receiver, as its object sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.receiver._door import DoorState, StoreDoor

if TYPE_CHECKING:
    from penstock.receiver.supervisor import ReceiverSupervisor

__all__ = ["Start"]


class Start:
    """The `SupervisorDoor` of one start.

    When the start is over its door is closed. From then on it stores nothing, is stopped, and asks
    for nothing: the threads that still have it are of the past.
    """

    def __init__(self, supervisor: ReceiverSupervisor, door: StoreDoor) -> None:
        self.door = door
        self._supervisor = supervisor

    def store(
        self,
        data: Any,
        position: Any = None,
        ack: Callable[[], None] | None = None,
        framing: Any = None,
    ) -> None:
        self.door.store(data, position, ack, framing)

    def store_from(self, readinto: Callable[[memoryview], int], framing: Any) -> None:
        self.door.store_from(readinto, framing)

    def restart(
        self, message: str, error: BaseException | None = None, delay_ms: int | None = None
    ) -> None:
        if not self._is_over():
            self._supervisor.restart(message, error, delay_ms)

    def stop(self, message: str, error: BaseException | None = None) -> None:
        if not self._is_over():
            self._supervisor.stop(message, error)

    def finish(self, message: str) -> None:
        if not self._is_over():
            self._supervisor.finish(message)

    def report_error(self, message: str, error: BaseException | None = None) -> None:
        self._supervisor.report_error(message, error)

    def is_started(self) -> bool:
        return not self._is_over() and self._supervisor.is_started()

    def is_stopped(self) -> bool:
        return self._is_over() or self._supervisor.is_stopped()

    def on_stop_left_s(self) -> float:
        return self._supervisor.on_stop_left_s()

    def _is_over(self) -> bool:
        if self.door.state is not DoorState.CLOSED:
            return False
        self.door.late()
        return True
