"""What a program gives that cannot be right is refused where it is given, with the way out."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import SparkContext, StorageLevel
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType
from pyspark.streaming import StreamingListener as SparkListener

from penstock.blockstore.arrow_frames import UnsupportedColumnError
from penstock.errors import IllegalStateError, SettingError
from penstock.receiver import Receiver, receiver
from penstock.sources import SocketReceiver
from penstock.streaming import StreamingContext, StreamingContextState, StreamingListener
from penstock.tracker import ReceiverPickleError
from penstock.wal import UnwritableFolderError
from tests.streaming.batches import batches


@pytest.fixture
def ssc(sc: SparkContext) -> Iterator[StreamingContext]:
    made = StreamingContext(sc, 1)
    yield made
    made.stop(stopSparkContext=False)


def some() -> Iterator[dict[str, int]]:
    yield {"n": 1}


def nothing(*_: Any) -> None:
    pass


class Idle(Receiver):
    """Receives nothing."""

    def onStart(self) -> None:
        pass

    def onStop(self) -> None:
        pass


# -- what a context is made of ---------------------------------------------------------------------


def test_a_session_is_taken_for_its_context(sc: SparkContext) -> None:
    made = StreamingContext(SparkSession(sc), 1)
    assert made.sparkContext is sc
    made.stop(stopSparkContext=False)


def test_what_has_no_spark_context_is_refused() -> None:
    given: Any = "local[2]"
    with pytest.raises(TypeError, match=r"sparkContext='local.*a SparkContext or a SparkSession"):
        StreamingContext(given, 1)

    class Connect:
        pass

    Connect.__module__ = "pyspark.sql.connect.session"
    remote: Any = Connect()
    with pytest.raises(TypeError, match="Spark Connect has none"):
        StreamingContext(remote, 1)


def test_a_spark_context_that_was_stopped_is_refused(
    sc: SparkContext, ssc: StreamingContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssc.queueStream([[1]]).foreachRDD(nothing)
    monkeypatch.setattr(sc, "_jsc", None)
    with pytest.raises(IllegalStateError, match="was stopped; make a new one"):
        StreamingContext(sc, 1)
    with pytest.raises(IllegalStateError, match="was stopped; make a new one"):
        ssc.start()
    assert StreamingContext.getActive() is None
    monkeypatch.undo()


@pytest.mark.parametrize("seconds", [float("nan"), float("inf")])
def test_what_is_no_duration_is_refused(
    sc: SparkContext, ssc: StreamingContext, seconds: float
) -> None:
    with pytest.raises(ValueError, match=f"batchDuration must be a number of .* not {seconds}"):
        StreamingContext(sc, seconds)
    with pytest.raises(ValueError, match="windowDuration must be a number of seconds"):
        ssc.queueStream([[1]]).window(seconds)


# -- streams ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "port", "error", "says"),
    [
        (9999, "localhost", TypeError, "hostname=9999 is not accepted"),
        ("", 9999, ValueError, "hostname='' is not accepted"),
        ("localhost", "9999", TypeError, "port='9999' is not accepted: a whole number from 1"),
        ("localhost", 0, ValueError, "port=0 is not accepted"),
        ("localhost", 65536, ValueError, "port=65536 is not accepted: .* to 65535"),
        ("localhost", True, TypeError, "port=True"),
    ],
)
def test_an_address_that_is_none_is_refused(
    ssc: StreamingContext, host: Any, port: Any, error: type[Exception], says: str
) -> None:
    for make in (ssc.socketTextStream, ssc.rawSocketStream):
        with pytest.raises(error, match=says):
            make(host, port)
    with pytest.raises(error, match=says):
        ssc.socketStream(host, port, nothing)


def test_a_converter_must_be_a_function(ssc: StreamingContext) -> None:
    converter: Any = "utf-8"
    with pytest.raises(TypeError, match="converter='utf-8'"):
        ssc.socketStream("localhost", 9999, converter)


def test_a_storage_level_may_be_given_by_its_name(ssc: StreamingContext) -> None:
    class Named(Idle):
        storageLevel: Any = "disk_only"

    class Own(Named):
        def __init__(self) -> None:
            """Without that of the base class."""

    declared = receiver(storageLevel="MEMORY_ONLY")(some)
    for given, level in (
        (declared, StorageLevel.MEMORY_ONLY),
        (Named(), StorageLevel.DISK_ONLY),
        (Named("MEMORY_ONLY"), StorageLevel.MEMORY_ONLY),
        (Own(), StorageLevel.DISK_ONLY),
        (Idle(), StorageLevel.MEMORY_AND_DISK_2),
        (SocketReceiver("localhost", 1, "MEMORY_AND_DISK"), StorageLevel.MEMORY_AND_DISK),
    ):
        node: Any = ssc.receiverStream(given)._node
        assert node.receiver.storageLevel == level
    assert ssc.queueStream([[1]]).persist("MEMORY_ONLY_2")._node.storage_level == (
        StorageLevel.MEMORY_ONLY_2
    )


@pytest.mark.parametrize(
    ("level", "error"), [("MEMORY", ValueError), (5, TypeError), (True, TypeError)]
)
def test_what_is_no_storage_level_is_refused_with_all_that_are(
    ssc: StreamingContext, level: Any, error: type[Exception]
) -> None:
    says = f"storageLevel={level!r} is not accepted.*DISK_ONLY, DISK_ONLY_2"
    with pytest.raises(error, match=says):
        receiver(storageLevel=level)
    with pytest.raises(error, match=says):
        SocketReceiver("localhost", 1, level)
    with pytest.raises(error, match=says):
        ssc.queueStream([[1]]).persist(level)

    class Misspelt(Idle):
        storageLevel = level

    with pytest.raises(error, match=says):
        Misspelt()


@pytest.mark.parametrize("copies", [0, -1, 40, "2", 1.5, True, None])
def test_a_storage_level_of_no_copy_or_too_many_is_refused(
    ssc: StreamingContext, copies: Any
) -> None:
    level = StorageLevel(True, True, False, False, copies)
    with pytest.raises(ValueError, match="replication, is a number of copies from 1 to 39"):
        receiver(storageLevel=level)
    with pytest.raises(ValueError, match="replication, is a number of copies from 1 to 39"):
        ssc.queueStream([[1]]).persist(level)


@pytest.mark.parametrize(
    "schema",
    [
        "n BIGINT",
        StructType([StructField("n", LongType())]),
        pa.schema([("n", pa.int64())]),
    ],
    ids=["DDL", "StructType", "Arrow"],
)
def test_a_schema_in_each_form_is_taken(ssc: StreamingContext, schema: Any) -> None:
    class Subclass(Idle):
        pass

    Subclass.schema = schema
    for given in (receiver(schema=schema)(some), Subclass()):
        node: Any = ssc.receiverStream(given)._node
        assert node.receiver.schema == pa.schema([("n", pa.int64())])


def test_what_is_no_schema_is_refused(ssc: StreamingContext) -> None:
    given: Any = {"n": "bigint"}
    with pytest.raises(TypeError, match=r"schema=\{'n': 'bigint'\} is not accepted: a pyarrow"):
        receiver(schema=given)
    for ddl in ("n BIGIN", "int"):
        with pytest.raises(ValueError, match=f"schema='{ddl}' is not accepted.*DDL such as"):
            ssc.receiverStream(receiver(schema=ddl)(some))


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("", "it has no columns"),
        (StructType([]), "it has no columns"),
        (pa.schema([]), "it has no columns"),
        ("n INT, m INT, n INT", "two columns have the name 'n'"),
    ],
    ids=["DDL", "StructType", "Arrow", "twice"],
)
def test_columns_of_a_schema_have_one_name_each(
    ssc: StreamingContext, schema: Any, reason: str
) -> None:
    with pytest.raises(ValueError, match=rf"schema=.* is not accepted: .*\({reason}\)"):
        ssc.receiverStream(receiver(schema=schema)(some))


@pytest.mark.parametrize("positions", ["yes", 1, None])
def test_positions_are_declared_by_true_or_false(positions: Any) -> None:
    with pytest.raises(TypeError, match=r"positions=.* is not accepted: True or False"):
        receiver(positions=positions)


def test_a_receiver_without_a_method_that_it_must_have_is_refused(ssc: StreamingContext) -> None:
    class OnlyStops(Receiver):
        def onStop(self) -> None:
            pass

    class Misspelt(Receiver):
        def onStart(self) -> None:
            pass

        def onstop(self) -> None:
            pass

    with pytest.raises(TypeError, match=r"OnlyStops must define onStart\(\), as each .*does$"):
        ssc.receiverStream(OnlyStops())
    with pytest.raises(TypeError, match=r"must define onStop\(\), .*; onstop\(\) is another"):
        ssc.receiverStream(Misspelt())
    borrowed: Any = OnlyStops()
    borrowed.onStart = nothing
    assert ssc.receiverStream(borrowed) is not None


LOCK = threading.Lock()


def test_a_receiver_that_cannot_be_sent_names_function_line_and_variable(
    ssc: StreamingContext,
) -> None:
    lock = threading.Lock()

    def locked() -> Iterator[int]:
        with lock:
            yield 1

    class Holds(Idle):
        def __init__(self) -> None:
            super().__init__()
            self.held = {"lock": lock}

    line = locked.__code__.co_firstlineno
    with pytest.raises(ReceiverPickleError) as caught:
        ssc.receiverStream(locked)
    assert f"locked (test_arguments.py:{line}) -> closure variable 'lock'" in str(caught.value)
    assert "cannot pickle '_thread.lock' object" in str(caught.value)
    with pytest.raises(ReceiverPickleError, match=r"attribute 'held' -> \['lock'\]"):
        ssc.receiverStream(Holds())
    assert ssc._graph.inputs == []


def test_a_receiver_with_an_open_file_is_refused(ssc: StreamingContext) -> None:
    with open(__file__) as file:

        def lines() -> Iterator[str]:
            yield from file

        with pytest.raises(
            ReceiverPickleError, match=r"closure variable 'file'.*an open file cannot be sent"
        ):
            ssc.receiverStream(lines)

    def printed() -> Iterator[str]:
        print("one", file=sys.stderr)
        yield "one"

    ssc.receiverStream(printed)


# -- operations ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "func",
    [lambda frame: None, lambda frame, time, more: None, lambda: None],
    ids=["one", "three", "none"],
)
def test_the_function_of_foreach_batch_takes_two_arguments(
    ssc: StreamingContext, func: Any
) -> None:
    with pytest.raises(TypeError, match="is called with 2 arguments, the DataFrame and the batch"):
        ssc.receiverStream(some).foreachBatch(func)


def test_a_schema_that_no_dataframe_can_have_is_refused(ssc: StreamingContext) -> None:
    @receiver(schema=pa.schema([("at", pa.month_day_nano_interval())]))
    def intervals(ctx: Any) -> Any:
        yield {}

    stream = ssc.receiverStream(intervals)
    with pytest.raises(UnsupportedColumnError, match="column 'at' is of the Arrow type month_day"):
        stream.foreachBatch(nothing)


def test_other_functions_of_two_arguments_are_taken(ssc: StreamingContext) -> None:
    class Callable:
        def __call__(self, frame: Any, time: Any, more: int = 0) -> None: ...

        def method(self, frame: Any, time: Any) -> None: ...

    for func in (Callable(), Callable().method, nothing, max):
        ssc.receiverStream(some).foreachBatch(func)


@pytest.mark.parametrize(
    ("num", "error"), [("x", TypeError), (1.5, TypeError), (None, TypeError), (-1, ValueError)]
)
def test_what_is_printed_is_a_number_of_records(
    ssc: StreamingContext, num: Any, error: type[Exception]
) -> None:
    stream = ssc.queueStream([[1]])
    for method in (stream.pprint, stream.print):
        with pytest.raises(error, match=r"num=.* is not accepted: a whole number of records"):
            method(num)


@pytest.mark.parametrize(
    ("rate", "error"),
    [("1000/s", ValueError), (0, ValueError), (-1.0, ValueError), ([], TypeError)],
)
def test_what_is_no_rate_is_refused_with_one_that_is(
    ssc: StreamingContext, rate: Any, error: type[Exception]
) -> None:
    stream = ssc.receiverStream(some)
    for method in (stream.set_rate, stream.set_byte_rate):
        with pytest.raises(error, match=r'rate=.* is not accepted: .* "50000/second"'):
            method(rate)


@pytest.mark.parametrize("timeout", ["60", True, [1], float("nan")])
def test_a_time_to_wait_that_is_no_number_is_refused_before_anything_starts(
    ssc: StreamingContext, timeout: Any
) -> None:
    ssc.receiverStream(some).pprint()
    for method in (ssc.run, ssc.awaitTermination, ssc.awaitTerminationOrTimeout):
        with pytest.raises((TypeError, ValueError), match=r"timeout=.* is not accepted: seconds"):
            method(timeout)
    assert ssc.getState() is StreamingContextState.INITIALIZED


@pytest.mark.parametrize("wrong", ["gracefully", 1, None])
def test_how_to_stop_is_said_by_true_or_false(ssc: StreamingContext, wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"stopSparkContext=.* is not accepted: True or False"):
        ssc.stop(wrong)
    with pytest.raises(TypeError, match=r"stopGraceFully=.* is not accepted: True or False"):
        ssc.stop(False, wrong)
    with pytest.raises(TypeError, match=r"stopSparkContext=.* is not accepted: True or False"):
        ssc.run(stopSparkContext=wrong)
    assert ssc.getState() is StreamingContextState.INITIALIZED


def test_what_shares_a_rate_is_a_list_of_streams(ssc: StreamingContext) -> None:
    stream: Any = ssc.receiverStream(some)
    for rate, streams in [(100, stream), ([stream], 100), (100, "some"), (100, [stream.map(str)])]:
        with pytest.raises(TypeError, match=r"streams=.* is not accepted: a list of streams"):
            ssc.rateGroup(rate, streams)


async def later(*_: Any) -> None:
    pass


def in_parts(*_: Any) -> Iterator[None]:
    yield


class Later:
    async def __call__(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize("func", [later, partial(later), Later(), in_parts])
def test_an_output_operation_that_a_call_would_not_run_is_refused(
    ssc: StreamingContext, func: Any
) -> None:
    stream = ssc.receiverStream(some)
    for method in (stream.foreachRDD, stream.foreachBatch):
        with pytest.raises(TypeError, match=r"func=.* is not accepted: it (is async|has a yield)"):
            method(func)


def test_streams_of_two_contexts_are_not_put_together(sc: SparkContext) -> None:
    first, second = StreamingContext(sc, 1), StreamingContext(sc, 1)
    mine, other = first.receiverStream(some), second.receiverStream(some)
    for put in (
        lambda: mine.union(other),
        lambda: first.union(mine, other),
        lambda: first.union(other),
        lambda: first.transform([other], lambda rdds: rdds[0]),
        lambda: first.rateGroup("1000/second", [mine, other]),
        lambda: first.rateGroup("1000/second", [other]),
    ):
        with pytest.raises(ValueError, match="belong to different contexts"):
            put()
    first.stop(stopSparkContext=False)
    second.stop(stopSparkContext=False)


@pytest.mark.parametrize("listener", [5, StreamingListener, object()])
def test_what_is_no_listener_is_refused(ssc: StreamingContext, listener: Any) -> None:
    with pytest.raises(TypeError, match=r"streamingListener=.* is not accepted: an instance of"):
        ssc.addStreamingListener(listener)


def test_a_listener_of_pyspark_is_taken(ssc: StreamingContext) -> None:
    listener: Any = SparkListener()
    ssc.addStreamingListener(listener)


def test_a_filter_of_files_must_be_a_function(ssc: StreamingContext, tmp_path: Path) -> None:
    wanted: Any = "*.txt"
    with pytest.raises(TypeError, match=r"fileFilter='\*.txt' is not accepted"):
        ssc.fileStream(str(tmp_path), "format", "key", "value", fileFilter=wanted)


# -- folders ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["s3a://bucket/checkpoints", "wasbs://b/c", "file+x:/tmp"])
def test_a_checkpoint_directory_that_cannot_be_synced_is_refused(
    ssc: StreamingContext, folder: str
) -> None:
    with pytest.raises(SettingError) as caught:
        ssc.checkpoint(folder)
    assert folder in str(caught.value)
    assert "on a local file system, on HDFS such as" in str(caught.value)


def test_a_checkpoint_directory_that_cannot_be_made_is_refused(
    ssc: StreamingContext, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UnwritableFolderError, match=r"folder \S*/file cannot .* it is a file; cho"):
        ssc.checkpoint(tmp_path / "file")
    with pytest.raises(UnwritableFolderError, match=r"a part of the path .* is a file"):
        ssc.checkpoint(tmp_path / "file" / "checkpoints")
    with pytest.raises(UnwritableFolderError, match="/proc/checkpoints"):
        ssc.checkpoint("/proc/checkpoints")


@pytest.mark.parametrize(
    ("folder", "error"), [(5, TypeError), ("", ValueError), (b"/tmp", TypeError)]
)
def test_what_is_no_folder_is_refused(
    ssc: StreamingContext, folder: Any, error: type[Exception]
) -> None:
    for method in (ssc.checkpoint, ssc.textFileStream):
        with pytest.raises(error, match=r"directory=.* is not accepted: a folder's path"):
            method(folder)


def test_a_folder_may_be_a_path(ssc: StreamingContext, tmp_path: Path) -> None:
    ssc.checkpoint(tmp_path / "checkpoints")
    ssc.textFileStream(tmp_path)
    assert (tmp_path / "checkpoints").is_dir()


def test_checkpoint_and_remember_belong_before_the_start(sc: SparkContext, tmp_path: Path) -> None:
    with batches(sc) as run:
        run.ssc.queueStream([[1]]).foreachRDD(nothing)
        run.start()
        with pytest.raises(IllegalStateError, match=r"remember\(60\).* call it before start"):
            run.ssc.remember(60)
        with pytest.raises(IllegalStateError, match=r"checkpoint\('/.* call it before start"):
            run.ssc.checkpoint(str(tmp_path))
        run.ssc.stop(False)
        with pytest.raises(IllegalStateError, match="call it before start"):
            run.ssc.checkpoint(str(tmp_path))


# -- what operations are given ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda stream, count: stream.repartition(count),
        lambda stream, count: stream.reduceByKey(max, count),
        lambda stream, count: stream.partitionBy(count),
        lambda stream, count: stream.arrow.value_counts(numPartitions=count),
    ],
)
def test_a_number_of_partitions_is_one_or_more(ssc: StreamingContext, call: Any) -> None:
    stream = ssc.socketTextStream("localhost", 9999)
    for wrong in (0, -1):
        with pytest.raises(
            ValueError, match=f"numPartitions={wrong} is not accepted: .* 1 or more"
        ):
            call(stream, wrong)
    with pytest.raises(TypeError, match="numPartitions='2' is not accepted"):
        call(stream, "2")
    call(stream, 2)


def test_a_name_can_be_printed(ssc: StreamingContext) -> None:
    stream = ssc.socketTextStream("localhost", 9999)
    for wrong in ("two\nlines", "a\x1b[31m", "\ud800"):
        with pytest.raises(ValueError, match="is not accepted: a stream's name is printable text"):
            stream.named(wrong)
    assert "Bestellungen für März" in repr(stream.named("Bestellungen für März"))


def test_an_operation_that_record_batches_do_not_have_names_the_way_to_it(
    ssc: StreamingContext,
) -> None:
    batches = ssc.receiverStream(some).arrow.map(lambda batch: batch)
    with pytest.raises(AttributeError, match=r"stream\.arrow\.records\(\)\.pprint\("):
        batches.pprint()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"has no attribute 'pprnt'$"):
        batches.pprnt()  # type: ignore[attr-defined]


def test_a_subclass_of_a_source_keeps_the_level_that_it_declares() -> None:
    class Own(SocketReceiver):
        storageLevel = StorageLevel.DISK_ONLY

    assert Own("localhost", 1).storageLevel == StorageLevel.DISK_ONLY
    assert Own("localhost", 1, "MEMORY_ONLY").storageLevel == StorageLevel.MEMORY_ONLY
