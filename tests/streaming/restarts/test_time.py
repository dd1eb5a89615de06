"""I14: clocks that jump, pauses and stops change nothing of what batches read, nor do restarts.

Whole programs with received records and files; each record, and each file, must be in one batch.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from penstock.streaming import StreamingContext, StreamingListener
from penstock.streaming.dstream.inputs import file_input_stream
from tests.streaming.checkpoint.stored import ledger_of
from tests.streaming.restarts.driven import BEGIN_MS, Driven, World
from tests.streaming.restarts.world import current_world

HOUR_MS = 3_600_000


class InTime:
    """A sink that keeps how far batch times were ahead of the clock."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, time: Any, rdd: Any) -> None:
        world = current_world()
        time_ms = round(time.timestamp() * 1000)
        ahead = world.__dict__.setdefault("ahead_ms", {})
        ahead.setdefault(time_ms, time_ms - world.clock.time_ms())
        world.write(self.name, time_ms, rdd)


def build(ssc: Any, world: World) -> None:
    world.stream(ssc).foreachRDD(InTime("records"))
    ssc.textFileStream(world.files).foreachRDD(InTime("files"))


def windows(ssc: Any, world: World) -> None:
    stream = world.stream(ssc)
    stream.foreachRDD(InTime("records"))
    stream.window(120, 120).foreachRDD(InTime("windows"))


class Feed:
    """Lets records and files come in, and knows which."""

    def __init__(self, program: Driven) -> None:
        self.program = program
        self.count = 0
        self.files: list[str] = []

    def record(self) -> None:
        self.count += 1
        self.program.receive([self.count])

    def file(self) -> None:
        if not self.files:
            self.program.advance(100)  # One that is as old as the stream was there before.
        self.file_as_of_now()

    def file_as_of_now(self) -> None:
        name = f"file-{len(self.files)}"
        self.files.append(name)
        self.program.put_file(name, [name])

    def check(self) -> None:
        assert self.program.world.errors == []
        assert self._given("records") == list(range(1, self.count + 1))
        files = Counter(self._given("files"))
        assert {name: files[name] for name in self.files if files[name] != 1} == {}

    def _given(self, sink: str) -> list[Any]:
        found = self.program.world.results.get(sink, {})
        assert all(times == [times[0]] * len(times) for times in found.values())
        return sorted(record for times in found.values() for record in times[0])


def ahead_ms(program: Driven) -> dict[int, int]:
    found: dict[int, int] = program.world.__dict__.get("ahead_ms", {})
    return found


def test_graceful_stops_send_no_batch_into_the_future_and_pass_no_file_over() -> None:
    with Driven(build, batch_s=60) as program:
        feed = Feed(program)
        for _ in range(4):
            program.start()
            for _ in range(25):
                feed.record()
                feed.file()
                program.advance(10_000)
            feed.record()
            program.stop()
            # Files that come while nothing runs are found, too.
            feed.file()
            program.advance(130_000)
        program.start()
        program.advance(120_000)
        feed.check()
        assert max(ahead_ms(program).values()) <= 0


@pytest.mark.exhaustive  # Other tests here have files and crashes.
def test_a_batch_without_files_has_none_when_it_is_made_again_after_a_crash() -> None:
    crashes = 0
    for point in range(1, 60):
        with Driven(build) as program:
            feed = Feed(program)
            program.start()
            program.advance(500)
            program.crash_at(point)
            program.advance(1000)
            if program.is_running:
                continue
            crashes += 1
            # It is as old as the batch that broke off, and nobody has seen it there.
            feed.file_as_of_now()
            program.start()
            for _ in range(3):
                program.advance(1000)
            feed.check()
    assert crashes > 5


def test_a_stop_calls_no_output_operation_with_batches_of_times_to_come() -> None:
    with Driven(windows) as program:
        program.start()
        for number in range(1, 14):
            program.receive([number])
            program.advance(1000)
        before = len(program.world.results["records"])
        program.stop()
        assert len(program.world.results["records"]) == before
        program.start()
        for number in range(14, 131):
            program.receive([number])
            program.advance(1000)
        assert program.world.errors == []
        assert max(ahead_ms(program).values()) <= 0
        ((window,),) = program.world.results["windows"].values()
        in_it = [
            number
            for time_ms, ((number,),) in program.world.results["records"].items()
            if time_ms <= next(iter(program.world.results["windows"]))
        ]
        assert window == sorted(in_it)
        assert len(window) >= 100


@pytest.mark.parametrize("with_restart", [False, True])
def test_a_driver_that_was_paused_for_two_minutes_goes_on(with_restart: bool) -> None:
    with Driven(build) as program:
        feed = Feed(program)
        program.start()
        for step in range(10):
            feed.record()
            feed.file()
            program.advance(120_000 if step == 5 else 1000, settle=not with_restart)
            if with_restart and step == 5:
                program.crash()
                program.start()
        program.advance(2000)
        feed.check()
        assert max(ahead_ms(program).values()) <= 0


