"""What sources of messages share."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from msgspec.msgpack import encode

from penstock.errors import MissingPackageError
from penstock.receiver import PositionError, ReceiverContext, RecordTooLargeError, receiver
from penstock.sources import _common
from penstock.sources._common import Messages, Reconnecting, in_halves
from penstock.sources._on_loop import within
from penstock.sources.amqp import AmqpReceiver
from penstock.sources.formats import JsonFormat
from penstock.sources.growing_files import GrowingFilesReceiver
from penstock.sources.http import HttpReceiver
from penstock.sources.kafka import KafkaReceiver
from penstock.sources.kinesis import KinesisReceiver
from penstock.sources.mqtt import MqttReceiver
from penstock.sources.nats import NatsReceiver
from penstock.sources.postgres import PostgresReceiver
from penstock.sources.redis import RedisListReceiver, RedisStreamReceiver
from penstock.sources.server_sent import ServerSentEventsReceiver
from penstock.testing import ReceiverTestError, run_receiver
from tests.bounds import HANG_S

PARAMS = {"bootstrap.servers": "host:9092", "group.id": "g"}
ENVELOPE = pa.schema([("topic", pa.string()), ("number", pa.int64())])
NUMBERS = JsonFormat(pa.schema([("n", pa.int64())]))


def stored(payloads: list[bytes], **asked: Any) -> tuple[list[Any], list[tuple[bytes, str]], Any]:
    messages = Messages(ENVELOPE, **asked)

    class Source:
        schema = messages.schema

        def run(self, ctx: ReceiverContext) -> None:
            envelope = {"topic": ["a"] * len(payloads), "number": range(len(payloads))}
            messages.store(ctx, payloads, envelope, 7, lambda: None)
            ctx.stopped.wait()

    with run_receiver(Source()) as running:
        end_s = time.monotonic() + HANG_S
        while running.position != 7 and time.monotonic() < end_s:
            time.sleep(0.01)
        return running.records, running.discarded, running.position


def test_payloads_are_stored_as_they_came() -> None:
    assert stored([b"x", b""])[0] == [b"x", b""]


def test_the_envelope_is_stored_with_the_payload() -> None:
    records, _, _ = stored([b"x", b"y"], columns=True)
    assert records == [
        {"topic": "a", "number": 0, "value": b"x"},
        {"topic": "a", "number": 1, "value": b"y"},
    ]


@pytest.mark.parametrize("columns", [False, True])
def test_what_cannot_be_read_is_a_dead_letter_and_the_rest_is_stored(columns: bool) -> None:
    records, letters, position = stored(
        [b'{"n": 1}', b"{", b'{"n": 3}', b'"no object"'], columns=columns, values=NUMBERS
    )
    found = [record["value"] if columns else record for record in records]
    assert found == [{"n": 1}, {"n": 3}]
    assert [data for data, _ in letters] == [b"{", b'"no object"']
    assert "object" in letters[1][1]
    assert position == 7


def test_halving_ends_with_a_message_that_fits_into_no_block() -> None:
    taken: list[str] = []

    def store(messages: list[str]) -> None:
        if len(messages) > 1 or messages == ["large"]:
            raise RecordTooLargeError(2, 1)
        taken.extend(messages)

    in_halves(store, ["a", "b", "c"])
    assert taken == ["a", "b", "c"]
    with pytest.raises(RecordTooLargeError):
        in_halves(store, ["d", "large"])
    assert taken[3:] == ["d"]


def test_messages_that_are_stored_in_halves_make_each_letter_once() -> None:
    messages = Messages(ENVELOPE, values=JsonFormat(pa.schema([("s", pa.string())])))
    large = [b'{"s": "%s"}' % (b"%d" % digit * 30_000) for digit in range(6)]

    class Source:
        schema = messages.schema

        def run(self, ctx: ReceiverContext) -> None:
            self.store(ctx, [*large[:3], b"bad", *large[3:], b"worse"], 8)
            ctx.stopped.wait()

        def store(self, ctx: ReceiverContext, payloads: list[bytes], end: int) -> None:
            try:
                letters = [(b"unread", "the source's own")] if b"bad" in payloads else []
                messages.store(ctx, payloads, {}, end, lambda: None, letters)
            except RecordTooLargeError:
                half = len(payloads) // 2
                self.store(ctx, payloads[:half], end - half)
                self.store(ctx, payloads[half:], end)

    small = {"spark.penstock.block.maxSize": "128k"}
    with run_receiver(Source(), settings=small) as running:
        records = running.wait_for_records(6)
        assert [record["s"][0] for record in records] == list("012345")
        running.stop()
        assert [data for data, _ in running.discarded] == [b"unread", b"bad", b"worse"]
        assert running.position == 8


def test_a_position_of_messages_that_cannot_be_read_is_kept() -> None:
    records, letters, position = stored([b"{", b"["], values=NUMBERS)
    assert (records, len(letters), position) == ([], 2, 7)


def test_an_outage_is_reported_once_for_each_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    now_s = [0.0]
    monkeypatch.setattr(_common.time, "monotonic", lambda: now_s[0])
    asked = Reconnecting(lambda message, error: said.append(message), "broker at here:1")
    pauses = [asked.failed(ConnectionRefusedError("refused")) for _ in range(12)]
    assert pauses[0] <= 0.1
    assert pauses[-1] >= 15
    assert max(pauses) <= 30
    asked.connected()
    now_s[0] += 1
    asked.failed(ConnectionResetError("reset"))
    assert asked.failed(ConnectionRefusedError("refused")) >= 15, "it has not held"
    assert ["refused" in said[0], "reset" in said[1], len(said)] == [True, True, 2]
    asked.connected()
    now_s[0] += 6
    assert asked.failed(ConnectionRefusedError("refused")) <= 0.1
    assert len(said) == 3


def test_a_coroutine_awaits_until_what_it_discards_is_durable() -> None:
    async def source(ctx: ReceiverContext) -> None:
        await ctx.store(b"1")
        await ctx.discard(b"bad", "no number", 2)
        await ctx.store(b"last")
        await asyncio.Event().wait()

    with run_receiver(source) as running:
        assert running.wait_for_records(2) == [b"1", b"last"]
        assert running.discarded == [(b"bad", "no number")]
        assert running.position == 2
        assert "no number" in running.errors[0]


def test_what_is_awaited_is_durable_before_the_interval_ends_and_with_it_what_is_not() -> None:
    async def source(ctx: ReceiverContext) -> None:
        ctx.store("not awaited")
        await ctx.store("alone")
        await asyncio.gather(*map(ctx.store, "ab"))
        stored = ctx.store("later")
        await ctx.discard("bad", "no number")
        await stored
        await asyncio.Event().wait()

    with run_receiver(source, settings={"spark.streaming.blockInterval": "1h"}) as running:
        found = running.wait_for_records(5)
        assert found == ["not awaited", "alone", "a", "b", "later"]
        assert running.discarded == [(b"bad", "no number")]
        assert running._driver.blocks[0].num_records == 2


@pytest.mark.parametrize(
    ("extra", "make"),
    [
        ("amqp", lambda: AmqpReceiver("amqp://host", "q")),
        ("mqtt", lambda: MqttReceiver("mqtt://host", "t", qos=0)),
        ("nats", lambda: NatsReceiver("nats://host", "s", "c")),
    ],
)
def test_a_client_that_is_not_installed_is_said_where_the_receiver_is_made(
    extra: str, make: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=rf"pip install 'penstock\[{extra}\]'"):
        make()


POSITIONS: list[tuple[Any, Any]] = [
    (
        MqttReceiver("mqtt://host", "a", client_id="c"),
        {"topics": ["a"], "qos": 2, "unreleased": [7]},
    ),
    (AmqpReceiver("amqp://host", "queue"), {"ids": b"12345678"}),
    (NatsReceiver("nats://host", "stream", "consumer"), {"created": "2026", "stored": "1-5"}),
    (
        RedisStreamReceiver("redis://host", "stream", "group"),
        {"consumer": "c", "id": "1-0", "stored": "1-0"},
    ),
    (RedisListReceiver("redis://host", "key"), {"processing": "key:1", "stored": 7}),
    (
        PostgresReceiver("host=host", "slot", "publication"),
        {"slot": "slot", "system": "1", "timeline": "1", "lsn": 1, "place": 2},
    ),
    (
        KinesisReceiver("stream", region="eu-west-1"),
        {"stream": "arn", "made": 1, "shardId-0": "49", "shardId-1": None},
    ),
    (
        GrowingFilesReceiver("/var/log/*.log"),
        {"1": ["/var/log/a.log", 1, 2, 3, b"head", b"mark", 4], "begins at the end": True},
    ),
    (ServerSentEventsReceiver("http://host"), {"url": "digest", "id": ""}),
    (HttpReceiver(), {"17": b"entries"}),
    (KafkaReceiver(["topic"], PARAMS), {"topic": {"0": 17, "1": 0, "id": "of the topic"}}),
]
OTHERS: list[Any] = [17, "token", [1, "attempt", 2, 3], {"file": "name", "offset": 3}]


@pytest.mark.parametrize("source", [type(source).__name__ for source, _ in POSITIONS])
def test_a_source_goes_on_from_its_own_positions_only(source: str) -> None:
    (one,) = (each for each, _ in POSITIONS if type(each).__name__ == source)
    one._take_position(None)
    assert one.lastPosition is None
    for other, position in POSITIONS:
        if other is one:
            one._take_position(encode(position))
            assert one.lastPosition == position
        else:
            with pytest.raises(PositionError, match=f"of another source than {source}: "):
                one._take_position(encode(position))
    for position in OTHERS:
        with pytest.raises(PositionError):
            one._take_position(encode(position))


def test_an_mqtt_receiver_goes_on_that_ended_before_its_subscription() -> None:
    one = MqttReceiver("mqtt://host", "a", client_id="c", qos=2)
    position = {"topics": [], "qos": None, "unreleased": [1, 2]}
    one._take_position(encode(position))
    assert one.lastPosition == position


def test_a_receiver_whose_stream_has_the_position_of_another_source_is_not_tried_again() -> None:
    @receiver(positions=True)
    def records(ctx: Any) -> Any:
        yield "one", {"ids": b"12345678"}
        ctx.stopped.wait()

    with contextlib.ExitStack() as opened:
        running = opened.enter_context(run_receiver(records))
        running.wait_for_records(1)
        running.stop()
        running._receiver = POSITIONS[0][0]
        running.start()
        with pytest.raises(ReceiverTestError, match="before the receiver ended"):
            running.wait_for_records(2)
        with pytest.raises(ReceiverTestError, match=r"cannot work: .* another name"):
            opened.close()


@pytest.mark.parametrize("moment", ["before", "together"])
def test_a_receiver_that_is_stopped_waits_for_nothing_any_more(moment: str) -> None:
    async def stop() -> None:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        waiting = asyncio.ensure_future(within(answer, HANG_S))
        await asyncio.sleep(0.01)
        if moment == "together":
            answer.set_result(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert answer.done()

    asyncio.run(stop())
