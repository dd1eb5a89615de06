"""Several receivers of one source, as a program asks for them: what is refused, and how it says."""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from pyspark import SparkContext

from penstock.errors import IllegalStateError
from penstock.receiver import (
    PositionChanges,
    PositionError,
    Receiver,
    ReceiverContext,
    SplitsError,
    as_receiver,
    receiver,
)
from penstock.receiver.splits import check_splits, names_of, position_of_splits
from penstock.streaming import FunctionSink, NotEnoughCoresError, StreamGraphError, StreamingContext
from penstock.testing import run_receiver


class Queues(Receiver):
    def splits(self) -> list[str]:
        return ["a", "b"]

    def onStart(self) -> None: ...

    def onStop(self) -> None: ...


class Plain(Receiver):
    def onStart(self) -> None: ...

    def onStop(self) -> None: ...


async def later() -> list[str]:
    return []


@pytest.fixture
def ssc(sc: SparkContext) -> Iterator[StreamingContext]:
    context = StreamingContext(sc, 1)
    yield context
    context.stop(stopSparkContext=False)


class Named:
    """No function, and what it has is not what is asked for."""

    splits = "a"


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"numReceivers": 0}, ValueError, "numReceivers=0"),
        ({"numReceivers": -1}, ValueError, "numReceivers=-1"),
        ({"numReceivers": 1.5}, TypeError, "numReceivers=1.5"),
        ({"numReceivers": "2"}, TypeError, "numReceivers='2'"),
        ({"numReceivers": True}, TypeError, "numReceivers=True"),
        ({"numReceivers": 10_001}, ValueError, "numReceivers=10001"),
        ({"maxReceivers": 2}, ValueError, "maxReceivers needs numReceivers"),
        ({"numReceivers": 3, "maxReceivers": 2}, ValueError, "maxReceivers=2"),
        ({"numReceivers": 2, "maxReceivers": 2.0}, TypeError, "maxReceivers=2.0"),
        ({"numReceivers": 2, "maxReceivers": "3"}, TypeError, "maxReceivers='3'"),
        ({"numReceivers": 2, "maxReceivers": 0}, ValueError, "maxReceivers=0"),
        ({"numReceivers": 2, "name": ""}, ValueError, "name=''"),
        ({"numReceivers": 2, "name": "a,b"}, ValueError, "name='a,b'"),
        ({"numReceivers": 2, "name": 3}, TypeError, "name=3"),
    ],
)
def test_numbers_and_names_that_are_none_are_refused(
    ssc: StreamingContext,
    arguments: dict[str, Any],
    error: type[Exception],
    says: str,
) -> None:
    with pytest.raises(error) as raised:
        ssc.receiverStream(Queues(), **arguments)
    assert says in str(raised.value)
    assert not ssc._graph.inputs


@pytest.mark.parametrize("count", [1, 2])
def test_several_receivers_need_splits(ssc: StreamingContext, count: int) -> None:
    for source in (Plain(), lambda: iter(["a"])):
        with pytest.raises(ValueError, match=r"needs a receiver that declares splits.*@receiver"):
            ssc.receiverStream(source, numReceivers=count)
    assert not ssc._graph.inputs


@pytest.mark.parametrize(
    "splits",
    ["a", ["a", "b"], 3, Named(), later, lambda context: [], lambda *, where: [], {"a": 1}],
)
def test_splits_are_a_function_without_arguments(splits: Any) -> None:
    with pytest.raises(TypeError, match=r"splits="):
        check_splits(splits)
    with pytest.raises(TypeError, match=r"splits="):
        receiver(splits=splits)
    made = Plain()
    made.splits = splits
    with pytest.raises(TypeError, match=r"splits="):
        as_receiver(made)


@pytest.mark.parametrize("splits", [None, list, functools.partial(list, "ab"), Queues().splits])
def test_any_function_without_arguments_is_accepted(splits: Any) -> None:
    check_splits(splits)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (None, "returned None"),
        (3, "returned 3"),
        ("ab", "returned 'ab'"),
        (b"ab", "returned b'ab'"),
        ([None], "named a split None"),
        ([b"a"], "named a split b'a'"),
        ([""], "named a split ''"),
        ([["a"]], "named a split ['a']"),
        (["\udc80"], "named a split '\\udc80', which is no text of 1 to 1,000 bytes"),
        (["x" * 1001], "xxx, which is no text of 1 to 1,000 bytes"),
        (["a", "b", "a"], "named 'a' twice"),
        (map(str, range(200_000)), "named more than 100,000 splits"),
    ],
)
def test_an_answer_that_is_no_list_of_names_says_what_it_is(answer: Any, says: str) -> None:
    with pytest.raises(SplitsError) as raised:
        names_of("Queues", answer)
    assert says in str(raised.value)
    assert "splits() of Queues" in str(raised.value)


def test_any_iterable_of_names_is_an_answer() -> None:
    assert names_of("Queues", iter("ab")) == names_of("Queues", {"a": 1, "b": 2}) == ("a", "b")
    assert names_of("Queues", ()) == ()
    assert names_of("Queues", ["x" * 1000]) == ("x" * 1000,)