def test_a_restart_that_makes_many_batches_first_says_how_many(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Driven(build) as program:
        program.start()
        program.advance(2000)
        program.crash()
        program.advance(120_000)
        program.start()
        program.advance(1000)
    assert "Catching up: the program missed 12" in caplog.text


def only_received(ssc: Any, world: World) -> None:
    world.stream(ssc).map(lambda record: record).foreachRDD(InTime("records"))


def with_state(ssc: Any, world: World) -> None:
    only_received(ssc, world)
    pairs = world.stream(ssc).named("pairs").map(lambda record: ("all", record))
    pairs.updateStateByKey(lambda new, old: sum(new) + (old or 0)).foreachRDD(InTime("state"))


def with_window(ssc: Any, world: World) -> None:
    only_received(ssc, world)
    world.stream(ssc).named("second").window(3, 1).foreachRDD(InTime("windows"))


def remembered(ssc: Any, world: World) -> None:
    only_received(ssc, world)
    ssc.remember(600)


def with_a_slide(ssc: Any, world: World) -> None:
    only_received(ssc, world)
    world.stream(ssc).named("second").window(5, 5).foreachRDD(InTime("windows"))


def with_every_fifth_batch(ssc: Any, world: World) -> None:
    only_received(ssc, world)
    world.stream(ssc).named("second").window(1, 5).foreachRDD(InTime("windows"))


def batches_after_a_down_time(build: Any, conf: dict[str, str] | None = None) -> list[list[Any]]:
    """Return the records of each batch since a crash, the first ones received before it."""
    with Driven(build, conf=conf) as program:
        program.start()
        program.advance(2000)
        before = len(program.world.results["records"])
        program.receive([1, 2])
        program.crash()
        program.advance(260_000)
        program.start()
        program.receive([3])
        program.advance(1000)
        program.advance(1000)
        # Once more: what was passed over is not looked at again.
        program.crash()
        program.advance(60_000)
        program.start()
        program.receive([4])
        program.advance(1000)
        assert program.world.errors == []
        found = program.world.results["records"]
        return [found[time_ms][0] for time_ms in sorted(found)][before:]


def test_empty_batches_of_a_down_time_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "penstock.streaming.job_generator"):
        assert batches_after_a_down_time(only_received) == [[1, 2], [3], [], [4]]
    assert "batches of the time when the program did not run have no records" in caplog.text
    assert "Catching up" not in caplog.text


@pytest.mark.parametrize(
    "build",
    [with_state, with_window, with_a_slide, with_every_fifth_batch, remembered, build],
)
def test_it_is_known_which_programs_need_their_empty_batches(build: Any) -> None:
    for made, needs in ((build, True), (only_received, False)):
        with Driven(made) as program:
            program.start()
            assert program.ssc is not None
            assert program.ssc._graph.needs_empty_batches() == needs


def test_a_batch_that_was_given_its_blocks_before_the_crash_is_not_passed_over() -> None:
    """The driver died between the allocation and the checkpoint that would tell of the batch."""
    with Driven(only_received) as program:
        program.start()
        program.advance(2000)
        program.receive([1, 2])
        program.crash()
        ledger = ledger_of(program.world.checkpoint)
        time_ms = ledger.last_allocated_ms + 1000
        ledger.allocate_blocks_to_batch(time_ms)
        ledger.close()
        program.advance(30_000)
        program.start()
        program.advance(1000)
        assert program.world.results["records"][time_ms] == [[1, 2]]


@pytest.mark.long
@pytest.mark.parametrize("build", [with_state, with_window, with_a_slide, remembered, build])
def test_empty_batches_of_a_down_time_are_made_where_something_needs_them(build: Any) -> None:
    assert len(batches_after_a_down_time(build)) >= 320


@pytest.mark.long
def test_no_record_is_passed_over_wherever_the_driver_died() -> None:
    crashes = 0
    for point in range(1, 60):
        with Driven(only_received) as program:
            feed = Feed(program)
            program.start()
            program.advance(1000)
            program.crash_at(point)
            stored = 0
            for _ in range(2):
                if program.is_running:
                    feed.record()
                if program.is_running:
                    stored = feed.count
                    program.advance(1000)
            if program.is_running:
                continue
            crashes += 1
            program.advance(30_000)
            program.start()
            program.advance(2000)
            assert program.world.errors == []
            given = program.world.results["records"].values()
            assert {record for times in given for record in times[0]} >= set(range(1, stored + 1))
    assert crashes > 5


