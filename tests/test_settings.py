"""Settings: Spark's names, defaults and units; errors that name the key and what is accepted."""

from __future__ import annotations

import ast
import logging
import pickle
import subprocess
import sys
import traceback
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.__main__ import main
from penstock.errors import PenstockError, SettingError
from penstock.settings import Settings, settings_table
from penstock.settings._page import reference_page
from penstock.settings._texts import settings_texts, settings_without_effect
from penstock.settings.values import record_budget, wait_for_lost_blocks_s
from tests.bounds import HANG_S

_NAMES = {"meaning", "unset", "no effect", "default"}
ROOT = Path(__file__).parent.parent


def read(key: str, text: str) -> Any:
    setting = next(line for line in settings_table() if line.key == key)
    return getattr(Settings.from_pairs([(key, text)]), setting.attribute)


def test_nothing_set_gives_sparks_defaults() -> None:
    settings = Settings.from_pairs([])
    assert settings == Settings()
    assert settings.block_interval_ms == 200
    assert settings.block_queue_size == 10
    assert settings.receiver_restart_delay_ms == 2000
    assert settings.receiver_max_rate is None
    assert settings.backpressure_initial_rate is None
    assert settings.backpressure_enabled is False
    assert settings.rate_estimator == "pid"
    assert (settings.pid_proportional, settings.pid_integral) == (1.0, 0.2)
    assert (settings.pid_derived, settings.pid_min_rate) == (0.0, 100.0)
    assert settings.receiver_wal_enable is None
    assert (settings.receiver_wal_rolling_s, settings.driver_wal_rolling_s) == (60, 60)
    assert settings.concurrent_jobs == 1
    assert settings.unpersist is True
    assert settings.stop_gracefully_on_shutdown is False
    assert settings.checkpoint_directory is None


