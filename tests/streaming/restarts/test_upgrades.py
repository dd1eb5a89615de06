"""Another version of a program goes on exactly where the one before stood, or says why not."""

from __future__ import annotations

import errno
import operator
import random
from collections.abc import Callable
from typing import Any
from unittest import mock

import msgspec
import pytest

from penstock.streaming import StateSpec, StreamGraphError
from penstock.streaming.checkpoint.errors import CheckpointVersionError, UpgradeError
from penstock.streaming.checkpoint.record import Checkpoint
from tests.streaming.checkpoint.stored import store, stored_header
from tests.streaming.restarts.driven import BEGIN_MS, Driven, World

BATCH_MS = 1000


def add(values: list[int], state: int | None) -> int:
    return sum(values) + (state or 0)


def broken(values: list[int], state: int | None) -> int:
    raise ValueError("this version cannot do that")


def add_to_pair(values: list[int], state: Any) -> Any:
    # What another version kept is told by its form.
    count, total = state if isinstance(state, tuple) else (0, state or 0)
    return count + len(values), total + sum(values)


def counts(key: str, value: int | None, state: Any) -> tuple[str, int]:
    total = (state.getOption() or 0) + (value or 0)
    if not state.isTimingOut():
        state.update(total)
    return key, total


def totals(name: str = "totals", stream: str = "orders") -> Callable[[Any, World], None]:
    def build(ssc: Any, world: World) -> None:
        pairs = world.stream(ssc).named(stream)
        world.keep(pairs, "in")
        world.keep(pairs.updateStateByKey(add).named(name), "state")

    return build


def other_function(ssc: Any, world: World) -> None:
    pairs = world.stream(ssc).named("orders")
    world.keep(pairs, "in")
    world.keep(pairs.filter(lambda _: True).updateStateByKey(add_to_pair).named("totals"), "state")


def with_another_stream(ssc: Any, world: World) -> None:
    clicks = world.stream(ssc).named("clicks")
    world.keep(clicks.updateStateByKey(add).named("clicks by key"), "clicks")
    totals()(ssc, world)


def mapped(ssc: Any, world: World) -> None:
    pairs = world.stream(ssc).named("orders")
    world.keep(pairs, "in")
    stream = pairs.mapWithState(StateSpec.function(counts)).named("totals")
    world.keep(stream.stateSnapshots(), "state")
    world.keep(stream, "mapped")


def receive(program: Driven, value: int, name: str = "orders") -> None:
    assert program.world.side is not None
    program.receive([("a", value)], program.world.side.numbers[name])


def given(program: Driven, name: str) -> list[Any]:
    """Return all records that a sink was given, in the order of batch times."""
    found = program.world.results.get(name, {})
    return [record for _, batch in sorted(found.items()) for records in batch for record in records]


def test_three_upgrades_over_one_folder_give_every_record_once_and_keep_the_state() -> None:
    with Driven(totals()) as program:
        program.version = "1"
        value, expected = 0, []
        versions = [totals(), with_another_stream, mapped, totals()]
        for number, build in enumerate(versions, start=1):
            if number > 1:
                program.upgrade(str(number), build)
            if build is mapped:
                program._conf["spark.penstock.removedStates"] = "clicks by key"
            program.start()
            for _ in range(3):
                value += 1
                expected.append(value)
                receive(program, value)
                program.advance(BATCH_MS)
            # A crash of a version is gone on from by that version, as ever.
            program.crash()
            program.advance(2500)
            program.start()
            value += 1
            expected.append(value)
            receive(program, value)
            program.advance(BATCH_MS)
            program.stop()
            program.advance(3 * BATCH_MS)
        assert program.world.errors == []
        assert [record for _, record in given(program, "in")] == expected
        assert given(program, "state")[-1] == ("a", sum(expected))


def test_what_waits_at_the_end_goes_to_the_new_code() -> None:
    with Driven(totals()) as program:
        program.version = "1"
        program.start()
        receive(program, 1)
        program.advance(BATCH_MS)
        program.stop()
        program.upgrade("2", other_function)
        program.start()
        receive(program, 2)
        program.advance(BATCH_MS)
        assert given(program, "in") == [("a", 1), ("a", 2)]
        # The entry of the version before has its form until a function makes a new one.
        assert given(program, "state")[-1] == ("a", (1, 3))
        times = sorted(program.world.results["in"])
        assert len(times) == len(set(times))


