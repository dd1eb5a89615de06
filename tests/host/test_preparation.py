"""What executors must be able to import, by the settings."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import StorageLevel

from penstock.host.durability import Durability
from penstock.host.preparation import describe_run, needed_modules
from penstock.settings import Settings

HDFS = "hdfs://namenode:8020/folder"


@pytest.mark.parametrize(
    ("directory", "settings", "is_needed"),
    [
        (None, {}, False),
        (HDFS, {}, True),
        (HDFS, {"wal.dir": "/logs"}, False),
        ("/folder", {"wal.dir": HDFS}, True),
        ("/folder", {"deadLetters.dir": HDFS}, True),
        ("/folder", {"deadLetters.dir": HDFS, "deadLetters.enabled": "false"}, False),
        (HDFS, {"deadLetters.dir": "/letters"}, True),
    ],
)
def test_the_client_of_hdfs_is_needed_for_every_folder_there(
    directory: str | None, settings: dict[str, str], is_needed: bool
) -> None:
    pairs = [(f"spark.penstock.{key}", value) for key, value in settings.items()]
    found = needed_modules([], Settings.from_pairs(pairs), directory, None)
    assert found == (["hdfs_native"] if is_needed else [])


def test_of_many_streams_with_copies_the_first_ones_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    durability = Durability("/tmp/a", "/tmp/a", "/tmp/b", "none", None, False, "as set")
    run: Any = SimpleNamespace(durability=durability, encryption=None, master="local[2]")
    one: Any = SimpleNamespace(storageLevel=StorageLevel.MEMORY_AND_DISK_2)
    describe_run(logging.getLogger("penstock"), run, [(f"s{i}", one) for i in range(300)])
    assert (
        "the storage levels of s0, s1, s2, s3 and 296 other streams ask for copies on other "
        f"hosts: {durability.describe_copies('local[2]')}"
    ) in caplog.messages


@pytest.mark.parametrize(
    ("level", "is_encrypted", "sync", "root", "is_local", "is_told"),
    [
        (StorageLevel.MEMORY_ONLY_2, True, "none", "/tmp/a", False, True),
        (StorageLevel.MEMORY_AND_DISK_2, True, "none", "/tmp/a", False, False),
        (StorageLevel.MEMORY_ONLY, True, "none", "/tmp/a", False, False),
        (StorageLevel.MEMORY_ONLY_2, False, "none", "/tmp/a", False, False),
        (StorageLevel.MEMORY_ONLY_2, True, "always", "/tmp/a", False, False),
        (StorageLevel.MEMORY_ONLY_2, True, "none", HDFS, False, False),
        (StorageLevel.MEMORY_ONLY_2, True, "none", "/tmp/a", True, False),
    ],
)
def test_copies_that_are_not_made_again_are_told(
    level: StorageLevel,
    is_encrypted: bool,
    sync: str,
    root: str,
    is_local: bool,
    is_told: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    key = SimpleNamespace(key_id=b"id") if is_encrypted else None
    durability = Durability(root, "/tmp/a", "/tmp/b", sync, None, False, "as set")
    run: Any = SimpleNamespace(
        durability=durability, encryption=key, master="spark://host:7077", is_local=is_local
    )
    one: Any = SimpleNamespace(storageLevel=level)
    describe_run(logging.getLogger("penstock"), run, [("clicks", one)])
    assert ("a copy that is lost is not made again" in caplog.text) == is_told
