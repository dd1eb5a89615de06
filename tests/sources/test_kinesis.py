"""Kinesis: on moto's server, and, where that does otherwise, as AWS documents it."""

from __future__ import annotations

import contextlib
import hashlib
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import Any, cast

import pyarrow as pa
import pytest

from penstock.sources._aws import AwsError, Outage, Trouble
from penstock.sources.formats import JsonFormat
from penstock.sources.kinesis import KinesisReceiver, _reading
from penstock.sources.kinesis._reading import hash_of, unpack
from penstock.testing import crash_test, run_receiver
from tests.bounds import HANG_S
from tests.receiver.conftest import run, shared, tracker
from tests.receiver.running import Running, Tracker
from tests.services.aws_front import Answer, AwsFront, aws_front, error, wait_until
from tests.services.moto import KEYS, REGION, MotoServer, moto_server
from tests.sources.documented_kinesis import DocumentedKinesis

__all__ = ["run", "shared", "tracker"]

SECRET = KEYS["aws_secret_access_key"]
SOON = {"spark.streaming.blockInterval": "20ms", "spark.streaming.receiverRestartDelay": "10"}


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    with moto_server(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture
def front() -> Iterator[AwsFront]:
    with aws_front() as server:
        yield server


@pytest.fixture
def kinesis(front: AwsFront) -> DocumentedKinesis:
    found = DocumentedKinesis()
    front.hook = found.answer
    return found


def receiver(stream: str, url: str, **more: Any) -> KinesisReceiver:
    options = {
        "region": REGION,
        "endpointUrl": url,
        "accessKeyId": KEYS["aws_access_key_id"],
        "secretKey": SECRET,
        "initialPosition": "TRIM_HORIZON",
        "readInterval": 0.05,
    }
    return KinesisReceiver(stream, **{**options, **more})


def numbered(name: str, count: int, first: int = 0) -> list[bytes]:
    return [f"{name}{number:03}".encode() for number in range(first, first + count)]


# -- moto's server -------------------------------------------------------------------------------


@pytest.fixture
def stream(moto: MotoServer) -> str:
    name = f"s{uuid.uuid4().hex}"
    moto.client("kinesis").create_stream(StreamName=name, ShardCount=2)
    return name


def put(moto: MotoServer, stream: str, *data: bytes) -> None:
    records = [{"Data": each, "PartitionKey": each.decode("latin-1")} for each in data]
    moto.client("kinesis").put_records(StreamName=stream, Records=records)


def test_a_stream_is_read_from_its_oldest_record_and_goes_on_where_it_was(
    moto: MotoServer, stream: str
) -> None:
    put(moto, stream, *numbered("a", 50))
    with run_receiver(receiver(stream, moto.url), settings=SOON) as running:
        assert sorted(running.wait_for_records(50)) == numbered("a", 50)
        running.restart()
        running.wait_for_event("registered", 2)
        put(moto, stream, *numbered("b", 50))
        assert sorted(running.wait_for_records(100)[50:]) == numbered("b", 50)
        put(moto, stream, b"end")
        assert running.wait_for_records(101)[100:] == [b"end"]
        assert not running.errors


def test_latest_gives_what_comes_after_the_start(moto: MotoServer, stream: str) -> None:
    put(moto, stream, *numbered("old", 10))
    with aws_front(moto.port) as front:
        made = receiver(stream, front.url, initialPosition="LATEST")
        with run_receiver(made, settings=SOON) as running:
            wait_until(lambda: running.position is not None, "the place of the start is durable")
            assert running.position["since"] == pytest.approx(time.time(), abs=HANG_S)
            front.wait_for_calls("GetRecords", 4)
            put(moto, stream, *numbered("new", 10))
            assert sorted(running.wait_for_records(10)) == numbered("new", 10)


def test_a_time_gives_what_came_since(moto: MotoServer, stream: str) -> None:
    put(moto, stream, *numbered("a", 10))
    since = datetime.now(timezone.utc) - timedelta(hours=1)
    with run_receiver(receiver(stream, moto.url, initialPosition=since), settings=SOON) as running:
        assert sorted(running.wait_for_records(10)) == numbered("a", 10)


def test_a_time_within_a_second_gives_nothing_from_before_it(
    front: AwsFront, kinesis: DocumentedKinesis
) -> None:
    second_s = int(time.time())
    (shard,) = kinesis.ids()
    kinesis.put(b"before", b"since")
    for record, arrived_s in zip(kinesis.records(shard), (0.25, 0.75), strict=True):
        record["ApproximateArrivalTimestamp"] = second_s + arrived_s
    since = datetime.fromtimestamp(second_s + 0.5, timezone.utc)
    with run_receiver(
        receiver("orders", front.url, initialPosition=since), settings=SOON
    ) as running:
        assert running.wait_for_records(1) == [b"since"]
        kinesis.put(b"end")
        assert running.wait_for_records(2) == [b"since", b"end"]


def test_the_envelope_comes_as_columns(moto: MotoServer, stream: str) -> None:
    moto.client("kinesis").put_record(StreamName=stream, Data=b'{"id": 1}', PartitionKey="k")
    values = JsonFormat(pa.schema([("id", pa.int64())]))
    made = receiver(stream, moto.url, columns=True, values=values)
    with run_receiver(made, settings=SOON) as running:
        (row,) = running.wait_for_records(1)
    assert row["value"] == {"id": 1}
    assert (row["partitionKey"], row["stream"], row["subSequenceNumber"]) == ("k", stream, None)
    assert row["shardId"].startswith("shardId-")
    assert row["sequenceNumber"]
    age = datetime.now(timezone.utc) - row["approximateArrivalTimestamp"].astimezone(timezone.utc)
    assert abs(age) < timedelta(seconds=HANG_S)


def test_a_stream_may_be_given_by_its_arn(moto: MotoServer, stream: str) -> None:
    put(moto, stream, b"one")
    arn = f"arn:aws:kinesis:{REGION}:123456789012:stream/{stream}"
    with run_receiver(receiver(arn, moto.url), settings=SOON) as running:
        assert running.wait_for_records(1) == [b"one"]


def test_what_cannot_be_read_is_a_dead_letter(moto: MotoServer, stream: str) -> None:
    put(moto, stream, b'{"id": 1}', b"no JSON \xff", b'{"id": 2}')
    values = JsonFormat(pa.schema([("id", pa.int64())]))
    with run_receiver(receiver(stream, moto.url, values=values), settings=SOON) as running:
        assert sorted(each["id"] for each in running.wait_for_records(2)) == [1, 2]
        wait_until(lambda: running.discarded, "the letter is durable")
        assert [data for data, _ in running.discarded] == [b"no JSON \xff"]


# -- shards that end -----------------------------------------------------------------------------


def test_the_children_of_a_split_are_read_after_their_parent(
    front: AwsFront, kinesis: DocumentedKinesis
) -> None:
    kinesis.limit = 7
    (parent,) = kinesis.ids()
    kinesis.put(*numbered("a", 30))
    lower, upper = kinesis.split(parent)
    kinesis.put(*numbered("b", 20), shard=lower)
    kinesis.put(*numbered("c", 20), shard=upper)
    with run_receiver(receiver("orders", front.url), settings=SOON) as running:
        found = running.wait_for_records(70)
        assert found[:30] == numbered("a", 30)
        assert [each for each in found if each[:1] == b"b"] == numbered("b", 20)
        # While it is read.
        first, second = kinesis.split(lower)
        child = kinesis.merge(second, upper)
        kinesis.put(*numbered("d", 5), shard=first)
        kinesis.put(*numbered("e", 5), shard=child)
        found = running.wait_for_records(80)
        assert sorted(found[70:]) == numbered("d", 5) + numbered("e", 5)
        wait_until(lambda: running.position.get(upper) == "SHARD_END", "it has ended")
    assert len(set(found)) == 80
    assert not running.errors


def test_the_child_of_a_merge_waits_for_both_parents(
    front: AwsFront, kinesis: DocumentedKinesis
) -> None:
    both = DocumentedKinesis(2)
    first, second = both.ids()
    both.put(*numbered("a", 3), shard=first)
    both.put(*numbered("b", 40), shard=second)
    both.limit = 4
    child = both.merge(first, second)
    both.put(*numbered("c", 3), shard=child)
    front.hook = both.answer
    with run_receiver(receiver("orders", front.url), settings=SOON) as running:
        assert running.wait_for_records(46)[43:] == numbered("c", 3)
    assert not running.errors


def test_a_restart_between_parent_and_children_goes_on_with_these(
    front: AwsFront, kinesis: DocumentedKinesis
) -> None:
    (parent,) = kinesis.ids()
    kinesis.put(*numbered("a", 5))
    with run_receiver(receiver("orders", front.url), settings=SOON) as running:
        running.wait_for_records(5)
        children = kinesis.split(parent)
        wait_until(lambda: running.position[parent] == "SHARD_END", "it has ended")
        running.stop()
        for child in children:
            kinesis.put(b"of " + child.encode(), shard=child)
        # As after the retention of the stream.
        kinesis.drop(parent)
        running.start()
        found = running.wait_for_records(7)
        assert sorted(found[5:]) == [b"of " + child.encode() for child in children]
        wait_until(lambda: parent not in running.position, "the place forgets it")
    assert not running.errors


def test_latest_passes_over_what_ended_before(front: AwsFront, kinesis: DocumentedKinesis) -> None:
    (parent,) = kinesis.ids()
    kinesis.put(*numbered("old", 5))
    children = kinesis.split(parent)
    asked: list[str] = []

    def answer(name: str, members: dict[str, Any]) -> Answer | None:
        if name == "GetShardIterator":
            asked.append(members["ShardId"])
        return kinesis.answer(name, members)

    front.hook = answer
    made = receiver("orders", front.url, initialPosition="LATEST")
    with run_receiver(made, settings=SOON) as running:
        front.wait_for_calls("GetRecords", 4)
        for child in children:
            kinesis.put(b"of " + child.encode(), shard=child)
        found = running.wait_for_records(2)
        assert sorted(found) == [b"of " + child.encode() for child in children]
    # To wait for its end would let the children begin later.
    assert sorted(asked) == children


def test_latest_keeps_its_place_over_a_restart_before_the_first_record(
    front: AwsFront, kinesis: DocumentedKinesis
) -> None:
    made = receiver("orders", front.url, initialPosition="LATEST")
    with run_receiver(made, settings=SOON) as running:
        front.wait_for_calls("GetRecords", 2)
        wait_until(lambda: running.position is not None, "the place of the start is durable")
        running.stop()
        kinesis.put(b"meanwhile")
        running.start()
        assert running.wait_for_records(1) == [b"meanwhile"]


# -- what is not there any more ------------------------------------------------------------------


@pytest.mark.parametrize("refuses", [False, True])
def test_records_that_were_trimmed_before_they_were_read_are_told(
    front: AwsFront, kinesis: DocumentedKinesis, refuses: bool
) -> None:
    kinesis.put(*numbered("a", 5))
    with run_receiver(receiver("orders", front.url), settings=SOON) as running:
        running.wait_for_records(5)
        running.stop()
        kinesis.put(*numbered("b", 10))
        kinesis.trim(kinesis.ids()[0], 8)
        kinesis.refuses_trimmed = refuses
        running.start()
        assert running.wait_for_records(12)[5:] == numbered("b", 7, 3)
        told = running.wait_for_error("are lost")
        assert kinesis.ids()[0] in told
        assert len(running.errors) == 1


def test_an_iterator_that_expired_is_made_again(
    front: AwsFront, kinesis: DocumentedKinesis
) -> None:
    kinesis.put(*numbered("a", 5))
    with run_receiver(receiver("orders", front.url), settings=SOON) as running:
        running.wait_for_records(5)
        for number in range(3):
            kinesis.expire_iterators()
            front.wait_for_calls("GetRecords", front.calls["GetRecords"] + 3)
            kinesis.put(b"b%d" % number)
            running.wait_for_records(6 + number)
        assert running.records == [*numbered("a", 5), b"b0", b"b1", b"b2"]
        assert not running.errors


def test_a_stream_that_was_made_again_is_told_and_read_from_its_oldest_record(
    front: AwsFront, kinesis: DocumentedKinesis
) -> None:
    kinesis.put(*numbered("a", 5))
    with run_receiver(receiver("orders", front.url), settings=SOON) as running:
        running.wait_for_records(5)
        running.stop()
        other = DocumentedKinesis()
        other.made_s += 3600
        other.put(*numbered("b", 5))
        front.hook = other.answer
        running.start()
        assert running.wait_for_records(10)[5:] == numbered("b", 5)
        running.wait_for_error("is another than the one that was read")
        # Also while it runs.
        third = DocumentedKinesis()
        third.made_s += 7200
        third.put(*numbered("c", 5))
        gone = error("ResourceNotFoundException", "Stream orders not found")
        front.hook = lambda name, members: gone
        running.wait_for_error("there is no stream 'orders'")
        front.hook = third.answer
        assert running.wait_for_records(15)[10:] == numbered("c", 5)


def test_a_shard_that_is_gone_before_it_was_read_is_told(
    front: AwsFront, kinesis: DocumentedKinesis, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinesis.put(*numbered("a", 5))
    (parent,) = kinesis.ids()
    with run_receiver(receiver("orders", front.url), settings=SOON) as running:
        running.wait_for_records(5)
        running.stop()
        child, _ = kinesis.split(parent)
        kinesis.drop(parent)
        kinesis.put(b"b", shard=child)
        running.start()
        assert running.wait_for_records(6)[5:] == [b"b"]
        running.wait_for_error(f"Shard {parent} of the Kinesis stream 'orders' is gone before")


def test_a_stream_that_is_read_too_slowly_is_told_before_records_are_lost(
    front: AwsFront, kinesis: DocumentedKinesis
) -> None:
    kinesis.behind_ms = 23 * 3600_000
    kinesis.put(b"a")
    with run_receiver(receiver("orders", front.url), settings=SOON) as running:
        assert "23.0 hours behind" in running.wait_for_error("about to be lost")
        front.wait_for_calls("GetRecords", 5)
        assert len(running.errors) == 1


def test_by_how_long_the_slowest_shard_is_behind_is_told(
    run: Callable[..., Running], tracker: Tracker, front: AwsFront, kinesis: DocumentedKinesis
) -> None:
    kinesis.behind_ms = 2500
    kinesis.put(b"a")
    run(receiver("orders", front.url))

    def lags() -> list[int | None]:
        return [each.pipe.source_lag_ms for each in list(tracker.rate_reports) if each.pipe]

    tracker.wait_for(lambda: 2500 in lags())


def test_the_failures_of_one_pause_count_once() -> None:
    reported: list[str] = []
    outage = Outage(lambda text, error: reported.append(text), "Kinesis stream 'orders'")
    for number in range(8):
        outage.failed(AwsError(f"call {number}", "InternalFailure", Trouble.AWAY))
    # The first pause, and not the eighth.
    assert outage.left_s <= 0.1
    assert len(reported) == 1


# -- what AWS refuses ----------------------------------------------------------------------------


def test_a_throttled_shard_is_asked_less_often_and_loses_nothing(
    front: AwsFront, kinesis: DocumentedKinesis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_reading, "_PACE_S", 0.01)
    monkeypatch.setattr(_reading, "_TELL_THROTTLED_S", 0.0)
    throttled = error("ProvisionedThroughputExceededException", "Rate exceeded for shard")
    calls = iter(range(1000))

    def answer(name: str, members: dict[str, Any]) -> Answer | None:
        if name == "GetRecords" and next(calls) < 4:
            return throttled
        return kinesis.answer(name, members)

    front.hook = answer
    kinesis.put(*numbered("a", 5))
    with run_receiver(receiver("orders", front.url), settings=SOON) as running:
        assert running.wait_for_records(5) == numbered("a", 5)
        running.wait_for_error("as it has too many readers")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            error("ResourceNotFoundException", "Stream orders under account 1 not found."),
            "there is no stream 'orders' in this region and account",
        ),
        (
            error("UnrecognizedClientException", "The security token included is invalid."),
            "AWS does not accept the credentials for stream 'orders'",
        ),
        (
            error("InvalidSignatureException", f"It does not match.\n\nThe String: {SECRET}"),
            "AWS does not accept the credentials for stream 'orders'",
        ),
        (
            error("AccessDeniedException", "User: x is not authorized to perform: kinesis:…"),
            "the credentials do not allow DescribeStreamSummary of stream 'orders'",
        ),
    ],
)
def test_what_only_people_can_mend_is_told_at_once(
    front: AwsFront, answer: Answer, told: str
) -> None:
    front.hook = lambda name, members: answer
    with run_receiver(receiver("orders", front.url), settings=SOON) as running:
        assert SECRET not in running.wait_for_error(told)