@pytest.mark.parametrize("batches", [1, 2, 9, 10, 11, 12, 23])
def test_a_version_that_was_killed_is_gone_on_from_exactly(batches: int) -> None:
    with Driven(totals()) as program:
        program.version = "1"
        program.start()
        for value in range(1, batches + 1):
            receive(program, value)
            program.advance(BATCH_MS)
        receive(program, 1000)
        program.crash()
        program.upgrade("2", mapped)
        program.start()
        receive(program, 2000)
        program.advance(2 * BATCH_MS)
        assert program.world.errors == []
        assert given(program, "state")[-1] == ("a", 3000 + sum(range(batches + 1)))
        # What was processed is not processed again.
        assert [value for _, value in given(program, "in")] == [*range(1, batches + 1), 1000, 2000]


def test_another_interval_after_a_crash_is_refused_with_the_ways_out() -> None:
    with Driven(totals()) as program:
        program.version = "1"
        program.start()
        receive(program, 1)
        program.advance(BATCH_MS)
        program.crash()
        program.upgrade("2", other_function)
        program._batch_s = 2
        with pytest.raises(UpgradeError, match="graceful") as raised:
            program.start()
        assert "'1'" in str(raised.value)
        assert "totals" in str(raised.value)
        assert "spark.penstock.removedStates=totals" in str(raised.value)
        # One way out.
        program._batch_s = 1
        program.upgrade("1", totals())
        program.start()
        program.advance(BATCH_MS)
        program.stop()
        program.upgrade("2", other_function)
        program._batch_s = 2
        program.start()
        receive(program, 5)
        program.advance(2 * BATCH_MS)
        assert given(program, "state")[-1] == ("a", (1, 6))
        # Another one.
        program.crash()
        program.upgrade("3", totals())
        program._batch_s = 3
        program._conf["spark.penstock.removedStates"] = "totals"
        program.start()
        receive(program, 7)
        program.advance(3 * BATCH_MS)
        assert given(program, "state")[-1] == ("a", 7)


@pytest.mark.parametrize("count", range(1, 60, 4))
def test_a_crash_during_an_upgrade_changes_nothing(count: int) -> None:
    with Driven(totals()) as program:
        program.version = "1"
        program.start()
        for value in (1, 2, 3):
            receive(program, value)
            program.advance(BATCH_MS)
        program.stop()
        program.upgrade("2", totals())
        program.crash_at(count)
        program.start()
        program.crash()
        program.advance(BATCH_MS)
        program.start()
        receive(program, 4)
        program.advance(2 * BATCH_MS)
        assert program.world.errors == []
        assert given(program, "state")[-1] == ("a", 10)


def without_states(ssc: Any, world: World) -> None:
    world.keep(world.stream(ssc).named("orders"), "in")


def test_a_program_without_states_may_be_upgraded_after_a_crash() -> None:
    with Driven(without_states) as program:
        program.version = "1"
        program.start()
        receive(program, 1)
        program.advance(BATCH_MS)
        receive(program, 2)
        program.crash()
        program.upgrade("2", without_states)
        program.start()
        program.advance(BATCH_MS)
        assert [value for _, value in given(program, "in")] == [1, 2]


def with_a_new_state(ssc: Any, world: World) -> None:
    pairs = world.stream(ssc).named("orders")
    world.keep(pairs, "in again")
    world.keep(pairs.updateStateByKey(add).named("totals"), "state")


@pytest.mark.parametrize("seed", range(6))
def test_batches_that_were_under_way_go_into_a_state_that_the_new_version_adds(seed: int) -> None:
    with Driven(without_states, chance=random.Random(seed)) as program:
        program.version = "1"
        program.start()
        for value in (1, 10, 100):
            receive(program, value)
            program.advance(BATCH_MS, settle=False)
        for _ in range(3 + seed):
            program.step()
        program.crash()
        program.upgrade("2", with_a_new_state)
        program.start()
        receive(program, 1000)
        program.advance(BATCH_MS)
        made = [value for _, value in given(program, "in again")]
        assert given(program, "state")[-1] == ("a", sum(made))


