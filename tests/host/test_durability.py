"""Which promise is in force follows from what the user set."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import pytest

from penstock.errors import SettingError
from penstock.host.durability import Durability, choose_durability, scratch_parent
from penstock.host.spark.startup_checks import check_slots, check_speculation, check_worker_memory
from penstock.settings import Settings
from penstock.streaming import NotEnoughCoresError


def choose(checkpoint: str | None = None, **settings: Any) -> Durability:
    return choose_durability(Settings(**settings), checkpoint, "app-1", "/scratch")


class TestRows:
    def test_nothing_set(self) -> None:
        row = choose()
        assert row.block_log_root == "/scratch/penstock-app-1/receivedData"
        assert row.driver_log_folder == "/scratch/penstock-app-1/receivedBlockMetadata"
        assert (row.sync, row.scratch) == ("none", "/scratch/penstock-app-1")
        assert "death of any Python worker" in row.describe()

    @pytest.mark.parametrize("given", ["/cp", "file:///cp", "file:/cp"])
    def test_a_checkpoint_directory(self, given: str) -> None:
        row = choose(given)
        assert row.block_log_root == "/cp/receivedData"
        assert row.driver_log_folder == "/cp/receivedBlockMetadata"
        assert (row.sync, row.scratch) == ("always", None)
        assert "power loss" in row.describe()

    @pytest.mark.parametrize(
        ("checkpoint", "settings", "promise"),
        [
            (None, {}, "removed at stop: records survive workers that are killed, and neither"),
            ("/cp", {}, "/cp/receivedData: records survive the driver and a power loss"),
            ("/cp", {"wal_sync": "interval"}, "a power loss but for the last moments"),
            ("/cp", {"wal_sync": "none"}, "survive the driver, and no power loss"),
            ("hdfs://n:8020/cp", {}, "survive the loss of a host and of the driver"),
            ("s3://bucket/cp", {}, "survive the loss of a host and of the driver"),
        ],
    )
    def test_the_line_at_the_start_says_which_promise_holds(
        self, checkpoint: str | None, settings: dict[str, Any], promise: str
    ) -> None:
        assert promise in choose(checkpoint, **settings).promise

    def test_a_log_folder(self) -> None:
        row = choose(wal_dir="/wal")
        assert row.block_log_root == "/wal/receivedData"
        assert row.driver_log_folder == "/wal/receivedBlockMetadata"
        assert row.sync == "always"

    def test_both(self) -> None:
        row = choose("/cp", wal_dir="/wal")
        assert row.block_log_root == "/wal/receivedData"
        assert row.driver_log_folder == "/cp/receivedBlockMetadata"

    def test_a_log_switched_off_wins(self) -> None:
        row = choose("/cp", receiver_wal_enable=False)
        assert row.block_log_root == "/scratch/penstock-app-1/receivedData"
        assert row.driver_log_folder == "/cp/receivedBlockMetadata"
        assert (row.sync, row.scratch) == ("none", "/scratch/penstock-app-1")

    def test_a_log_switched_on_needs_a_folder(self) -> None:
        assert choose("/cp", receiver_wal_enable=True).sync == "always"
        with pytest.raises(SettingError, match=r"StreamingContext.checkpoint\(directory\)"):
            choose(receiver_wal_enable=True)

    def test_a_named_sync_policy_wins(self) -> None:
        assert choose("/cp", wal_sync="interval").sync == "interval"
        assert choose(wal_sync="always").sync == "always"

    def test_other_file_systems_are_refused(self) -> None:
        with pytest.raises(SettingError, match=r"on an object store .*abfss://"):
            choose("s3a://bucket/cp")

    def test_a_checkpoint_directory_on_hdfs(self) -> None:
        row = choose("hdfs://host:8020/cp/")
        assert row.block_log_root == "hdfs://host:8020/cp/receivedData"
        assert row.driver_log_folder == "hdfs://host:8020/cp/receivedBlockMetadata"
        # What each host keeps besides goes with the application; the logs do not.
        assert row.host_root == "/scratch/penstock-app-1/receivedData"
        assert (row.scratch, row.keeps_blocks) == ("/scratch/penstock-app-1", True)
        assert "loss of a host" in row.describe()

    def test_a_checkpoint_directory_on_an_object_store(self) -> None:
        row = choose("s3://bucket/cp/")
        assert row.block_log_root == "s3://bucket/cp/receivedData"
        assert row.driver_log_folder == "s3://bucket/cp/receivedBlockMetadata"
        assert row.host_root == "/scratch/penstock-app-1/receivedData"
        assert (row.scratch, row.keeps_blocks) == ("/scratch/penstock-app-1", True)
        assert "loss of a host" in row.describe()

    def test_logs_on_hdfs_and_checkpoints_here(self) -> None:
        row = choose("/cp", wal_dir="hdfs://host/wal")
        assert row.block_log_root == "hdfs://host/wal/receivedData"
        assert row.driver_log_folder == "/cp/receivedBlockMetadata"

    def test_checkpoints_on_hdfs_and_logs_here(self) -> None:
        row = choose("hdfs://host/cp", wal_dir="/wal")
        assert row.block_log_root == row.host_root == "/wal/receivedData"
        assert row.driver_log_folder == "hdfs://host/cp/receivedBlockMetadata"
        assert row.scratch is None

    def test_the_scratch_folder_is_where_spark_has_its_own(self) -> None:
        assert scratch_parent({}, {}) == tempfile.gettempdir()
        assert scratch_parent({"spark.local.dir": "/a,/b"}, {}) == "/a"
        both = scratch_parent({"spark.local.dir": "/a"}, {"SPARK_LOCAL_DIRS": "/c,/d"})
        assert both == "/c"
        assert os.path.isabs(scratch_parent({"spark.local.dir": "x"}, {}))


class TestCores:
    @pytest.mark.parametrize(
        ("master", "receivers"),
        [
            ("local[2]", 1),
            ("local[*]", 7),
            ("local[4, 3]", 3),
            ("local-cluster[2,2,1024]", 3),
            ("spark://host:7077", 99),
            ("yarn", 99),
        ],
    )
    def test_enough(self, master: str, receivers: int) -> None:
        check_slots(master, 1, 8, receivers)

    @pytest.mark.parametrize(
        ("master", "receivers", "way_out"),
        [
            ("local", 1, r"local\[2\]"),
            ("local[1]", 1, r"local\[2\]"),
            ("local[*]", 8, r"local\[9\]"),
            ("local-cluster[2,1,1024]", 2, r"local-cluster\[2,2,1024\]"),
        ],
    )
    def test_too_few_names_the_way_out(self, master: str, receivers: int, way_out: str) -> None:
        with pytest.raises(NotEnoughCoresError, match=way_out):
            check_slots(master, 1, 8, receivers)

    def test_without_batches_a_local_master_needs_none_for_them(self) -> None:
        check_slots("local[2]", 1, 8, 1, functions=1, has_batches=False)
        with pytest.raises(NotEnoughCoresError, match=r"some could not start; use local\[3\]"):
            check_slots("local[2]", 1, 8, 1, functions=2, has_batches=False)
        # The jobs that start block servers on other hosts need one.
        with pytest.raises(NotEnoughCoresError, match=r"use local-cluster\[2,2,1024\]"):
            check_slots("local-cluster[2,1,1024]", 1, 8, 1, functions=1, has_batches=False)

    def test_tasks_may_take_several_cores(self) -> None:
        check_slots("local[4]", 2, 8, 1)
        with pytest.raises(NotEnoughCoresError, match=r"local\[6\]"):
            check_slots("local[4]", 2, 8, 2)

    def test_receivers_may_share_tasks(self) -> None:
        with pytest.raises(NotEnoughCoresError, match=r"or more, or .*receivers.perSlot=20$"):
            check_slots("local[2]", 1, 8, 20)
        check_slots("local[2]", 1, 8, 20, tasks=1)
        with pytest.raises(NotEnoughCoresError, match=r"2 task\(s\) that .* use local\[3\].*=20$"):
            check_slots("local[2]", 1, 8, 20, tasks=2)
        # Another program's of the same application holds the only other one.
        with pytest.raises(NotEnoughCoresError, match=r"use local\[3\] or more$"):
            check_slots("local[2]", 1, 8, 20, 1, tasks=1)


@pytest.mark.parametrize("is_on", ["true", "True"])
def test_spark_must_not_take_a_receiver_for_a_slow_task(is_on: str) -> None:
    settings = {"spark.speculation": is_on}
    check_speculation(settings.get, 1)
    settings["spark.speculation.task.duration.threshold"] = "1min"
    check_speculation(settings.get, 0)
    with pytest.raises(SettingError, match="leave it unset"):
        check_speculation(settings.get, 1)
    settings["spark.speculation"] = "false"
    check_speculation(settings.get, 1)


@pytest.mark.parametrize(
    ("memory", "cores", "is_enough"),
    [
        ("", "", True),
        ("4096", "1", True),
        ("8g", "2", True),
        ("2048", "", False),
        ("4g", "2", False),
    ],
)
def test_spark_must_leave_the_process_of_a_receiver_its_memory(
    memory: str, cores: str, is_enough: bool
) -> None:
    settings = {"spark.executor.pyspark.memory": memory, "spark.executor.cores": cores}
    check_worker_memory(settings.get, 2 << 30, 0)
    if is_enough:
        check_worker_memory(settings.get, 2 << 30, 1)
        return
    with pytest.raises(SettingError, match=r"needs about 3584m .* and may have 2048m") as caught:
        check_worker_memory(settings.get, 2 << 30, 1)
    assert caught.value.key == "spark.executor.pyspark.memory"


@pytest.mark.parametrize(
    ("memory", "cores", "key"),
    [
        ("lots", "1", "spark.executor.pyspark.memory"),
        ("4 g", "1", "spark.executor.pyspark.memory"),
        ("8g", "two", "spark.executor.cores"),
        ("8g", "0", "spark.executor.cores"),
    ],
)
def test_what_spark_cannot_read_is_told_as_a_setting(memory: str, cores: str, key: str) -> None:
    settings = {"spark.executor.pyspark.memory": memory, "spark.executor.cores": cores}
    with pytest.raises(SettingError) as caught:
        check_worker_memory(settings.get, 2 << 30, 1)
    assert caught.value.key == key
