"""Log folders that cannot be used, or that another application uses."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from penstock.streaming import CheckpointWriteError, StreamingContext
from penstock.streaming.errors import JobGenerationError
from penstock.wal import UnwritableFolderError
from tests.system.driver_process import DriverProcess
from tests.system.feeder import Feeder
from tests.system.mounts import in_own_mounts
from tests.system.receivers import NumberedLines
from tests.system.running import run_on


@pytest.mark.parametrize("checkpoint", [True, False], ids=["checkpoint", "wal.dir"])
def test_a_file_in_the_place_of_the_log_folder_is_an_error_of_start(
    sc: Any, tmp_path: Path, checkpoint: bool
) -> None:
    (tmp_path / "checkpoint").mkdir()
    for name in ("receivedData", "receivedBlockMetadata"):
        (tmp_path / "checkpoint" / name).write_text("in the way")
    (tmp_path / "file").write_text("in the way")
    with (
        Feeder() as feeder,
        run_on(
            sc,
            {} if checkpoint else {"spark.penstock.wal.dir": str(tmp_path / "file")},
            checkpoint=str(tmp_path / "checkpoint") if checkpoint else None,
        ) as run,
    ):
        run.process(NumberedLines(feeder.address))
        with pytest.raises(UnwritableFolderError) as caught:
            run.start()
        assert str(tmp_path / ("checkpoint" if checkpoint else "file")) in str(caught.value)
        assert "choose a folder" in str(caught.value)
        assert StreamingContext.getActive() is None
        assert feeder.pids == []


@pytest.mark.exhaustive  # `test_doctor` has one.
@pytest.mark.slow
def test_a_read_only_log_folder_is_an_error_of_start(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    read_only = f"mount --bind {folder} {folder} && mount -o remount,ro,bind {folder}"
    with (
        Feeder() as feeder,
        DriverProcess(
            tmp_path,
            {
                "master": "local[2]",
                "feeders": [feeder.address],
                "settings": {"spark.penstock.wal.dir": str(folder)},
            },
            in_own_mounts(read_only),
        ) as driver,
    ):
        assert driver.wait_until_ended() == 1
        error = driver.log().strip().splitlines()[-1]
        assert "UnwritableFolderError" in error
        assert str(folder) in error
        assert "Read-only file system" in error
        assert "choose a folder" in error
        driver.assert_no_process_left(30)
        assert feeder.pids == []
    assert list(folder.iterdir()) == []


@pytest.mark.long
@pytest.mark.slow
def test_a_second_application_on_the_same_log_folder_is_refused_and_the_first_unharmed(
    sc: Any, tmp_path: Path
) -> None:
    logs = {"spark.penstock.wal.dir": str(tmp_path / "logs")}
    with Feeder() as feeder, Feeder() as other, run_on(sc, logs) as run:
        run.process(NumberedLines(feeder.address, positions=True))
        run.start()
        feeder.await_acknowledged(1000)
        with DriverProcess(
            tmp_path, {"master": "local[2]", "feeders": [other.address], "settings": logs}
        ) as second:
            assert second.wait_until_ended() == 1
            error = second.log().strip().splitlines()[-1]
            assert "LogFolderInUseError" in error
            assert str(tmp_path / "logs") in error
            assert str(os.getpid()) in error
        assert other.pids == []
        feeder.await_acknowledged(1000)
        total = feeder.finish()
        run.stop()
        assert run.processed == list(range(total))


@pytest.mark.slow
def test_a_checkpoint_folder_that_is_removed_ends_the_program_and_nothing_is_acknowledged(
    sc: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoint"
    with Feeder() as feeder, run_on(sc, {}, checkpoint=str(folder)) as run:
        run.process(NumberedLines(feeder.address))
        run.start()
        feeder.await_acknowledged(1000)
        shutil.rmtree(folder)
        # Said by the next batch or the next checkpoint, whichever comes first.
        gone = (JobGenerationError, CheckpointWriteError)
        with pytest.raises(gone, match="it was removed while this program wrote"):
            run.ssc.awaitTerminationOrTimeout(60)
        acknowledged = feeder.acknowledged
        # A graceful stop has nothing to wait for either.
        report = run.ssc.stop(stopSparkContext=False, stopGraceFully=True)
        assert report is not None
        assert not report.are_kept
        assert feeder.acknowledged == acknowledged


def test_mounts_are_left_alone() -> None:
    """What a test mounts for a program is not seen by anybody else."""
    mounts = Path("/proc/self/mounts").read_text()
    subprocess.run(
        [*in_own_mounts("mount -t tmpfs tmpfs /mnt"), "-c", "pass"], check=True, timeout=30
    )
    assert Path("/proc/self/mounts").read_text() == mounts