QUESTIONS = ["DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords"]


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("kind", ["cut", "failing", "without members", "page"])
def test_an_answer_that_does_not_come_whole_is_asked_for_again(
    front: AwsFront, kinesis: DocumentedKinesis, kind: str, question: str
) -> None:
    broken: list[Answer] = []

    def answer(name: str, members: dict[str, Any]) -> Answer | None:
        found = kinesis.answer(name, members)
        if name != question or broken or found is None:
            return found
        broken.append(found)
        return {
            "cut": Answer(found.body, is_cut=True),
            "failing": error("InternalFailure", status=500),
            "without members": Answer({}),
            "page": Answer({}, page=b"<html>Log in</html>"),
        }[kind]

    front.hook = answer
    kinesis.put(*numbered("a", 5))
    with run_receiver(receiver("orders", front.url), settings=SOON) as running:
        assert running.wait_for_records(5) == numbered("a", 5)
        assert broken
        assert len(running.errors) == 1


def test_arguments_that_contradict_are_refused() -> None:
    for wrong in (
        {"initialPosition": "OLDEST"},
        {"initialPosition": datetime(2026, 1, 1)},  # it has no zone
        {"readInterval": 0},
        {"threads": 0},
        {"secretKey": None},
        {"readInterval": "1"},
        {"endpointUrl": "127.0.0.1:4566"},
        {"roleArn": "reader"},
    ):
        with pytest.raises(ValueError, match=r"is not accepted|is given without") as found:
            receiver("orders", "http://127.0.0.1:1", **wrong)
        assert SECRET not in str(found.value)
    for stream in ("", 7):
        with pytest.raises(ValueError, match=r"stream=.* is not accepted"):
            receiver(cast(str, stream), "http://127.0.0.1:1")
    assert SECRET not in repr(receiver("orders", "http://127.0.0.1:1").account)


