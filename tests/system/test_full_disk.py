"""The disk of the logs, or that of the checkpoints, is full for a while."""

from __future__ import annotations

import errno
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import HANG_S
from tests.system.driver_process import DriverProcess
from tests.system.feeder import Feeder
from tests.system.mounts import in_own_mounts, own_mounts
from tests.system.three_states import WINDOW_BATCHES

pytestmark = pytest.mark.slow

MB = 1 << 20
EXT4 = (
    "truncate -s 48m {image} && mkfs.ext4 -q {image} && mount -o loop {image} {folder}"
    " || mount -t tmpfs -o size=48m tmpfs {folder}"
)
"""A real disk where loop devices can be had, else one in memory."""


def write(fd: int, piece: bytes) -> bool:
    """Return whether there was space."""
    try:
        os.write(fd, piece)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            return False
        raise
    return True


def fill(folder: Path) -> None:
    """Take all the space that is left; what the program frees meanwhile, another call takes."""
    fd = os.open(folder / "filler", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for size in (MB, 4096, 1):
            while write(fd, bytes(size)):
                pass
    finally:
        os.close(fd)


def fill_until_told(driver: DriverProcess, folder: Path, told: int) -> str:
    """Keep the disk full until the driver's user has heard of it; return what they heard."""
    while True:
        fill(folder)
        try:
            event = driver.wait_for(
                "receiver error",
                lambda event: "No space left" in event["error"],
                count=told,
                timeout_s=0.2,
            )
        except AssertionError:
            if driver.process.poll() is not None:
                raise
            continue
        return str(event["error"])


@pytest.mark.long
@pytest.mark.timeout(720)
def test_a_full_disk_holds_the_stream_up_and_loses_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    script = EXT4.format(image=tmp_path / "image", folder=folder)
    with (
        Feeder(line_bytes=1000) as feeder,
        DriverProcess(
            tmp_path,
            {
                "master": "local[3]",
                "feeders": [feeder.address],
                "positions": [0],
                "settings": {
                    "spark.penstock.wal.dir": str(folder),
                    "spark.penstock.wal.segmentSize": "2m",
                    "spark.penstock.block.maxSize": "512k",
                    "spark.penstock.memory.size": "4m",
                },
            },
            in_own_mounts(f"{{ {script}; }}"),
        ) as driver,
    ):
        driver.wait_until_started()
        # The mount is seen by the program only; this is the way into it from outside.
        disk = Path(f"/proc/{driver.process.pid}/root{folder}")
        for told in (1, 2):
            feeder.await_acknowledged(3000)
            error = fill_until_told(driver, disk, told)
            assert "LogFullError" in error
            (disk / "filler").unlink()
            # By itself, in the same process of the receiver.
            feeder.await_acknowledged(3000)
        total = feeder.finish()
        driver.stop()
        assert driver.numbers() == list(range(total))
        assert len(feeder.pids) == 1
        driver.assert_no_process_left(30)


STATES_WAIT = "could not be saved, because the disk of the checkpoint directory is full"
GIVEN_UP = "was given up by the stop while its states waited to be saved"
STOP_S = 4
NAMES = ("batches", "states", "mapped", "windows")


def await_condition(driver: DriverProcess, condition: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + HANG_S
    while not condition():
        assert driver.process.poll() is None, driver.report()
        assert time.monotonic() < end_s, f"{what}: {driver.report()}"
        time.sleep(0.1)


def results(folder: Path) -> dict[int, Any]:
    assert not list(folder.glob("*.other")), "a batch gave two different results"
    return {
        int(path.name): json.loads(path.read_text())
        for path in sorted(folder.iterdir())
        if path.name.isdigit()
    }


def check_states(tmp_path: Path, sent: int) -> None:
    batches, states, mapped, windows = (results(tmp_path / name) for name in NAMES)
    complete = sorted(set(batches) & set(states) & set(mapped) & set(windows))
    # The last stop may have given up batches in which nothing was left.
    assert not any(any(found["counts"]) for ms, found in batches.items() if ms not in complete)
    total: Counter[str] = Counter()
    recent: list[Counter[str]] = []
    for time_ms in complete:
        batch = batches[time_ms]
        total.update(batch["counts"])
        recent = [*recent, Counter(batch["counts"])][-WINDOW_BATCHES:]
        assert Counter(states[time_ms]["counts"]) == total
        assert Counter(mapped[time_ms]) == total
        assert Counter(windows[time_ms]) == sum(recent, Counter())
    assert total.total() == sent


# The test above has a full disk of logs, `tests/streaming/checkpoint/` one of checkpoints.
@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
def test_a_program_with_states_waits_for_the_disk_of_its_checkpoints(tmp_path: Path) -> None:
    for name in ("disk", *NAMES):
        (tmp_path / name).mkdir()
    script = EXT4.format(image=tmp_path / "image", folder=tmp_path / "disk")
    with own_mounts(f"{{ {script}; }}") as (command, pid), Feeder() as feeder:
        disk = Path(f"/proc/{pid}/root{tmp_path}/disk")

        def program() -> Any:
            config = {
                "master": "local[3]",
                "batch_s": 1,
                "state_s": 2,
                "rate": 500,
                "checkpoint": str(tmp_path / "disk" / "checkpoint"),
                "trigger": str(tmp_path / "trigger"),
                "feeder": feeder.address,
                "settings": {
                    "spark.penstock.wal.dir": str(tmp_path / "logs"),
                    "spark.streaming.gracefulStopTimeout": f"{STOP_S}s",
                    # It is told of a full disk after that; awaitTermination then ends it.
                    "spark.penstock.askTimeout": "120s",
                },
                **{name: str(tmp_path / name) for name in NAMES},
            }
            return DriverProcess(tmp_path, config, command, module="tests.system.three_states")

        def count() -> int:
            return len(list((tmp_path / "windows").iterdir()))

        def fill_until(driver: DriverProcess, told: int) -> None:
            def is_told() -> bool:
                fill(disk)
                return driver.log().count(STATES_WAIT) >= told

            await_condition(driver, is_told, "it waits for room")

        with program() as driver:
            driver.wait_until_started()
            for told in (1, 2):
                before = count()
                await_condition(driver, lambda: count() > before + 2, "batches")  # noqa: B023
                fill_until(driver, told)
                standing = count()
                for _ in range(15):
                    fill(disk)
                    time.sleep(0.1)
                assert count() == standing, "the batches wait"
                assert driver.log().count(STATES_WAIT) == told, "told once"
                if told == 1:
                    (disk / "filler").unlink()
            began_s = time.monotonic()
            driver.stop()
            assert time.monotonic() - began_s < STOP_S + 30
            assert GIVEN_UP in driver.log()
            assert "The stop gave up" in driver.log()
            driver.assert_no_process_left(30)
        (disk / "filler").unlink()
        with program() as driver:
            driver.wait_until_started()
            feeder.await_acknowledged(2000)
            sent = feeder.finish()

            def processed() -> int:
                # The last of a batch's outputs.
                done = results(tmp_path / "windows")
                found = results(tmp_path / "batches")
                return sum(sum(found[ms]["counts"].values()) for ms in done)

            await_condition(driver, lambda: processed() == sent, "all is processed")
            driver.stop()
        check_states(tmp_path, sent)
