"""States and windows over a restart: exact, or an error; and no more is kept than they need."""

from __future__ import annotations

import errno
import operator
import os
import re
import shutil
import sys
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import pytest
from pyspark.errors import PySparkException

from penstock.host.durability import LEDGER
from penstock.streaming import StateSpec
from penstock.streaming.dstream.states.state_saver import StateSaver
from penstock.tracker import DamagedLedgerError
from tests.streaming.restarts.driven import BEGIN_MS, Driven, World


def total(values: list[int], state: int | None) -> int:
    return sum(values) + (state or 0)


def tally(key: str, value: int, state: Any) -> tuple[str, int]:
    state.update(value + (state.getOption() or 0))
    return key, state.get()


def window_over_a_state(ssc: Any, world: World) -> None:
    world.keep(world.stream(ssc).updateStateByKey(total).window(4, 1), "out")


def window_over_map_with_state(ssc: Any, world: World) -> None:
    tallies = world.stream(ssc).mapWithState(StateSpec.function(tally)).checkpoint(5)
    world.keep(tallies.window(4, 1), "out")


def inverse_window(ssc: Any, world: World) -> None:
    keep_inverse_window(world.stream(ssc), world)


def inverse_window_after_batches(ssc: Any, world: World) -> None:
    stream = world.stream(ssc)
    world.keep(stream, "batches")
    keep_inverse_window(stream, world)


def inverse_window_before_batches(ssc: Any, world: World) -> None:
    stream = world.stream(ssc)
    keep_inverse_window(stream, world)
    world.keep(stream, "batches")


def keep_inverse_window(stream: Any, world: World) -> None:
    counts = stream.reduceByKeyAndWindow(operator.add, operator.sub, 5, 1)
    world.keep(counts.checkpoint(2), "out")


def state(ssc: Any, world: World) -> None:
    world.keep(world.stream(ssc).updateStateByKey(total), "out")


depths: list[int] = []


def noting_depth(rdd: Any) -> Any:
    frame: FrameType | None = sys._getframe()
    depth = 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1
    depths.append(depth)
    return rdd


def state_that_tells_how_deep_it_is_made(ssc: Any, world: World) -> None:
    pairs = world.stream(ssc).transform(noting_depth)
    world.keep(pairs.updateStateByKey(total).checkpoint(30), "out")


def state_of_a_stream_without_rdds(ssc: Any, world: World) -> None:
    pairs = world.stream(ssc).transform(lambda rdd: None)
    world.keep(pairs.updateStateByKey(total).checkpoint(1), "out")


def state_saved_every_second_batch(ssc: Any, world: World) -> None:
    world.keep(world.stream(ssc).updateStateByKey(total).checkpoint(2), "out")


def two_states(ssc: Any, world: World) -> None:
    first = world.stream(ssc).updateStateByKey(total).checkpoint(1)
    world.keep(first.updateStateByKey(total).checkpoint(1), "out")


def fail(path: str) -> None:
    raise OSError(f"{path} cannot be written")


def run(program: Driven, batches: int) -> None:
    for _ in range(batches):
        program.receive([("a", 1)])
        program.advance(1000)


def values(program: Driven) -> dict[int, list[list[int]]]:
    """Return the values that each batch wrote, counted from 1, each time that it ran."""
    return {
        (ms - BEGIN_MS) // 1000: [[value for _, value in records] for records in given]
        for ms, given in program.world.results["out"].items()
    }


@pytest.mark.parametrize("build", [window_over_a_state, window_over_map_with_state])
@pytest.mark.parametrize("batches", [12, 15, 19, 20, 21, 22])
def test_a_window_over_a_state_is_right_after_a_restart(build: Any, batches: int) -> None:
    with Driven(build) as program:
        program.start()
        run(program, batches)
        program.crash()
        program.start()
        run(program, 5)
        assert program.world.errors == []
        for number, given in values(program).items():
            assert given[0] == list(range(max(number - 3, 1), number + 1))
            assert all(again == given[0] for again in given)


@pytest.mark.parametrize("runs_jobs", [False, True])
def test_an_inverse_window_is_right_after_a_failure_that_lasted_and_a_restart(
    runs_jobs: bool,
) -> None:
    with Driven(inverse_window) as program:
        program.start()
        run(program, 8)
        program.world.down = {"out": runs_jobs}
        run(program, 13)
        program.crash()
        program.start()
        program.world.down = {}
        run(program, 12)
        assert program.world.errors == []
        assert [values(program)[number][-1] for number in range(23, 34)] == [[5]] * 11


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("build", [state, inverse_window])
def test_a_sink_that_is_down_for_500_batches_costs_its_own_output_only(
    build: Any, restarts: bool
) -> None:
    with Driven(build) as program:
        program.start()
        program.world.down = {"out": False}
        run(program, 500)
        kept = len(program.world.blocks) - len(program.world.gone)
        assert kept < 40
        if restarts:
            program.crash()
            program.start()
        program.world.down = {}
        run(program, 3)
        assert program.world.errors == []
        expected = 503 if build is state else 5
        assert values(program)[503] == [[expected]]
        assert program.sc is not None
        assert program.sc.deepest < 200


