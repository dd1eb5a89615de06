"""A program made again from its checkpoint goes on as if it had not ended.

Its driver's death is a folder that is copied while the program runs (what a SIGKILL would leave),
or a stop that writes no last checkpoint. Real kills are in `tests/system/test_recovered_driver.py`.
"""

from __future__ import annotations

import logging
import operator
import os
import shutil
import threading
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import IllegalStateError
from penstock.streaming import (
    CheckpointReadError,
    LogFolderInUseError,
    OutputOperationError,
    StateSpec,
    StreamingContext,
    StreamingContextState,
)
from penstock.streaming.checkpoint.graph_pickling import dump, load
from penstock.streaming.dstream.node import DStreamNode
from penstock.streaming.recovery import recover_context
from tests.streaming.batches import WAIT_S
from tests.streaming.checkpoint.recovering import BATCH_MS, ZERO_MS, Keep, Program, ProgramOf
from tests.streaming.checkpoint.stored import ledger_of, stored_header

pytestmark = pytest.mark.timeout(900)

INPUT = [["a", "a", "b"], ["", ""], [], ["a"], ["b", "b"], ["a", "c"], [], ["c"], ["a"]]


def count(key: str, value: Any, state: Any) -> Any:
    total = (state.getOption() or 0) + (value or 0)
    if not state.isTimingOut():
        state.update(total)
    return (key, total, state.isTimingOut())


def every_kind(program: Program, ssc: StreamingContext) -> None:
    """Streams with and without memory; functions that close over both contexts."""
    sc, keep = ssc.sparkContext, Keep(program.results, "contexts")
    words = program.listed(ssc, INPUT)
    words.foreachRDD(
        lambda time, rdd: keep(time, rdd.union(sc.parallelize([ssc.getState().name], 1)))
    )
    pairs = words.map(lambda word: (word, 1))
    program.keep(pairs.reduceByKey(operator.add, 1), "counts")
    window = pairs.reduceByKeyAndWindow(
        lambda a, b: a + b, lambda a, b: a - b, 5, 1, 1, lambda pair: pair[1] > 0
    )
    program.keep(window.checkpoint(2), "window")
    states = pairs.updateStateByKey(
        lambda values, state: sum(values) + (state or 0),
        1,
        sc.parallelize([("a", 100)], 1),
    )
    # A checkpointed stream of a checkpointed one (SPARK-6847).
    program.keep(states.checkpoint(3).map(list).checkpoint(2), "states")
    spec = StateSpec.function(count).numPartitions(1).timeout(3).initialState([("z", 1)])
    mapped = pairs.mapWithState(spec)
    mapped.checkpoint(3)
    program.keep(mapped, "mapped")


def expected(number: int) -> dict[str, list[Any]]:
    """Return what every output operation of `every_kind` has to write for a batch."""
    batches = [Counter(batch) for batch in INPUT[:number]]
    totals, last = {"z": 1}, {"z": 1}
    mapped: list[Any] = []
    for now, batch in enumerate(INPUT[:number], 1):
        mapped = []
        for word in batch:
            totals[word], last[word] = totals.get(word, 0) + 1, now
            mapped.append([word, totals[word], False])
        for word in [word for word in totals if last[word] < now - 3]:
            mapped.append([word, totals.pop(word), True])
    whole = sum(batches, Counter({"a": 100}))
    window = sum(batches[-5:], Counter[str]())
    return {
        "contexts": sorted([*INPUT[number - 1], "ACTIVE"]),
        "counts": sorted(map(list, batches[-1].items())),
        "window": sorted(map(list, window.items())),
        "states": sorted(map(list, whole.items())),
        "mapped": sorted(mapped),
    }


@pytest.mark.long
@pytest.mark.slow
def test_every_kind_of_stream_goes_on(program_of: ProgramOf) -> None:
    """Spark: recovery with map and reduceByKey, invertible reduceByKeyAndWindow, updateStateByKey,
    basic rdd checkpoints + dstream graph checkpoint recovery, driver failure recovery."""
    program = program_of(every_kind)
    program.run(2)
    program.run(4)
    program.clock.advance(BATCH_MS)
    program.run(2, again=1)
    for number in range(1, 10):
        for name, wanted in expected(number).items():
            assert program.result(number, name) == [wanted], (number, name)
    needed = {path.removeprefix("file:") for path in stored_header(program.checkpoint).rdd_files}
    found = {str(path) for path in program.checkpoint.glob("*/rdd-*")}
    assert needed <= found


