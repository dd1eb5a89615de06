"""What a stream receives is recorded as it comes, and played back without its program."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.__main__ import main
from penstock.replay import HistoryError, ReplayReceiver, ReplaySteps
from penstock.replay._history import History, Window, blocks_of
from penstock.replay._read import _Recording, record
from penstock.testing import run_receiver
from tests.bounds import HANG_S
from tests.replay.stored import BEGIN_MS, Stored


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Stored]:
    opened = Stored(tmp_path)
    yield opened
    opened.close()


def played_back(folder: Path, count: int, **how: Any) -> list[Any]:
    with run_receiver(ReplayReceiver(str(folder), "clicks", **how)) as running:
        return running.wait_for_records(count, HANG_S)


def wait_for_blocks(folder: Path, count: int) -> None:
    end_s = time.monotonic() + HANG_S
    while time.monotonic() < end_s:
        try:
            if len(History(str(folder)).blocks("clicks")) >= count:
                return
        except HistoryError:
            assert time.monotonic() < end_s
        time.sleep(0.01)
    pytest.fail(f"{count} blocks were not recorded")


def test_what_is_there_and_what_comes_is_played_back_without_its_program(
    stored: Stored, tmp_path: Path
) -> None:
    output, stopped = tmp_path / "recording", threading.Event()
    stored.put(b"one", b"two")
    with ThreadPoolExecutor(1) as pool:
        recording = pool.submit(
            record, str(stored.folder), "clicks", str(output), encryption=None, stopped=stopped
        )
        wait_for_blocks(output, 1)
        stored.clock.advance(1000)
        stored.put_objects({"a": 3})
        stored.begin_attempt()
        stored.begin_segment()
        stored.put_rows(pa.RecordBatch.from_pylist([{"n": 4}]))
        wait_for_blocks(output, 3)
        stopped.set()
        recorded = recording.result(HANG_S)
    assert (recorded.records, recorded.blocks, recorded.missed) == (4, 3, 0)
    shutil.rmtree(stored.folder)
    assert played_back(output, 4) == [b"one", b"two", {"a": 3}, {"n": 4}]
    (segment,) = History(str(output)).segments("clicks")
    times_ms = [block.sealed_ms for _, block in blocks_of(segment, Window(), None)]
    assert times_ms == [BEGIN_MS, BEGIN_MS + 1000, BEGIN_MS + 2000]


def test_it_is_played_back_at_its_pace_or_faster(stored: Stored, tmp_path: Path) -> None:
    for number in range(3):
        stored.put(b"%d" % number)
        stored.clock.advance(60_000)
    output = str(tmp_path / "recording")
    assert main(["record", str(stored.folder), "--stream=0", "--output", output, "--for=0.1"]) == 0
    assert played_back(Path(output), 3, speed=100_000) == [b"0", b"1", b"2"]


def test_it_is_played_back_by_step(stored: Stored, tmp_path: Path) -> None:
    for number in range(4):
        stored.put(b"%d" % number, b"more")
    with ReplaySteps(tmp_path / "steps") as steps:
        steps.step()
        receiver = ReplayReceiver(str(stored.folder), "clicks", steps=steps)
        settings = {"spark.streaming.blockInterval": "10ms"}
        with run_receiver(receiver, settings=settings) as running:
            assert running.wait_for_records(2, HANG_S) == [b"0", b"more"]
            steps.step(2)
            assert running.wait_for_records(6, HANG_S)[4:] == [b"2", b"more"]
            running.stop()
            assert len(running.records) == 6, "the fourth block was not let through"
            running.start()
            steps.step()
            assert running.wait_for_records(8, HANG_S)[6:] == [b"3", b"more"]
    assert not (tmp_path / "steps").exists()
    with pytest.raises(TypeError, match="steps"):
        ReplayReceiver("a", "b", steps=steps, speed=1)


def test_blocks_that_were_let_go_before_they_were_copied_are_counted(
    stored: Stored, tmp_path: Path
) -> None:
    for number in range(6):
        stored.put(b"%d" % number)
    blocks = History(str(stored.folder)).blocks("clicks")
    recording = _Recording(str(tmp_path / "recording"), "clicks", None)
    recording.add(blocks[1:2])
    recording.add(blocks[1:3])
    recording.add(blocks[5:])
    recording.close()
    recorded = recording.recorded
    assert (recorded.records, recorded.blocks, recorded.missed) == (3, 3, 2)


def test_a_signal_ends_a_recording_well(stored: Stored, tmp_path: Path) -> None:
    stored.put(b"one")
    output = tmp_path / "recording"
    command = ["record", str(stored.folder), "--stream=clicks", "--output", str(output)]
    with subprocess.Popen(
        [sys.executable, "-m", "penstock", *command], stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for_blocks(output, 1)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, said
    assert "\n1 records in 1 blocks" in f"\n{said}"
    assert played_back(output, 1) == [b"one"]


def test_what_cannot_be_recorded_is_an_error(
    stored: Stored, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "recording"
    command = ["record", str(stored.folder), "--output", str(output), "--for=0.01"]
    assert main([*command, "--stream=visits"]) == 2
    assert "it has these: clicks (0)" in capsys.readouterr().err
    assert not output.exists()
    assert main([*command, "--stream=clicks"]) == 1
    assert main([*command, "--stream=clicks"]) == 2
    assert "File exists" in capsys.readouterr().err
