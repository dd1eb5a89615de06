"""Receivers that share growing files by patterns: they are scaled and killed, files rotate."""

from __future__ import annotations

import gzip
import os
import random
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.sources.growing_files import GrowingFilesReceiver
from penstock.streaming import SplitDStream
from tests.programs import kill_one, running_in
from tests.system.leftovers import await_that
from tests.system.running import WAIT_S, run_on

pytestmark = pytest.mark.slow

NAMES = "abcdef"
MOST = 3


class Marked(GrowingFilesReceiver):
    """Leaves its process's number in a folder."""

    def __init__(self, folder: Path, **more: Any) -> None:
        super().__init__([folder / f"{name}*.log*" for name in NAMES], **more)
        self.pids = folder / "pids"
        self.pids.mkdir(parents=True)

    def onStart(self) -> None:
        (self.pids / str(os.getpid())).write_text("\n".join(self.assignedSplits))
        super().onStart()

    def running(self) -> list[int]:
        return running_in(self.pids)


class Lines:
    """Numbered lines in files of each name, which are rotated in the ways there are."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder, self.chance = folder, chance
        self.counts = dict.fromkeys(NAMES, 0)

    def write(self, many: int) -> None:
        for name in NAMES:
            with open(self.folder / f"{name}.log", "a") as file:
                for _ in range(many):
                    file.write(f"{name}{self.counts[name]}\n")
                    self.counts[name] += 1

    def rotate(self) -> None:
        for name in NAMES:
            log, first = self.folder / f"{name}.log", self.folder / f"{name}.log.1"
            with suppress(FileNotFoundError):
                packed = self.folder / f"{name}.log.{time.time_ns()}.gz"
                if self.chance.random() < 0.5:
                    new = packed.with_name(f"{name}-new")
                    new.write_bytes(gzip.compress(first.read_bytes()))
                    new.rename(packed)
                    first.unlink()
                else:
                    first.rename(packed.with_suffix(""))
            log.rename(first)

    def all(self) -> list[str]:
        return sorted(f"{name}{n}" for name, count in self.counts.items() for n in range(count))


def stream_of(run: Any, receiver: Marked, count: int) -> tuple[SplitDStream[str], list[str]]:
    seen: list[str] = []
    stream = run.ssc.receiverStream(receiver, numReceivers=count, maxReceivers=MOST)
    stream.foreachRDD(lambda rdd: seen.extend(rdd.collect()))
    return stream, seen


@pytest.mark.timeout(900)
@pytest.mark.parametrize("cycles", [6, pytest.param(40, marks=pytest.mark.long)])
def test_each_line_is_in_one_batch_whoever_reads_its_file(
    sc: Any, tmp_path: Path, cycles: int
) -> None:
    chance = random.Random(cycles)
    receiver = Marked(tmp_path)
    lines = Lines(tmp_path, chance)
    lines.write(20)
    with run_on(sc) as run:
        stream, seen = stream_of(run, receiver, 2)
        run.start()
        assert sorted(split for splits in stream.splits.values() for split in splits) == [
            f"{tmp_path}/{name}*.log*" for name in NAMES
        ]
        for cycle in range(cycles):
            lines.write(50)
            time.sleep(chance.uniform(0.2, 1.5))
            if cycle % 3 == 1:
                lines.rotate()
            if cycle % 2:
                await_that("a receiver", receiver.running, WAIT_S)
                kill_one(receiver.running(), chance)
            else:
                stream.scale(chance.randint(1, MOST))
        stream.scale(MOST)
        await_that("all receivers", lambda: len(stream.splits) == MOST, WAIT_S)
        lines.write(10)
        await_that("all lines", lambda: len(seen) >= len(lines.all()), WAIT_S)
        run.stop()
    assert Counter(seen) == Counter(lines.all())


def test_a_stream_that_begins_at_the_end_does_so_once(sc: Any, tmp_path: Path) -> None:
    receiver = Marked(tmp_path, start="end")
    for name in "abc":
        (tmp_path / f"{name}.log").write_text("there at first\n")
    with run_on(sc, {"spark.penstock.receiver.splitsInterval": "200ms"}) as run:
        stream, seen = stream_of(run, receiver, 1)
        run.start()
        ledger = run.ssc._engine._receivers.hosted.tracker.ledger
        streams = [member.stream_id for member in stream.members]

        def has_begun() -> bool:
            found = ledger.split_places(streams)
            marks = [place for key, place in found.items() if key.endswith("at the end")]
            return len(marks) == len(NAMES) and not any(marks)

        await_that("the begin", has_begun, WAIT_S)
        for name in NAMES:
            with open(tmp_path / f"{name}.log", "a") as file:
                file.write("new\n")
        stream.scale(MOST)
        await_that("all receivers", lambda: len(stream.splits) == MOST, WAIT_S)
        await_that("all lines", lambda: len(seen) >= len(NAMES), WAIT_S)
        run.stop()
    assert seen == ["new"] * len(NAMES)
