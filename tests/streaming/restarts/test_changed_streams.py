"""A program whose streams changed, over the folder of the one before, without its checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import pytest

from penstock.streaming import StreamGraphError, StreamingContext
from penstock.tracker import StreamsDoNotFitError
from tests.streaming.restarts.driven import Driven, World


def program_of(*names: str) -> Any:
    def build(ssc: Any, world: World) -> None:
        for name in names:
            world.keep(world.stream(ssc).named(name), name)

    return build


def start(program: Driven, names: Sequence[str]) -> None:
    """Start another program, which does not ask for the checkpoints of the one before."""

    def create(path: str, make: Callable[[], StreamingContext], _: str | None) -> StreamingContext:
        context = make()
        context.checkpoint(path)
        return context

    program._build = program_of(*names)
    with mock.patch.object(StreamingContext, "getOrCreate", create):
        program.start()


def receive(program: Driven, name: str, number: int) -> None:
    assert program.world.side is not None
    program.receive([f"{name}-{number}"], program.world.side.numbers[name])


def given(program: Driven, name: str) -> list[str]:
    """Return all records that the output of a stream was given."""
    found = program.world.results.get(name, {})
    return [record for _, batch in sorted(found.items()) for records in batch for record in records]


@pytest.mark.parametrize("ending", ["crash", "stop"])
def test_records_go_to_the_stream_of_their_name(ending: str) -> None:
    with Driven(program_of("orders", "clicks")) as program:
        orders = [("orders", "clicks"), ("clicks", "orders"), ("visits", "orders", "clicks")]
        number = 0
        for names in orders:
            start(program, names)
            for name in ("orders", "clicks"):
                receive(program, name, number)
            program.advance(1000)
            number += 1
            for name in ("orders", "clicks"):
                receive(program, name, number)
            number += 1
            # The last ones wait when it ends.
            if ending == "crash":
                program.crash()
            else:
                program.stop()
            program.advance(5000)
        start(program, ("orders", "clicks", "visits"))
        program.advance(1000)
        assert program.world.errors == []
        for name in ("orders", "clicks"):
            assert given(program, name) == [f"{name}-{n}" for n in range(number)]


def test_records_of_a_stream_that_is_gone_are_not_given_to_another() -> None:
    with Driven(program_of("orders", "clicks")) as program:
        start(program, ("orders", "clicks"))
        receive(program, "orders", 0)
        program.crash()
        with pytest.raises(StreamsDoNotFitError, match="'orders'"):
            start(program, ("visits", "clicks"))
        program._conf["spark.penstock.removedStreams"] = "orders"
        start(program, ("visits", "clicks"))
        program.advance(1000)
        assert given(program, "visits") == given(program, "clicks") == []


def test_two_streams_of_one_name_are_refused() -> None:
    with (
        Driven(program_of("orders", "orders")) as program,
        pytest.raises(StreamGraphError, match="two streams have the name 'orders'"),
    ):
        program.start()


@pytest.mark.parametrize(
    ("name", "error"),
    [
        (5, TypeError),
        (b"orders", TypeError),
        ("", ValueError),
        ("a,b", ValueError),
        (" ", ValueError),
    ],
)
@pytest.mark.parametrize("what", ["stream", "state"])
def test_a_name_that_no_later_start_could_read_or_give_up_is_refused(
    what: str, name: Any, error: type[Exception]
) -> None:
    def build(ssc: Any, world: World) -> None:
        stream = world.stream(ssc)
        if what == "state":
            stream = stream.updateStateByKey(lambda values, state: state)
        world.keep(stream.named(name), "out")

    with Driven(build) as program, pytest.raises(error, match=f"a {what}'s name is printable text"):
        program.start()


def test_a_setup_that_returns_no_context_is_told() -> None:
    with (
        Driven(program_of("orders")) as program,
        pytest.raises(TypeError, match="setupFunc returned 'NoneType': it must return"),
    ):
        StreamingContext.getOrCreate(program.world.checkpoint, lambda: None)  # type: ignore[arg-type, return-value]