# -- records that a producer packed into one -----------------------------------------------------


def field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def packed(*records: tuple[str, bytes], explicit: int | None = None) -> bytes:
    keys = list(dict.fromkeys(key for key, _ in records))
    message = b"".join(field(1, key.encode()) for key in keys)
    if explicit is not None:
        message += field(2, str(explicit).encode())
    for key, data in records:
        index = b"\x08" + _varint(keys.index(key))
        index += b"" if explicit is None else b"\x10\x00"
        message += field(3, index + field(3, data))
    digest = hashlib.md5(message, usedforsecurity=False).digest()
    return b"\xf3\x89\x9a\xc2" + message + digest


def test_packed_records_are_unpacked(front: AwsFront, kinesis: DocumentedKinesis) -> None:
    many = [(f"key{number % 3}", b"x%d" % number) for number in range(300)]
    kinesis.put(b"alone", packed(*many), b"alone, too")
    made = receiver("orders", front.url, columns=True)
    with run_receiver(made, settings=SOON) as running:
        rows = running.wait_for_records(302)
    assert [row["value"] for row in rows] == [b"alone", *(data for _, data in many), b"alone, too"]
    assert [row["partitionKey"] for row in rows[1:4]] == ["key0", "key1", "key2"]
    assert [row["subSequenceNumber"] for row in rows[:3]] == [None, 0, 1]