def test_a_state_that_has_no_place_is_refused_with_both_names() -> None:
    with Driven(totals("totals")) as program:
        program.version = "1"
        program.start()
        receive(program, 1)
        program.advance(BATCH_MS)
        program.stop()
        program.upgrade("2", totals("sums"))
        with pytest.raises(UpgradeError) as raised:
            program.start()
        told = str(raised.value)
        assert "'totals'" in told
        assert "'sums'" in told
        assert "spark.penstock.removedStates=totals" in told
        program.crash()
        program._conf["spark.penstock.removedStates"] = "totals"
        program.start()
        receive(program, 7)
        program.advance(BATCH_MS)
        assert given(program, "state")[-1] == ("a", 7)


def two_without_names(ssc: Any, world: World) -> None:
    pairs = world.stream(ssc).named("orders")
    for name in ("first", "second"):
        world.keep(pairs.updateStateByKey(add), name)


def two_streams_without_names(ssc: Any, world: World) -> None:
    for name in ("first", "second"):
        world.keep(world.stream(ssc), name)


@pytest.mark.parametrize("build", [two_without_names, two_streams_without_names])
def test_what_only_its_order_tells_apart_is_refused(build: Any) -> None:
    with Driven(build) as program:
        program.version = "1"
        program.start()
        program.advance(BATCH_MS)
        program.stop()
        program.upgrade("2", build)
        with pytest.raises((UpgradeError, StreamGraphError), match="name them"):
            program.start()


def test_the_same_version_goes_on_with_its_own_code() -> None:
    with Driven(totals()) as program:
        program.version = "1"
        program.start()
        program.advance(BATCH_MS)
        program.stop()
        program.upgrade("1", other_function)
        program.start()
        receive(program, 1)
        program.advance(BATCH_MS)
        # As Spark does: the code is that of the checkpoint.
        assert given(program, "state")[-1] == ("a", 1)


def with_timeout(ssc: Any, world: World) -> None:
    pairs = world.stream(ssc).named("orders")
    spec = StateSpec.function(counts).timeout(5)
    stream = pairs.mapWithState(spec).named("totals")
    world.keep(stream.stateSnapshots(), "state")


def test_idle_keys_time_out_over_an_upgrade() -> None:
    with Driven(with_timeout) as program:
        program.version = "1"
        program.start()
        receive(program, 1)
        program.advance(BATCH_MS)
        begun_ms = max(program.world.results["state"])
        program.advance(BATCH_MS)
        program.stop()
        program.upgrade("2", with_timeout)
        program.start()
        for _ in range(8):
            program.advance(BATCH_MS)
        states = {
            (ms - begun_ms) // BATCH_MS: batch[0]
            for ms, batch in program.world.results["state"].items()
        }
        assert [number for number, found in sorted(states.items()) if found] == list(range(6))


def of_two(fast: Any, slow: Any) -> Callable[[Any, World], None]:
    """Return a program with a state of a mapped or an updated one, and one with a longer slide."""

    def build(ssc: Any, world: World) -> None:
        pairs = world.stream(ssc).named("orders")
        world.keep(pairs, "in")
        if fast is mapped:
            mapped_to = pairs.mapWithState(StateSpec.function(counts)).named("fast")
            world.keep(mapped_to.stateSnapshots(), "fast")
        else:
            world.keep(pairs.updateStateByKey(fast).named("fast"), "fast")
        world.keep(pairs.window(3, 3).updateStateByKey(slow).named("slow"), "slow")

    return build