def start_again_after_long_without_saving(program: Driven) -> None:
    program.start()
    run(program, 8)
    assert program.sc is not None
    program.sc.on_save = fail
    run(program, 31)
    program.crash()
    program.world.errors.clear()
    program.start()


@pytest.mark.parametrize(
    "build", [inverse_window, inverse_window_after_batches, inverse_window_before_batches]
)
def test_blocks_are_kept_for_as_long_as_states_cannot_be_saved(build: Any) -> None:
    with Driven(build) as program:
        start_again_after_long_without_saving(program)
        run(program, 6)
        assert program.world.errors == []
        assert [values(program)[number][-1] for number in range(41, 46)] == [[5]] * 5


@pytest.mark.parametrize("build", [state, inverse_window])
def test_states_that_could_not_be_saved_for_long_are_made_again_by_steps_and_saved(
    build: Any,
) -> None:
    with Driven(build) as program:
        start_again_after_long_without_saving(program)
        run(program, 3)
        assert program.world.errors == []
        assert program.sc is not None
        assert program.sc.deepest < 40


@pytest.mark.parametrize("build", [window_over_a_state, window_over_map_with_state])
def test_no_more_blocks_are_kept_than_a_restart_may_need(build: Any) -> None:
    with Driven(build) as program:
        program.start()
        run(program, 60)
        assert len(program.world.blocks) - len(program.world.gone) < 40


def test_states_are_made_again_one_by_one_and_not_one_in_the_other() -> None:
    with Driven(state_that_tells_how_deep_it_is_made) as program:
        program.start()
        run(program, 29)
        program.crash()
        depths.clear()
        program.start()
        run(program, 1)
        assert values(program)[30] == [[30]]
        assert len(depths) >= 30
        assert max(depths) - min(depths) < 30


def test_two_states_in_a_chain_are_both_saved() -> None:
    with Driven(two_states) as program:
        program.start()
        run(program, 60)
        assert program.world.errors == []
        assert program.sc is not None
        assert program.sc.deepest < 30
        assert len(program.world.blocks) - len(program.world.gone) < 10


@pytest.mark.parametrize("build", [two_states, state_of_a_stream_without_rdds])
def test_a_state_that_no_record_ever_came_to_keeps_no_blocks(build: Any) -> None:
    with Driven(build) as program:
        program.start()
        for _ in range(50):
            program.receive([])
            program.advance(1000)
        assert len(program.world.blocks) - len(program.world.gone) < 10


def newest_segment(program: Driven) -> Path:
    """Return the segment of the driver log that holds records last, of a program that has ended."""
    segments = sorted(Path(program.world.checkpoint, LEDGER).glob("segment-*.log"))
    return max(path for path in segments if b"cloudpickle" in path.read_bytes())


def test_a_damaged_checkpoint_is_refused_and_no_older_state_is_gone_on_from() -> None:
    with Driven(state) as program:
        program.start()
        run(program, 5)
        program.stop()
        path = newest_segment(program)
        whole = path.read_bytes()
        place = whole.rindex(b"cloudpickle")
        path.write_bytes(whole[:place] + b"?" + whole[place + 1 :])
        with pytest.raises(DamagedLedgerError, match=re.escape(str(path.parent))):
            program.start()
        program.crash()
        path.write_bytes(whole)
        program.start()
        run(program, 1)
        assert values(program)[6] == [[6]]


@pytest.mark.slow
def test_a_restart_after_a_long_time_makes_states_in_order_and_not_one_in_the_other() -> None:
    with Driven(state) as program:
        program.start()
        run(program, 13)
        program.crash()
        program.advance(300_000)
        program.start()
        run(program, 2)
        assert program.world.errors == []
        assert values(program)[315] == [[15]]


@pytest.mark.parametrize("end", ["stop", "crash"])
def test_an_older_copy_of_the_driver_log_is_gone_on_from_as_it_was(end: str) -> None:
    """Checkpoint and ledger are one: neither is behind the other."""
    with Driven(state) as program:
        ledger = os.path.join(program.world.checkpoint, LEDGER)
        program.start()
        program.receive([("a", 1)])
        program.advance(1000)
        program.stop()
        shutil.copytree(ledger, ledger + "-older")
        program.start()
        for number in range(2, 5):
            program.receive([("a", number)])
            program.advance(1000)
        getattr(program, end)()
        os.rename(ledger, ledger + "-newer")
        os.rename(ledger + "-older", ledger)
        program.start()
        program.receive([("a", 5)])
        program.advance(1000)
        newest = max(program.world.results["out"])
        assert program.world.results["out"][newest][-1] == [("a", 6)]


