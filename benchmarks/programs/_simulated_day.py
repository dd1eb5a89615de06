"""Hours of a tracker with many receivers, with a clock that is driven by hand.

The tracker, its ledger and its driver log are the real ones. Receivers and block servers are
connected by real sockets, over which the tracker registers them and tells them what may go; the
blocks are handed to the ledger as the tracker's own thread does it, those of all receivers with one
record of the log. A batch is allocated, its blocks are looked up, its memory is released when it is
done, and it is cleaned up when a later batch is. Every hour one executor dies with its receivers,
which are started elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import queue
import time

from benchmarks.programs._synthetic import (
    WAIT_S,
    Events,
    Source,
    SyntheticBlockServer,
    SyntheticCluster,
)
from penstock.receiver import BlockLogs
from penstock.runtime.clock import ManualClock
from penstock.settings import Settings
from penstock.tracker import ReceiverTracker, open_ledger
from penstock.wire.messages import AddBlock, Ok

REMEMBERED = 2
"""Batches that are kept after they are done."""
_STEP_MS = 250


class SimulatedDay:
    """A tracker, and all that it talks to, in this process.

    Args:
        folder: For the driver log.
        receivers: How many.
        executors: On how many executors, each on a host of its own.
        blocks_per_batch: Of all receivers together.
        batch_s: Seconds of a batch.
        adds_per_batch: How often in a batch all receivers report blocks.

    Attributes:
        allocation_s: How long the allocation of each batch took.
        adding_s: How long all additions of blocks took.
        most_log_bytes: The largest size of the driver log's folder after a batch.
        most_log_files: The most files in it.
        blocks: Blocks that were added.
    """

    def __init__(
        self,
        folder,
        *,
        receivers=64,
        executors=8,
        blocks_per_batch=2000,
        batch_s=20,
        adds_per_batch=8,
    ):
        self.log_folder = os.path.join(folder, "receivedBlockMetadata")
        self.batch_ms = batch_s * 1000
        self.allocation_s = []
        self.adding_s = 0.0
        self.cleaning_s = 0.0
        self.most_log_bytes = self.most_log_files = 0
        self.blocks = 0
        self._clock = ManualClock(1_700_000_000_000 // self.batch_ms * self.batch_ms)
        self._adds = adds_per_batch
        self._blocks_per_batch = blocks_per_batch
        self._cluster = SyntheticCluster(executors)
        self._stack = contextlib.ExitStack()
        self._living = {}
        self.tracker = ReceiverTracker(
            self._cluster,
            {number: (Source(), f"Source [{number}]") for number in range(receivers)},
            Settings(),
            ledger=open_ledger(
                range(receivers),
                self.log_folder,
                Settings(),
                sync="none",
                clock=self._clock,
            ),
            logs=BlockLogs(os.path.join(folder, "receivedData"), "none", application_id="app"),
            events=Events(),
            clock=self._clock,
        )
        self.servers = []

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            stack.callback(self.tracker.stop, graceful=False, timeout_s=WAIT_S)
            self.tracker.start()
            self._stack = stack
            for _ in range(len(self.tracker.tracking_infos())):
                self._take(self._cluster.next_receiver())
            any_launch = self._living[0].launch
            for place in self._cluster.executors():
                server = SyntheticBlockServer(
                    any_launch.link.tracker_address, any_launch.link.secret, place.host
                )
                self.servers.append(server)
                stack.callback(server.close)
            stack.callback(self._end_receivers)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error):
        self._stack.close()

    def batches(self, count):
        """Go on for so many batches."""
        for _ in range(count):
            self._batch()

    def lose_executor(self, number):
        """Have an executor die, and wait until its receivers run elsewhere."""
        lost = self._cluster.executors()[number % len(self._cluster.executors())]
        dead = [found for found in self._living.values() if found.location == lost]
        for receiver in dead:
            receiver.die()
        left = len(dead)
        end_s = time.monotonic() + WAIT_S
        while left:
            assert time.monotonic() < end_s, f"{left} receivers were not started again"
            # They wait for the tracker's clock.
            self._clock.advance(_STEP_MS)
            with contextlib.suppress(queue.Empty):
                self._take(self._cluster.next_receiver(0.02))
                left -= 1

    @property
    def removed(self):
        """Attempts that block servers were told to delete."""
        return sum(len(server.removed) for server in self.servers)

    def _take(self, receiver):
        receiver.register()
        self._living[receiver.stream_id] = receiver

    def _end_receivers(self):
        for receiver in self._living.values():
            receiver.die()

    def _batch(self):
        receivers = [self._living[stream_id] for stream_id in sorted(self._living)]
        start = self.blocks
        places = self._adds * len(receivers)
        for step in range(self._adds):
            self._clock.advance(self.batch_ms // self._adds)
            messages = []
            for place, receiver in enumerate(receivers):
                at = step * len(receivers) + place
                count = _share(self._blocks_per_batch, at, places)
                if count:
                    blocks = receiver.blocks(count)
                    self.blocks += count
                    messages.append(AddBlock(receiver.stream_id, receiver.attempt, blocks))
            begun_s = time.perf_counter()
            answers = self.tracker.ledger.add_many(messages)
            self.adding_s += time.perf_counter() - begun_s
            assert all(isinstance(answer, Ok) for answer in answers), answers
        at_ms = self._clock.time_ms() // self.batch_ms * self.batch_ms
        begun_s = time.perf_counter()
        self.tracker.allocate_blocks_to_batch(at_ms)
        self.allocation_s.append(time.perf_counter() - begun_s)
        found = sum(
            len(self.tracker.get_blocks_of_batch_and_stream(at_ms, receiver.stream_id))
            for receiver in receivers
        )
        assert found == self.blocks - start, (found, self.blocks - start)
        begun_s = time.perf_counter()
        self.tracker.release_memory(at_ms)
        self.tracker.cleanup_old_blocks_and_batches(at_ms - REMEMBERED * self.batch_ms)
        self.cleaning_s += time.perf_counter() - begun_s
        sizes = [entry.stat().st_size for entry in os.scandir(self.log_folder)]
        self.most_log_bytes = max(self.most_log_bytes, sum(sizes))
        self.most_log_files = max(self.most_log_files, len(sizes))


def _share(total, place, places):
    """Return how many of `total` fall to one of the places, all as equal as whole numbers can."""
    return total * (place + 1) // places - total * place // places
