"""A disk that takes nothing for a while: batches wait, and then have all that came."""

from __future__ import annotations

import errno
import operator
import threading
from collections.abc import Iterable
from typing import Any

import pytest

from penstock.streaming import State, StateSpec
from penstock.streaming.dstream.graph import DStreamGraph
from penstock.streaming.dstream.states.state_saver import is_full_disk, is_out_of_reach
from penstock.streaming.scheduler.job_generator import JobGenerator
from tests.streaming.restarts.driven import BEGIN_MS, Driven, World
from tests.streaming.restarts.threads import DrivenWriter


def build(ssc: Any, world: World) -> None:
    world.keep(world.stream(ssc), "records")


def fill_disk(program: Driven, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    assert program.world.side is not None
    monkeypatch.setattr(program.world.side.ledger._driver_log._writer, "append", refuse)


@pytest.mark.parametrize("ends_in_a_crash", [False, True])
def test_batches_wait_for_it_and_no_record_is_lost(
    ends_in_a_crash: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Driven(build) as program:
        program.start()
        program.receive([1])
        program.advance(1000)
        program.receive([2])
        fill_disk(program, monkeypatch)
        program.advance(3000)
        assert list(program.world.results["records"]) == [BEGIN_MS + 1000]
        monkeypatch.undo()
        if ends_in_a_crash:
            program.crash()
            program.start()
        program.advance(1000)
        program.receive([3])
        program.advance(1000)
        assert program.world.errors == []
        found = {
            (ms - BEGIN_MS) // 1000: given for ms, given in program.world.results["records"].items()
        }
        if ends_in_a_crash:
            # Those of the time before that have no records are not needed any more.
            found = {3: [[]], 4: [[]], **found}
        assert found == {1: [[1]], 2: [[2]], 3: [[]], 4: [[]], 5: [[]], 6: [[3]]}


def test_it_is_told_once_when_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    with Driven(build) as program:
        program.start()
        program.receive([1])
        fill_disk(program, monkeypatch)
        for _ in range(300):
            program.advance(1000)
        (error,) = program.world.errors
        assert "its blocks cannot be allocated for" in str(error)
        monkeypatch.undo()
        program.advance(1000)
        assert program.world.results["records"][BEGIN_MS + 1000] == [[1]]


def test_a_batch_that_waits_is_made_also_if_clearing_up_after_another_fails_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Driven(build) as program:
        program.start()
        program.receive([1])
        program.advance(1000)
        program.receive([2])
        fill_disk(program, monkeypatch)
        allocate = JobGenerator._allocate

        def complete_meanwhile(generator: JobGenerator, time_ms: int) -> bool:
            generator._note_complete(BEGIN_MS + 1000)
            return allocate(generator, time_ms)

        def fail(*_: Any) -> None:
            raise ConnectionError("the JVM does not answer")

        monkeypatch.setattr(JobGenerator, "_allocate", complete_meanwhile)
        monkeypatch.setattr(DStreamGraph, "clear_metadata", fail)
        program.advance(1000)
        monkeypatch.undo()
        program.advance(2000)
        assert {type(error) for error in program.world.errors} == {ConnectionError}
        found = {
            (ms - BEGIN_MS) // 1000: given for ms, given in program.world.results["records"].items()
        }
        assert found == {1: [[1]], 2: [[2]], 3: [[]], 4: [[]]}


def build_files(ssc: Any, world: World) -> None:
    world.keep(ssc.textFileStream(world.files), "files")


def test_while_no_checkpoint_can_be_written_one_batch_waits_for_it_and_not_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited_s: list[float] = []

    def full(_: DrivenWriter, timeout_s: float) -> bool:
        waited_s.append(timeout_s)
        return False

    with Driven(build_files) as program:
        program.start()
        for _ in range(2):
            with monkeypatch.context() as patch:
                patch.setattr(DrivenWriter, "flush", full)
                for _ in range(3):
                    program.advance(1000)
            program.advance(1000)
        assert [seconds > 0 for seconds in waited_s] == [True, False, False] * 2
        assert len(program.world.results["files"]) == 8


# -- the disk of the states ------------------------------------------------------------------------


def add(values: Iterable[int], state: int | None) -> int:
    return (state or 0) + sum(values)


def count(_: str, value: int | None, state: State[int]) -> None:
    state.update((state.getOption() or 0) + (value or 0))


def build_states(ssc: Any, world: World) -> None:
    pairs = world.stream(ssc)
    sums = pairs.updateStateByKey(add, 2)
    sums.checkpoint(2)
    world.keep(sums, "sums")
    mapped = pairs.mapWithState(StateSpec.function(count).numPartitions(2))
    mapped.checkpoint(2)
    world.keep(mapped.stateSnapshots(), "mapped")
    window = pairs.reduceByKeyAndWindow(operator.add, operator.sub, 3, 1, 2)
    window.checkpoint(2)
    world.keep(window, "window")


class FullDisk:
    """Refuses states until the program has waited for it so many times; is the clock, too."""

    def __init__(
        self,
        program: Driven,
        monkeypatch: pytest.MonkeyPatch,
        waits: int,
        error: Exception | None = None,
    ) -> None:
        self.left = waits
        self._error = error or OSError(errno.ENOSPC, "No space left on device")
        self.gives_up = False
        self._now_s = 0.0
        assert program.sc is not None
        self._save = program.sc.on_save
        monkeypatch.setattr(program.sc, "on_save", self.save)
        assert program.ssc is not None
        saver = program.ssc._engine._state_saver  # type: ignore[union-attr]
        monkeypatch.setattr(saver, "_clock", self)

    def save(self, path: str) -> None:
        if self.left > 0:
            raise self._error
        self._save(path)

    def wait(self, event: Any, timeout_s: float) -> bool:
        self.left -= 1
        self._now_s += timeout_s
        return self.gives_up

    def monotonic_s(self) -> float:
        return self._now_s


EXPECTED = {
    "sums": [[("a", 1)], [("a", 3)], [("a", 6)], [("a", 10)], [("a", 15)]],
    "mapped": [[("a", 1)], [("a", 3)], [("a", 6)], [("a", 10)], [("a", 15)]],
    "window": [[("a", 1)], [("a", 3)], [("a", 6)], [("a", 9)], [("a", 12)]],
}


def results(program: Driven) -> dict[str, Any]:
    """Return what each sink was given; each batch of it once."""
    return {
        name: [given for _, (given,) in sorted(found.items())]
        for name, found in program.world.results.items()
    }


def receive_and_advance(program: Driven, *values: int) -> None:
    for value in values:
        program.receive([("a", value)])
        program.advance(1000)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (None, "the disk of the checkpoint directory is full"),
        (
            RuntimeError("java.io.EOFException: End of File Exception between local host is: a"),
            "the nodes of its HDFS do not answer",
        ),
    ],
    ids=["full", "out of reach"],
)
def test_states_wait_before_the_operations_run(
    error: Exception | None,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Driven(build_states) as program:
        program.start()
        receive_and_advance(program, 1)
        FullDisk(program, monkeypatch, waits=20, error=error)
        receive_and_advance(program, 2, 3, 4, 5)
        assert program.world.errors == []
        assert results(program) == EXPECTED, "no operation ran twice"
    assert caplog.text.count(told) == 1


def test_a_disk_without_room_for_states_is_told_of_once_when_it_lasts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Driven(build_states) as program:
        program.start()
        receive_and_advance(program, 1)
        disk = FullDisk(program, monkeypatch, waits=500)
        receive_and_advance(program, 2, 3, 4, 5)
        (error,) = program.world.errors
        assert "cannot be saved for 30 s now" in str(error)
        assert results(program) == EXPECTED
        disk.left = 500
        receive_and_advance(program, 6)
        assert len(program.world.errors) == 2, "there was room meanwhile"


def test_a_stop_gives_up_the_batch_that_waits_for_room_and_a_restart_makes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Driven(build_states) as program:
        program.start()
        receive_and_advance(program, 1)
        disk = FullDisk(program, monkeypatch, waits=500)
        disk.gives_up = True
        receive_and_advance(program, 2)
        assert program.world.errors == []
        assert {name: len(found) for name, found in results(program).items()} == dict.fromkeys(
            EXPECTED, 1
        )
        assert program.ssc is not None
        given_up = program.ssc._engine._scheduler.given_up()  # type: ignore[union-attr]
        assert list(given_up) == [BEGIN_MS + 2000]
        program.crash()
        monkeypatch.undo()
        program.start()
        receive_and_advance(program, 3, 4, 5)
        assert results(program) == EXPECTED


@pytest.mark.parametrize("is_saved", [False, True])
def test_no_operation_begins_when_a_stop_came_while_its_states_were_saved(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_saved: bool
) -> None:
    with Driven(build_states) as program:
        program.start()
        receive_and_advance(program, 1)
        assert program.ssc is not None
        engine: Any = program.ssc._engine

        def cancel(_: str) -> None:
            engine._state_saver.give_up()
            if not is_saved:
                raise RuntimeError("Job 3 cancelled part of cancelled job tag")

        monkeypatch.setattr(program.sc, "on_save", cancel)
        receive_and_advance(program, 2)
        assert program.world.errors == []
        assert {len(found) for found in results(program).values()} == {1}
        assert list(engine._scheduler.given_up()) == [BEGIN_MS + 2000]
        reason = "" if is_saved else ": Job 3 cancelled"
        assert f"because the stop has cancelled that, or it failed{reason}" in caplog.text
        program.crash()
        program.start()
        receive_and_advance(program, 3, 4, 5)
        assert results(program) == EXPECTED


def test_a_state_that_cannot_be_saved_otherwise_fails_the_batch_after_its_operation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(path: str) -> None:
        raise OSError(errno.EIO, "Input/output error", path)

    with Driven(build_states) as program:
        program.start()
        receive_and_advance(program, 1)
        monkeypatch.setattr(program.sc, "on_save", refuse)
        receive_and_advance(program, 2)
        assert {len(found) for found in results(program).values()} == {2}
        assert len(program.world.errors) == len(EXPECTED)
        assert all("Input/output error" in str(error) for error in program.world.errors)


def test_a_state_of_several_operations_is_saved_once_also_when_they_run_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def build_two(ssc: Any, world: World) -> None:
        sums = world.stream(ssc).updateStateByKey(add, 2)
        sums.checkpoint(1)
        world.keep(sums, "one")
        world.keep(sums, "two")

    saved: list[str] = []
    another = threading.Event()

    def save(path: str) -> None:
        saved.append(path)
        if len(saved) > 1:
            another.set()
        another.wait(0.2)

    with Driven(build_two) as program:
        program.start()
        receive_and_advance(program, 1)
        assert {name: len(found) for name, found in results(program).items()} == {
            "one": 1,
            "two": 1,
        }
        program.receive([("a", 2)])
        program.advance(1000, settle=False)
        assert program.ssc is not None
        engine: Any = program.ssc._engine
        while not engine._scheduler.has_work():
            engine._generator._loop.step()
        monkeypatch.setattr(program.sc, "on_save", save)
        (batch,) = engine._scheduler._sets.values()
        threads = [threading.Thread(target=job.run._save) for job in batch.jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(saved) == 1
        program.settle()
        assert len(saved) == 1
        assert program.world.errors == []


JAVA = "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0"
HDFS = "File /c/rdd-4/.part-00000 could only be written to 0 of the 1 minReplication nodes."


@pytest.mark.parametrize(
    ("error", "is_full"),
    [
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True),
        (
            RuntimeError(
                f"{JAVA}\n\tat x\nCaused by: java.io.IOException: No space left on device"
            ),
            True,
        ),
        (RuntimeError("protocol.DSQuotaExceededException: The DiskSpace quota"), True),
        (
            RuntimeError(
                f"{HDFS} There are 2 datanode(s) running and no node(s) are excluded in this"
            ),
            True,
        ),
        (
            RuntimeError(
                f"{HDFS} There are 2 datanode(s) running and 2 node(s) are excluded in this"
            ),
            False,
        ),
        (RuntimeError(f"{HDFS} There are 0 datanode(s) running and no node(s) are"), False),
        (OSError(errno.EACCES, "Permission denied"), False),
    ],
)
def test_a_full_disk_is_known_by_number_and_by_text(error: Exception, is_full: bool) -> None:
    outer = ValueError("what an operation makes of it")
    outer.__cause__ = error
    assert is_full_disk(error) is is_full
    assert is_full_disk(outer) is is_full


FROM = "Call From host/127.0.0.1 to localhost:8020"


@pytest.mark.parametrize(
    ("text", "is_away"),
    [
        (f"java.net.ConnectException: {FROM} failed on connection exception: refused", True),
        ("java.io.EOFException: End of File Exception between local host is: host", True),
        ("org.apache.hadoop.hdfs.server.namenode.SafeModeException: Cannot create", True),
        (f"{HDFS} There are 2 datanode(s) running and 2 node(s) are excluded in this", True),
        ("java.io.IOException: All datanodes [a, b] are bad. Aborting...", True),
        ("org.apache.hadoop.security.AccessControlException: Permission denied", False),
        ("java.lang.IllegalArgumentException: a program's own", False),
    ],
)
def test_nodes_of_hdfs_that_do_not_answer_are_known_by_text(text: str, is_away: bool) -> None:
    assert is_out_of_reach(RuntimeError(f"{JAVA}\n\tat x\nCaused by: {text}")) is is_away