def test_nothing_set_gives_our_defaults() -> None:
    settings = Settings()
    assert (settings.wal_dir, settings.wal_sync, settings.wal_sync_interval_ms) == (None, None, 50)
    assert settings.wal_segment_bytes == 256 << 20
    assert settings.block_max_bytes == 32 << 20
    assert (settings.memory_bytes, settings.memory_dir) == (2 << 30, "/dev/shm")
    assert (settings.receiver_rate, settings.receiver_byte_rate) == (None, None)
    assert settings.receiver_burst_s == 1.0
    assert (settings.restart_max_delay_s, settings.restart_reset_s) == (30.0, 60.0)
    assert settings.ask_timeout_s == 30.0
    assert (settings.tracker_port, settings.tracker_bind_address) == (0, None)
    assert settings.max_frame_bytes == 8 << 20
    assert settings.block_server_lease_s == 60.0
    assert (settings.block_server_port, settings.port_max_retries) == (0, 16)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("spark.streaming.blockInterval", "50ms", 50),
        ("spark.streaming.blockInterval", "100", 100),
        ("spark.streaming.blockInterval", " 1S ", 1000),
        ("spark.streaming.blockInterval", "2m", 120_000),
        ("spark.streaming.blockInterval", "1min", 60_000),
        ("spark.streaming.blockInterval", "2500us", 2),
        ("spark.streaming.receiverRestartDelay", "500", 500),
        ("spark.streaming.receiver.maxRate", "1000", 1000),
        ("spark.streaming.receiver.maxRate", "0", None),
        ("spark.streaming.receiver.maxRate", "-1", None),
        ("spark.streaming.receiver.maxRate", "9223372036854775807", 2**63 - 1),
        ("spark.streaming.backpressure.initialRate", "20", 20),
        ("spark.streaming.backpressure.enabled", "true", True),
        ("spark.streaming.backpressure.rateEstimator", "AIMD", "aimd"),
        ("spark.streaming.backpressure.pid.proportional", "0", 0.0),
        ("spark.streaming.backpressure.pid.integral", "2.5e-1", 0.25),
        ("spark.streaming.backpressure.pid.derived", ".5", 0.5),
        ("spark.streaming.backpressure.pid.minRate", "0.1", 0.1),
        ("spark.penstock.backpressure.slowStartRate", "60/minute", "60/minute"),
        ("spark.penstock.backpressure.aimd.decrease", "0.5", 0.5),
        ("spark.streaming.receiver.writeAheadLog.enable", "TRUE", True),
        ("spark.streaming.receiver.writeAheadLog.enable", "false", False),
        ("spark.streaming.gracefulStopTimeout", "5s", 5000),
        ("spark.streaming.checkpoint.directory", "hdfs://host/app", "hdfs://host/app"),
        ("spark.streaming.fileStream.minRememberDuration", "90", 90.0),
        ("spark.streaming.raw.maxBlockSizeBytes", "64k", 64 << 10),
        ("spark.penstock.wal.dir", "/var/lib/penstock", "/var/lib/penstock"),
        ("spark.penstock.wal.dir", "file:///var/lib/penstock", "/var/lib/penstock"),
        ("spark.penstock.storage.s3.endpoint", " https://store:9000/ ", "https://store:9000"),
        ("spark.penstock.storage.requestTimeout", "500ms", 0.5),
        ("spark.penstock.wal.dir", "file:/var/lib/penstock", "/var/lib/penstock"),
        ("spark.penstock.wal.sync", "Interval", "interval"),
        ("spark.penstock.blockServer.port", "7100", 7100),
        ("spark.port.maxRetries", "3", 3),
        ("spark.penstock.wal.segmentSize", "1g", 1 << 30),
        ("spark.penstock.block.maxSize", "65536", 65536),
        ("spark.penstock.block.maxSize", "512KB", 512 << 10),
        ("spark.penstock.receiver.rate", "10000/second", "10000/second"),
        ("spark.penstock.receiver.rate", "600000 per minute", "600000 per minute"),
        ("spark.penstock.receiver.burst", "500ms", 0.5),
        ("spark.penstock.receiver.burst", "2", 2.0),
        ("spark.penstock.receiver.maxRestartDelay", "1m", 60.0),
        ("spark.penstock.tracker.port", "7077", 7077),
        ("spark.penstock.lostBlocks", "Fail", "fail"),
        ("spark.penstock.lostBlocks", "skip", "skip"),
        ("spark.penstock.lostBlocks", "Wait:5m", "wait:5m"),
    ],
)
def test_values_are_read_in_sparks_syntax(key: str, text: str, value: object) -> None:
    assert read(key, text) == value


