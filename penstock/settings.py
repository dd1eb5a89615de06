"""Every configuration key of Penstock, declared once.

The fields of `Settings` are the table: each is declared with its configuration key, the kind of
its value, its default and its meaning. From it come the parsing of a `SparkConf`, the errors and
the reference page (``python -m penstock._settings_page`` prints ``docs/settings.md``).

Keys under ``spark.streaming.`` are Spark Streaming's, with its defaults and units (``SparkConf``
getters in `streaming/src/main/scala/org/apache/spark/streaming/`); keys under
``spark.penstock.`` are ours.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any

from penstock._setting_values import (
    Budget,
    Choice,
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
)
from penstock._settings_without_effect import find_setting_without_effect
from penstock.errors import SettingError

__all__ = ["IO_ENCRYPTION", "Setting", "Settings", "closest_setting", "settings_table"]

SPARK_PREFIX = "spark.streaming."
OWN_PREFIX = "spark.penstock."

IO_ENCRYPTION = "spark.io.encryption.enabled"

_SPARK_ENCRYPTS = (
    "spark.ssl.enabled",
    "spark.ssl.rpc.enabled",
    "spark.network.crypto.enabled",
)
"""Spark's switches for encrypted connections; whoever sets one means ours as well."""

_OLDER_NAMES = {
    "spark.streaming.minRememberDuration": "spark.streaming.fileStream.minRememberDuration",
}
"""Keys that Spark has renamed; an older one counts when the newer is not set."""

_HIDDEN = "(not shown)"
_MEANT_FOR_US = (OWN_PREFIX, OWN_PREFIX.removeprefix("spark."))
"""Keys that begin like this, in letters of any case, have to be known."""

_SECRET = re.compile(r"secret|passw|token|sharedRate", re.IGNORECASE)
"""An unknown key that looks like one with a secret in its value."""

_log = logging.getLogger("penstock.settings")


@dataclass(frozen=True)
class Setting:
    """One line of the table.

    Attributes:
        key: The configuration key.
        kind: How its text is read.
        default: The default as a user would write it; None when there is none.
        unset: What holds when the key is not set, where that is more than the default, in words.
        meaning: What it does.
        attribute: The field of `Settings` that holds the value.
    """

    key: str
    kind: ValueKind
    default: str | None
    unset: str | None
    meaning: str
    attribute: str


def _setting(
    key: str, kind: ValueKind, default: str | None, meaning: str, *, unset: str | None = None
) -> Any:
    value = None if default is None else kind.read(default)
    line = {"key": key, "kind": kind, "default": default, "unset": unset, "meaning": meaning}
    return field(default=value, metadata={"setting": line})


