"""What is run, what is set beside what, and what is to be reached."""

from __future__ import annotations

import os
from collections.abc import Mapping

from benchmarks.case import Case, Check, Subject
from benchmarks.feeder import FeederOptions
from benchmarks.programs._program import ProgramOptions
from benchmarks.streaming_run import StreamingRun

__all__ = ["CASES", "CORES", "MEMORY_BOUND_MIB", "SUBJECTS", "Case", "Check", "Subject"]

CORES = (os.cpu_count() or 1) + 1
"""N of ``local[N]``, for both sides: a slot for the receiver, and as many for tasks as there are
cores. A receiver waits for its source most of the time; with one slot less, the peer loses half."""

ARENA_MIB = 2048
"""The default of `spark.penstock.memory.size`."""
MEMORY_BOUND_MIB = ARENA_MIB + 256
"""The arena, and room for an interpreter with Arrow in it."""

_PROGRAMS = "benchmarks.programs."
_UI = "spark.penstock.ui.enabled"
_SERVICES = "more results"
"""The section of what needs more than one host, a service, or minutes for a figure."""
_QUERIES = "results of queries"
"""The section of Structured Streaming on received records."""
_WORD_COUNTS = "word counts"
"""The section of word counts, which are measured by themselves: minutes, not an hour."""
_OPERATION = "results of operation"
"""The section of what a program costs that is looked at, and of reading again what it stored."""


def _streaming(
    side: str,
    program: str,
    variant: str = "",
    *,
    feeder: FeederOptions | None = None,
    record_bytes: int = 100,
    batch_s: float = 1.0,
    block_ms: int = 200,
    fed: bool = True,
    memory_only: bool = False,
    settings: tuple[tuple[str, str], ...] = (),
    watched: str = "",
    least_warm_up_s: float = 0.0,
) -> StreamingRun:
    options = ProgramOptions(
        side=side,
        folder="",
        variant=variant,
        cores=CORES,
        batch_s=batch_s,
        block_ms=block_ms,
        record_bytes=record_bytes,
        settings=settings,
        watched=watched,
    )
    if fed and feeder is None:
        feeder = FeederOptions(record_bytes=record_bytes, batch_s=batch_s)
    return StreamingRun(_PROGRAMS + program, options, feeder, memory_only, least_warm_up_s)


_COLD_S = 30.0
"""So long a cold JVM's short batches may take until they have caught up with what comes."""
_WORDS = FeederOptions(content="words")
_TWO_WORDS = FeederOptions(
    content="words", record_bytes=12, words_per_line=2, least_in_flight_bytes=4 << 20
)
_FEW_WORDS = FeederOptions(content="words", least_in_flight_bytes=1 << 20)
_STAMPED = FeederOptions(stamped_per_s=10_000)
_LATE = FeederOptions(in_flight_batches=0, most_bytes=6 << 30)

