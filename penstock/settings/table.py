"""Every configuration key of Penstock, declared once.

The fields of `Settings` are the table: each is declared with its configuration key, the kind of
its value and its default; what it means is said in ``texts.ini``. From them come the parsing of a
`SparkConf`, the errors and the reference page (``python -m penstock.settings._page`` prints
``docs/settings.md``).

Keys under ``spark.streaming.`` are Spark Streaming's, with its defaults and units (``SparkConf``
getters in `streaming/src/main/scala/org/apache/spark/streaming/`); keys under
``spark.penstock.`` are ours.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from penstock.errors import SettingError
from penstock.settings._texts import find_setting_without_effect, settings_texts
from penstock.settings.values import (
    Budget,
    Choice,
    Endpoint,
    Factor,
    Flag,
    LimitAbove0,
    LocalPath,
    LogFolder,
    LostBlocks,
    Names,
    Rate,
    Seconds,
    Size,
    StorageAddress,
    Text,
    Time,
    ValueKind,
    Whole,
    rate_per_second,
)

SPARK_PREFIX = "spark.streaming."
OWN_PREFIX = "spark.penstock."

IO_ENCRYPTION = "spark.io.encryption.enabled"

_SPARK_ENCRYPTS = (
    "spark.ssl.enabled",
    "spark.ssl.rpc.enabled",
    "spark.network.crypto.enabled",
)
"""Spark's switches for encrypted connections; anyone who sets one means ours as well."""

_OLDER_NAMES = {
    "spark.streaming.minRememberDuration": "spark.streaming.fileStream.minRememberDuration",
}
"""Keys that Spark has renamed; an older one counts when the newer is not set."""

_HIDDEN = "(not shown)"
_MEANT_FOR_US = (OWN_PREFIX, OWN_PREFIX.removeprefix("spark."))
"""Keys that begin like this, in letters of any case, have to be known."""

_SECRET = re.compile(r"secret|passw|token|credential|storage|sharedRate", re.IGNORECASE)
"""An unknown key that looks like one with a secret in its value."""

_log = logging.getLogger("penstock.settings")


@dataclass(frozen=True)
class Setting:
    """One line of the table.

    Attributes:
        key: The configuration key.
        kind: How its text is read.
        default: The default as a user would write it; None when there is none.
        attribute: The field of `Settings` that holds the value.
    """

    key: str
    kind: ValueKind
    default: str | None
    attribute: str

    @property
    def meaning(self) -> str:
        """What it does."""
        return settings_texts()[self.key]["meaning"]

    @property
    def unset(self) -> str | None:
        """What holds when the key is not set, where that is more than the default, in words."""
        return settings_texts()[self.key].get("unset")


def _setting(key: str, kind: ValueKind, default: str | None) -> Any:
    # A rate is read by a library that takes a tenth of a second to import; it stays text.
    value = default if default is None or isinstance(kind, Rate) else kind.read(default)
    return field(
        default=value, metadata={"setting": {"key": key, "kind": kind, "default": default}}
    )