def test_packed_records_of_another_shard_are_left_to_their_producer(
    front: AwsFront, kinesis: DocumentedKinesis
) -> None:
    (parent,) = kinesis.ids()
    lower, _ = kinesis.split(parent)
    kinesis.put(
        packed(("a", b"lower"), explicit=1), packed(("a", b"upper"), explicit=1 << 127), shard=lower
    )
    kinesis.put(b"end", shard=lower)
    with run_receiver(receiver("orders", front.url), settings=SOON) as running:
        assert running.wait_for_records(2) == [b"lower", b"end"]


def test_what_only_looks_packed_is_a_record_of_its_own() -> None:
    right = packed(("a", b"1"), ("b", b"2"))
    assert [each.data for each in unpack(right) or []] == [b"1", b"2"]
    assert [each.hash_key for each in unpack(right) or []] == [hash_of("a"), hash_of("b")]
    digest = hashlib.md5(b"\x0a\xff", usedforsecurity=False).digest()
    for data in (b"", b"\xf3\x89\x9a\xc2", right[:-1], right[:9] + b"x" + right[10:]):
        assert unpack(data) is None
    assert unpack(b"\xf3\x89\x9a\xc2\x0a\xff" + digest) is None


def test_a_packed_record_above_a_block_is_stored_record_by_record(
    front: AwsFront, kinesis: DocumentedKinesis
) -> None:
    many = [("key", bytes([number]) * 1000) for number in range(20)]
    kinesis.put(packed(*many), b"end")
    settings = {**SOON, "spark.penstock.block.maxSize": "4k"}
    with run_receiver(receiver("orders", front.url), settings=settings) as running:
        found = running.wait_for_records(21)
        assert found == [*(data for _, data in many), b"end"]
        wait_until(lambda: kinesis.ids()[0] in running.position, "the place is durable")
    assert not running.errors