@pytest.mark.parametrize(
    ("key", "text", "accepted"),
    [
        ("spark.streaming.blockInterval", "0ms", "at least 1 ms"),
        ("spark.streaming.blockInterval", "-5", "at least 1 ms"),
        ("spark.streaming.blockInterval", "abc", "200ms, 5s"),
        ("spark.streaming.blockInterval", "1.5s", "200ms, 5s"),
        ("spark.streaming.blockInterval", "5 s", "200ms, 5s"),
        ("spark.streaming.blockInterval", "", "200ms, 5s"),
        ("spark.streaming.blockQueueSize", "0", "from 1"),
        ("spark.streaming.receiverRestartDelay", "2s", "milliseconds, without a unit sign"),
        ("spark.streaming.receiverRestartDelay", "2_000", "whole number"),
        ("spark.streaming.receiver.maxRate", "fast", "0 or less means no limit"),
        ("spark.penstock.receiver.rate", f"1{'0' * 400}/second", "one rate above 0 such as"),
        ("spark.streaming.backpressure.rateEstimator", "bogus", "one of pid, aimd"),
        ("spark.streaming.backpressure.pid.proportional", "-1", "of at least 0"),
        ("spark.streaming.backpressure.pid.integral", "nan", "a decimal number"),
        ("spark.streaming.backpressure.pid.derived", "1_0", "a decimal number"),
        ("spark.streaming.backpressure.pid.minRate", "0", "above 0"),
        ("spark.streaming.backpressure.pid.minRate", "1e999", "above 0"),
        ("spark.penstock.backpressure.aimd.increase", "1", "between 0 and 1, without these"),
        ("spark.penstock.backpressure.aimd.decrease", "0", "between 0 and 1, without these"),
        ("spark.streaming.receiver.writeAheadLog.enable", "yes", "true or false"),
        ("spark.streaming.checkpoint.directory", " ", "the path of a folder"),
        ("spark.penstock.wal.sync", "sometimes", "one of none, interval, always"),
        ("spark.penstock.wal.dir", "logs", "an absolute path"),
        ("spark.penstock.wal.dir", "s3a://bucket/logs", "an absolute path"),
        ("spark.penstock.wal.dir", "gs://bucket/", "or a folder on HDFS or an object store"),
        ("spark.penstock.wal.dir", "abfss://container/logs", "or a folder on HDFS or an object"),
        ("spark.penstock.wal.dir", "file://host/logs", "an absolute path"),
        ("spark.penstock.wal.segmentSize", "10", "from 64k to 64g"),
        ("spark.penstock.wal.segmentSize", "1.5g", "from 64k to 64g"),
        ("spark.penstock.wal.segmentSize", "1x", "from 64k to 64g"),
        ("spark.penstock.receiver.rate", "10000", "10000/second"),
        ("spark.penstock.receiver.rate", "0/second", "one rate above 0"),
        ("spark.penstock.receiver.rate", "5/second;100/minute", "one rate above 0"),
        ("spark.penstock.receiver.byteRate", "5/fortnight", "(of bytes)"),
        ("spark.penstock.receiver.burst", "0", "at least 1 ms"),
        ("spark.penstock.tracker.port", "70000", "to 65535"),
        ("spark.penstock.sharedRate.rate", "5/second", "needs spark.penstock.sharedRate.storage"),
        ("spark.penstock.sharedRate.storage", "redis://a:1/0", "spark.penstock.sharedRate.rate"),
        ("spark.streaming.dynamicAllocation.minExecutors", "0", "from 1"),
        ("spark.streaming.dynamicAllocation.scalingInterval", "0", "at least 1000 ms"),
        ("spark.streaming.dynamicAllocation.scalingUpRatio", "0.3", "scalingDownRatio"),
        ("spark.penstock.sharedRate.passwordFile", "secret", "an absolute path"),
        ("spark.penstock.lostBlocks", "wait", "wait:5m"),
        ("spark.penstock.lostBlocks", "skip:5m", "wait:5m"),
        ("spark.penstock.lostBlocks", "wait:soon", "wait:5m"),
    ],
)
def test_a_bad_value_names_the_key_and_what_is_accepted(key: str, text: str, accepted: str) -> None:
    with pytest.raises(SettingError) as caught:
        Settings.from_pairs([(key, text)])
    error = caught.value
    assert (error.key, error.value) == (key, text)
    assert accepted in error.accepted
    assert key in str(error)
    assert accepted in str(error)
    assert isinstance(error, PenstockError)
    assert isinstance(error, ValueError)


@pytest.mark.parametrize(
    ("text", "limit", "is_percent", "window_s"),
    [
        ("100/m", 100, False, 60),
        ("0/d", 0, False, 86400),
        ("1%/5m", 1, True, 300),
        (" 0.5 % / 30s ", 0.5, True, 30),
    ],
)
def test_a_budget_is_a_number_or_a_percentage_within_a_time(
    text: str, limit: float, is_percent: bool, window_s: float
) -> None:
    budget = record_budget(read("spark.penstock.deadLetters.budget", text))
    assert (budget.limit, budget.is_percent, budget.window_s) == (limit, is_percent, window_s)


def test_a_lost_block_is_waited_for_as_long_as_the_setting_says() -> None:
    found = [wait_for_lost_blocks_s(text) for text in ("fail", "skip", "wait:5m", "wait:1500ms")]
    assert found == [0.0, 0.0, 300.0, 1.5]


