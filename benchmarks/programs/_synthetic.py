"""Receivers without Spark: a tracker starts them, and they register, add blocks and die as told."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future
from contextlib import suppress

from penstock.receiver import Receiver
from penstock.tracker import ExecutorLocation
from penstock.wire import ApplicationLink, Client
from penstock.wire.messages import (
    BlockServerRegistered,
    CleanupOldBlocks,
    MemoryPlace,
    ReceivedBlockInfo,
    RegisterBlockServer,
    Registered,
    RegisterReceiver,
    ReleaseBlocks,
    SegmentPlace,
)

WAIT_S = 60.0
BLOCK_BYTES = 4096
BLOCKS_PER_SEGMENT = 256


class Source(Receiver):
    """Is never run: its attempt is played by a `SyntheticReceiver`."""


class Events:
    """Wants to know nothing."""

    def receiver_started(self, info):
        pass

    receiver_error = receiver_stopped = rate_status = receiver_started

    def permanent_error(self, stream_id, message, error):
        pass

    continuous_error = permanent_error


def block(stream_id, attempt, host, number):
    """Return a block as a receiver reports it; `number` is that of its id."""
    place = number & 0xFFFFFFFF
    memory = MemoryPlace(f"/dev/shm/penstock-app-{attempt}", place % 1000 * 8192, BLOCK_BYTES)
    segment = SegmentPlace(
        f"/log/{stream_id}-{attempt}",
        place // BLOCKS_PER_SEGMENT,
        place % BLOCKS_PER_SEGMENT * BLOCK_BYTES,
        BLOCK_BYTES,
    )
    return ReceivedBlockInfo(
        stream_id=stream_id,
        block_id=f"input-{stream_id}-{number}",
        num_records=40,
        num_bytes=BLOCK_BYTES - 64,
        attempt=attempt,
        host=host,
        sequence=place,
        memory=memory,
        segment=segment,
        position=number.to_bytes(8, "big"),
    )


class SyntheticReceiver:
    """One attempt that the tracker launched. It has a connection once it is registered."""

    def __init__(self, launch, location):
        self.launch = launch
        self.stream_id = launch.stream_id
        self.attempt = launch.attempt
        self.location = location
        self.end = Future()
        self.number = 0
        self.cleaned = 0
        self._client = None

    def registration(self):
        place = self.location
        return RegisterReceiver(
            self.stream_id, self.attempt, "Source", place.host, place.executor_id, 1
        )

    def register(self):
        hello = self.registration()
        self._client = Client(
            self.launch.link,
            on_message=self._hear,
            on_reconnect=lambda: [hello],
        )
        self._client.connect(WAIT_S)
        answer = self._client.ask(hello, WAIT_S)
        assert isinstance(answer, Registered), answer
        self.number = answer.first_block_number

    def blocks(self, count):
        """Return the next blocks."""
        first = self.number
        self.number += count
        host = self.location.host
        return tuple(
            block(self.stream_id, self.attempt, host, number)
            for number in range(first, first + count)
        )

    def die(self):
        """As with its executor: the connection goes, and the job fails."""
        self.close()
        with suppress(Exception):  # it had ended
            self.end.set_exception(RuntimeError("the executor died"))

    def close(self):
        if self._client is not None:
            self._client.close()

    def _hear(self, message):
        if isinstance(message, CleanupOldBlocks):
            self.cleaned += len(message.block_ids)


class SyntheticBlockServer:
    """Registers for a host, and counts the attempts that it is to delete."""

    def __init__(self, address, secret, host):
        self.removed = set()
        hello = RegisterBlockServer(host, ("127.0.0.1", 1), 1)
        self._client = Client(
            ApplicationLink(secret, address),
            on_message=self._hear,
            on_reconnect=lambda: [hello],
            name=host,
        )
        self._client.connect(WAIT_S)
        answer = self._client.ask(hello, WAIT_S)
        assert isinstance(answer, BlockServerRegistered), answer

    def close(self):
        self._client.close()

    def _hear(self, message):
        if isinstance(message, ReleaseBlocks):
            self.removed.update(message.attempts)


class SyntheticCluster:
    """In place of Spark: executors that run nothing."""

    is_local = is_stopped = decommissions = False

    def __init__(self, executors):
        self._executors = [ExecutorLocation(f"host-{n}", str(n)) for n in range(executors)]
        self._launched = queue.Queue()
        self._running = {}

    def addresses(self, wanted):
        return "127.0.0.1", None

    def wait_for_executors(self, tasks):
        pass

    def executors(self):
        return list(self._executors)

    def slots(self):
        return 1 << 20

    def run_task(self, streams, tag, task, locations):
        launch = task.args[0]
        found = [place for place in locations if isinstance(place, ExecutorLocation)]
        anywhere = self._executors[launch.stream_id % len(self._executors)]
        receiver = SyntheticReceiver(launch, found[0] if found else anywhere)
        self._running[tag] = receiver
        self._launched.put(receiver)
        try:
            return receiver.end.result()
        finally:
            del self._running[tag]

    def cancel(self, tag):
        if (receiver := self._running.get(tag)) is not None:
            receiver.die()

    def thread(self, target, name):
        return threading.Thread(target=target, name=name, daemon=True)

    def next_receiver(self, timeout_s=WAIT_S):
        """Return the next attempt that the tracker launches; `queue.Empty` when there is none."""
        return self._launched.get(timeout=timeout_s)