# -- kills ---------------------------------------------------------------------------------------


class Orders:
    """A stream that is split and merged between its records."""

    def __init__(self, front: AwsFront) -> None:
        self.url = front.url
        self.kinesis = DocumentedKinesis(2)
        self.kinesis.limit = 4
        front.hook = self.kinesis.answer
        first, second = self.kinesis.ids()
        self.sent: list[bytes] = []
        self.put(first, second)
        lower, upper = self.kinesis.split(first)
        self.put(lower, upper, second)
        merged = self.kinesis.merge(upper, second)
        self.put(lower, merged)

    def put(self, *shards: str) -> None:
        for shard in shards:
            data = numbered("x", 6, len(self.sent))
            self.kinesis.put(*data, shard=shard)
            self.sent += data

    def expected(self) -> list[Any]:
        return self.sent


@contextlib.contextmanager
def orders() -> Iterator[Orders]:
    with aws_front() as front:
        yield Orders(front)


def kill(kills: int) -> None:
    report = crash_test(
        lambda source: receiver("orders", source.url),
        orders,
        claim="exactly once",
        kills=kills,
        settings={"spark.streaming.blockInterval": "20ms"},
    )
    assert sum(report.kills.values()) >= kills


@pytest.mark.long
def test_each_record_of_shards_that_split_and_merge_comes_once_over_kills() -> None:
    kill(2)