def test_texts_of_other_kinds_are_texts() -> None:
    class Queue(str, enum.Enum):
        ORDERS = "orders"

    names = names_of("Queues", [Queue.ORDERS, *np.array(["returns"])])
    assert names == ("orders", "returns")
    assert {type(name) for name in names} == {str}


@pytest.mark.parametrize("position", [3, "a", [1], {"c": 1}, {"a": 1, "c": 2}, {1: 2}, ("a", 1)])
def test_a_position_is_of_the_splits_that_the_receiver_has(position: Any) -> None:
    with pytest.raises(PositionError) as raised:
        position_of_splits(position, frozenset(("a", "b")))
    assert "a, b" in str(raised.value)


def test_places_are_changes_of_the_last_position() -> None:
    found = position_of_splits({"a": 1}, frozenset(("a", "b")))
    assert (type(found), found) == (PositionChanges, {"a": 1})


def test_scaling_before_the_start_says_what_does_it(
    ssc: StreamingContext,
) -> None:
    stream = ssc.receiverStream(Queues(), numReceivers=1, maxReceivers=2)
    with pytest.raises(IllegalStateError, match=r"numReceivers=\.\.\. of receiverStream"):
        stream.scale(2)
    for count in (0, 3, -1):
        with pytest.raises(ValueError, match=f"numReceivers={count}"):
            stream.scale(count)
    with pytest.raises(ValueError, match=r"2 receivers at most; maxReceivers .* allows more"):
        stream.scale(3)
    for wrong in (1.0, "2", None, True):
        with pytest.raises(TypeError, match="numReceivers="):
            stream.scale(wrong)  # type: ignore[arg-type]
    assert stream.splits == {}


def test_a_stream_of_several_receivers_has_a_name_and_members(
    ssc: StreamingContext,
) -> None:
    stream = ssc.receiverStream(Queues(), numReceivers=2, maxReceivers=3)
    assert (stream.name, [member.name for member in stream.members]) == (
        "Queues",
        ["Queues/0", "Queues/1", "Queues/2"],
    )
    assert stream.named("orders") is stream
    assert [member.name for member in stream.members] == ["orders/0", "orders/1", "orders/2"]
    assert ssc.splitStream("orders").name == "orders"
    other = ssc.receiverStream(Queues(), "others", numReceivers=1)
    assert [member.stream_id for member in other.members] == [3]
    with pytest.raises(StreamGraphError, match=r"no stream 'Queues' .*; 'orders', 'others' has"):
        ssc.splitStream("Queues")
    with pytest.raises(TypeError, match="such as the members of one"):
        ssc.rateGroup("100/second", [stream])  # type: ignore[list-item]
    ssc.rateGroup("100/second", stream.members)


def test_a_stream_says_where_that_is_what_streams_of_another_kind_have(
    ssc: StreamingContext,
) -> None:
    alone: Any = ssc.receiverStream(Queues(), "alone")
    shared: Any = ssc.receiverStream(Queues(), "shared", numReceivers=2)
    for wanted in ("scale", "splits", "members"):
        with pytest.raises(AttributeError, match=rf"'{wanted}': .*numReceivers="):
            getattr(alone, wanted)
    for wanted in ("set_rate", "rate", "continuous", "addresses"):
        with pytest.raises(AttributeError, match=rf"'{wanted}': .*stream\.members"):
            getattr(shared, wanted)
    for stream in (alone, shared):
        with pytest.raises(AttributeError, match=r"no attribute 'scael'$"):
            stream.scael  # noqa: B018


def test_receivers_that_may_share_tasks_have_room_before_they_start(
    ssc: StreamingContext,
) -> None:
    source = Queues()
    source.slots = 0.5
    ssc.receiverStream(source, numReceivers=1, maxReceivers=100).pprint()
    with pytest.raises(NotEnoughCoresError, match=r"50 task\(s\) that receivers share"):
        ssc.start()


def test_one_of_several_receivers_has_no_continuous_function(ssc: StreamingContext) -> None:
    stream = ssc.receiverStream(Queues(), numReceivers=2)
    with pytest.raises(IllegalStateError, match="a stream of one receiver"):
        stream.members[0].continuous(lambda batch: batch, sink=FunctionSink(print))


def test_a_receiver_that_is_alone_has_all_splits(
    ssc: StreamingContext,
) -> None:
    stream = ssc.receiverStream(Queues())
    assert not hasattr(stream, "scale")


def test_a_source_with_splits_runs_in_a_test_without_spark() -> None:
    @receiver(positions=True, splits=lambda: ["a", "b"])
    def numbers(ctx: ReceiverContext) -> Iterator[tuple[list[str], dict[str, int]]]:
        for split in ctx.splits:
            begin = ctx.last_position.get(split, 0)
            yield [f"{split}{begin + n}" for n in range(2)], {split: begin + 2}
        ctx.stopped.wait(10)

    with run_receiver(numbers) as found:
        assert found.wait_for_records(4) == ["a0", "a1", "b0", "b1"]


def test_a_position_of_another_split_is_an_error_of_the_program() -> None:
    @receiver(positions=True, splits=lambda: ["a"])
    def wrong(ctx: ReceiverContext) -> Iterator[tuple[str, Any]]:
        yield "record", {"b": 1}

    with run_receiver(wrong) as found:
        assert "for splits that it has now: a" in found.wait_for_error("PositionError")