@pytest.mark.long
@pytest.mark.slow
def test_a_graceful_stop_leaves_nothing_to_do_again(program_of: ProgramOf, caplog: Any) -> None:
    program = program_of(lambda program, ssc: program.keep(program.listed(ssc, INPUT)))
    program.open().start()
    program.clock.advance(BATCH_MS)
    program.events.wait_for("batch", count=1)
    program.stop(graceful=True)
    header = stored_header(program.checkpoint)
    assert (header.last_batch_ms, header.pending_ms) == (ZERO_MS + BATCH_MS, ())
    with caplog.at_level(logging.INFO, "penstock.streaming"):
        program.run(2)
    assert program.times([1, 2, 3]) == [1, 1, 1]
    assert "0 batches that were not complete are made again, and of 0 since" in caplog.text


@pytest.mark.long
@pytest.mark.slow
def test_who_read_a_checkpoint_that_another_program_went_on_from_does_not_start(
    program_of: ProgramOf,
) -> None:
    """As when a program is started while the one before is still being stopped."""
    program = program_of(lambda program, ssc: program.keep(program.listed(ssc, INPUT)))
    program.run(2)
    late = recover_context(StreamingContext, str(program.checkpoint), program.clock)
    assert late is not None
    program.run(2)
    with pytest.raises(CheckpointReadError, match="Start it again"):
        late.start()
    program.run(1)
    assert program.times(range(1, 6)) == [1] * 5


@pytest.mark.slow
def test_the_checkpoint_of_a_program_that_runs_is_not_gone_on_from(program_of: ProgramOf) -> None:
    """Its states go while they are read."""
    program = program_of(lambda program, ssc: program.keep(program.listed(ssc, INPUT)))
    program.run(1)
    other = ledger_of(program.checkpoint, "orders")
    with pytest.raises(LogFolderInUseError, match="application orders"):
        program.open()
    other.close()
    program.run(1)
    assert program.times([1, 2]) == [1, 1]


@pytest.mark.slow
def test_the_batches_of_the_time_between_are_program_of(program_of: ProgramOf) -> None:
    program = program_of(lambda program, ssc: program.keep(program.listed(ssc, INPUT)))
    program.run(1)
    program.clock.advance(3 * BATCH_MS)
    program.run(1, again=3)
    assert program.times(range(1, 6)) == [1] * 5
    assert [program.result(n)[0] for n in (1, 4)] == [["a", "a", "b"], ["a"]]


GATES: dict[str, threading.Event] = {}


class Gated(Keep):
    """Says that a batch has come, and waits, before it writes. Gates are found by name."""

    def __call__(self, time: Any, rdd: Any) -> None:
        GATES[f"entered {time.second}"].set()
        assert GATES["go on"].wait(WAIT_S)
        super().__call__(time, rdd)