# The test above does it with fewer.
@pytest.mark.exhaustive
def test_each_record_of_shards_that_split_and_merge_comes_once_over_many_kills() -> None:
    kill(20)


# -- receivers that share them -------------------------------------------------------------------


def test_a_shard_is_a_split_when_those_before_it_have_ended(
    front: AwsFront, kinesis: DocumentedKinesis
) -> None:
    made = receiver("orders", front.url)
    (parent,) = kinesis.ids()
    lower, upper = kinesis.split(parent)
    child = kinesis.merge(lower, upper)

    def split(shard: str) -> str:
        return f"{shard}@1700000000250"

    assert made.splits() == [split(parent)]
    begun = dict.fromkeys(map(split, kinesis.ids()), 0.0)
    assert made._splits_after({}) == ([split(parent)], begun)
    places: dict[str, Any] = {**begun, split(parent): "4961"}
    assert made._splits_after(places) == ([split(parent)], {})
    places[split(parent)] = "SHARD_END"
    assert made._splits_after(places) == ([split(lower), split(upper)], {})
    places[split(lower)] = "SHARD_END"
    assert made._splits_after(places) == ([split(upper)], {})
    # What was trimmed as a whole holds nobody up, and is forgotten.
    kinesis.drop(upper)
    kinesis.drop(parent)
    gone = {split(parent): None, split(upper): None}
    assert made._splits_after(places) == ([split(child)], gone)
    # Another stream of the same name is read from its oldest record.
    kinesis.made_s += 1
    splits, changes = made._splits_after(places)
    assert splits == [f"{lower}@1700000001250"]
    assert changes == {
        **dict.fromkeys(places),
        f"{lower}@1700000001250": 0.0,
        f"{child}@1700000001250": 0.0,
    }


def test_latest_and_a_time_hold_for_the_first_shards_only(
    front: AwsFront, kinesis: DocumentedKinesis
) -> None:
    (parent,) = kinesis.ids()
    lower, upper = kinesis.split(parent)
    made = receiver("orders", front.url, initialPosition="LATEST")
    splits, changes = made._splits_after({})
    assert [split.partition("@")[0] for split in splits] == [lower, upper]
    assert [changes.pop(split) for split in splits] == [pytest.approx(time.time(), abs=HANG_S)] * 2
    assert list(changes.values()) == ["SHARD_END"]
    since = datetime(2030, 1, 1, tzinfo=timezone.utc)
    made = receiver("orders", front.url, initialPosition=since)
    splits, changes = made._splits_after({})
    assert [split.partition("@")[0] for split in splits] == [parent]
    assert set(changes.values()) == {since.timestamp()}
    later = kinesis.split(lower)
    _, more = made._splits_after(changes)
    assert {split.partition("@")[0]: place for split, place in more.items()} == dict.fromkeys(
        later, 0.0
    )


def test_shards_that_cannot_be_asked_for_are_no_splits(front: AwsFront) -> None:
    front.hook = lambda name, members: error("AccessDeniedException", "not you")
    with pytest.raises(AwsError, match="do not allow DescribeStreamSummary of stream 'orders'"):
        receiver("orders", front.url).splits()
