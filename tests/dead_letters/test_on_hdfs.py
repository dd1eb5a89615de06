"""Dead letters on a real HDFS, where nobody can read what is being written."""

from __future__ import annotations

import os

import pytest

from penstock.dead_letters import DeadLetterPlace, DeadLetterWriter, LetterTail, letters
from penstock.streaming.kernels.dead_letters import LettersOfRun, MapOrLetterOperation
from penstock.streaming.kernels.fusion import FusedFunction
from penstock.wal import locate
from tests.services.hdfs import Hdfs

pytestmark = pytest.mark.slow


@pytest.mark.exhaustive
@pytest.mark.timeout(720)
def test_they_are_bounded_while_they_are_written(hdfs: Hdfs) -> None:
    folder = hdfs.new_folder()
    told: list[str] = []
    place = DeadLetterPlace(folder, 2, "a" * 32, "Gauge", "here", max_bytes=1 << 20)
    writer = DeadLetterWriter(place, lambda message, error: told.append(message))
    for number in range(40):
        writer.add(bytes(100_000), ValueError(), str(number))
        writer.write()
    (removed,) = told
    assert "were removed: spark.penstock.deadLetters.maxSize" in removed
    fs, path = locate(folder)
    assert len(fs.list_folder(os.path.join(path, place.name))) < 12
    found = [int(stored.letter.shown) for stored in letters(folder)]
    assert found == list(range(found[0], found[-1] + 1))
    assert found[-1] < 39
    writer.close()
    assert [int(stored.letter.shown) for stored in letters(folder)][-1] == 39


def _number(text: str) -> int:
    return int(text)


@pytest.mark.exhaustive  # In CI those on a disk are.
@pytest.mark.timeout(720)
def test_those_of_functions_are_read_as_soon_as_their_task_has_ended(hdfs: Hdfs) -> None:
    folder = hdfs.new_folder()
    run = LettersOfRun("run-on-hdfs", DeadLetterPlace(folder, 0, "", "", ""))
    parse = MapOrLetterOperation(_number, name="parse", made_by="mapOrDeadLetter at a.py:1")
    tail = LetterTail(folder, None, but=9, tell=pytest.fail)
    after: dict[str, int] = {}
    for batch_ms, record in ((1000, "a"), (1000, "a"), (2000, "b")):
        task = FusedFunction([parse.in_batch(batch_ms, 3, run)])
        assert list(task(0, ["1", record])) == [1]
        found, after = tail.read(after, most=10, most_bytes=1 << 20)
        assert [stored.letter.data for stored in found] == [record.encode()]
    assert [stored.letter.data for stored in letters(folder)] == [b"a", b"b"]
    assert tail.read(after, most=10, most_bytes=1 << 20).letters == []
    fs, path = locate(folder)
    assert len(fs.list_folder(path)) == 3