@pytest.mark.slow
def test_a_batch_that_was_running_is_made_again_with_the_same_files(
    program_of: ProgramOf, tmp_path: Path
) -> None:
    """Spark: recovery with file input stream."""
    folder = tmp_path / "in"
    folder.mkdir()

    def put(name: str, at_ms: int) -> None:
        path = tmp_path / name
        path.write_text(name + "\n")
        os.utime(path, ns=(0, (ZERO_MS + at_ms) * 1_000_000))
        path.rename(folder / name)

    def build(program: Program, ssc: StreamingContext) -> None:
        ssc.textFileStream(str(folder)).foreachRDD(Gated(program.results, "out"))

    second = ((ZERO_MS + 2 * BATCH_MS) // 1000) % 60
    first = second - 1
    GATES.update({f"entered {s}": threading.Event() for s in (first, second, second + 1)})
    GATES["go on"] = threading.Event()
    GATES["go on"].set()
    program = program_of(build)
    put("a", 700)
    program.open().start()
    program.clock.advance(BATCH_MS)
    program.events.wait_for("batch", count=1)
    program.settle()
    GATES["go on"].clear()
    put("b", 1500)
    program.clock.advance(BATCH_MS)
    assert GATES[f"entered {second}"].wait(WAIT_S)
    program.settle()
    # Now the driver dies: this is what it leaves.
    copy = program.checkpoint.with_name("copy")
    shutil.copytree(program.checkpoint, copy)
    GATES["go on"].set()
    program.events.wait_for("batch", count=2)
    program.stop()
    assert program.result(2) == [["b"]]
    program.checkpoint = copy
    put("c", 1600)  # As if it had been there; but the batch has chosen.
    program.run(1, again=1)
    assert program.result(2) == [["b"], ["b"]]
    assert program.result(3) == [["c"]]
    assert program.times([1]) == [1]


FAILING = {"now": False}


class Failing(Keep):
    def __call__(self, time: Any, rdd: Any) -> None:
        super().__call__(time, rdd)
        if FAILING["now"]:
            raise ValueError("the store is not there")


def test_a_failed_last_batch_is_tried_again(program_of: ProgramOf) -> None:
    """Spark: a batch whose last job failed stays pending."""

    def build(program: Program, ssc: StreamingContext) -> None:
        program.listed(ssc, INPUT).foreachRDD(Failing(program.results, "out"))

    FAILING["now"] = True
    program = program_of(build)
    program.run(2)
    FAILING["now"] = False
    program.run(1, again=1)
    assert program.times([1, 2, 3]) == [1, 2, 1]


def test_a_recovered_context_takes_no_new_streams(program_of: ProgramOf) -> None:
    program = program_of(lambda program, ssc: program.keep(program.listed(ssc, INPUT)))
    program.run(1)
    ssc = program.open()
    assert ssc.getState() is StreamingContextState.INITIALIZED
    with pytest.raises(IllegalStateError, match="after recovering a context is not supported"):
        ssc.textFileStream("/tmp")
    nothing = ssc._graph.outputs[0].parent
    with pytest.raises(IllegalStateError, match="Cannot change checkpoint interval"):
        nothing.checkpoint(1000)


@pytest.mark.long
def test_each_node_is_restored_once(program_of: ProgramOf, monkeypatch: Any) -> None:
    """Spark: DStreamCheckpointData.restore invoking times."""

    def build(program: Program, ssc: StreamingContext) -> None:
        stream = program.listed(ssc, INPUT)
        program.keep(stream.union(stream.map(str)))
        program.keep(stream, "same")

    restored: list[DStreamNode] = []
    restore = DStreamNode.restore

    def restoring(node: DStreamNode, sc: Any) -> None:
        restored.append(node)
        restore(node, sc)

    program = program_of(build)
    program.run(1)
    monkeypatch.setattr(DStreamNode, "restore", restoring)
    ssc = program.open()
    assert len(restored) == len(set(map(id, restored))) == len(ssc._graph.nodes()) == 5


def test_broadcast_variables_and_accumulators_come_back(program_of: ProgramOf) -> None:
    def build(program: Program, ssc: StreamingContext) -> None:
        numbers = ssc.sparkContext.broadcast({"a": 1, "b": 2, "": 3})
        seen = ssc.sparkContext.accumulator(0)
        keep = Keep(program.results, "out")

        def number(word: str) -> int:
            seen.add(1)
            return numbers.value[word]

        def write(time: Any, rdd: Any) -> None:
            found = rdd.map(number).collect()
            keep(time, rdd.context.parallelize([*found, seen.value * 100], 1))

        program.listed(ssc, INPUT).foreachRDD(write)

    program = program_of(build)
    program.run(1)
    program.run(1)
    assert program.result(1) == [[1, 1, 2, 300]]
    assert program.result(2) == [[3, 3, 500]]


@pytest.mark.slow
def test_checkpoints_that_are_files_of_an_earlier_release_are_refused_with_the_way_out(
    program_of: ProgramOf,
) -> None:
    program = program_of(lambda program, ssc: program.keep(program.listed(ssc, INPUT)))
    program.checkpoint.mkdir()
    file = program.checkpoint / f"checkpoint-{ZERO_MS}"
    file.write_bytes(b"PENSTKCP")
    with pytest.raises(CheckpointReadError, match="or remove these files"):
        program.open()
    file.unlink()
    program.run(1)


def test_missing_pieces_are_told(program_of: ProgramOf, tmp_path: Path) -> None:
    def build(program: Program, ssc: StreamingContext) -> None:
        pairs = program.listed(ssc, [[("a", 1)]])
        states = pairs.updateStateByKey(lambda values, state: sum(values) + (state or 0), 1)
        program.keep(states.checkpoint(1))

    program = program_of(build)
    program.run(1)
    part = max(program.checkpoint.glob("*/rdd-*/part-*"), key=lambda path: path.stat().st_size)
    whole = part.read_bytes()
    part.write_bytes(whole[:-1])
    with pytest.raises(CheckpointReadError, match="is damaged") as told:
        program.open()
    assert "code that it refers to" not in str(told.value)
    part.write_bytes(whole)
    for path in chain(program.checkpoint.glob("*/rdd-*")):
        shutil.rmtree(path)
    with pytest.raises(
        CheckpointReadError, match=r"is not there\. .* to its place if it was moved"
    ):
        program.open()


@pytest.mark.parametrize("damage", ["cut", "missing"])
def test_a_state_of_which_a_part_is_gone_is_not_gone_on_with(
    program_of: ProgramOf, damage: str
) -> None:
    """Spark would go on with the records that are left."""

    def build(program: Program, ssc: StreamingContext) -> None:
        pairs = program.listed(ssc, [[(number, 1) for number in range(20_000)]])
        states = pairs.updateStateByKey(lambda values, state: sum(values) + (state or 0), 2)
        states.checkpoint(1).foreachRDD(lambda rdd: rdd.count())

    program = program_of(build)
    program.run(1)
    [part] = program.checkpoint.glob("*/rdd-*/part-00001")
    if damage == "missing":
        part.unlink()
    else:
        # Where Hadoop's checksums of 512 bytes each do not show it.
        os.truncate(part, part.stat().st_size // 2 // 512 * 512)
    wanted = "it has 1 parts" if damage == "missing" else "part 1 has"
    with pytest.raises(CheckpointReadError, match=wanted) as raised:
        program.open()
    assert str(part.parent) in str(raised.value)


@pytest.mark.slow
def test_an_error_of_an_output_still_reaches_the_waiter(program_of: ProgramOf) -> None:
    def build(program: Program, ssc: StreamingContext) -> None:
        program.listed(ssc, INPUT).foreachRDD(Failing(program.results, "out"))

    FAILING["now"] = False
    program = program_of(build)
    program.run(1)
    FAILING["now"] = True
    ssc = program.open()
    ssc.start()
    program.clock.advance(BATCH_MS)
    with pytest.raises(OutputOperationError, match="the store is not there"):
        ssc.awaitTermination(WAIT_S)
    FAILING["now"] = False


def test_a_folder_that_a_crash_left_unfinished_is_written_anew(
    program_of: ProgramOf, tmp_path: Path
) -> None:
    """Spark: recovery with saveAsHadoopFiles operation."""

    def build(program: Program, ssc: StreamingContext) -> None:
        program.listed(ssc, INPUT).saveAsTextFiles(str(tmp_path / "text"))
        program.keep(program.listed(ssc, INPUT))

    unfinished, saved = (tmp_path / f"text-{ZERO_MS + n * BATCH_MS}" for n in (1, 2))
    (unfinished / "_temporary").mkdir(parents=True)
    (unfinished / "part-00000").write_text("half")
    saved.mkdir()
    (saved / "part-00000").write_text("saved before")
    program_of(build).run(2)
    text = "".join(path.read_text() for path in sorted(unfinished.glob("part-*")))
    assert text.split() == INPUT[0]
    assert [path.read_text() for path in saved.glob("*")] == ["saved before"]


def test_a_long_chain_of_operations_can_be_checkpointed(sc: Any) -> None:
    ssc = StreamingContext(sc, 1)
    stream = ssc.socketTextStream("localhost", 9)
    for number in range(700):
        stream = stream.map(str) if number % 2 else stream.union(stream)
    stream.foreachRDD(lambda rdd: None)
    graph = load(dump(ssc._graph), sc, ssc)
    assert len(graph.nodes()) == 702
    assert [node.made_by.split()[0] for node in graph.nodes()[:3]] == ["foreachRDD", "map", "union"]
    ssc.stop(stopSparkContext=False)
