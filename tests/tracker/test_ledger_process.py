"""A driver that is killed under load: what it answered is in its log (I1), once (I2), in order."""

from __future__ import annotations

import json
import sys
import threading
from collections import deque
from concurrent.futures import Future
from pathlib import Path

import pytest

from penstock.tracker import ReceivedBlockTracker
from penstock.wire import ApplicationLink, Client, WireError, WireOptions
from penstock.wire.messages import AddBlock, Message, Ok
from tests.bounds import HANG_S
from tests.programs import Program
from tests.tracker.ledger_cases import attempt_name, block
from tests.tracker.ledger_process import SECRET, STREAMS

ENOUGH = 4000


class Feeder(threading.Thread):
    """Adds numbered blocks as fast as they are answered, and keeps which were answered Ok."""

    def __init__(self, address: tuple[str, int], stream: int, first: int) -> None:
        super().__init__(name=f"feeder-{stream}", daemon=True)
        self.stream, self.first = stream, first
        self.sent = 0
        self.answered: list[int] = []
        self.client = Client(
            ApplicationLink(SECRET, address),
            on_message=lambda message: None,
            options=WireOptions(give_up_after_s=0.2),
        )
        self.client.connect()

    def run(self) -> None:
        waiting: deque[tuple[int, Future[Message]]] = deque()
        try:
            while True:
                number = self.first + self.sent
                info = block(
                    self.stream, attempt_name(self.stream), number, segment=self.sent // 50
                )
                message = AddBlock(self.stream, attempt_name(self.stream), (info,))
                self.sent += 1
                waiting.append((number, self.client.ask_async(message)))
                if len(waiting) >= 64:
                    self.take(*waiting.popleft())
        except WireError:
            for number, answer in waiting:
                if answer.done() and answer.exception() is None:
                    self.take(number, answer)

    def take(self, number: int, answer: Future[Message]) -> None:
        assert answer.result(HANG_S) == Ok()
        self.answered.append(number)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("round_", range(3))
def test_i1_what_a_killed_driver_answered_is_in_its_ledger(tmp_path: Path, round_: int) -> None:
    folder = str(tmp_path / "receivedBlockMetadata")
    command = [sys.executable, "-m", "tests.tracker.ledger_process", folder]
    with Program(command, tmp_path) as driver:
        said = json.loads(driver.wait_for_line(bool))
        feeders = [
            Feeder(tuple(said["address"]), stream, said["first"][stream]) for stream in STREAMS
        ]
        for feeder in feeders:
            feeder.start()
        while sum(len(feeder.answered) for feeder in feeders) < ENOUGH * (round_ + 1):
            feeders[0].join(0.005)
            assert driver.process.poll() is None, driver.report()
        driver.kill()
    for feeder in feeders:
        feeder.join(HANG_S)
        assert not feeder.is_alive()
        feeder.client.close()
    ledger = ReceivedBlockTracker.recover(STREAMS, folder)
    try:
        assert len(ledger.batch_times_ms) > 2
        for feeder in feeders:
            found = [
                int(info.block_id.rpartition("-")[2])
                for time_ms in ledger.batch_times_ms
                for info in ledger.get_blocks_of_batch_and_stream(time_ms, feeder.stream)
            ]
            waiting = ledger.unallocated_blocks(feeder.stream)
            found += [int(info.block_id.rpartition("-")[2]) for info in waiting]
            # Exact: everything answered, nothing twice, nothing that was not sent, all in order.
            assert set(feeder.answered) <= set(found)
            assert found == list(range(feeder.first, feeder.first + len(found)))
            assert len(found) <= feeder.sent
    finally:
        ledger.close()