@dataclass(frozen=True)
class Settings:
    """The settings of one application; frozen, and picklable so that receivers get a copy.

    Made by `from_pairs`. The constructor checks nothing and is for tests. Sizes are in bytes,
    times in the unit that the attribute's name tells.
    """

    block_interval_ms: int = _setting(
        "spark.streaming.blockInterval",
        Time(minimum_ms=1),
        "200ms",
        "How often a receiver seals its open block. Each block becomes one partition.",
    )
    block_queue_size: int = _setting(
        "spark.streaming.blockQueueSize",
        Whole(minimum=1, unit="blocks"),
        "10",
        "How many sealed blocks may wait to be stored. When the queue is full, `store` waits.",
    )
    receiver_restart_delay_ms: int = _setting(
        "spark.streaming.receiverRestartDelay",
        Whole(minimum=0, unit="milliseconds"),
        "2000",
        "The time between stop and start when a receiver calls `restart`.",
    )
    receiver_max_rate: int | None = _setting(
        "spark.streaming.receiver.maxRate",
        LimitAbove0(),
        None,
        "The most records per second that each receiver takes.",
        unset="no limit",
    )
    backpressure_initial_rate: int | None = _setting(
        "spark.streaming.backpressure.initialRate",
        LimitAbove0(),
        None,
        "The rate limit that a receiver starts with. The smaller of it and "
        "`receiver.maxRate` holds. As in Spark, it holds also without backpressure.",
        unset="that of `receiver.maxRate`; with backpressure and without that either, "
        "`spark.penstock.backpressure.slowStartRate`",
    )
    backpressure_enabled: bool = _setting(
        "spark.streaming.backpressure.enabled",
        Flag(),
        "false",
        "Let each receiver's rate follow how fast the batches are processed.",
    )
    rate_estimator: str = _setting(
        "spark.streaming.backpressure.rateEstimator",
        Choice(("pid", "aimd")),
        "pid",
        "What makes a rate of a batch's delays ([rates.md](rates.md) compares them).",
    )
    pid_proportional: float = _setting(
        "spark.streaming.backpressure.pid.proportional",
        Factor(),
        "1.0",
        "The weight of the difference between the rate and the speed of the last batch.",
    )
    pid_integral: float = _setting(
        "spark.streaming.backpressure.pid.integral",
        Factor(),
        "0.2",
        "The weight of what waited for the last batch to begin.",
    )
    pid_derived: float = _setting(
        "spark.streaming.backpressure.pid.derived",
        Factor(),
        "0.0",
        "The weight of the change of that difference.",
    )
    pid_min_rate: float = _setting(
        "spark.streaming.backpressure.pid.minRate",
        Factor(is_open=True),
        "100",
        "The lowest rate that the estimator `pid` sets, in records per second.",
    )
    receiver_wal_enable: bool | None = _setting(
        "spark.streaming.receiver.writeAheadLog.enable",
        Flag(),
        None,
        "True forces the blocks to disk before they are acknowledged, and needs one of the "
        "folders; false leaves them to the page cache.",
        unset="true with a checkpoint directory or a log folder, else false",
    )
    receiver_wal_rolling_s: int = _setting(
        "spark.streaming.receiver.writeAheadLog.rollingIntervalSecs",
        Whole(minimum=1, unit="seconds"),
        "60",
        "The age at which a receiver's log begins a new segment. Whole segments are deleted.",
    )
    driver_wal_rolling_s: int = _setting(
        "spark.streaming.driver.writeAheadLog.rollingIntervalSecs",
        Whole(minimum=1, unit="seconds"),
        "60",
        "The same for the driver's log.",
    )
    graceful_stop_timeout_ms: int = _setting(
        "spark.streaming.gracefulStopTimeout",
        Time(minimum_ms=1),
        "1h",
        "How long a graceful stop may take to process what was received; what is left then is "
        "given up and reported.",
    )
    concurrent_jobs: int = _setting(
        "spark.streaming.concurrentJobs",
        Whole(minimum=1, unit="jobs"),
        "1",
        "How many output operations run at a time. With more than 1, batches may overlap.",
    )
    unpersist: bool = _setting(
        "spark.streaming.unpersist",
        Flag(),
        "true",
        "Release RDDs and blocks when they are no longer remembered. False keeps them all.",
    )
    stop_gracefully_on_shutdown: bool = _setting(
        "spark.streaming.stopGracefullyOnShutdown",
        Flag(),
        "false",
        "Stop gracefully when the driver's process ends.",
    )
    checkpoint_directory: str | None = _setting(
        "spark.streaming.checkpoint.directory",
        Text("the path of a folder"),
        None,
        "The checkpoint directory, as if given to `StreamingContext.checkpoint`.",
    )
    streaming_allocation_enabled: bool = _setting(
        "spark.streaming.dynamicAllocation.enabled",
        Flag(),
        "false",
        "Ask for executors when batches take long, and let go of some when they are short. Not "
        "together with `spark.dynamicAllocation.enabled` ([rates.md](rates.md)).",
    )
    scaling_interval_s: float = _setting(
        "spark.streaming.dynamicAllocation.scalingInterval",
        Seconds(minimum_ms=1000),
        "60s",
        "How often that is decided.",
    )
    scaling_up_ratio: float = _setting(
        "spark.streaming.dynamicAllocation.scalingUpRatio",
        Factor(is_open=True),
        "0.9",
        "From this part of the batch interval on, as the mean of the batches, executors are "
        "asked for.",
    )
    scaling_down_ratio: float = _setting(
        "spark.streaming.dynamicAllocation.scalingDownRatio",
        Factor(is_open=True),
        "0.3",
        "Down to this part of the batch interval, an executor is let go.",
    )
    min_executors: int | None = _setting(
        "spark.streaming.dynamicAllocation.minExecutors",
        Whole(minimum=1, unit="executors"),
        None,
        "The least number of executors.",
        unset="as many as receivers, at least 1",
    )
    max_executors: int | None = _setting(
        "spark.streaming.dynamicAllocation.maxExecutors",
        Whole(minimum=1, unit="executors"),
        None,
        "The largest number of executors.",
        unset="no limit",
    )
    file_min_remember_s: float = _setting(
        "spark.streaming.fileStream.minRememberDuration",
        Seconds(),
        "60s",
        "How long a file stream looks back for files that it has not seen, rounded up to whole "
        "batch intervals. `spark.streaming.minRememberDuration` is the older name for it.",
    )
    raw_max_frame_bytes: int = _setting(
        "spark.streaming.raw.maxBlockSizeBytes",
        Size(minimum=1, maximum=(1 << 31) - 1),
        "1g",
        "The largest frame that `rawSocketStream` takes; the connection that announces more is "
        "closed.",
    )
    kafka_max_rate: int = _setting(
        "spark.streaming.kafka.maxRatePerPartition",
        Whole(minimum=0, unit="records per second"),
        "0",
        "The most records per second of each partition of a Kafka stream; 0 for no limit.",
    )
    kafka_min_rate: int = _setting(
        "spark.streaming.kafka.minRatePerPartition",
        Whole(minimum=0, unit="records"),
        "1",
        "How many records of each partition of Kafka a batch takes in spite of limits.",
    )
    kafka_poll_ms: int = _setting(
        "spark.streaming.kafka.consumer.poll.ms",
        Whole(minimum=1, unit="milliseconds"),
        "120000",
        "How long a task waits for records of Kafka without getting further.",
    )
    kafka_cache_enabled: bool = _setting(
        "spark.streaming.kafka.consumer.cache.enabled",
        Flag(),
        "true",
        "Whether Python workers keep their Kafka consumers, with what they have fetched ahead.",
    )
    kafka_cache_capacity: int = _setting(
        "spark.streaming.kafka.consumer.cache.maxCapacity",
        Whole(minimum=0, unit="consumers"),
        "64",
        "How many Kafka consumers each Python worker keeps.",
    )
    kafka_broker_timeout_s: float = _setting(
        "spark.penstock.kafka.brokerTimeout",
        Seconds(),
        "60s",
        "How long Kafka's brokers may be out of reach: after it `start` raises, and while the "
        "stream runs, batches fail instead of being empty.",
    )
    wal_dir: str | None = _setting(
        "spark.penstock.wal.dir",
        LogFolder(),
        None,
        "Where the logs are: on each host; or on HDFS or an object store, which survive the loss "
        "of a host.",
        unset="a folder of the application, removed when it stops",
    )
    wal_sync: str | None = _setting(
        "spark.penstock.wal.sync",
        Choice(("none", "interval", "always")),
        None,
        "When the logs are forced to disk: never, at an interval, or before anything is "
        "acknowledged. It wins over what follows from the other settings.",
        unset="always with a checkpoint directory or a log folder, else none",
    )
    wal_sync_interval_ms: int = _setting(
        "spark.penstock.wal.syncInterval",
        Time(minimum_ms=1),
        "50ms",
        "The interval for `spark.penstock.wal.sync=interval`.",
    )
    wal_segment_bytes: int = _setting(
        "spark.penstock.wal.segmentSize",
        Size(minimum=64 << 10, maximum=64 << 30),
        "256m",
        "The size of a log's segment files; they are allocated in advance. At least twice "
        "`spark.penstock.block.maxSize`.",
    )
    wal_retention_ms: int | None = _setting(
        "spark.penstock.wal.retention",
        Time(minimum_ms=1000),
        None,
        "How long blocks stay in the receivers' logs after their batch is cleaned up, so that they "
        "can be read again ([recovery.md](recovery.md#keeping-blocks-after-their-batch)). The "
        "oldest go earlier when the disk runs short, with a warning.",
        unset="without `wal.retentionSize` they go with the clean-up",
    )
    wal_retention_bytes: int | None = _setting(
        "spark.penstock.wal.retentionSize",
        Size(minimum=1 << 20, maximum=1 << 50),
        None,
        "How many bytes of such blocks stay at most, of all streams together.",
        unset="no limit, where `wal.retention` is set",
    )
    lost_blocks: str = _setting(
        "spark.penstock.lostBlocks",
        LostBlocks(),
        "fail",
        "What becomes of a batch when no host that can be reached has one of its blocks, after "
        "`spark.task.maxFailures` tries: it fails; or it waits first, in all tries of a task for "
        "the time that is given, until a host comes back that had it; or it goes on without the "
        "block, which is logged, counted in `ssc.statistics()`, and an error of the receiver to "
        "listeners. "
        "Where the block may be whole, as HDFS does not answer or a right, ticket or key is "
        "missing, the batch fails in any case.",
    )
    batch_partition_bytes: int = _setting(
        "spark.penstock.batch.partitionSize",
        Size(minimum=0, maximum=1 << 40),
        "8m",
        "Small blocks of one host share a partition of an RDD up to this size, as long as it has "
        "as many as tasks run at a time. 0 is Spark's rule: one partition per block.",
    )
    recovery_empty_batches: str = _setting(
        "spark.penstock.recovery.emptyBatches",
        Choice(("needed", "all")),
        "needed",
        "Which batches without records of the time when a program did not run are made after a "
        "restart: those that something may need, or `all`, as in Spark.",
    )
    console: str = _setting(
        "spark.penstock.console",
        Choice(("auto", "on", "off")),
        "auto",
        "Whether the program says on standard error how it goes; `auto`: if that is a terminal.",
    )
    ui_enabled: bool = _setting(
        "spark.penstock.ui.enabled",
        Flag(),
        "true",
        "Whether what happens is kept, to be looked at from outside over HTTP "
        "([monitoring.md](monitoring.md)).",
    )
    ui_port: int = _setting(
        "spark.penstock.ui.port",
        Whole(minimum=0, maximum=65_535),
        "4140",
        "The port for that; when it is taken, one of the 16 behind it, or else any. 0: any.",
    )
    ui_host: str | None = _setting(
        "spark.penstock.ui.host",
        Text("an address of this host"),
        None,
        "The address for that; `0.0.0.0` for all of this host.",
        unset="the one to which Spark binds the driver; with a local master `127.0.0.1`",
    )
    ui_hosts: tuple[str, ...] | None = _setting(
        "spark.penstock.ui.hosts",
        Names(),
        None,
        "More names under which browsers may ask for it, such as that of a proxy.",
        unset="addresses, `localhost`, and the driver's own names",
    )
    ui_certificate: str | None = _setting(
        "spark.penstock.ui.certificate",
        Text("the path of a PEM file"),
        None,
        "The certificate, with those between it and an authority, with which it speaks HTTPS.",
        unset="one that the driver makes, if `spark.penstock.tls.enabled` is set, or else HTTP",
    )
    ui_private_key: str | None = _setting(
        "spark.penstock.ui.privateKey",
        Text("the path of a PEM file"),
        None,
        "The private key of that certificate, not encrypted.",
        unset="in the file of the certificate",
    )
    ui_samples: bool = _setting(
        "spark.penstock.ui.samples",
        Flag(),
        "false",
        "Whether the page shows how discarded records begin, and what their errors say, to all who "
        "may look. Without it they are counted.",
    )
    otel_enabled: bool = _setting(
        "spark.penstock.otel.enabled",
        Flag(),
        "false",
        "Whether the figures of `/metrics`, and traces of blocks, are sent by OTLP "
        "([monitoring.md](monitoring.md#opentelemetry)). Needs `penstock[otel]` in the driver.",
    )
    otel_endpoint: str | None = _setting(
        "spark.penstock.otel.endpoint",
        Text("an address such as http://collector:4318"),
        None,
        "Where to; `/v1/metrics` and `/v1/traces` are put behind it.",
        unset="what the `OTEL_EXPORTER_OTLP_*` variables of the driver say, or "
        "`http://localhost:4318`",
    )
    otel_traces_every: int = _setting(
        "spark.penstock.otel.traces.every",
        Whole(minimum=0, maximum=1_000_000_000, unit="blocks"),
        "100",
        "Of this many blocks of a receiver one is traced on its way from `store` to its batch. "
        "0: none.",
    )
    retained_batches: int = _setting(
        "spark.streaming.ui.retainedBatches",
        Whole(minimum=1, maximum=100_000, unit="batches"),
        "1000",
        "How many complete batches are kept to be looked at.",
    )
    removed_streams: tuple[str, ...] | None = _setting(
        "spark.penstock.removedStreams",
        Names(),
        None,
        "Names of streams that earlier versions of the program had and this one lacks: their "
        "positions and waiting records are given up. Without it such a stream is an error.",
        unset="none",
    )
    removed_states: tuple[str, ...] | None = _setting(
        "spark.penstock.removedStates",
        Names(),
        None,
        "Names of states of the version before that this one lacks or begins empty. Without it a "
        "state that has no place or cannot be read is an error of an upgrade.",
        unset="none",
    )
    wal_compression_codec: str = _setting(
        "spark.penstock.wal.compression.codec",
        Choice(("none", "lz4", "zstd")),
        "zstd",
        "How blocks are compressed in a log on HDFS or an object store. Logs on a host's disk are "
        "not: they are read in place.",
    )
    block_max_bytes: int = _setting(
        "spark.penstock.block.maxSize",
        Size(minimum=4 << 10, maximum=1 << 30),
        "32m",
        "The size at which a block is sealed before its interval is over, and the largest "
        "record. At most half of `spark.penstock.memory.size`.",
    )
    memory_bytes: int = _setting(
        "spark.penstock.memory.size",
        Size(minimum=8 << 10, maximum=1 << 40),
        "2g",
        "Shared memory of each receiver for the hot copies of its blocks.",
    )
    memory_dir: str = _setting(
        "spark.penstock.memory.dir",
        LocalPath(),
        "/dev/shm",
        "The folder in memory (tmpfs) of the hot copies.",
    )
    receiver_rate: str | None = _setting(
        "spark.penstock.receiver.rate",
        Rate("records"),
        None,
        "The most records that each receiver takes. The smallest of it, `receiver.maxRate` "
        "and `backpressure.initialRate` holds.",
        unset="no limit",
    )
    receiver_byte_rate: str | None = _setting(
        "spark.penstock.receiver.byteRate",
        Rate("bytes"),
        None,
        "The most bytes that each receiver takes. A record larger than the burst passes alone.",
        unset="no limit",
    )
    receiver_burst_s: float = _setting(
        "spark.penstock.receiver.burst",
        Seconds(),
        "1s",
        "How much of a rate may be saved up while the source is idle, in seconds of that rate.",
    )
    shared_rate: str | None = _setting(
        "spark.penstock.sharedRate.rate",
        Rate("records"),
        None,
        "The most records of all receivers of all applications that name the same storage and key "
        "([rates.md](rates.md#one-rate-for-several-applications)).",
        unset="no limit",
    )
    shared_rate_storage: str | None = _setting(
        "spark.penstock.sharedRate.storage",
        StorageAddress(("redis", "rediss", "redis+unix", "valkey", "valkeys", "valkey+unix")),
        None,
        "The server in which the shared rate is kept.",
        unset="nothing is shared",
    )
    shared_rate_key: str = _setting(
        "spark.penstock.sharedRate.key",
        Text("a name"),
        "default",
        "Names the shared rate in its storage.",
    )
    shared_rate_password_file: str | None = _setting(
        "spark.penstock.sharedRate.passwordFile",
        LocalPath("/etc/penstock/redis-password"),
        None,
        "A file on the driver's host with the password of that server.",
        unset="no password",
    )
    slow_start_rate: str = _setting(
        "spark.penstock.backpressure.slowStartRate",
        Rate("records"),
        "1000/second",
        "With backpressure and no rate known: the rate that a receiver starts with. It doubles "
        "with each batch that used most of it, until the estimator has its first rate.",
    )
    aimd_increase: float = _setting(
        "spark.penstock.backpressure.aimd.increase",
        Factor(maximum=1.0, is_open=True),
        "0.02",
        "What the estimator `aimd` adds after a good batch, as a part of the rate that was too "
        "high last; more while batches leave room.",
    )
    aimd_decrease: float = _setting(
        "spark.penstock.backpressure.aimd.decrease",
        Factor(maximum=1.0, is_open=True),
        "0.95",
        "What `aimd` multiplies the rate with when batches fall behind or blocks queue up.",
    )
    aimd_min_rate: float = _setting(
        "spark.penstock.backpressure.aimd.minRate",
        Factor(is_open=True),
        "100",
        "The lowest rate that `aimd` sets, in records per second.",
    )
    dead_letters_enabled: bool = _setting(
        "spark.penstock.deadLetters.enabled",
        Flag(),
        "true",
        "Whether records that receivers discard are kept as dead letters "
        "([dead-letters.md](dead-letters.md)). If not, they are only counted and reported.",
    )
    dead_letters_dir: str | None = _setting(
        "spark.penstock.deadLetters.dir",
        LogFolder(),
        None,
        "Where the logs of dead letters are: on each host, on HDFS, or on an object store.",
        unset="a folder `deadLetters` beside the blocks, which goes with them where they do",
    )
    dead_letters_max_bytes: int = _setting(
        "spark.penstock.deadLetters.maxSize",
        Size(minimum=1 << 20, maximum=1 << 40),
        "256m",
        "How large the dead letters of one stream in one folder may get. Then the oldest go, which "
        "is reported.",
    )
    dead_letters_max_age_s: float = _setting(
        "spark.penstock.deadLetters.maxAge",
        Seconds(minimum_ms=60_000),
        "7d",
        "How long dead letters are kept at least, unless they get too many. Older ones go when "
        "there are new ones.",
    )
    dead_letters_max_record_bytes: int = _setting(
        "spark.penstock.deadLetters.maxRecordSize",
        Size(minimum=1 << 10, maximum=512 << 20),
        "64m",
        "How much is kept of one discarded record; of a larger one its beginning and its size.",
    )
    dead_letters_budget: str | None = _setting(
        "spark.penstock.deadLetters.budget",
        Budget(),
        None,
        "How many records, or what part of them, one run of a receiver may discard within a time.",
        unset="no limit",
    )
    dead_letters_budget_action: str = _setting(
        "spark.penstock.deadLetters.budgetAction",
        Choice(("stop", "pause")),
        "stop",
        "What happens when a receiver discards more than its budget. `stop`: it ends, and the "
        "program with an error that says so. `pause`: it lets nothing pass until its stream "
        "is resumed, by `penstock resume` or on the page, or the program is started again.",
    )
    restart_max_delay_s: float = _setting(
        "spark.penstock.receiver.maxRestartDelay",
        Seconds(),
        "30s",
        "The longest time from one start of a receiver to the next when it dies again and again. "
        "The first restart is immediate, then that time grows.",
    )
    receivers_per_slot: int = _setting(
        "spark.penstock.receivers.perSlot",
        Whole(minimum=1, unit="receivers"),
        "1",
        "How many receivers share one Spark task, and so one core, at most. With 1 each has a task "
        "and a process of its own: what one does, to the end of its process, touches no other "
        "one. With more, those of a task share a process, and Python's interpreter; one that ends "
        "the process is started again in one of its own, the others from their positions. For "
        "many sources with little to do each.",
    )
    receiver_max_failures: int = _setting(
        "spark.penstock.receiver.maxFailures",
        Whole(minimum=1, unit="failures"),
        "10",
        "How often in a row a receiver may fail with an error of its program (a `ValueError` and "
        "the like), with no record stored in between; then the program ends with that error.",
    )
    restart_reset_s: float = _setting(
        "spark.penstock.receiver.restartReset",
        Seconds(),
        "60s",
        "How long a receiver must run well before its next restart is immediate again.",
    )
    ask_timeout_s: float = _setting(
        "spark.penstock.askTimeout",
        Seconds(),
        "30s",
        "How long an answer between driver, receivers and block servers may take.",
    )
    tracker_port: int = _setting(
        "spark.penstock.tracker.port",
        Whole(minimum=0, maximum=65535),
        "0",
        "The port on which the driver listens for receivers; 0 takes a free one. When it is taken "
        "the ports after it are tried, as many as `spark.port.maxRetries`.",
    )
    tracker_bind_address: str | None = _setting(
        "spark.penstock.tracker.bindAddress",
        Text("an IP address or a host name of the driver"),
        None,
        "The address on which the driver listens for receivers.",
        unset="that of the Spark driver, or loopback with a local master",
    )
    tls_enabled: bool = _setting(
        "spark.penstock.tls.enabled",
        Flag(),
        "false",
        "Encrypt the connections between driver, receivers, block servers and batch tasks, by a "
        "certificate that the driver makes for the application. Needs the package cryptography in "
        "the driver. True by default where one of `spark.ssl.enabled`, `spark.ssl.rpc.enabled` "
        "and `spark.network.crypto.enabled` is.",
    )
    io_encryption_enabled: bool = _setting(
        IO_ENCRYPTION,
        Flag(),
        "false",
        "Encrypt logs, checkpoints and saved RDDs on disk. Spark's own setting, for its own files "
        "too. Needs the package cryptography in the driver and on every host, and with a "
        "checkpoint directory, `spark.penstock.wal.dir` or `spark.penstock.deadLetters.dir` a key "
        "in the environment variable "
        "`PENSTOCK_ENCRYPTION_KEY` of the driver ([security.md](security.md#on-disk)).",
    )
    max_frame_bytes: int = _setting(
        "spark.penstock.maxFrameSize",
        Size(minimum=64 << 10, maximum=1 << 30),
        "8m",
        "The largest control message; a connection that announces more is closed.",
    )
    block_server_port: int = _setting(
        "spark.penstock.blockServer.port",
        Whole(minimum=0, maximum=65535),
        "0",
        "The port on which each host's block server listens for batch tasks of other hosts, with "
        "those after it as above; 0 takes a free one.",
    )
    port_max_retries: int = _setting(
        "spark.port.maxRetries",
        Whole(minimum=0, unit="ports"),
        "16",
        "How many ports are tried after one that is taken. Spark's own setting, for its ports too.",
    )
    block_server_lease_s: float = _setting(
        "spark.penstock.blockServer.lease",
        Seconds(minimum_ms=1000),
        "60s",
        "How long a host's receivers live on without a word from the driver, and its block server "
        "when the driver's process was on the same host and is gone.",
    )
    driver_timeout_s: float = _setting(
        "spark.penstock.blockServer.driverTimeout",
        Seconds(minimum_ms=1000),
        "2h",
        "How long a driver that is not known to be dead may be silent until block servers end, and "
        "remove what no other driver could recover: all blocks, where no folder is set.",
    )

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
                    if isinstance(setting.kind, StorageAddress):
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
    """Return the known key that is most like `key`, whatever the case of its letters."""
    known = {line.key.lower(): line.key for line in settings_table()}
    return known[difflib.get_close_matches(key.lower(), known, n=1, cutoff=0.0)[0]]


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
