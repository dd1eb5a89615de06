"""SIGKILL of the driver: everything else ends by itself, and what was acknowledged is on disk."""

from __future__ import annotations

import base64
import os
import signal
from pathlib import Path

import msgspec
import pytest

from penstock.blockstore import BlockAccess, read_block
from penstock.tracker import ReceivedBlockTracker
from penstock.wal import KEY_VARIABLE, EncryptionKey
from tests.system.driver_process import DriverProcess
from tests.system.feeder import Feeder
from tests.system.leftovers import await_that, block_servers, memory_files

pytestmark = pytest.mark.slow

LEASE_S = 3


def numbers_on_disk(checkpoint: Path, batches: list[int]) -> list[int]:
    """Read, as a new driver would, all blocks that the ledger on disk knows of, in order."""
    ledger = ReceivedBlockTracker.recover([0], str(checkpoint / "receivedBlockMetadata"))
    try:
        blocks = [
            block
            for time_ms in ledger.batch_times_ms
            for block in ledger.get_blocks_of_batch_and_stream(time_ms, 0)
        ]
        batches.extend(ledger.batch_times_ms)
        blocks.extend(ledger.unallocated_blocks(0))
        numbers = []
        for info in blocks:
            with read_block(msgspec.structs.replace(info, memory=None), BlockAccess()) as block:
                numbers.extend(int(record) for record in block.records())
        return numbers
    finally:
        ledger.close()


@pytest.mark.exhaustive  # `test_recovered_driver` and `test_encryption` kill theirs, too.
@pytest.mark.timeout(720)
@pytest.mark.parametrize("victim", ["python", "jvm", "python and jvm"])
def test_a_killed_driver_leaves_no_process_and_every_acknowledged_record(
    tmp_path: Path, victim: str
) -> None:
    checkpoint = tmp_path / "checkpoint"
    config = {
        "master": "local[3]",
        "checkpoint": str(checkpoint),
        "settings": {"spark.penstock.blockServer.lease": f"{LEASE_S}s"},
    }
    with (
        Feeder() as feeder,
        DriverProcess(tmp_path, {**config, "feeders": [feeder.address]}) as driver,
    ):
        started = driver.wait_until_started()
        feeder.await_acknowledged(5000)
        await_that("a block server", lambda: block_servers(started["application"]))
        if victim != "python":
            os.kill(started["jvm"], signal.SIGKILL)
        if victim == "jvm":
            # The program is told by `awaitTermination`, and ends.
            assert driver.wait_until_ended(60) == 1
        else:
            driver.kill()
        driver.assert_no_process_left(LEASE_S + 30)
        acknowledged = feeder.acknowledged
        processed = set(driver.numbers())
        assert memory_files(started["application"]) == []
    batches: list[int] = []
    found = numbers_on_disk(checkpoint, batches)
    # What is released is processed; what is not is on disk, in order, without a hole between.
    assert set(found) | processed >= set(range(acknowledged))
    assert found == list(range(found[0], found[0] + len(found)))
    assert set(range(found[0])) <= processed


@pytest.mark.exhaustive  # `test_recovered_driver` and `test_encryption` kill theirs at any moment.
@pytest.mark.timeout(720)
@pytest.mark.parametrize(
    ("positions", "encrypted"),
    [pytest.param(False, False, id="plain"), pytest.param(True, True, id="encrypted")],
)
def test_a_driver_that_is_started_again_processes_all_that_was_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, positions: bool, encrypted: bool
) -> None:
    key = EncryptionKey.generate().secret
    monkeypatch.setenv(KEY_VARIABLE, base64.b64encode(key).decode())
    config = {
        "master": "local[3]",
        "checkpoint": str(tmp_path / "checkpoint"),
        "positions": [0] if positions else [],
        # Batches that fall behind: many are allocated and not finished when the driver is killed.
        "work_s": 1.5,
        "settings": {
            "spark.penstock.blockServer.lease": f"{LEASE_S}s",
            "spark.io.encryption.enabled": str(encrypted).lower(),
        },
    }
    with Feeder() as feeder:
        with DriverProcess(tmp_path, {**config, "feeders": [feeder.address]}) as driver:
            driver.wait_until_started()
            feeder.await_acknowledged(20_000)
            driver.kill()
            driver.assert_no_process_left(LEASE_S + 30)
            processed = set(driver.numbers())
        acknowledged = feeder.acknowledged
        assert not processed >= set(range(acknowledged))
        again = {**config, "work_s": 0, "feeders": [feeder.address]}
        with DriverProcess(tmp_path, again) as driver:
            driver.wait_until_started()
            feeder.await_acknowledged(1000)
            sent = feeder.finish()
            driver.stop()
            processed |= set(driver.numbers())
    assert processed == set(range(sent))
