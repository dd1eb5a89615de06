"""Dead letters on a real HDFS, where nobody can read what is being written."""

from __future__ import annotations

import os

import pytest

from penstock.dead_letters import DeadLetterPlace, DeadLetterWriter, letters
from penstock.wal import locate
from tests.services.hdfs import Hdfs

pytestmark = pytest.mark.slow


@pytest.mark.timeout(240)
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
