"""Many receivers of one tracker in one process, each with a connection of its own.

They speak the real protocol, the challenge and the frames of `penstock.wire`, on one event loop: a
thread for each, as a real receiver has it, would measure this process and not the tracker.
"""

from __future__ import annotations

import asyncio
import random
import time
from array import array

import msgspec

from benchmarks.programs._synthetic import block
from penstock.wire import ClientHandshake
from penstock.wire._frames import FrameBuffer, Kind, encode_frame
from penstock.wire.messages import (
    AddBlock,
    Heartbeat,
    Message,
    Ok,
    Registered,
    RegisterReceiver,
    ReportRateStatus,
    StopReceiver,
)

CONNECTING = 32
FRAME_BYTES = 8 << 20
READ_BYTES = 1 << 16
BEAT_S = 4.0
START_S = 120.0

_decoder = msgspec.msgpack.Decoder(Message)


class _Peer:
    """One receiver."""

    def __init__(self, stream_id, attempt, host, executor_id):
        self.stream_id, self.attempt, self.host = stream_id, attempt, host
        self.executor_id = executor_id
        self.latencies = array("d")
        self.told = 0
        self.reports = 0
        self.over = False
        self._asks = 0
        self._answers = {}

    async def start(self, address, secret):
        reader, self.writer = await asyncio.open_connection(*address)
        handshake = ClientHandshake(secret, "tracker", "the tracker")
        while handshake.expects:
            self.writer.write(handshake.receive(await reader.readexactly(handshake.expects)))
        seals = handshake.seals()
        self._seal = seals.outgoing
        self._task = asyncio.create_task(self._read(reader, seals.incoming))
        answer = await self._ask(
            RegisterReceiver(self.stream_id, self.attempt, "Source", self.host, self.executor_id, 1)
        )
        assert isinstance(answer, Registered), answer
        self.number = answer.first_block_number

    async def add(self, count):
        """Add that many blocks with one message; note how long the answer took."""
        blocks = tuple(
            block(self.stream_id, self.attempt, self.host, number)
            for number in range(self.number, self.number + count)
        )
        self.number += count
        begun_s = time.perf_counter()
        answer = await self._ask(AddBlock(self.stream_id, self.attempt, blocks))
        assert isinstance(answer, Ok), answer
        self.latencies.append(time.perf_counter() - begun_s)

    async def report(self):
        """Tell how the rate is used, and wait for the answer, which who reports does not want."""
        self.reports += 1
        told = (self.stream_id, self.attempt, 0, self.reports, 0.0, False, 0.0, time.monotonic())
        assert isinstance(await self._ask(ReportRateStatus(*told)), Ok)
        self.latencies.append(0.0)

    def beat(self):
        self._write(encode_frame(Heartbeat(), Kind.SEND, limit_bytes=FRAME_BYTES))

    def close(self):
        self.over = True
        self._task.cancel()
        self.writer.close()

    async def _ask(self, message):
        self._asks += 1
        answer = asyncio.get_running_loop().create_future()
        self._answers[self._asks] = answer
        self._write(encode_frame(message, Kind.ASK, self._asks, limit_bytes=FRAME_BYTES))
        return await answer

    def _write(self, frame):
        self.writer.write(frame + self._seal.tag(frame))

    async def _read(self, reader, seal):
        frames = FrameBuffer(_decoder, FRAME_BYTES, "the tracker")
        frames.opened_by(seal)
        while data := await reader.read(READ_BYTES):
            while data:
                room = frames.room()
                taken = min(len(room), len(data))
                room[:taken] = data[:taken]
                frames.filled(taken)
                data = data[taken:]
            while (frame := frames.next_frame()) is not None:
                ask_id, kind, message = frame
                if kind is Kind.REPLY:
                    self._answers.pop(ask_id).set_result(message)
                elif isinstance(message, StopReceiver):
                    self.over = True
                else:
                    self.told += 1


def run(address, secret, receivers, pipe):
    """Body of a process.

    Args:
        address: The tracker's.
        secret: The application's.
        receivers: (stream, attempt, host, executor) of each.
        pipe: To the measuring process. It sends (interval_s, seconds, blocks) again and again: the
            interval between the messages of a receiver, 0 for as fast as answers come, and the
            blocks of each, 0 for reports of rates; and None at the end. It is sent the latencies of
            each, in seconds.
    """
    asyncio.run(_run(address, secret, receivers, pipe))


async def _run(address, secret, receivers, pipe):
    peers = [_Peer(*found) for found in receivers]
    few = asyncio.Semaphore(CONNECTING)

    async def start(peer):
        async with few:
            await peer.start(address, secret)

    await asyncio.wait_for(asyncio.gather(*map(start, peers)), START_S)
    beats = asyncio.create_task(_beat(peers))
    loop = asyncio.get_running_loop()
    pipe.send("ready")
    while (wanted := await loop.run_in_executor(None, pipe.recv)) is not None:
        interval_s, seconds, blocks = wanted
        for peer in peers:
            peer.latencies = array("d")
        end_s = time.monotonic() + seconds
        await asyncio.gather(*(_work(peer, interval_s, end_s, blocks) for peer in peers))
        pipe.send([list(peer.latencies) for peer in peers])
    beats.cancel()
    for peer in peers:
        peer.close()


async def _work(peer, interval_s, end_s, blocks):
    """Add blocks; when the answers are late, those that are due follow one after the other."""
    due_s = time.monotonic() + random.random() * interval_s
    while time.monotonic() < end_s and not peer.over:
        left_s = due_s - time.monotonic()
        if left_s > 0:
            await asyncio.sleep(min(left_s, end_s - time.monotonic() + 0.001))
            continue
        due_s += interval_s
        await (peer.add(blocks) if blocks else peer.report())


async def _beat(peers):
    while True:
        await asyncio.sleep(BEAT_S)
        for peer in peers:
            peer.beat()