@dataclass(frozen=True)
class Settings:
    """The settings of one application; frozen, and picklable so that receivers get a copy.

    Made by `from_pairs`. The constructor checks nothing and is for tests. Sizes are in bytes,
    times in the unit that the attribute's name has.
    """

    block_interval_ms: int = _setting("spark.streaming.blockInterval", Time(minimum_ms=1), "200ms")
    block_queue_size: int = _setting(
        "spark.streaming.blockQueueSize", Whole(minimum=1, unit="blocks"), "10"
    )
    receiver_restart_delay_ms: int = _setting(
        "spark.streaming.receiverRestartDelay", Whole(minimum=0, unit="milliseconds"), "2000"
    )
    receiver_max_rate: int | None = _setting(
        "spark.streaming.receiver.maxRate", LimitAbove0(), None
    )
    backpressure_initial_rate: int | None = _setting(
        "spark.streaming.backpressure.initialRate", LimitAbove0(), None
    )
    backpressure_enabled: bool = _setting("spark.streaming.backpressure.enabled", Flag(), "false")
    rate_estimator: str = _setting(
        "spark.streaming.backpressure.rateEstimator", Choice(("pid", "aimd")), "pid"
    )
    pid_proportional: float = _setting(
        "spark.streaming.backpressure.pid.proportional", Factor(), "1.0"
    )
    pid_integral: float = _setting("spark.streaming.backpressure.pid.integral", Factor(), "0.2")
    pid_derived: float = _setting("spark.streaming.backpressure.pid.derived", Factor(), "0.0")
    pid_min_rate: float = _setting(
        "spark.streaming.backpressure.pid.minRate", Factor(is_open=True), "100"
    )
    receiver_wal_enable: bool | None = _setting(
        "spark.streaming.receiver.writeAheadLog.enable", Flag(), None
    )
    receiver_wal_rolling_s: int = _setting(
        "spark.streaming.receiver.writeAheadLog.rollingIntervalSecs",
        Whole(minimum=1, unit="seconds"),
        "60",
    )
    driver_wal_rolling_s: int = _setting(
        "spark.streaming.driver.writeAheadLog.rollingIntervalSecs",
        Whole(minimum=1, unit="seconds"),
        "60",
    )
    graceful_stop_timeout_ms: int = _setting(
        "spark.streaming.gracefulStopTimeout", Time(minimum_ms=1), "1h"
    )
    concurrent_jobs: int = _setting(
        "spark.streaming.concurrentJobs", Whole(minimum=1, unit="jobs"), "1"
    )
    unpersist: bool = _setting("spark.streaming.unpersist", Flag(), "true")
    stop_gracefully_on_shutdown: bool = _setting(
        "spark.streaming.stopGracefullyOnShutdown", Flag(), "false"
    )
    checkpoint_directory: str | None = _setting(
        "spark.streaming.checkpoint.directory", Text("the path of a folder"), None
    )
    streaming_allocation_enabled: bool = _setting(
        "spark.streaming.dynamicAllocation.enabled", Flag(), "false"
    )
    scaling_interval_s: float = _setting(
        "spark.streaming.dynamicAllocation.scalingInterval", Seconds(minimum_ms=1000), "60s"
    )
    scaling_up_ratio: float = _setting(
        "spark.streaming.dynamicAllocation.scalingUpRatio", Factor(is_open=True), "0.9"
    )
    scaling_down_ratio: float = _setting(
        "spark.streaming.dynamicAllocation.scalingDownRatio", Factor(is_open=True), "0.3"
    )
    min_executors: int | None = _setting(
        "spark.streaming.dynamicAllocation.minExecutors", Whole(minimum=1, unit="executors"), None
    )
    max_executors: int | None = _setting(
        "spark.streaming.dynamicAllocation.maxExecutors", Whole(minimum=1, unit="executors"), None
    )
    file_min_remember_s: float = _setting(
        "spark.streaming.fileStream.minRememberDuration", Seconds(), "60s"
    )
    raw_max_frame_bytes: int = _setting(
        "spark.streaming.raw.maxBlockSizeBytes", Size(minimum=1, maximum=(1 << 31) - 1), "1g"
    )
    kafka_max_rate: int = _setting(
        "spark.streaming.kafka.maxRatePerPartition",
        Whole(minimum=0, unit="records per second"),
        "0",
    )
    kafka_min_rate: int = _setting(
        "spark.streaming.kafka.minRatePerPartition", Whole(minimum=0, unit="records"), "1"
    )
    kafka_poll_ms: int = _setting(
        "spark.streaming.kafka.consumer.poll.ms", Whole(minimum=1, unit="milliseconds"), "120000"
    )
    kafka_cache_enabled: bool = _setting(
        "spark.streaming.kafka.consumer.cache.enabled", Flag(), "true"
    )
    kafka_cache_capacity: int = _setting(
        "spark.streaming.kafka.consumer.cache.maxCapacity", Whole(minimum=0, unit="consumers"), "64"
    )
    kafka_broker_timeout_s: float = _setting("spark.penstock.kafka.brokerTimeout", Seconds(), "60s")
    wal_dir: str | None = _setting("spark.penstock.wal.dir", LogFolder(), None)
    wal_sync: str | None = _setting(
        "spark.penstock.wal.sync", Choice(("none", "interval", "always")), None
    )
    wal_sync_interval_ms: int = _setting(
        "spark.penstock.wal.syncInterval", Time(minimum_ms=1), "50ms"
    )
    wal_segment_bytes: int = _setting(
        "spark.penstock.wal.segmentSize", Size(minimum=64 << 10, maximum=64 << 30), "256m"
    )
    wal_retention_ms: int | None = _setting(
        "spark.penstock.wal.retention", Time(minimum_ms=1000), None
    )
    wal_retention_bytes: int | None = _setting(
        "spark.penstock.wal.retentionSize", Size(minimum=1 << 20, maximum=1 << 50), None
    )
    lost_blocks: str = _setting("spark.penstock.lostBlocks", LostBlocks(), "fail")
    batch_partition_bytes: int = _setting(
        "spark.penstock.batch.partitionSize", Size(minimum=0, maximum=1 << 40), "8m"
    )
    recovery_empty_batches: str = _setting(
        "spark.penstock.recovery.emptyBatches", Choice(("needed", "all")), "needed"
    )
    console: str = _setting("spark.penstock.console", Choice(("auto", "on", "off")), "auto")
    ui_enabled: bool = _setting("spark.penstock.ui.enabled", Flag(), "true")
    ui_port: int = _setting("spark.penstock.ui.port", Whole(minimum=0, maximum=65_535), "4140")
    ui_host: str | None = _setting("spark.penstock.ui.host", Text("an address of this host"), None)
    ui_hosts: tuple[str, ...] | None = _setting("spark.penstock.ui.hosts", Names(), None)
    ui_certificate: str | None = _setting(
        "spark.penstock.ui.certificate", Text("the path of a PEM file"), None
    )
    ui_private_key: str | None = _setting(
        "spark.penstock.ui.privateKey", Text("the path of a PEM file"), None
    )
    ui_samples: bool = _setting("spark.penstock.ui.samples", Flag(), "false")
    otel_enabled: bool = _setting("spark.penstock.otel.enabled", Flag(), "false")
    otel_endpoint: str | None = _setting(
        "spark.penstock.otel.endpoint", Text("an address such as http://collector:4318"), None
    )
    otel_traces_every: int = _setting(
        "spark.penstock.otel.traces.every",
        Whole(minimum=0, maximum=1_000_000_000, unit="blocks"),
        "100",
    )
    retained_batches: int = _setting(
        "spark.streaming.ui.retainedBatches",
        Whole(minimum=1, maximum=100_000, unit="batches"),
        "1000",
    )
    removed_streams: tuple[str, ...] | None = _setting(
        "spark.penstock.removedStreams", Names(), None
    )
    removed_states: tuple[str, ...] | None = _setting("spark.penstock.removedStates", Names(), None)
    wal_compression_codec: str = _setting(
        "spark.penstock.wal.compression.codec", Choice(("none", "lz4", "zstd")), "zstd"
    )
    block_max_bytes: int = _setting(
        "spark.penstock.block.maxSize", Size(minimum=4 << 10, maximum=1 << 30), "32m"
    )
    memory_bytes: int = _setting(
        "spark.penstock.memory.size", Size(minimum=8 << 10, maximum=1 << 40), "2g"
    )
    memory_dir: str = _setting("spark.penstock.memory.dir", LocalPath(), "/dev/shm")
    receiver_rate: str | None = _setting("spark.penstock.receiver.rate", Rate("records"), None)
    receiver_byte_rate: str | None = _setting(
        "spark.penstock.receiver.byteRate", Rate("bytes"), None
    )
    receiver_burst_s: float = _setting("spark.penstock.receiver.burst", Seconds(), "1s")
    when_full: str = _setting(
        "spark.penstock.receiver.whenFull",
        Choice(("block", "dropNew", "dropOld", "spill")),
        "block",
    )
    waiting_bytes: int = _setting(
        "spark.penstock.receiver.whenFull.memory", Size(minimum=4 << 10, maximum=1 << 40), "8m"
    )
    spill_bytes: int = _setting(
        "spark.penstock.receiver.whenFull.disk", Size(minimum=1 << 20, maximum=1 << 50), "1g"
    )
    shared_rate: str | None = _setting("spark.penstock.sharedRate.rate", Rate("records"), None)
    shared_rate_storage: str | None = _setting(
        "spark.penstock.sharedRate.storage",
        StorageAddress(("redis", "rediss", "redis+unix", "valkey", "valkeys", "valkey+unix")),
        None,
    )
    shared_rate_key: str = _setting("spark.penstock.sharedRate.key", Text("a name"), "default")
    shared_rate_password_file: str | None = _setting(
        "spark.penstock.sharedRate.passwordFile", LocalPath("/etc/penstock/redis-password"), None
    )
    slow_start_rate: str = _setting(
        "spark.penstock.backpressure.slowStartRate", Rate("records"), "1000/second"
    )
    aimd_increase: float = _setting(
        "spark.penstock.backpressure.aimd.increase", Factor(maximum=1.0, is_open=True), "0.02"
    )
    aimd_decrease: float = _setting(
        "spark.penstock.backpressure.aimd.decrease", Factor(maximum=1.0, is_open=True), "0.95"
    )
    aimd_min_rate: float = _setting(
        "spark.penstock.backpressure.aimd.minRate", Factor(is_open=True), "100"
    )
    storage_endpoint: str | None = _setting("spark.penstock.storage.s3.endpoint", Endpoint(), None)
    storage_region: str | None = _setting(
        "spark.penstock.storage.s3.region", Text("a region such as eu-central-1"), None
    )
    storage_profile: str | None = _setting(
        "spark.penstock.storage.s3.profile", Text("a name in ~/.aws/config"), None
    )
    storage_virtual_hosted: bool = _setting(
        "spark.penstock.storage.s3.virtualHosted", Flag(), "false"
    )
    storage_request_timeout_s: float = _setting(
        "spark.penstock.storage.requestTimeout", Seconds(minimum_ms=100, maximum_h=1), "60s"
    )
    storage_patience_s: float = _setting("spark.penstock.storage.patience", Seconds(), "60s")
    dead_letters_enabled: bool = _setting("spark.penstock.deadLetters.enabled", Flag(), "true")
    dead_letters_dir: str | None = _setting("spark.penstock.deadLetters.dir", LogFolder(), None)
    dead_letters_max_bytes: int = _setting(
        "spark.penstock.deadLetters.maxSize", Size(minimum=1 << 20, maximum=1 << 40), "256m"
    )
    dead_letters_max_age_s: float = _setting(
        "spark.penstock.deadLetters.maxAge", Seconds(minimum_ms=60_000), "7d"
    )
    dead_letters_max_record_bytes: int = _setting(
        "spark.penstock.deadLetters.maxRecordSize", Size(minimum=1 << 10, maximum=512 << 20), "64m"
    )
    dead_letters_budget: str | None = _setting("spark.penstock.deadLetters.budget", Budget(), None)
    dead_letters_budget_action: str = _setting(
        "spark.penstock.deadLetters.budgetAction", Choice(("stop", "pause")), "stop"
    )
    restart_max_delay_s: float = _setting(
        "spark.penstock.receiver.maxRestartDelay", Seconds(), "30s"
    )
    receivers_per_slot: int = _setting(
        "spark.penstock.receivers.perSlot", Whole(minimum=1, unit="receivers"), "1"
    )
    slot_memory_bytes: int = _setting(
        "spark.penstock.receivers.slotMemory", Size(minimum=64 << 20, maximum=1 << 40), "1g"
    )
    splits_interval_s: float = _setting("spark.penstock.receiver.splitsInterval", Seconds(), "30s")
    receiver_max_failures: int = _setting(
        "spark.penstock.receiver.maxFailures", Whole(minimum=1, unit="failures"), "10"
    )
    restart_reset_s: float = _setting("spark.penstock.receiver.restartReset", Seconds(), "60s")
    ask_timeout_s: float = _setting("spark.penstock.askTimeout", Seconds(), "30s")
    tracker_port: int = _setting(
        "spark.penstock.tracker.port", Whole(minimum=0, maximum=65535), "0"
    )
    tracker_bind_address: str | None = _setting(
        "spark.penstock.tracker.bindAddress",
        Text("an IP address or a host name of the driver"),
        None,
    )
    tls_enabled: bool = _setting("spark.penstock.tls.enabled", Flag(), "false")
    io_encryption_enabled: bool = _setting(IO_ENCRYPTION, Flag(), "false")
    max_frame_bytes: int = _setting(
        "spark.penstock.maxFrameSize", Size(minimum=64 << 10, maximum=1 << 30), "8m"
    )
    block_server_port: int = _setting(
        "spark.penstock.blockServer.port", Whole(minimum=0, maximum=65535), "0"
    )
    port_max_retries: int = _setting("spark.port.maxRetries", Whole(minimum=0, unit="ports"), "16")
    block_server_lease_s: float = _setting(
        "spark.penstock.blockServer.lease", Seconds(minimum_ms=1000), "60s"
    )
    driver_timeout_s: float = _setting(
        "spark.penstock.blockServer.driverTimeout", Seconds(minimum_ms=1000), "2h"
    )

    @property
    def retains(self) -> bool:
        """Whether segments stay after the batches of their blocks."""
        return self.wal_retention_ms is not None or self.wal_retention_bytes is not None

    @property
    def max_records_per_second(self) -> float | None:
        """The lower one of Spark's and of our own limit of each receiver; None: there is none."""
        own = None if self.receiver_rate is None else rate_per_second(self.receiver_rate)
        limits = (self.receiver_max_rate, own)
        return min((limit for limit in limits if limit is not None), default=None)

    @property
    def max_bytes_per_second(self) -> float | None:
        """The limit of bytes of each receiver; None: there is none."""
        return None if self.receiver_byte_rate is None else rate_per_second(self.receiver_byte_rate)

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[str, str]]) -> Settings:
        """Read the settings out of a configuration, such as ``SparkConf().getAll()``.

        Keys that are neither ``spark.streaming.*`` nor ``spark.penstock.*`` are passed over, but
        not those that are so except for the case of letters or a missing ``spark.``. Keys of Spark
        Streaming that have no effect here are named in one warning.

        Args:
            pairs: Keys and values; of a key that stands there twice, the last counts.

        Raises:
            SettingError: A key of ours is unknown, a value is not accepted, or two values do not
                go together. It names the key and what is accepted.
        """
        table = {setting.key: setting for setting in settings_table()}
        values: dict[str, Any] = {}
        without_effect: dict[str, str] = {}
        texts = dict(pairs)
        for key, text in texts.items():
            newer = _OLDER_NAMES.get(key)
            if newer in texts:
                continue
            setting = table.get(newer or key)
            if setting is not None:
                try:
                    values[setting.attribute] = setting.kind.read(text)
                except ValueError:
                    if isinstance(setting.kind, (StorageAddress, Endpoint)):
                        # There may be a password in it.
                        raise SettingError(key, _HIDDEN, setting.kind.accepted) from None
                    raise SettingError(key, text, setting.kind.accepted) from None
            elif key.lower().startswith(_MEANT_FOR_US):
                if _SECRET.search(key):
                    text = _HIDDEN
                raise SettingError(key, text, f"there is no such key; {_closest(key)}")
            elif key.startswith(SPARK_PREFIX):
                without_effect[key] = text
        _warn_of_settings_without_effect(without_effect)
        if any(texts.get(key, "").strip().lower() == "true" for key in _SPARK_ENCRYPTS):
            values.setdefault("tls_enabled", True)
        settings = cls(**values)
        settings._check_together(texts)
        return settings

    def _check_together(self, texts: dict[str, str]) -> None:
        """Check what no value shows alone; `texts` has what the user wrote."""

        def refuse(attribute: str, accepted: str) -> None:
            setting = next(line for line in settings_table() if line.attribute == attribute)
            text = texts.get(setting.key, setting.default or "")
            raise SettingError(setting.key, text, accepted)

        if 2 * self.block_max_bytes > self.memory_bytes:
            refuse(
                "block_max_bytes",
                f"at most half of spark.penstock.memory.size, which is {self.memory_bytes} bytes, "
                "so that one block can be filled while another is stored",
            )
        if 2 * self.block_max_bytes > self.wal_segment_bytes:
            refuse(
                "block_max_bytes",
                "at most half of spark.penstock.wal.segmentSize, which is "
                f"{self.wal_segment_bytes} bytes, because a block never crosses a segment",
            )
        self._check_allocation(texts, refuse)
        if (self.shared_rate is None) != (self.shared_rate_storage is None):
            if self.shared_rate is None:
                refuse("shared_rate_storage", "needs spark.penstock.sharedRate.rate beside it")
            refuse("shared_rate", "needs spark.penstock.sharedRate.storage beside it")
        if self.dead_letters_budget_action == "pause" and self.dead_letters_budget is None:
            refuse(
                "dead_letters_budget_action", "needs spark.penstock.deadLetters.budget beside it"
            )
        # A default that this platform lacks is the block store's to replace; a folder that the
        # user named is not.
        if "spark.penstock.memory.dir" in texts and not os.path.isdir(self.memory_dir):
            refuse("memory_dir", "a folder that exists, in memory, such as /dev/shm")

    def _check_allocation(self, texts: dict[str, str], refuse: Callable[[str, str], None]) -> None:
        """Check the settings of dynamic allocation, also when it is off, as Spark does not."""
        prefix = "spark.streaming.dynamicAllocation."
        of_spark = texts.get("spark.dynamicAllocation.enabled", "").strip().lower() == "true"
        is_local = texts.get("spark.master", "").startswith("local")
        if self.streaming_allocation_enabled and of_spark and not is_local:
            refuse(
                "streaming_allocation_enabled",
                "Dynamic Allocation cannot be enabled for both streaming and core at the same "
                "time. Set spark.dynamicAllocation.enabled to false to use it in streaming",
            )
        if self.scaling_up_ratio <= self.scaling_down_ratio:
            refuse("scaling_up_ratio", f"more than {prefix}scalingDownRatio")
        low, high = self.min_executors, self.max_executors
        if low is not None and high is not None and high < low:
            refuse("max_executors", f"at least {prefix}minExecutors, which is {low}")


def settings_table() -> tuple[Setting, ...]:
    """Return the lines of the table, in order."""
    return tuple(
        Setting(attribute=declared.name, **declared.metadata["setting"])
        for declared in fields(Settings)
    )


def closest_setting(key: str) -> str:
    """Return the known key that is most like `key`, whatever the case of its letters.

    Where there are any, it is one that ends like it: a part of a long key is soon forgotten.
    """
    import difflib

    known = {line.key.lower(): line.key for line in settings_table()}
    end = "." + key.lower().rpartition(".")[2]
    like = [one for one in known if one.endswith(end)] or known
    return known[difflib.get_close_matches(key.lower(), like, n=1, cutoff=0.0)[0]]


def _closest(key: str) -> str:
    return f"the closest is {closest_setting(key)}; `penstock settings` prints them all"


def _warn_of_settings_without_effect(texts: dict[str, str]) -> None:
    told = []
    for key, text in sorted(texts.items()):
        line = find_setting_without_effect(key)
        if line is None:
            told.append(f"{key} (Spark Streaming has no such key; {_closest(key)})")
        elif text.strip().lower() != line.default:
            told.append(f"{key} ({line.reason})")
    if told:
        _log.warning("Settings without effect: %s", "; ".join(told))
