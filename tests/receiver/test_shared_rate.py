"""A rate that several processes share, in a real server that is killed, stalled and locked."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.receiver import SharedRateError, SharedRatePlace
from penstock.receiver.door import ReceiverStoppedError
from penstock.receiver.shared_rate import SharedRate, SharedRateLimiter
from penstock.runtime.clock import ManualClock
from penstock.settings import Settings
from tests.bounds import HANG_S
from tests.services.redis import Address, RedisServer, make_server
from tests.services.tls import certificate_of_host, tls_front

ROOT = Path(__file__).parent.parent.parent
PROGRAM = Path(__file__).with_name("sharing_process.py")
WAIT_S = HANG_S
PASSWORD = "not-to-be-seen"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    made = make_server(tmp_path)
    made.start()
    yield made
    made.stop()


class Errors:
    """What was told."""

    def __init__(self) -> None:
        self.told: list[BaseException] = []
        self.is_told = threading.Event()

    def __call__(self, message: str, error: BaseException) -> None:
        self.told.append(error)
        self.is_told.set()


def place_of(server: RedisServer, rate: float = 1000.0, **others: Any) -> SharedRatePlace:
    return SharedRatePlace(server.address, "records", rate, 1.0, **others)


def share_of(place: SharedRatePlace, on_error: Any = None, **others: Any) -> SharedRate:
    return SharedRate(place, on_error=on_error or Errors(), **others)


# -- what passes -----------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.slow
def test_i8_processes_that_come_and_are_killed_stay_within_one_rate(server: RedisServer) -> None:
    """Over any window of a second or longer: rate x window plus one burst, all together."""
    rate, processes = 5000.0, []
    try:
        for in_hand in (1, 1, 1000, 1000):
            command = [sys.executable, str(PROGRAM), server.address, str(rate), str(in_hand)]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, env=environment))
        passed: list[list[tuple[float, int]]] = [[] for _ in processes]
        readers = [
            threading.Thread(target=read, args=(process, found))
            for process, found in zip(processes, passed, strict=True)
        ]
        for reader in readers:
            reader.start()
        wait_until(lambda: all(sum(n for _, n in found) > 1000 for found in passed))
        processes[0].kill()
        enough = 2 * rate + sum(n for found in passed for _, n in found)
        wait_until(lambda: sum(n for found in passed for _, n in list(found)) > enough)
    finally:
        for process in processes:
            process.kill()
            process.wait(WAIT_S)
    for reader in readers:
        reader.join(WAIT_S)
    events = sorted(event for found in passed for event in found)
    for first, (begin_s, _) in enumerate(events):
        count = 0
        for at_s, n in events[first:]:
            count += n
            assert count <= rate * max(1.0, at_s - begin_s) + rate
    # Nor is most of it lost in leases that nobody uses.
    seconds = events[-1][0] - events[0][0]
    assert sum(n for _, n in events) >= 0.5 * rate * seconds


def read(process: subprocess.Popen[bytes], found: list[tuple[float, int]]) -> None:
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                return  # the process was killed in it
            at_s, n = line.split()
            found.append((float(at_s), int(n)))


@pytest.mark.parametrize("client", ["redis", "valkey"])
def test_a_receiver_goes_on_with_the_new_primary_after_a_fail_over(
    server: RedisServer, tmp_path: Path, client: str
) -> None:
    (folder := tmp_path / "other").mkdir()
    other = make_server(folder)
    other.start()
    address = Address(server)
    errors = Errors()
    named = address.address.replace("redis", client, 1)
    place = SharedRatePlace(named, "records", 1000.0, 1.0)
    share = share_of(place, errors)
    try:
        assert share.take(1, WAIT_S)
        # The old primary lives on as a replica of the new one, which the address leads to now.
        connected = place_of(server).connect().get_connection()
        connected.execute_command("REPLICAOF", "127.0.0.1", str(other.port))  # type: ignore[attr-defined]
        address.lead_to(other)
        passed = 0
        while passed < 500:
            granted = share.take(100, WAIT_S)
            assert granted
            passed += granted
        assert len(errors.told) <= 1
    finally:
        share.stop()
        address.close()
        other.stop()


def wait_until(condition: Any) -> None:
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_the_lowest_rate_that_is_asked_for_holds(server: RedisServer) -> None:
    buckets = place_of(server).connect()
    buckets.take_tokens("records", 10.0, 10.0, 0, 0)
    buckets.get_connection().hset("penstock:records", "tokens", 1000)
    # One permit at a time, as whoever asks for that rate gets it.
    taken = [buckets.take_tokens("records", 1000.0, 1000.0, 1, 1000) for _ in range(11)]
    assert taken == [1] * 10 + [0]
    assert buckets.get_connection().hget("penstock:records", "rate") == b"10"
    # Nor does one whose own leases are larger than the bucket wait until that is full.
    buckets.get_connection().hset("penstock:records", "tokens", 2)
    assert buckets.take_tokens("records", 1000.0, 1000.0, 1000, 1000) == 1


@pytest.mark.parametrize("high", [1000.0, 1e5, 1e8])
def test_who_names_a_much_higher_rate_gets_leases_of_the_lowest(
    server: RedisServer, high: float
) -> None:
    low = place_of(server, 100.0)
    low.check()
    share = share_of(place_of(server, high))
    fill(share_of(low))
    try:
        # Else it would wait for a lease that is larger than the bucket, for ever.
        assert sum(share.take(1000, WAIT_S) for _ in range(20)) >= 20
    finally:
        share.stop()


def test_a_burst_that_is_shorter_than_a_lease_lets_its_rate_through(server: RedisServer) -> None:
    share = share_of(SharedRatePlace(server.address, "records", 1e5, 0.004))
    try:
        assert sum(share.take(1000, WAIT_S) for _ in range(5)) >= 5
    finally:
        share.stop()


def test_a_lease_is_good_for_a_short_time_only(server: RedisServer) -> None:
    clock = ManualClock()
    share = share_of(place_of(server, 1e6), clock=clock)
    fill(share)
    assert share.take(10, 0) == 10
    share._left = 7
    assert share.take(10, 0) == 7
    share._left = 7
    clock.advance(200)
    assert share.take(10, 0) == 10
    share.stop()


def fill(share: SharedRate) -> None:
    place = share._place
    place.connect().get_connection().hset(f"penstock:{place.key}", "tokens", place.capacity)


def test_what_was_leased_and_has_not_passed_goes_back_to_the_receivers_own_limit(
    server: RedisServer,
) -> None:
    limiter = SharedRateLimiter(1000, clock=(clock := ManualClock()))
    clock.advance(1000)
    server.kill()
    limiter.shared = share_of(place_of(server))
    assert limiter.lease(100, 0, in_hand=100) == 0
    assert limiter.permits == 0
    assert limiter.permits_out == 0


# -- a server that does not answer -----------------------------------------------------------


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "stalled"])
def test_without_its_server_nothing_passes_until_it_is_back(server: RedisServer, how: str) -> None:
    errors = Errors()
    share = share_of(place_of(server), errors)
    assert share.take(1, WAIT_S) == 1
    share._left = 0
    server.kill() if how == "killed" else server.stall()
    assert share.take(1, 0.1) == 0
    assert share.take(1, 0.1) == 0
    assert [type(error) for error in errors.told] == [SharedRateError]
    assert server.address in str(errors.told[0])
    server.start() if how == "killed" else server.go_on()
    assert share.take(1, WAIT_S) == 1
    assert len(errors.told) == 1
    # The next time is told, too.
    share._left = 0
    server.kill() if how == "killed" else server.stall()
    assert share.take(1, 0.1) == 0
    assert len(errors.told) == 2
    share.stop()


def test_answers_that_come_too_late_are_told(server: RedisServer) -> None:
    """What was taken is no longer good; a machine that is busy once is no reason."""

    class Slow(ManualClock):
        def monotonic_s(self) -> float:
            self.advance(250)
            return super().monotonic_s()

        def wait(self, event: threading.Event, timeout_s: float) -> bool:
            return event.is_set()

    errors = Errors()
    share = share_of(place_of(server, 1e6), errors, clock=Slow())
    fill(share)
    assert share.take(1, 0) == 0
    assert errors.told == []
    assert share.take(1, 3.0) == 0
    (error,) = errors.told
    assert "to answer; 0.2 s is the most" in str(error)
    share.stop()


def test_stop_ends_the_wait_for_a_dead_server(server: RedisServer) -> None:
    errors, ended = Errors(), []
    limiter = SharedRateLimiter()
    limiter.shared = share_of(place_of(server), errors)
    assert limiter.passes_soon
    assert not share_of(place_of(server, 0.5)).passes_soon
    server.kill()

    def store() -> None:
        try:
            limiter.lease(1)
        except ReceiverStoppedError as error:
            ended.append(error)

    thread = threading.Thread(target=store)
    thread.start()
    assert errors.is_told.wait(WAIT_S)
    assert limiter.waiting == 1
    limiter.stop()
    thread.join(WAIT_S)
    assert not limiter.passes_soon
    assert len(ended) == 1
    assert len(errors.told) == 1


def test_a_server_that_is_not_there_is_an_error_of_the_start(server: RedisServer) -> None:
    place_of(server).check()
    server.kill()
    with pytest.raises(SharedRateError, match="cannot be used") as raised:
        place_of(server).check()
    assert raised.value.storage == server.address
    again = pickle.loads(pickle.dumps(raised.value))
    assert str(again) == str(raised.value)


@pytest.mark.parametrize("client", ["redis", "valkey"])
def test_each_client_works_also_over_tls(
    server: RedisServer, client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate is checked against those that the system trusts."""
    certificate = certificate_of_host(tmp_path)
    plain = SharedRatePlace(f"{client}://127.0.0.1:{server.port}/0", "records", 1000.0, 1.0)
    plain.check()
    with tls_front(server.port, tmp_path / "server.pem") as port:
        place = SharedRatePlace(f"{client}s://127.0.0.1:{port}/0", "records", 1000.0, 1.0)
        with pytest.raises(SharedRateError, match="CERTIFICATE_VERIFY_FAILED"):
            place.check()
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        share = share_of(place)
        assert share.take(1, WAIT_S) == 1
        share.stop()