@pytest.mark.parametrize(
    "seed",
    [
        *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2)),
        *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in range(2, 6)),
    ],
)
def test_random_versions_and_endings_give_exact_states(seed: int) -> None:
    chance = random.Random(seed)
    with Driven(of_two(add, add), chance=chance) as program:
        program.version = "0"
        value = 0
        for number in range(8):
            program.start()
            for _ in range(chance.randrange(0, 14)):
                if not program.is_running:
                    break
                if chance.random() < 0.8:
                    value += 1
                    receive(program, value)
                program.advance(BATCH_MS * chance.choice([1, 1, 2]))
                if chance.random() < 0.1:
                    program.crash()
                    program.start()
            ending = chance.choice(["stop", "crash", "crash in the midst of it"])
            if ending == "stop":
                program.stop()
            elif ending == "crash":
                program.crash()
            else:
                program.crash_at(chance.randrange(1, 40))
                program.advance(BATCH_MS)
                program.crash()
            program.advance(chance.randrange(0, 3000))
            fast, slow = chance.choice([add, add, mapped, broken]), chance.choice([add, broken])
            program.world.down = {
                name: chance.random() < 0.5
                for name in ("in", "fast", "slow")
                if chance.random() < 0.3
            }
            program.upgrade(str(number + 1), of_two(fast, slow))
            if chance.random() < 0.3:
                program.crash_at(chance.randrange(1, 60))
                program.start()
                program.crash()
        program.world.down = {}
        program.upgrade("good", of_two(add, add))
        program.start()
        value += 1
        receive(program, value)
        for _ in range(4):
            program.advance(BATCH_MS)
        expected = sum(sum(records) for _, records in program_records(program))
        for name in ("fast", "slow"):
            assert given(program, name)[-1] == ("a", expected)
        assert min(program.world.results["in"]) > BEGIN_MS


def program_records(program: Driven) -> list[tuple[str, list[int]]]:
    """Return the values of all blocks that were acknowledged."""
    blocks = program.world.blocks
    return [(b, [value for _, value in blocks[b]]) for b in program.world.acknowledged]


def test_another_penstock_goes_on_as_another_version_of_the_program() -> None:
    with Driven(totals()) as program:
        program.version = "1"
        program.start()
        receive(program, 1)
        program.advance(BATCH_MS)
        program.stop()
        header = stored_header(program.world.checkpoint)
        header = msgspec.structs.replace(header, penstock="0.0.1", python="2.7")
        store(program.world.checkpoint, Checkpoint(header, b"the graph of another Python"))
        with pytest.raises(CheckpointVersionError, match='version="2"'):
            program.start()
        program.crash()
        program.upgrade("2", totals())
        program.start()
        receive(program, 2)
        program.advance(BATCH_MS)
        assert given(program, "state")[-1] == ("a", 3)


@pytest.mark.parametrize("names", [None, ("totals",)])
def test_states_that_an_earlier_penstock_did_not_write_down_are_refused(names: Any) -> None:
    with Driven(totals()) as program:
        program.start()
        program.advance(BATCH_MS)
        program.stop()
        header = stored_header(program.world.checkpoint)
        header = msgspec.structs.replace(
            header, state_names=names, is_last=False, states=(), needed_ms=None
        )
        store(program.world.checkpoint, Checkpoint(header, b"the graph of an earlier one"))
        program.upgrade("2", totals())
        with pytest.raises(UpgradeError, match=r"spark\.penstock\.removedStates=totals"):
            program.start()
        program._conf["spark.penstock.removedStates"] = "totals"
        program.start()
        receive(program, 7)
        program.advance(2 * BATCH_MS)
        assert given(program, "state")[-1] == ("a", 7)


def test_states_that_an_earlier_penstock_saved_at_its_end_are_taken_up() -> None:
    with Driven(with_two_slides) as program:
        program.version = "1"
        program.start()
        for _ in range(4):
            receive(program, 1)
            program.advance(BATCH_MS)
        program.stop()
        header = stored_header(program.world.checkpoint)
        header = msgspec.structs.replace(header, needed_ms=None)
        store(program.world.checkpoint, Checkpoint(header, b"the graph of an earlier one"))
        program.upgrade("2", with_two_slides)
        program.start()
        program.advance(4 * BATCH_MS)
        assert program.world.errors == []
        for name in ("fast", "slow"):
            assert given(program, name)[-1] == ("a", 4)


def test_a_checkpoint_of_a_later_format_is_refused_with_the_way_out() -> None:
    with Driven(totals()) as program:
        program.version = "1"
        program.start()
        program.advance(BATCH_MS)
        program.stop()
        with mock.patch("penstock.streaming.checkpoint.record._FORMAT", 0):
            program.upgrade("2", totals())
            with pytest.raises(CheckpointVersionError, match="the Penstock that wrote it"):
                program.start()


def with_unused_stream(ssc: Any, world: World) -> None:
    totals()(ssc, world)
    world.stream(ssc).named("unused")


