"""The disk of the logs is full for a while."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.system.driver_process import DriverProcess, driver_process
from tests.system.feeder import Feeder
from tests.system.mounts import in_own_mounts

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


@pytest.mark.timeout(240)
def test_a_full_disk_holds_the_stream_up_and_loses_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    script = EXT4.format(image=tmp_path / "image", folder=folder)
    with (
        Feeder(line_bytes=1000) as feeder,
        driver_process(
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