@pytest.mark.parametrize(
    "text",
    ["", "lots", "1%", "100", "-1/m", "1.5/m", "100%/m", "1%/5", "1/0m", "5/100ms", "1/fortnight"],
)
def test_a_budget_of_nonsense_names_the_key_and_what_is_accepted(text: str) -> None:
    with pytest.raises(SettingError, match=r"spark\.penstock\.deadLetters\.budget.*such as 100/m"):
        read("spark.penstock.deadLetters.budget", text)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("spark.penstock.sharedRate.storage", "redis://:hush@host:6379/0"),
        ("spark.penstock.sharedRate.storage", "redis://host:6379/0?password=hush"),
        ("spark.penstock.sharedRate.storage", "redis://:hu/hush@host:6379/0"),
        ("spark.penstock.sharedRate.storage", "redis://:x@hush:6379z"),
        ("spark.penstock.sharedRate.storage", "redis:/hush:6379"),
        ("spark.penstock.sharedRate.storage", "redis://host:6379/hush"),
        ("spark.penstock.sharedRate.storage", "memcached://hush:1"),
        ("spark.penstock.sharedRate.storage", "redis://"),
        ("spark.penstock.sharedRate.pasword", "hush"),
        ("spark.penstock.redisPassword", "hush"),
        ("spark.penstock.storage.s3.endpoint", "https://user:hush@host:9000"),
        ("spark.penstock.storage.s3.endpoint", "https://host/?signature=hush"),
        ("spark.penstock.storage.s3.endpoint", "hush"),
        ("spark.penstock.storage.s3.accessKey", "hush"),
    ],
)
def test_an_error_does_not_show_what_may_be_a_password(key: str, text: str) -> None:
    with pytest.raises(SettingError) as raised:
        Settings.from_pairs([(key, text)])
    assert "hush" not in "".join(traceback.format_exception(raised.value))
    assert raised.value.key == key


@pytest.mark.parametrize(
    ("key", "closest"),
    [
        ("spark.penstock.wal.sycn", "spark.penstock.wal.sync;"),
        ("spark.penstock.WAL.DIR", "spark.penstock.wal.dir;"),
        ("spark.penstock.receiver.byterate", "spark.penstock.receiver.byteRate;"),
        ("spark.penstock.segmentSize", "spark.penstock.wal.segmentSize;"),
        ("Spark.Penstock.wal.dir", "spark.penstock.wal.dir;"),
        ("penstock.wal.dir", "spark.penstock.wal.dir;"),
        ("spark.penstock.perSlot", "spark.penstock.receivers.perSlot;"),
    ],
)
def test_an_unknown_key_of_ours_names_the_closest_known(key: str, closest: str) -> None:
    with pytest.raises(SettingError, match="there is no such key") as caught:
        Settings.from_pairs([(key, "1")])
    assert closest in str(caught.value)


def test_a_pause_over_the_budget_needs_a_budget() -> None:
    action = ("spark.penstock.deadLetters.budgetAction", "pause")
    budget = ("spark.penstock.deadLetters.budget", "1%/5m")
    assert Settings.from_pairs([action, budget]).dead_letters_budget_action == "pause"
    with pytest.raises(SettingError, match=r"budgetAction.*needs .*deadLetters\.budget beside it"):
        Settings.from_pairs([action])
    with pytest.raises(SettingError, match="one of stop, pause"):
        Settings.from_pairs([(action[0], "explode"), budget])


def test_other_keys_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    pairs = [("spark.master", "local[2]"), ("spark.app.name", "x"), ("spark.streamingX", "y")]
    assert Settings.from_pairs(pairs) == Settings()
    assert not caplog.records


def test_of_a_key_that_stands_there_twice_the_last_counts() -> None:
    key = "spark.streaming.blockQueueSize"
    assert Settings.from_pairs([(key, "3"), (key, "4")]).block_queue_size == 4


def test_an_older_name_counts_when_the_newer_is_not_set() -> None:
    older = ("spark.streaming.minRememberDuration", "30s")
    newer = ("spark.streaming.fileStream.minRememberDuration", "20s")
    assert Settings.from_pairs([older]).file_min_remember_s == 30
    assert Settings.from_pairs([newer, older]).file_min_remember_s == 20
    with pytest.raises(SettingError, match=r"streaming\.minRememberDuration"):
        Settings.from_pairs([(older[0], "long")])


