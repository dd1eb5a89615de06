"""Group commit of block additions."""

from __future__ import annotations

import queue
import threading
from typing import Any

import pytest

from penstock.errors import IllegalStateError
from penstock.tracker import ReceivedBlockTracker
from penstock.tracker._endpoint import BatchedAdditions
from penstock.wire.messages import AddBlock, Failure, Message, Ok, Refused
from tests.tracker.ledger_cases import attempt_name, block
from tests.tracker.tracker_cases import WAIT_S

A1 = attempt_name(1)


class SlowLedger(ReceivedBlockTracker):
    """A ledger whose log record takes until the test lets go of it."""

    def __init__(self) -> None:
        super().__init__([0])
        self.entered = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)
        self.sizes: list[int] = []
        self.broken = False

    def add_many(self, messages: Any) -> Any:
        self.sizes.append(len(messages))
        self.entered.release()
        assert self.gate.acquire(timeout=WAIT_S)
        if self.broken:
            raise ValueError("a defect")
        return super().add_many(messages)


@pytest.fixture
def ledger() -> SlowLedger:
    ledger = SlowLedger()
    assert ledger.register_attempt(0, A1, "host").first_block_number == 1 << 32
    return ledger


def message(number: int) -> AddBlock:
    return AddBlock(0, A1, (block(0, A1, (1 << 32) + number),))


def test_messages_that_wait_share_one_log_record_and_are_answered_in_order(
    ledger: SlowLedger,
) -> None:
    answers: queue.Queue[list[tuple[int, Message]]] = queue.Queue()
    additions: BatchedAdditions[int] = BatchedAdditions(ledger, answers.put)
    additions.start()
    assert additions.submit(0, message(0)) is None
    assert ledger.entered.acquire(timeout=WAIT_S)
    for number in range(1, 50):
        additions.submit(number, message(number))
    ledger.gate.release(2)
    assert answers.get(timeout=WAIT_S) == [(0, Ok())]
    assert answers.get(timeout=WAIT_S) == [(number, Ok()) for number in range(1, 50)]
    assert ledger.sizes == [1, 49]
    additions.stop(WAIT_S)
    assert len(ledger.unallocated_blocks(0)) == 50


def test_i7_too_many_waiting_messages_are_turned_away(ledger: SlowLedger) -> None:
    answers: queue.Queue[list[tuple[int, Message]]] = queue.Queue()
    additions: BatchedAdditions[int] = BatchedAdditions(ledger, answers.put, maximum_waiting=3)
    additions.start()
    additions.submit(0, message(0))
    assert ledger.entered.acquire(timeout=WAIT_S)
    assert [additions.submit(n, message(n)) for n in (1, 2, 3)] == [None, None, None]
    assert isinstance(additions.submit(4, message(4)), Failure)
    ledger.gate.release(2)
    additions.stop(WAIT_S)
    assert ledger.sizes == [1, 3]


def test_stopping_writes_what_waits_and_refuses_the_rest(ledger: SlowLedger) -> None:
    answers: queue.Queue[list[tuple[int, Message]]] = queue.Queue()
    additions: BatchedAdditions[int] = BatchedAdditions(ledger, answers.put)
    for number in range(5):
        additions.submit(number, message(number))
    additions.start()
    assert ledger.entered.acquire(timeout=WAIT_S)
    with pytest.raises(IllegalStateError, match="waits for the driver log"):
        additions.stop(0.01)
    assert isinstance(additions.submit(5, message(5)), Refused)
    ledger.gate.release()
    additions.stop(WAIT_S)
    assert answers.get(timeout=WAIT_S) == [(number, Ok()) for number in range(5)]


def test_a_defect_becomes_a_failure_and_the_thread_lives_on(ledger: SlowLedger) -> None:
    answers: queue.Queue[list[tuple[int, Message]]] = queue.Queue()
    additions: BatchedAdditions[int] = BatchedAdditions(ledger, answers.put)
    additions.start()
    ledger.broken = True
    ledger.gate.release()
    additions.submit(0, message(0))
    ((_, answer),) = answers.get(timeout=WAIT_S)
    assert isinstance(answer, Failure)
    assert "a defect" in answer.reason
    ledger.broken = False
    ledger.gate.release()
    additions.submit(1, message(0))
    assert answers.get(timeout=WAIT_S) == [(1, Ok())]
    additions.stop(WAIT_S)


def test_it_may_be_stopped_before_it_was_started(ledger: SlowLedger) -> None:
    BatchedAdditions(ledger, lambda answers: None).stop(WAIT_S)