def test_a_stream_of_which_no_output_is_made_does_not_hinder_a_restart_or_an_upgrade() -> None:
    with Driven(totals()) as program:
        program.version = "1"
        program.start()
        receive(program, 1)
        program.advance(BATCH_MS)
        program.crash()
        program.upgrade("2", with_unused_stream)
        program.start()
        program.advance(BATCH_MS)
        program.crash()
        program.start()
        receive(program, 2)
        program.advance(BATCH_MS)
        assert program.world.errors == []
        assert given(program, "state")[-1] == ("a", 3)


def with_window(ssc: Any, world: World) -> None:
    pairs = world.stream(ssc).named("orders")
    world.keep(pairs.updateStateByKey(add).named("totals"), "state")
    world.keep(pairs.window(4, 4), "window")


@pytest.mark.parametrize("interval_s", [1, 0.5])
@pytest.mark.parametrize("batches", [1, 2, 3, 4])
def test_what_a_state_has_counted_is_not_given_again_for_the_sake_of_a_window(
    batches: int, interval_s: float
) -> None:
    with Driven(with_window) as program:
        program.version = "1"
        program.start()
        for value in range(batches):
            receive(program, value + 1)
            program.advance(BATCH_MS)
        program.stop()
        program.upgrade("2", with_window)
        program._batch_s = interval_s
        program.start()
        receive(program, 100)
        program.advance(BATCH_MS)
        assert given(program, "state")[-1] == ("a", 100 + sum(range(batches + 1)))


def with_slow_state(ssc: Any, world: World) -> None:
    pairs = world.stream(ssc).named("orders")
    stream = pairs.window(3, 3).updateStateByKey(add).named("totals")
    world.keep(stream, "state")


@pytest.mark.parametrize("interval_s", [1, 0.5])
@pytest.mark.parametrize("batches", [1, 2, 3, 4, 5])
def test_a_state_with_a_longer_slide_gets_what_it_has_not_seen_after_an_upgrade(
    batches: int, interval_s: float
) -> None:
    with Driven(with_slow_state) as program:
        program.version = "1"
        program.start()
        for value in range(batches):
            receive(program, value + 1)
            program.advance(BATCH_MS)
        program.stop()
        program.upgrade("2", with_slow_state)
        program._batch_s = interval_s
        program.start()
        for _ in range(4):
            program.advance(BATCH_MS)
        assert program.world.errors == []
        assert given(program, "state")[-1] == ("a", sum(range(batches + 1)))


def with_queue(ssc: Any, world: World) -> None:
    totals()(ssc, world)
    world.keep(ssc.queueStream([[("a", 1)]]), "queue")


def test_a_version_that_cannot_be_checkpointed_does_not_take_the_place_of_one_that_can() -> None:
    with Driven(totals()) as program:
        program.version = "1"
        program.start()
        receive(program, 1)
        program.advance(BATCH_MS)
        program.stop()
        program.upgrade("2", with_queue)
        with pytest.raises(UpgradeError, match="queueStream"):
            program.start()
        program.upgrade("1", totals())
        program.start()
        receive(program, 2)
        program.advance(BATCH_MS)
        assert given(program, "state")[-1] == ("a", 3)


def with_broken_function(ssc: Any, world: World) -> None:
    pairs = world.stream(ssc).named("orders")
    world.keep(pairs, "in")
    world.keep(pairs.updateStateByKey(broken).named("totals"), "broken")


@pytest.mark.parametrize("runs_job", [False, True])
@pytest.mark.parametrize("ending", ["stop", "crash"])
@pytest.mark.parametrize("next_version", ["1", "3"])
def test_a_version_whose_output_always_fails_can_be_replaced(
    ending: str, next_version: str, runs_job: bool
) -> None:
    with Driven(totals()) as program:
        program.version = "1"
        program.start()
        receive(program, 1)
        program.advance(BATCH_MS)
        program.stop()
        program.upgrade("2", totals())
        program.world.down = {"in": runs_job, "state": runs_job}
        program.start()
        for value in (2, 3):
            receive(program, value)
            program.advance(BATCH_MS)
        if ending == "stop":
            program.stop()
        else:
            program.crash()
        program.upgrade(next_version, totals())
        program.world.down = {}
        program.start()
        receive(program, 4)
        program.advance(2 * BATCH_MS)
        assert given(program, "state")[-1] == ("a", 10)
        # The last batch that failed is tried again, under its time.
        if not runs_job:
            assert [value for _, value in given(program, "in")] == [1, 3, 4]
        assert program.world.errors == []