# -- secrets ---------------------------------------------------------------------------------


def test_a_password_comes_from_a_file_and_is_never_shown(tmp_path: Path) -> None:
    server = make_server(tmp_path, PASSWORD)
    server.start()
    try:
        file = tmp_path / "password"
        file.write_text(PASSWORD + "\n")
        pairs = {
            "spark.penstock.sharedRate.rate": "1000/second",
            "spark.penstock.sharedRate.storage": server.address,
            "spark.penstock.sharedRate.passwordFile": str(file),
        }
        place = SharedRatePlace.of(Settings.from_pairs(pairs.items()))
        assert place is not None
        place.check()
        assert PASSWORD not in repr(place)
        file.write_text("wrong-" + PASSWORD)
        wrong = SharedRatePlace.of(Settings.from_pairs(pairs.items()))
        assert wrong is not None
        for bad, why in ((wrong, "invalid .*password"), (place_of(server), "Authentication req")):
            with pytest.raises(SharedRateError, match=f"{why}.*passwordFile") as raised:
                bad.check()
            assert PASSWORD not in f"{raised.value} {raised.value.__cause__!r}"
        file.unlink()
        with pytest.raises(SharedRateError, match="cannot be read"):
            SharedRatePlace.of(Settings.from_pairs(pairs.items()))
    finally:
        server.stop()