def test_a_graceful_stop_has_an_hour_unless_the_user_says_otherwise() -> None:
    assert Settings.from_pairs([]).graceful_stop_timeout_ms == 3_600_000
    told = [("spark.streaming.gracefulStopTimeout", "1m")]
    assert Settings.from_pairs(told).graceful_stop_timeout_ms == 60_000


def test_settings_without_effect_are_named_in_one_warning_with_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    Settings.from_pairs(
        [
            ("spark.streaming.receiver.blockStoreTimeout", "10"),
            ("spark.streaming.blokInterval", "100ms"),
            ("spark.streaming.stopSparkContextByDefault", "false"),
        ]
    )
    (record,) = caplog.records
    assert record.name == "penstock.settings"
    assert record.levelno == logging.WARNING
    message = record.getMessage()
    assert "receiver.blockStoreTimeout (" in message
    assert "stopSparkContextByDefault (" in message
    assert "blokInterval (Spark Streaming has no such key" in message
    assert "the closest is spark.streaming.blockInterval" in message


def test_dynamic_allocation_is_sparks_or_ours() -> None:
    both = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.streaming.dynamicAllocation.enabled": "true",
    }
    with pytest.raises(SettingError, match="cannot be enabled for both streaming and core"):
        Settings.from_pairs(both.items())
    # As in Spark: a local master allocates nothing.
    Settings.from_pairs({**both, "spark.master": "local[4]"}.items())
    Settings.from_pairs({**both, "spark.dynamicAllocation.enabled": "false"}.items())


def test_at_least_as_many_executors_at_most_as_at_least() -> None:
    prefix = "spark.streaming.dynamicAllocation."
    with pytest.raises(SettingError, match=r"minExecutors, which is 4"):
        Settings.from_pairs([(prefix + "minExecutors", "4"), (prefix + "maxExecutors", "3")])


def test_a_setting_without_effect_at_its_default_is_not_worth_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    Settings.from_pairs(
        [(line.key, line.default) for line in settings_without_effect() if line.default is not None]
    )
    assert not caplog.records


def test_no_key_is_both_honoured_and_without_effect() -> None:
    honoured = {line.key for line in settings_table()}
    assert len(honoured) == len(settings_table())
    assert not [key for key in honoured for line in settings_without_effect() if line.is_for(key)]


@pytest.mark.parametrize(
    ("pairs", "key", "accepted"),
    [
        (
            {"spark.penstock.block.maxSize": "1023m", "spark.penstock.memory.size": "2045m"},
            "spark.penstock.block.maxSize",
            "at most half of spark.penstock.memory.size",
        ),
        (
            {"spark.penstock.memory.size": "60m"},
            "spark.penstock.block.maxSize",
            "at most half of spark.penstock.memory.size",
        ),
        (
            {"spark.penstock.wal.segmentSize": "32m"},
            "spark.penstock.block.maxSize",
            "at most half of spark.penstock.wal.segmentSize",
        ),
        (
            {"spark.penstock.memory.dir": "/no/such/folder"},
            "spark.penstock.memory.dir",
            "a folder that exists",
        ),
    ],
)
def test_values_that_do_not_go_together_are_refused(
    pairs: dict[str, str], key: str, accepted: str
) -> None:
    with pytest.raises(SettingError) as caught:
        Settings.from_pairs(pairs.items())
    assert caught.value.key == key
    assert accepted in caught.value.accepted


def test_settings_are_frozen_and_travel_by_pickle() -> None:
    settings = Settings.from_pairs([("spark.penstock.wal.sync", "always")])
    assert pickle.loads(pickle.dumps(settings)) == settings
    with pytest.raises(FrozenInstanceError):
        settings.block_interval_ms = 1  # type: ignore[misc]  # that it cannot be set is the test


def test_every_default_is_accepted_by_its_own_kind() -> None:
    for line in settings_table():
        if line.default is not None:
            assert read(line.key, line.default) == getattr(Settings(), line.attribute)


@given(st.sampled_from([line.key for line in settings_table()]), st.text(max_size=12))
def test_any_text_is_either_read_or_refused_by_name(key: str, text: str) -> None:
    refused = None
    try:
        Settings.from_pairs([(key, text)])
    except SettingError as error:
        refused = error
    assert refused is None or refused.key in (key, "spark.penstock.block.maxSize")