@pytest.mark.parametrize("batches", [1, 12, 25])
@pytest.mark.parametrize("ending", ["stop", "crash"])
def test_a_version_whose_state_cannot_be_made_can_be_replaced(ending: str, batches: int) -> None:
    with Driven(totals()) as program:
        program.version = "1"
        program.start()
        receive(program, 1)
        program.advance(BATCH_MS)
        program.stop()
        program.upgrade("2", with_broken_function)
        program.start()
        for value in range(2, batches + 2):
            receive(program, value)
            program.advance(BATCH_MS)
        if ending == "stop":
            program.stop()
        else:
            program.crash()
        program.upgrade("1", totals())
        program.start()
        receive(program, 100)
        program.advance(2 * BATCH_MS)
        assert given(program, "broken") == []
        assert given(program, "state")[-1] == ("a", 100 + sum(range(batches + 2)))


def test_a_state_that_could_not_be_made_for_long_is_made_in_steps() -> None:
    with Driven(totals()) as program:
        program.version = "1"
        program.start()
        receive(program, 1)
        program.advance(BATCH_MS)
        program.stop()
        program.upgrade("2", with_broken_function)
        program.start()
        for _ in range(60):
            receive(program, 1)
            program.advance(BATCH_MS)
        program.crash()
        program.world.errors.clear()
        program.upgrade("3", totals())
        program.start()
        receive(program, 1)
        program.advance(2 * BATCH_MS)
        assert program.world.errors == []
        assert given(program, "state")[-1] == ("a", 62)
        assert program.sc is not None
        assert program.sc.deepest < 60


def with_two_slides(ssc: Any, world: World) -> None:
    pairs = world.stream(ssc).named("orders")
    world.keep(pairs.updateStateByKey(add).named("fast"), "fast")
    world.keep(pairs.window(3, 3).updateStateByKey(add).named("slow"), "slow")


@pytest.mark.parametrize("ending", ["stop", "crash"])
@pytest.mark.parametrize("batches", [1, 2, 3, 5, 9, 11, 14])
def test_states_of_different_slides_are_exact_after_an_upgrade(batches: int, ending: str) -> None:
    with Driven(with_two_slides) as program:
        program.version = "1"
        program.start()
        for value in range(batches):
            receive(program, value + 1)
            program.advance(BATCH_MS)
        if ending == "stop":
            program.stop()
        else:
            program.crash()
        program.upgrade("2", with_two_slides)
        program.start()
        for _ in range(4):
            program.advance(BATCH_MS)
        assert program.world.errors == []
        for name in ("fast", "slow"):
            assert given(program, name)[-1] == ("a", sum(range(batches + 1)))


def test_states_of_different_slides_are_refused_another_interval() -> None:
    with Driven(with_two_slides) as program:
        program.version = "1"
        program.start()
        for _ in range(4):
            receive(program, 1)
            program.advance(BATCH_MS)
        program.stop()
        program.upgrade("2", with_two_slides)
        program._batch_s = 0.5
        with pytest.raises(UpgradeError, match="keep the interval"):
            program.start()
        program._batch_s = 1
        program.start()
        for _ in range(4):
            program.advance(BATCH_MS)
        assert given(program, "slow")[-1] == ("a", 4)


def with_windows(ssc: Any, world: World) -> None:
    pairs = world.stream(ssc).named("orders")
    world.keep(pairs.window(4, 1), "window")
    inverse = pairs.reduceByKeyAndWindow(operator.add, operator.sub, 6, 1)
    world.keep(inverse, "inverse")
    # A state of what follows from a state that is not taken up.
    world.keep(inverse.updateStateByKey(add).named("sums"), "sums")