_ALL = (
    Subject("peer-count", "pyspark.streaming", _streaming("pyspark", "count", "count"), peer=True),
    Subject("count", "Penstock", _streaming("penstock", "count", "count")),
    Subject(
        "peer-count-jvm",
        "pyspark.streaming, counted in the JVM",
        _streaming("pyspark", "count", "jvm"),
        peer=True,
    ),
    Subject(
        "iterate",
        "Penstock, counted as Python objects",
        _streaming("penstock", "count", "iterate"),
    ),
    Subject(
        "peer-count-1kb",
        "pyspark.streaming",
        _streaming("pyspark", "count", "count", record_bytes=1000),
        peer=True,
    ),
    Subject("count-1kb", "Penstock", _streaming("penstock", "count", "count", record_bytes=1000)),
    *(
        Subject(
            f"store-{variant}", "Penstock", _streaming("penstock", "store_loop", variant, fed=False)
        )
        for variant in ("bytes", "str", "dict", "batch")
    ),
    Subject(
        "peer-words",
        "pyspark.streaming",
        _streaming("pyspark", "word_count", feeder=_WORDS),
        peer=True,
    ),
    Subject("words", "Penstock", _streaming("penstock", "word_count", feeder=_WORDS)),
    *(
        Subject(
            f"{prefix}words-two",
            title,
            _streaming(side, "word_count", "two", feeder=_TWO_WORDS, record_bytes=12),
            peer=bool(prefix),
        )
        for prefix, side, title in (
            ("peer-", "pyspark", "pyspark.streaming"),
            ("", "penstock", "Penstock"),
        )
    ),
    Subject(
        "arrow-words",
        "Penstock, operations on columns",
        _streaming("penstock", "word_count", "arrow", feeder=_WORDS),
    ),
    *(
        Subject(
            f"{prefix}latency-{milliseconds}",
            title,
            _streaming(
                side,
                "latency",
                feeder=_STAMPED,
                batch_s=milliseconds / 1000,
                block_ms=50,
                least_warm_up_s=_COLD_S,
            ),
            peer=bool(prefix),
        )
        for milliseconds in (200, 100)
        for prefix, side, title in (
            ("peer-", "pyspark", "pyspark.streaming"),
            ("", "penstock", "Penstock"),
        )
    ),
    Subject(
        "structured-sql-words",
        "Structured Streaming, socket source",
        _streaming("pyspark", "sql_word_count", "structured", feeder=_FEW_WORDS),
        peer=True,
    ),
    Subject(
        "sql-words", "Penstock", _streaming("penstock", "sql_word_count", "penstock", feeder=_WORDS)
    ),
    Subject("segment-log", "Penstock", _PROGRAMS + "segment_log"),
    Subject("encryption", "Penstock", _PROGRAMS + "encryption"),
    Subject("replay", "Penstock", _PROGRAMS + "replay"),
    *(
        Subject(f"{name}-{how}", f"Penstock, {title}", run)
        for how, title, watched, settings in (
            ("unwatched", f"`{_UI}=false`", "", ((_UI, "false"),)),
            ("watched", "its page open and its metrics scraped", "page", ()),
        )
        for name, run in (
            ("count", _streaming("penstock", "count", "count", settings=settings, watched=watched)),
            (
                "words",
                _streaming(
                    "penstock", "word_count", feeder=_WORDS, settings=settings, watched=watched
                ),
            ),
            (
                "latency",
                _streaming(
                    *("penstock", "latency"),
                    feeder=_STAMPED,
                    batch_s=0.2,
                    block_ms=50,
                    settings=settings,
                    watched=watched,
                ),
            ),
        )
    ),
    Subject(
        "count-tapped",
        "Penstock, `penstock tap` beside it",
        _streaming("penstock", "count", "count", watched="tap"),
    ),
    Subject("monitor-views", "Penstock", _PROGRAMS + "monitor_views"),
    Subject("monitor-page", "Penstock", _PROGRAMS + "monitor_page"),
    Subject("limiter", "Penstock", _PROGRAMS + "limiter"),
    Subject("add-block", "Penstock", _PROGRAMS + "add_block"),
    Subject("frame-tags", "Penstock", _PROGRAMS + "frame_tags"),
    Subject("tracker-many", "Penstock", _PROGRAMS + "tracker_many"),
    Subject("tracker-day", "Penstock", _PROGRAMS + "tracker_day"),
    Subject("many", "Penstock", _PROGRAMS + "many"),
    Subject("remote-read", "Penstock", _PROGRAMS + "remote_read"),
    Subject("hdfs-log", "Penstock and pyspark.streaming", _PROGRAMS + "hdfs_log"),
    Subject("killed-executor", "Penstock and pyspark.streaming", _PROGRAMS + "killed_executor"),
    Subject("recovery", "Penstock", _PROGRAMS + "recovery"),
    Subject("recovery-of-state", "Penstock", _PROGRAMS + "recovery_of_state"),
    Subject("peer-rate-settle", "pyspark.streaming", _PROGRAMS + "rate_settle_peer", peer=True),
    Subject("rate-settle", "Penstock", _PROGRAMS + "rate_settle"),
    Subject("rate-group", "Penstock", _PROGRAMS + "rate_group"),
    Subject("rate-settle-aimd", "Penstock, AIMD", _PROGRAMS + "rate_settle_aimd"),
    Subject("kafka-reading", "Penstock", _PROGRAMS + "kafka_reading"),
    Subject("query-reading", "Penstock", _PROGRAMS + "query_reading"),
    Subject("query-latency", "Penstock", _PROGRAMS + "query_latency"),
    Subject("query-trigger", "Penstock", _PROGRAMS + "query_trigger"),
    Subject("query-many", "Penstock", _PROGRAMS + "query_many"),
    Subject("operations", "Penstock and pyspark.streaming", _PROGRAMS + "operations"),
    Subject(
        "memory",
        "Penstock",
        _streaming("penstock", "slow_batches", feeder=_LATE, memory_only=True),
    ),
)

