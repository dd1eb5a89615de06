"""Receivers that share the shards of a Kinesis stream: they are scaled and killed, shards end."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.sources.kinesis import KinesisReceiver
from penstock.streaming import SplitDStream
from tests.programs import kill_one, running_in
from tests.services.aws_front import Answer, aws_front, error
from tests.services.moto import KEYS, REGION, MotoServer, moto_server
from tests.sources.documented_kinesis import DocumentedKinesis
from tests.system.leftovers import await_that
from tests.system.running import WAIT_S, run_on

pytestmark = pytest.mark.slow

STREAM = "orders"
MOST = 3
OFTEN = {"spark.penstock.receiver.splitsInterval": "1s"}


class Marked(KinesisReceiver):
    """Leaves its process's number in a folder."""

    def __init__(self, url: str, folder: Path, **more: Any) -> None:
        super().__init__(
            STREAM,
            region=REGION,
            endpointUrl=url,
            accessKeyId=KEYS["aws_access_key_id"],
            secretKey=KEYS["aws_secret_access_key"],
            **{"initialPosition": "TRIM_HORIZON", "readInterval": 0.05, **more},
        )
        self.folder = folder

    def onStart(self) -> None:
        (self.folder / str(os.getpid())).write_text(" ".join(self.assignedSplits))
        super().onStart()


class Shared:
    """A stream of receivers that share shards, and what its batches had."""

    def __init__(self, ssc: Any, receiver: Marked, count: int) -> None:
        self.ssc = ssc
        self.folder = receiver.folder
        self.batches: list[list[str]] = []
        self.stream: SplitDStream[bytes] = ssc.receiverStream(
            receiver, numReceivers=count, maxReceivers=MOST
        )
        self.stream.map(bytes.decode).foreachRDD(lambda rdd: self.batches.append(rdd.collect()))

    def __reduce__(self) -> tuple[Any, ...]:
        # Its output operation goes to checkpoints, from which no test here makes it again.
        return _not_made_again, ()

    def seen(self) -> list[str]:
        return [record for batch in list(self.batches) for record in batch]

    def await_seen(self, count: int) -> None:
        await_that(
            f"{count} records",
            lambda: len(self.seen()) >= count,
            WAIT_S,
            lambda: f"{len(self.seen())} of them; {self.stream.splits}",
        )

    def shards(self) -> list[str]:
        """Which are read, of all receivers."""
        found = [split for splits in self.stream.splits.values() for split in splits]
        return sorted(split.partition("@")[0] for split in found)

    def await_shards(self, *shards: str) -> None:
        await_that(
            f"the shards {shards}",
            lambda: self.shards() == sorted(shards),
            WAIT_S,
            lambda: str(self.shards()),
        )

    def places(self) -> set[str]:
        """Of which shards it is known how far they were read."""
        engine = self.ssc._engine
        streams = [member.stream_id for member in self.stream.members]
        found = engine._receivers.hosted.tracker.ledger.split_places(streams)
        return {split.partition("@")[0] for split in found}

    def kill_one(self, chance: random.Random) -> None:
        await_that("a receiver", lambda: running_in(self.folder), WAIT_S)
        kill_one(running_in(self.folder), chance)


def _not_made_again() -> Shared:
    raise AssertionError("a run of this process cannot be made again from a checkpoint")


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    with moto_server(tmp_path_factory.mktemp("moto")) as server:
        yield server


@contextmanager
def putting(moto: MotoServer) -> Iterator[Callable[[], int]]:
    """Put numbers into the stream until the returned function is called, which tells how many."""
    ended = threading.Event()
    count = 0

    def put() -> None:
        nonlocal count
        client = moto.client("kinesis")
        while not ended.wait(0.05):
            records = [
                {"Data": str(number).encode(), "PartitionKey": str(number)}
                for number in range(count, count + 20)
            ]
            client.put_records(StreamName=STREAM, Records=records)
            count += 20

    thread = threading.Thread(target=put, name="putting")
    thread.start()

    def end() -> int:
        ended.set()
        thread.join(WAIT_S)
        return count

    try:
        yield end
    finally:
        end()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("cycles", [6, pytest.param(40, marks=pytest.mark.long)])