def test_the_reference_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert page == reference_page(), "run `make docs`"


def test_the_module_prints_the_reference_page() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "penstock.settings._page"],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
        cwd=ROOT,
    )
    assert printed.stdout == reference_page()


def test_the_command_prints_a_setting_its_like_or_all(capsys: pytest.CaptureFixture[str]) -> None:
    """What an error names is there wherever the wheel is, without the pages."""
    assert main(["settings", "spark.penstock.block.maxSize"]) == 0
    one = capsys.readouterr().out
    assert one.startswith("spark.penstock.block.maxSize\n")
    assert "Default: " in one
    assert "Accepted: " in one
    assert main(["settings", "blockserver"]) == 0
    assert capsys.readouterr().out.count("\nspark.penstock.blockServer.") == 2
    assert main(["settings"]) == 0
    every = capsys.readouterr().out
    assert all(f"{line.key}\n    " in every for line in settings_table())
    assert "](" not in every


def test_the_command_knows_the_closest_and_what_has_no_effect(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["settings", "spark.penstock.blok.maxSize"]) == 1
    assert "the closest is spark.penstock.block.maxSize" in capsys.readouterr().err
    assert main(["settings", settings_without_effect()[0].key]) == 0
    assert "has no effect: " in capsys.readouterr().out


def test_no_message_names_a_page_that_the_wheel_does_not_have() -> None:
    found = [
        f"{path.name}: {node.value}"
        for path in (ROOT / "penstock").rglob("*.py")
        for node in _strings(path)
        if "docs/" in node.value
    ]
    assert found == []


def _strings(path: Path) -> Iterator[Any]:
    """Yield the texts of a module that are no docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ):
            yield node


def test_the_reference_page_names_every_key() -> None:
    page = reference_page()
    for line in settings_table():
        assert f"| `{line.key}` |" in page
    assert len(settings_table()) == len(fields(Settings))


def test_texts_are_there_for_all_keys_and_for_no_others() -> None:
    with_meaning = {key for key, texts in settings_texts().items() if "meaning" in texts}
    assert with_meaning == {line.key for line in settings_table()}
    without = {line.key for line in settings_without_effect()}
    assert with_meaning | without == settings_texts().keys()
    assert all(texts.keys() <= _NAMES for texts in settings_texts().values())


@pytest.fixture(scope="module")
def java_utils() -> Iterator[Any]:
    """Spark's own reader of times and sizes."""
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway()
    try:
        yield gateway.jvm.org.apache.spark.network.util.JavaUtils
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=HANG_S)


@pytest.mark.slow
def test_times_and_sizes_mean_what_spark_reads(java_utils: Any) -> None:
    from py4j.protocol import Py4JJavaError

    def ours(key: str, text: str) -> object:
        try:
            return read(key, text)
        except SettingError:
            return "refused"

    def sparks(method: str, text: str, least: int, most: int) -> object:
        try:
            value = getattr(java_utils, method)(text)
        except Py4JJavaError:
            return "refused"
        return value if least <= value <= most else "refused"

    for text in (
        *(f"{n}{unit}" for n in (1, 7, 90) for unit in ("", "us", "ms", "s", "m", "min", "h", "d")),
        *("1M", " 5s ", "5 s", "1.5s", "s", "", "-3s", "1w", "1ns", "+5s", "1e3"),
    ):
        assert ours("spark.streaming.blockInterval", text) == sparks(
            "timeStringAsMs", text, 1, 2**62
        ), text
    for text in (
        *(f"{n}{unit}" for n in (1, 3, 70_000) for unit in ("", "b", "k", "kb", "m", "mb", "g")),
        *("1t", "1tb", "70000B", "1.5g", "", "-3m", "1 g", "1kib", "1x", " 1m "),
    ):
        # The blocks' size stays at its default, so a segment must hold two.
        assert ours("spark.penstock.wal.segmentSize", text) == sparks(
            "byteStringAsBytes", text, 64 << 20, 64 << 30
        ), text