SUBJECTS: Mapping[str, Subject] = {subject.name: subject for subject in _ALL}

CASES: tuple[Case, ...] = (
    Case(
        "count",
        "socket text, `rdd.count()`",
        "count",
        "peer-count",
        (Check("records_per_s", times_at_least=8),),
        also=("peer-count-jvm", "iterate"),
    ),
    Case(
        "count-1kb",
        "the same with 1 kB lines",
        "count-1kb",
        "peer-count-1kb",
        (Check("records_per_s", times_at_least=5),),
    ),
    Case(
        "store-bytes",
        "`store(bytes)` for each record in a loop, count",
        "store-bytes",
        "peer-count",
        (Check("records_per_s", times_at_least=4),),
    ),
    Case(
        "store-str",
        "the same storing `str`",
        "store-str",
        "peer-count",
        (Check("records_per_s"),),
    ),
    Case(
        "store-dict",
        "the same storing `dict` with a schema",
        "store-dict",
        "peer-count",
        (Check("records_per_s"),),
    ),
    Case(
        "store-batch",
        "the same storing `pa.RecordBatch`, beside socket text",
        "store-batch",
        "count",
        (Check("records_per_s", times_at_least=1),),
    ),
    Case(
        "words",
        "word count through the RDD API, in plain Python functions, 16 words a line",
        "words",
        "peer-words",
        (Check("records_per_s", times_at_least=4),),
        section=_WORD_COUNTS,
    ),
    Case(
        "words-two",
        "the same with 2 words a line, of 12 bytes",
        "words-two",
        "peer-words-two",
        (Check("records_per_s"),),
        section=_WORD_COUNTS,
    ),
    Case(
        "words-columns",
        '16 words a line by columns, `lines.arrow.split(" ").value_counts()`',
        "arrow-words",
        "peer-words",
        (Check("records_per_s", times_at_least=20),),
        section=_WORD_COUNTS,
    ),
    Case(
        "latency",
        "latency from send to `foreachRDD`, 10,000 records/s, 200 ms batches, 50 ms blocks",
        "latency-200",
        "peer-latency-200",
        (
            Check("p50_ms", times_at_most=0.5, title="p50"),
            Check("p99_ms", times_at_most=0.5, title="p99"),
        ),
    ),
    Case(
        "latency-100ms",
        "the same with 100 ms batches",
        "latency-100",
        "peer-latency-100",
        (Check("keeps_up", at_least=1, title="keeps up"), Check("p99_ms", title="p99")),
    ),
    Case(
        "sql-words",
        "batch as a DataFrame (`foreachBatch`), SQL word count",
        "sql-words",
        "structured-sql-words",
        (Check("records_per_s"),),
    ),
    Case(
        "segment-log",
        "segment log alone, bytes synced per second, as a share of the best raw write",
        "segment-log",
        checks=(Check("share_of_raw", at_least=0.6, title="share of the best raw write"),),
        main=False,
    ),
    Case(
        "encryption",
        "the log with encryption, share of its speed without, written and synced, and read",
        "encryption",
        checks=(
            Check("encrypted_mb_per_s", title="MB/s written, encrypted"),
            Check("clear_mb_per_s", title="MB/s written, in clear"),
            Check("share_of_clear", title="share of it"),
            Check("share_read_of_clear", title="share when read"),
        ),
        main=False,
        section=_SERVICES,
    ),
    Case(
        "replay",
        "a stream read again from a local log into Arrow, by one thread",
        "replay",
        checks=(
            Check("rows_mb_per_s", at_least=1000, title="MB/s, Arrow batches"),
            Check("lines_mb_per_s", title="MB/s, lines, which are cut"),
            Check("plain_mb_per_s", title="MB/s of a plain read of the files"),
        ),
        main=False,
        section=_OPERATION,
    ),
    Case(
        "monitor",
        "socket text, `rdd.count()`, looked at, beside the same with no one able to look",
        "count-watched",
        "count-unwatched",
        (Check("records_per_s", times_at_least=0.99),),
        section=_OPERATION,
    ),
    Case(
        "monitor-words",
        "word count, looked at, beside the same with no one able to look",
        "words-watched",
        "words-unwatched",
        (Check("records_per_s", times_at_least=0.99),),
        section=_OPERATION,
    ),
    Case(
        "monitor-latency",
        "latency at 10,000 records/s, looked at, beside the same with no one able to look",
        "latency-watched",
        "latency-unwatched",
        (Check("p99_ms", more_at_most=1, title="ms more at p99"),),
        section=_OPERATION,
    ),
    Case(
        "monitor-tap",
        "socket text, `rdd.count()`, tapped, beside the same with no one able to look",
        "count-tapped",
        "count-unwatched",
        (Check("records_per_s", times_at_least=0.99),),
        section=_OPERATION,
    ),
    Case(
        "monitor-page",
        "the page of 64 receivers and 1,000 batches in a browser on this machine",
        "monitor-page",
        checks=(
            Check("first_paint_ms", at_most=1_000, title="ms to the first paint"),
            Check("shown_ms", at_most=1_000, title="ms until all of it is shown"),
            Check("update_ms", at_most=20, title="ms of the driver's processor for an update"),
        ),
        main=False,
        section=_OPERATION,
    ),
    Case(
        "monitor-views",
        "what is seen from outside, of 64 receivers and 1,000 batches",
        "monitor-views",
        checks=(
            Check("memory_mib", at_most=50, title="MiB"),
            Check("status_ms", at_most=20, title="ms of the processor for an update"),
            Check("metrics_ms", at_most=20, title="ms of the processor for a scrape"),
        ),
        main=False,
        section=_OPERATION,
    ),
    Case(
        "limiter",
        "rate limiter at a rate it never reaches, and its accuracy over 10 s",
        "limiter",
        checks=(
            Check("lease_ns_per_record", at_most=60, title="ns per record in bulk lease"),
            Check("largest_error", at_most=0.01, title="largest error of three rates"),
        ),
        main=False,
    ),
    Case(
        "tracker",
        "`AddBlock` from four connections, log synced",
        "add-block",
        checks=(Check("messages_per_s", at_least=20_000, title="messages/s"),),
        main=False,
    ),
    Case(
        "frame-tags",
        "the tag of a message of 300 bytes, made and checked",
        "frame-tags",
        checks=(Check("us_per_frame", title="µs of both ends together"),),
        main=False,
        section=_SERVICES,
    ),
    Case(
        "tracker-many",
        "a tracker alone with 1,000 receivers and 100,000 blocks a minute, log synced",
        "tracker-many",
        checks=(
            # What is paced stops between two blocks: a hundredth is left to that.
            Check("added_per_minute", at_least=99_000, title="blocks a minute"),
            Check("p50_ms", at_most=1, title="answer, p50 ms"),
            Check("p99_ms", at_most=20, title="answer, p99 ms"),
            Check("in_driver_p99_ms", title="of it in the driver, p99 ms"),
            Check("driver_cores", title="cores that the driver uses"),
            Check("log_mib_per_minute", title="driver log, MiB a minute"),
            Check("allocation_ms", title="allocation of a batch of 1 s, ms"),
            Check("longest_allocation_ms", at_most=20, title="the longest, ms"),
            Check("allocation_us_per_block", title="allocation per block, µs"),
            Check("single_added_per_minute", title="blocks a minute, one in a message"),
            Check("most_added_per_minute", at_least=3_000_000, title="blocks a minute, at most"),
        ),
        main=False,
        section=_SERVICES,
    ),
    Case(
        "tracker-day",
        "24 simulated hours of a tracker, 64 receivers, 2,000 blocks a batch of 30 s",
        "tracker-day",
        checks=(
            Check("memory_growth_mib", at_most=16, title="growth of memory after hour 1, MiB"),
            Check("objects_growth", at_most=0.02, title="growth of the number of objects, share"),
            Check("traced_growth_mib", at_most=1, title="growth of traced memory, 5 hours, MiB"),
            Check("most_log_mib", at_most=64, title="driver log's folder at most, MiB"),
            Check("allocation_ms", title="allocation of a batch in the last hour, ms"),
            Check("allocation_us_per_block", title="the same per block, µs"),
        ),
        main=False,
        section=_SERVICES,
    ),
    Case(
        "many",
        "64 receivers on 8 executors of 512 MiB, 2,000 blocks a batch of 20 s",
        "many",
        checks=(
            Check("blocks_per_batch", at_least=1_900, title="blocks in a batch"),
            Check("batch_s", at_most=20, title="seconds of a batch's job"),
            Check("ms_per_block", title="the same per block, ms"),
            Check("registered_s", title="seconds until all receivers are registered"),
            Check("memory_mib", title="memory of all processes, MiB"),
        ),
        main=False,
        section=_SERVICES,
    ),
    Case(
        "remote-read",
        "blocks of another host, bytes per second as a share of a plain socket copy",
        "remote-read",
        checks=(
            Check("share_32_mib", at_least=0.9, title="share of a plain copy, block of 32 MiB"),
            Check("share_8_mib", at_least=0.8, title="block of 8 MiB"),
            Check("share_1_mib", at_least=0.6, title="block of 1 MiB"),
            Check("sealed_share_32_mib", title="sealed as between hosts, block of 32 MiB"),
            Check("sealed_share_8_mib", title="sealed as between hosts, block of 8 MiB"),
            Check("sealed_share_1_mib", title="sealed as between hosts, block of 1 MiB"),
        ),
        main=False,
        section=_SERVICES,
    ),
    Case(
        "hdfs-log",
        "socket text counted on a standalone cluster, logs on HDFS",
        "hdfs-log",
        checks=(Check("of_peer", at_least=2, title="records/s, times the original's"),),
        main=False,
        section=_SERVICES,
    ),
    Case(
        "killed-executor",
        "from SIGKILL of a receiver's executor until a batch has records again",
        "killed-executor",
        checks=(Check("of_peer", at_most=0.5, title="time, share of the original's"),),
        main=False,
        section=_SERVICES,
    ),
    Case(
        "recovery",
        "recovery of a ledger with one million blocks",
        "recovery",
        checks=(Check("recovery_s", at_most=10, title="seconds"),),
        main=False,
    ),
    Case(
        "recovery-of-state",
        "recovery of a program from its checkpoint, by keys of state and MiB in its functions",
        "recovery-of-state",
        checks=(
            Check("100000_keys_first_batch_s", at_most=5, title="seconds with 100,000 keys"),
            Check("1000000_keys_first_batch_s", at_most=20, title="seconds with 1,000,000 keys"),
            Check("1000_keys_64_mib_first_batch_s", at_most=5, title="seconds with 64 MiB"),
        ),
        main=False,
        section=_SERVICES,
    ),
    Case(
        "rate-settle",
        "cold start with backpressure, batches that can do 20,000 records/s",
        "rate-settle",
        "peer-rate-settle",
        (
            Check("settle_s", times_at_most=0.5, title="time to within 5 %, of the peer's"),
            Check("queued_batches", at_most=2, title="most that queued up, in full batches"),
            Check("utilisation", at_least=0.95, title="utilisation in the second half"),
        ),
        main=False,
        section=_SERVICES,
    ),
    Case(
        "rate-settle-aimd",
        "the same with AIMD",
        "rate-settle-aimd",
        "peer-rate-settle",
        (
            Check("settle_s", times_at_most=0.5, title="time to within 5 %, of the peer's"),
            Check("queued_batches", at_most=2, title="most that queued up, in full batches"),
            Check("utilisation", at_least=0.95, title="utilisation in the second half"),
        ),
        main=False,
        section=_SERVICES,
    ),
    Case(
        "rate-group",
        "one total over eight receivers with unequal sources",
        "rate-group",
        checks=(
            Check("used_share", at_least=0.98, title="part of the total that is used, at least"),
            Check("largest_used_share", at_most=1.02, title="the same, at most"),
        ),
        main=False,
        section=_SERVICES,
    ),
    Case(
        "operations",
        "operations of streams, a million records a batch, beside pyspark.streaming",
        "operations",
        checks=(
            # Some are the same calls of the JVM on both sides: what noise is must be left to them.
            Check("least_ratio", at_least=0.95, title="speed of the slowest, times the original's"),
            Check("sliding_ratio", at_least=1.5, title="sliding-window count by key, times"),
            Check("state_ratio", at_least=1.5, title="updateStateByKey, a million keys, times"),
            Check("empty_share", at_most=0.5, title="empty batch, share of the original's time"),
        ),
        main=False,
        section=_SERVICES,
    ),
    Case(
        "kafka",
        "Kafka, 100-byte values in 4 partitions, counted in Python",
        "kafka-reading",
        checks=(
            Check("direct_of_peer", at_least=2, title="direct stream, times Structured Streaming"),
            Check("frame_of_peer", title="the same as DataFrames"),
            Check("receiver_of_bare", at_least=0.8, title="receiver, times the bare client"),
            Check(
                "direct_of_bare_python",
                at_least=0.8,
                title="direct stream with kafka-python, times the bare client",
            ),
            Check("receiver_of_bare_python", at_least=0.8, title="receiver, the same"),
        ),
        main=False,
        section=_SERVICES,
    ),
    Case(
        "query-reading",
        "Structured Streaming on received records of 100 bytes, log synced",
        "query-reading",
        checks=(
            Check("count_of_kafka", at_least=5, title="count, times Spark's Kafka source"),
            Check("count_at_most", title="the same of a Python data source that does nothing else"),
            Check("count_of_socket", at_least=100, title="count, times its socket source"),
            Check("words_of_kafka", at_least=5, title="SQL word count, times the Kafka source"),
            Check("words_at_most", title="the same of a DataFrame in Spark's memory"),
            Check("words_of_socket", at_least=100, title="the same, times the socket source"),
            Check(
                "words_of_dstream",
                at_least=0.9,
                title="the same, times `foreachBatch` of a DStream",
            ),
        ),
        main=False,
        section=_QUERIES,
    ),
    Case(
        "query-latency",
        "from `store` to `foreachBatch` of a query, 10,000 records/s, 10 ms blocks, no trigger "
        "interval, beside Spark's Kafka source from `send`",
        "query-latency",
        checks=(
            Check("p50_of_kafka", at_most=0.5, title="p50, times the Kafka source's"),
            Check("p99_of_kafka", at_most=0.5, title="p99, times the Kafka source's"),
            Check("p50_ms", title="p50 ms"),
            Check("p99_ms", title="p99 ms"),
            Check("kafka_p50_ms", title="p50 ms of the Kafka source"),
            Check("kafka_p99_ms", title="p99 ms of the Kafka source"),
        ),
        main=False,
        section=_QUERIES,
    ),
    Case(
        "query-trigger",
        "a trigger of a query whose batch is nearly empty, beside `rate-micro-batch`",
        "query-trigger",
        checks=(
            Check("extra_ms", at_most=20, title="ms more"),
            Check("penstock_ms", title="ms"),
            Check("rate_ms", title="ms of `rate-micro-batch`"),
        ),
        main=False,
        section=_QUERIES,
    ),
    Case(
        "query-many",
        "64 receivers on 8 executors of 512 MiB as one source",
        "query-many",
        checks=(
            Check("blocks_growth", at_most=1.5, title="time with four times the blocks, times"),
            Check("bytes_growth", title="time with four times the bytes, times"),
            Check("most_partitions", title="partitions of a batch, at most"),
        ),
        main=False,
        section=_QUERIES,
    ),
    Case(
        "memory",
        "memory of a receiver that is fed 6 GiB faster than the batches run",
        "memory",
        checks=(
            Check(
                "peak_worker_mib", at_most=MEMORY_BOUND_MIB, title="peak PSS of its process, MiB"
            ),
        ),
        main=False,
    ),
)