def test_all_batches_of_a_down_time_are_made_where_that_is_set() -> None:
    conf = {"spark.penstock.recovery.emptyBatches": "all"}
    assert len(batches_after_a_down_time(only_received, conf)) >= 320


def test_all_batches_of_a_down_time_are_made_for_a_listener_of_the_program() -> None:
    with Driven(only_received) as program:
        program.start()
        program.advance(2000)
        program.crash()
        program.advance(260_000)
        make = StreamingContext._take_over

        def take_over(ssc: StreamingContext, *arguments: Any) -> None:
            make(ssc, *arguments)
            ssc.addStreamingListener(StreamingListener())

        with mock.patch.object(StreamingContext, "_take_over", take_over):
            program.start()
        assert len(program.world.results["records"]) >= 260


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    "restarted_when",
    [
        pytest.param("never", marks=pytest.mark.exhaustive),
        pytest.param("forward", marks=pytest.mark.exhaustive),
        pytest.param("back", marks=pytest.mark.exhaustive),
        "stopped while back",
    ],
)
def test_a_clock_that_is_set_forward_and_back_by_an_hour_loses_nothing(
    restarted_when: str,
) -> None:
    with Driven(build, batch_s=10) as program:
        feed = Feed(program)

        def run(steps: int) -> None:
            for _ in range(steps):
                feed.record()
                feed.file()
                program.advance(5000)

        def restart(*, stop: bool = False) -> None:
            if stop:
                program.stop()
            else:
                program.crash()
            feed.file()
            program.advance(25_000)
            program.start()

        program.start()
        run(10)
        program.set_wall_time(program.world.clock.time_ms() + HOUR_MS)
        run(10)
        if restarted_when == "forward":
            restart()
        run(2)
        program.set_wall_time(program.world.clock.time_ms() - HOUR_MS)
        run(10)
        if restarted_when in ("back", "stopped while back"):
            restart(stop=restarted_when != "back")
        run(10)
        # The lead is worked off, at half the pace, and never grows.
        for _ in range(2 * HOUR_MS // 10_000 + 20):
            program.advance(10_000)
        run(10)
        program.advance(20_000)
        feed.check()
        leads = [lead for _, lead in sorted(ahead_ms(program).items())]
        assert max(leads) <= HOUR_MS
        assert max(leads[-5:]) <= 0


@pytest.mark.exhaustive  # `test_long_troubles` has sinks that are down for minutes.
@pytest.mark.slow
def test_a_sink_that_is_down_for_an_hour_loses_nothing_behind_it(caplog: Any) -> None:
    with (
        caplog.at_level("CRITICAL", logger="penstock.streaming.job_scheduler"),
        Driven(build) as program,
    ):
        feed = Feed(program)
        program.start()
        program.world.down["records"] = True
        for step in range(3600):
            if step % 60 == 0:
                feed.record()
                feed.file()
            program.advance(1000)
        program.crash()
        program.world.down.clear()
        program.start()
        feed.record()
        program.advance(2000)
        feed.check()


def test_a_file_that_came_too_old_while_the_program_did_not_run_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # The time of a change cannot be set, and this clock is another one.
    monkeypatch.setattr(
        file_input_stream, "_changed_ms", lambda status: status.st_atime_ns // 1_000_000
    )
    with Driven(build) as program:
        feed = Feed(program)
        program.start()
        feed.file()
        program.advance(2000)
        program.crash()
        program.advance(1000)
        late = Path(program.world.files, "late")
        late.write_text("late\n")
        now_ns = program.world.clock.time_ms() * 1_000_000
        os.utime(late, ns=(now_ns, (BEGIN_MS - 3_600_000) * 1_000_000))
        program.start()
        feed.file()
        program.advance(2000)
        feed.check()
    told = [line for line in caplog.text.splitlines() if "while the program did not run" in line]
    assert len(told) == 1
    assert f"Files {late} came or were changed" in told[0]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("outage", ["missing", "unreadable"])
def test_files_that_came_while_the_folder_could_not_be_listed_are_read_when_it_can(
    outage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Driven(build) as program:
        folder = program.world.files
        feed = Feed(program)
        program.start()
        feed.file()
        program.advance(2000)
        with monkeypatch.context() as patch:
            if outage == "missing":
                os.rename(folder, f"{folder}-away")
                program.world.files = f"{folder}-away"
            else:
                patch.setattr(file_input_stream.os, "scandir", _no_folder)
            feed.file()
            # Far longer than files are looked for.
            program.advance(600_000)
        if outage == "missing":
            os.rename(f"{folder}-away", folder)
            program.world.files = folder
        program.advance(2000)
        feed.check()


def _no_folder(path: str) -> Any:
    raise OSError(errno.EIO, os.strerror(errno.EIO), path)
