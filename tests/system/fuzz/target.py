"""The tracker that is fuzzed, in a process of its own: a real one, whose receivers are elsewhere.

Reads one line of JSON (``folder``, ``tls``), says one when it listens, and goes on to make batches
of what it is given: allocated, checked and cleaned up, several a second. When its input ends it
says what it has seen, and stops.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import threading
from dataclasses import replace

from penstock.receiver import BlockLogs, ReceiverLaunch
from penstock.tracker import ReceiverTracker, ReceiverTrackingInfo
from penstock.wire.messages import ReceivedBlockInfo
from tests.tracker.tracker_cases import QUICK, Source, ThreadCluster, open_in

APPLICATION = "local-1700000000000"
GOOD, ATTACKED = 0, 1
BATCH_S = 0.2
KEPT_BATCHES = 5
BATCHES_PER_COLLECTION = 10
"""Python 3.11 leaves a failed TLS handshake in a cycle (python/cpython#109534). That Penstock
leaves no cycles has tests of its own, in tests/wire/test_tls.py."""


class Counted:
    """Takes the tracker's events and keeps none: what is kept would look like growth."""

    def receiver_started(self, info: ReceiverTrackingInfo) -> None:
        """Pass over it."""

    receiver_error = receiver_stopped = receiver_started

    def permanent_error(self, stream_id: int, message: str, error: str) -> None:
        """Pass over it."""

    continuous_error = permanent_error
    rate_status = receiver_started


class Batches:
    """Makes batches and checks that the good receiver's blocks are each there once, in order."""

    def __init__(self, tracker: ReceiverTracker) -> None:
        self.tracker = tracker
        self.count = 0
        self.good = 0
        self._next: int | None = None

    def make(self) -> None:
        """Make the next batch and clean up an old one."""
        self.count += 1
        at = self.count * 1000
        self.tracker.allocate_blocks_to_batch(at)
        for block in self.tracker.get_blocks_of_batch_and_stream(at, GOOD):
            self._check(block)
        self.tracker.release_memory(at)
        self.tracker.cleanup_old_blocks_and_batches(at - KEPT_BATCHES * 1000)

    def _check(self, block: ReceivedBlockInfo) -> None:
        number = int(block.block_id.rpartition("-")[2])
        if self._next is not None and number != self._next:
            raise AssertionError(f"block {number} where {self._next} should be")
        self._next = number + 1
        self.good += 1


def main() -> None:
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    given = json.loads(sys.stdin.readline())
    cluster = ThreadCluster()
    tracker = ReceiverTracker(
        cluster,
        {number: (Source(), f"Source [{number}]") for number in (GOOD, ATTACKED)},
        replace(QUICK, tls_enabled=given["tls"]),
        ledger=open_in(given["folder"], (GOOD, ATTACKED)),
        logs=BlockLogs(os.path.join(given["folder"], "blocks"), "none", application_id=APPLICATION),
        events=Counted(),
    )
    tracker.start()
    try:
        launches = {
            launch.stream_id: launch
            for launch in (cluster.next_attempt().launch for _ in (GOOD, ATTACKED))
        }
        say(described(launches))
        batches = Batches(tracker)
        over = threading.Event()
        threading.Thread(target=_await_end, args=(over,), daemon=True).start()
        while not over.wait(BATCH_S):
            batches.make()
            if batches.count % BATCHES_PER_COLLECTION == 0:
                gc.collect()
        batches.make()
        say({"batches": batches.count, "blocks": batches.good})
    finally:
        tracker.stop(graceful=False, timeout_s=0.0)
        cluster.close()


def described(launches: dict[int, ReceiverLaunch]) -> dict[str, object]:
    """Return what the fuzzer needs to know; it goes through a pipe."""
    launch = launches[GOOD]
    return {
        "address": launch.link.tracker_address,
        "secret": launch.link.secret.hex(),
        "tls": launch.link.tls and (launch.link.tls.certificate, launch.link.tls.private_key),
        "attempts": {stream_id: found.attempt for stream_id, found in launches.items()},
    }


def say(message: dict[str, object]) -> None:
    print(json.dumps(message), flush=True)


def _await_end(over: threading.Event) -> None:
    sys.stdin.read()
    over.set()


if __name__ == "__main__":
    main()