@pytest.mark.parametrize("ending", ["stop", "crash"])
@pytest.mark.parametrize("batches", [1, 3, 6, 11, 14, 22])
def test_windows_go_on_as_if_there_had_been_no_upgrade(batches: int, ending: str) -> None:
    with Driven(with_windows) as program:
        program.version = "1"
        program.start()
        for value in range(1, batches + 9):
            if value == batches:
                if ending == "stop":
                    program.stop()
                else:
                    program.crash()
                program.upgrade("2", with_windows)
                program.start()
            receive(program, value)
            program.advance(BATCH_MS)
        assert program.world.errors == []
        first_ms = min(program.world.results["inverse"])
        sums = 0
        for value in range(1, batches + 9):
            time_ms = first_ms + (value - 1) * BATCH_MS
            found = {
                name: program.world.results[name][time_ms][-1] for name in program.world.results
            }
            assert [v for _, v in found["window"]] == list(range(max(1, value - 3), value + 1))
            total = sum(range(max(1, value - 5), value + 1))
            assert found["inverse"] == [("a", total)]
            sums += total
            assert found["sums"] == [("a", sums)]


def with_new_windows(ssc: Any, world: World) -> None:
    totals()(ssc, world)
    pairs = world.stream(ssc).named("clicks")
    world.keep(pairs.window(30, 1), "window")
    inverse = pairs.reduceByKeyAndWindow(operator.add, operator.sub, 30, 1)
    world.keep(inverse.updateStateByKey(add).named("sums"), "sums")


@pytest.mark.parametrize("ending", ["stop", "crash"])
@pytest.mark.parametrize("batches", [1, 60])
def test_windows_that_the_version_before_had_not_begin_with_what_is_there(
    batches: int, ending: str
) -> None:
    with Driven(totals()) as program:
        program.version = "1"
        program.start()
        for _ in range(batches):
            receive(program, 1)
            program.advance(BATCH_MS)
        if ending == "stop":
            program.stop()
        else:
            program.crash()
        program.upgrade("2", with_new_windows)
        program.start()
        for _ in range(3):
            receive(program, 1)
            receive(program, 1, "clicks")
            program.advance(BATCH_MS)
        assert program.world.errors == []
        assert given(program, "state")[-1] == ("a", batches + 3)
        assert given(program, "sums")[-1] == ("a", 6)
        assert len(program.world.results["window"][max(program.world.results["window"])][-1]) == 3


def with_window_over_state(ssc: Any, world: World) -> None:
    pairs = world.stream(ssc).named("orders")
    states = pairs.updateStateByKey(add).named("totals")
    world.keep(states, "state")
    world.keep(states.window(8, 1), "window")


@pytest.mark.parametrize("ending", ["stop", "crash"])
@pytest.mark.parametrize("batches", [1, 13, 30])
def test_a_new_window_over_a_state_begins_where_the_state_was_taken_up(
    batches: int, ending: str
) -> None:
    with Driven(totals()) as program:
        program.version = "1"
        program.start()
        for _ in range(batches):
            receive(program, 1)
            program.advance(BATCH_MS)
        if ending == "stop":
            program.stop()
        else:
            program.crash()
        program.upgrade("2", with_window_over_state)
        program.start()
        for number in range(batches + 1, batches + 5):
            receive(program, 1)
            program.advance(BATCH_MS)
            assert given(program, "state")[-1] == ("a", number)
            window = program.world.results["window"][max(program.world.results["window"])][-1]
            assert [total for _, total in window] == list(
                range(number - len(window) + 1, number + 1)
            )
        program.crash()
        program.start()
        for _ in range(12):
            receive(program, 1)
            program.advance(BATCH_MS)
        assert program.world.errors == []
        assert [total for _, total in given(program, "window")[-8:]] == list(
            range(batches + 9, batches + 17)
        )


def test_what_waits_at_an_upgrade_has_a_batch_of_its_own() -> None:
    # Its schema may be another one.
    with Driven(without_states) as program:
        program.version = "1"
        program.start()
        program.advance(BATCH_MS)
        receive(program, 1)
        program.crash()
        program.upgrade("2", without_states)
        program.start()
        receive(program, 2)
        program.advance(3 * BATCH_MS)
        batches = [found[-1] for _, found in sorted(program.world.results["in"].items())]
        assert [found for found in batches if found] == [[("a", 1)], [("a", 2)]]
        assert program.world.clock.time_ms() > max(program.world.results["in"])