@pytest.mark.long
@pytest.mark.slow
def test_a_batch_that_a_state_cannot_pass_is_told_as_such_for_as_long_as_that_lasts() -> None:
    def unreadable(time: Any, rdd: Any) -> Any:
        if round(time.timestamp() * 1000) == BEGIN_MS + 2000:
            raise ValueError("the second batch cannot be read")
        return rdd

    def build(ssc: Any, world: World) -> None:
        readable = world.stream(ssc).transform(unreadable)
        world.keep(readable.updateStateByKey(total), "state")

    with Driven(build) as program:
        program.start()
        program.receive([("a", 1)])
        program.advance(600_000)
        told = {str(error.__cause__) for error in program.world.errors}
        assert told == {"the second batch cannot be read"}
        assert len(program.world.errors) == 599


def test_a_state_that_a_damaged_block_keeps_from_being_saved_is_one_line_that_names_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Driven(state) as program:
        program.start()
        program.receive([("a", 1)])
        (block,) = program.world.blocks
        program.world.gone.add(block)
        program.world.down = {"out": False}
        program.advance(60_000)
        assert program.world.failed["out"]
    told = [r.getMessage() for r in caplog.records if "state could not be saved" in r.getMessage()]
    assert told == [f"A state could not be saved: BlockGoneError: block {block} was released"]


def test_of_a_state_that_a_task_could_not_make_the_task_s_error_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # As Spark hands over what a worker raised, among the stacks of two other languages.
    text = (
        "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times\n"
        "Traceback (most recent call last):\n"
        '  File "/srv/pyspark.zip/pyspark/worker.py", line 2042, in main\n'
        "    process()\n"
        "CorruptRecordError: corrupt record in segment 3 at offset 64 of /var/log-7\n"
        "\n\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:581)\n"
    )
    StateSaver().tell(PySparkException(text))
    (record,) = caplog.records
    assert record.getMessage() == (
        "A state could not be saved: CorruptRecordError: corrupt record in segment 3 at offset 64 "
        "of /var/log-7"
    )


def test_a_checkpoint_that_cannot_be_read_for_a_moment_is_not_passed_over() -> None:
    with Driven(state) as program:
        program.start()
        for _ in range(4):
            program.receive([("a", 1)])
            program.advance(1000)
        program.crash()
        newest = newest_segment(program)
        disk = program.world.disk
        is_read = disk.open

        def failing(path: str) -> Any:
            if path == str(newest):
                raise OSError(errno.EIO, "Input/output error", path)
            return is_read(path)

        with (
            mock.patch.object(disk, "open", failing),
            pytest.raises(OSError, match="Input/output error"),
        ):
            program.start()
        assert newest.exists()
        program.start()
        program.receive([("a", 1)])
        program.advance(1000)
        assert program.world.errors == []
        times = range(BEGIN_MS + 1000, BEGIN_MS + 6000, 1000)
        found = {ms: each[-1] for ms, each in program.world.results["out"].items()}
        assert found == {ms: [("a", number)] for number, ms in enumerate(times, start=1)}


def test_a_batch_that_was_overtaken_keeps_the_state_that_it_follows_from() -> None:
    conf = {"spark.streaming.concurrentJobs": "2"}
    with Driven(state_saved_every_second_batch, conf=conf) as program:
        program.start()
        run(program, 2)
        assert program.sc is not None
        works, program.sc.on_save = program.sc.on_save, fail
        run(program, 7)  # the state of the second batch is the last one that is saved
        assert program.ssc is not None
        engine: Any = program.ssc._engine
        loop, jobs, writer = engine._generator._loop, engine._scheduler, engine._writer
        for _ in range(3):  # the batches 10 to 12 are made, and none runs
            program.receive([("a", 1)])
            program.advance(1000, settle=False)
            while loop.has_work():
                loop.step()
        jobs.step()  # the 10th has ended, and is cleared below
        program.sc.on_save = works
        jobs._jobs.waiting.rotate(-1)
        jobs.step()  # the 12th overtakes the 11th, and saves its state
        while loop.has_work() or writer.has_work():
            (loop if loop.has_work() else writer).step()
        program.crash()
        program.world.errors.clear()
        program.start()
        run(program, 1)
        assert program.world.errors == []
        found = values(program)
        assert {11, 13} <= set(found)
        for number, given in found.items():
            assert all(again == [number] for again in given)
