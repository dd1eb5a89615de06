"""Another version of a program goes on exactly where the one before stood, or says why not."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from penstock.streaming import StateSpec, StreamGraphError
from penstock.streaming.checkpoint.errors import CheckpointVersionError, UpgradeError
from penstock.streaming.checkpoint.folder import Checkpoint, CheckpointFolder
from tests.streaming.restarts.driven import BEGIN_MS, Driven, World

BATCH_MS = 1000


def add(values: list[int], state: int | None) -> int:
    return sum(values) + (state or 0)


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


def test_states_after_a_crash_are_refused_with_the_way_out() -> None:
    with Driven(totals()) as program:
        program.version = "1"
        program.start()
        receive(program, 1)
        program.advance(BATCH_MS)
        program.crash()
        program.upgrade("2", other_function)
        with pytest.raises(UpgradeError, match="graceful") as raised:
            program.start()
        assert "'1'" in str(raised.value)
        assert "totals" in str(raised.value)
        # The way out.
        program.crash()
        program.upgrade("1", totals())
        program.start()
        program.advance(BATCH_MS)
        program.stop()
        program.upgrade("2", other_function)
        program.start()
        receive(program, 5)
        program.advance(BATCH_MS)
        assert given(program, "state")[-1] == ("a", (1, 6))


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


@pytest.mark.parametrize("seed", range(8))
def test_random_upgrades_and_crashes_give_exact_states(seed: int) -> None:
    chance = random.Random(seed)
    builds = [totals(), mapped, totals(), mapped]
    with Driven(totals(), chance=chance) as program:
        program.version = "0"
        value = 0
        sent: Counter[str] = Counter()
        for number in range(5):
            program.start()
            for _ in range(chance.randrange(1, 5)):
                if chance.random() < 0.8:
                    value += 1
                    sent["a"] += value
                    receive(program, value)
                program.advance(BATCH_MS * chance.choice([1, 1, 2]))
                if chance.random() < 0.2:
                    program.crash()
                    program.start()
            program.advance(BATCH_MS)
            program.stop()
            program.advance(chance.randrange(0, 3000))
            program.upgrade(str(number + 1), chance.choice(builds))
        program.start()
        value += 1
        sent["a"] += value
        receive(program, value)
        program.advance(2 * BATCH_MS)
        assert program.world.errors == []
        assert given(program, "state")[-1] == ("a", sent["a"])
        assert min(program.world.results["in"]) > BEGIN_MS
        assert len(given(program, "in")) >= value


def test_another_penstock_goes_on_as_another_version_of_the_program() -> None:
    with Driven(totals()) as program:
        program.version = "1"
        program.start()
        receive(program, 1)
        program.advance(BATCH_MS)
        program.stop()
        folder = CheckpointFolder(program.world.checkpoint)
        for name in folder.names():
            written = folder.read(name)
            header = msgspec.structs.replace(written.header, penstock="0.0.1", python="2.7")
            folder.write(Checkpoint(header, b"the graph of another Python"))
        with pytest.raises(CheckpointVersionError, match='version="2"'):
            program.start()
        program.crash()
        program.upgrade("2", totals())
        program.start()
        receive(program, 2)
        program.advance(BATCH_MS)
        assert given(program, "state")[-1] == ("a", 3)


def test_states_that_an_earlier_penstock_did_not_name_are_refused() -> None:
    with Driven(totals()) as program:
        program.start()
        program.advance(BATCH_MS)
        program.stop()
        folder = CheckpointFolder(program.world.checkpoint)
        for name in folder.names():
            written = folder.read(name)
            header = msgspec.structs.replace(written.header, state_names=None, is_last=False)
            folder.write(Checkpoint(header, written.body))
        program.upgrade("2", totals())
        with pytest.raises(UpgradeError, match="unknown"):
            program.start()


def with_window(ssc: Any, world: World) -> None:
    pairs = world.stream(ssc).named("orders")
    world.keep(pairs.updateStateByKey(add).named("totals"), "state")
    world.keep(pairs.window(4, 4), "window")


@pytest.mark.parametrize("batches", [1, 2, 3, 4])
def test_what_a_state_has_counted_is_not_given_again_for_the_sake_of_a_window(
    batches: int,
) -> None:
    with Driven(with_window) as program:
        program.version = "1"
        program.start()
        for value in range(batches):
            receive(program, value + 1)
            program.advance(BATCH_MS)
        program.stop()
        program.upgrade("2", with_window)
        program.start()
        receive(program, 100)
        program.advance(BATCH_MS)
        assert given(program, "state")[-1] == ("a", 100 + sum(range(batches + 1)))


def with_slow_state(ssc: Any, world: World) -> None:
    pairs = world.stream(ssc).named("orders")
    stream = pairs.window(3, 3).updateStateByKey(add).named("totals")
    world.keep(stream, "state")


@pytest.mark.parametrize("batches", [1, 2, 3, 4, 5])
def test_a_state_with_a_longer_slide_gets_what_it_has_not_seen_after_an_upgrade(
    batches: int,
) -> None:
    with Driven(with_slow_state) as program:
        program.version = "1"
        program.start()
        for value in range(batches):
            receive(program, value + 1)
            program.advance(BATCH_MS)
        program.stop()
        program.upgrade("2", with_slow_state)
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