class Money:
    """A class of states, of which an upgrade loses sight."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __lt__(self, other: Any) -> bool:
        return bool(self.value < other.value)


def add_money(values: list[int], state: Money | None) -> Money:
    return Money(sum(values) + (state.value if state else 0))


def of_money(ssc: Any, world: World) -> None:
    pairs = world.stream(ssc).named("orders")
    states = pairs.updateStateByKey(add_money).named("totals")
    world.keep(states.mapValues(lambda money: money.value), "state")


@pytest.mark.parametrize("ending", ["stop", "crash"])
def test_a_state_whose_class_is_missing_is_refused_with_the_ways_out(
    ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Driven(of_money) as program:
        program.version = "1"
        program.start()
        for value in range(1, 13):
            receive(program, value)
            program.advance(BATCH_MS)
        if ending == "stop":
            program.stop()
        else:
            program.crash()
        program.upgrade("2", totals())
        with monkeypatch.context() as patch:
            patch.delattr("tests.streaming.restarts.test_upgrades.Money")
            with pytest.raises(UpgradeError, match=r"'totals' cannot be read.*Money") as raised:
                program.start()
        assert "spark.penstock.removedStates=totals" in str(raised.value)
        # One way out: the class is where it was. Nothing was changed meanwhile.
        program.upgrade("2", of_money)
        program.start()
        receive(program, 100)
        program.advance(2 * BATCH_MS)
        assert given(program, "state")[-1] == ("a", 178)
        program.stop()
        # Another one.
        program._conf["spark.penstock.removedStates"] = "totals"
        program.upgrade("3", totals())
        with monkeypatch.context() as patch:
            patch.delattr("tests.streaming.restarts.test_upgrades.Money")
            program.start()
            receive(program, 7)
            program.advance(2 * BATCH_MS)
        assert given(program, "state")[-1] == ("a", 7)


@pytest.mark.parametrize(("version", "error"), [(2, TypeError), ("", ValueError)])
def test_a_version_that_no_checkpoint_could_keep_is_refused_before_anything_runs(
    version: Any, error: type[Exception]
) -> None:
    with Driven(totals()) as program:
        program.start()
        program.stop()
        program.upgrade(version, other_function)
        with pytest.raises(error, match="version="):
            program.start()
        program.upgrade("2", other_function)
        program.start()


def test_a_full_disk_at_an_upgrade_is_told_as_one_and_the_states_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with Driven(totals()) as program:
        program.version = "1"
        program.start()
        receive(program, 1)
        program.advance(BATCH_MS)
        program.stop()
        program.upgrade("2", other_function)
        monkeypatch.setattr("penstock.streaming.dstream.states.stateful.save_copy", refuse)
        with pytest.raises(UpgradeError, match="cannot be saved again, because the disk") as raised:
            program.start()
        assert "removedStates" not in str(raised.value)
        monkeypatch.undo()
        program.start()
        receive(program, 2)
        program.advance(BATCH_MS)
        assert given(program, "state")[-1] == ("a", (1, 3))


def test_a_version_that_was_left_out_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with Driven(totals()) as program:
        program.upgrade("1", totals())
        for version in ("1", "1", None):
            assert "goes on" not in caplog.text
            program.version = version
            program.start()
            program.stop()
        assert "The code of version '1' of the program goes on" in caplog.text


def test_i14_what_waited_at_an_upgrade_gets_no_batch_before_its_time() -> None:
    with Driven(totals()) as program:
        program.version = "1"
        program.start()
        receive(program, 1)
        program.advance(BATCH_MS)
        receive(program, 2)
        program.crash()
        program.upgrade("2", other_function)
        program.start()
        assert max(program.world.results["in"]) <= program.world.clock.time_ms()
        program.advance(BATCH_MS)
        assert given(program, "in") == [("a", 1), ("a", 2)]
        assert program.world.errors == []


def test_a_state_that_no_key_has_come_to_is_empty_in_a_version_with_another_interval() -> None:
    def idle(ssc: Any, world: World) -> None:
        pairs = world.stream(ssc).named("orders").transform(lambda rdd: None)
        world.keep(pairs.updateStateByKey(add).named("totals"), "state")

    with Driven(idle) as program:
        program.version = "1"
        program.start()
        program.advance(3 * BATCH_MS)
        program.stop()
        program.upgrade("2", totals())
        program._batch_s = 2
        program.start()
        receive(program, 5)
        program.advance(4 * BATCH_MS)
        assert program.world.errors == []
        assert list(program.world.results["state"].values())[-1] == [[("a", 5)]]
