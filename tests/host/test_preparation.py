"""What executors must be able to import, by the settings."""

from __future__ import annotations

import pytest

from penstock.host.preparation import needed_modules
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