def test_each_record_is_in_one_batch_whoever_reads_its_shard(
    sc: Any, moto: MotoServer, tmp_path: Path, cycles: int
) -> None:
    chance = random.Random(cycles)
    moto.client("kinesis").create_stream(StreamName=STREAM, ShardCount=5)
    pids = tmp_path / "pids"
    pids.mkdir()
    try:
        with run_on(sc, OFTEN, checkpoint=str(tmp_path / "checkpoint")) as run:
            shared = Shared(run.ssc, Marked(moto.url, pids), 2)
            run.start()
            with putting(moto) as end:
                for cycle in range(cycles):
                    time.sleep(chance.uniform(0.2, 1.5))
                    if cycle % 2:
                        shared.kill_one(chance)
                    else:
                        shared.stream.scale(chance.randint(1, MOST))
                shared.stream.scale(MOST)
                total = end()
            shared.await_seen(total)
            await_that("all receivers", lambda: len(shared.stream.splits) == MOST, WAIT_S)
            run.stop()
        assert sorted(map(int, shared.seen())) == list(range(total))
        # Each receiver had some of the shards.
        assert len(list(pids.iterdir())) >= MOST
    finally:
        moto.client("kinesis").delete_stream(StreamName=STREAM)


def numbered(name: str, count: int) -> list[bytes]:
    return [f"{name}{number}".encode() for number in range(count)]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [0, pytest.param(10, marks=pytest.mark.long)])
def test_shards_are_read_after_those_that_they_came_from_by_whichever_receiver(
    sc: Any, tmp_path: Path, kills: int
) -> None:
    chance = random.Random(kills)
    kinesis = DocumentedKinesis(2, STREAM)
    kinesis.limit = 10
    first, second = kinesis.ids()
    released = threading.Event()

    def answer(name: str, members: dict[str, Any]) -> Answer | None:
        if members.get("ShardId") == second and not released.is_set():
            return error("ProvisionedThroughputExceededException")
        return kinesis.answer(name, members)

    counts = {"a": 60, "b": 80, "c": 30, "d": 40, "e": 50}
    a, b, c, d, e = (numbered(name, count) for name, count in counts.items())
    kinesis.put(*a, shard=first)
    kinesis.put(*b, shard=second)
    pids = tmp_path / "pids"
    pids.mkdir()
    with (
        aws_front() as front,
        run_on(sc, OFTEN, checkpoint=str(tmp_path / "checkpoint")) as run,
    ):
        front.hook = answer
        shared = Shared(run.ssc, Marked(front.url, pids), 3)
        run.start()
        assert shared.shards() == [first, second]
        lower, upper = kinesis.split(first)
        kinesis.put(*c, shard=lower)
        kinesis.put(*d, shard=upper)
        merged = kinesis.merge(upper, second)
        kinesis.put(*e, shard=merged)
        for _ in range(kills):
            time.sleep(chance.uniform(0.1, 1))
            shared.kill_one(chance)
        # One of its parents has not ended, at another receiver.
        shared.await_shards(second, lower)
        front.wait_for_calls("ListShards", front.calls["ListShards"] + 3)
        assert shared.shards() == [second, lower]
        released.set()
        shared.await_seen(sum(counts.values()))
        shared.await_shards(lower, merged)
        # What was trimmed as a whole is forgotten.
        kinesis.drop(first)
        await_that(
            "its place is forgotten",
            lambda: shared.places() == {second, lower, upper, merged},
            WAIT_S,
            lambda: str(shared.places()),
        )
        run.stop()
    assert sorted(shared.seen()) == sorted(each.decode() for each in (*a, *b, *c, *d, *e))
    when: dict[str, list[int]] = {name: [] for name in counts}
    for number, batch in enumerate(shared.batches):
        for record in batch:
            when[record[0]].append(number)
    assert max(when["a"]) <= min(when["c"] + when["d"])
    assert max(when["b"] + when["d"]) <= min(when["e"])
