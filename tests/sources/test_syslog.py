"""Syslog: messages of both RFCs over UDP, TCP and TLS, as columns."""

from __future__ import annotations

import contextlib
import logging
import random
import re
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from logging.handlers import SysLogHandler
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sources import syslog
from penstock.sources.syslog import SyslogReceiver
from penstock.sources.syslog._messages import Frame, Frames, Message, read_message
from penstock.testing import RunningReceiver, run_receiver
from tests.bounds import HANG_S
from tests.services.rsyslog import log, rsyslog_to
from tests.services.tls import certificate_of_host

SOON = {"spark.streaming.blockInterval": "10ms", "spark.streaming.receiverRestartDelay": "10"}
NOW = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)


@contextmanager
def running(settings: Any = None, **named: Any) -> Iterator[tuple[RunningReceiver, dict[str, int]]]:
    receiver = SyslogReceiver(host="127.0.0.1", **named)
    with run_receiver(receiver, settings={**SOON, **(settings or {})}) as found:
        yield found, ports_of(found)


def ports_of(found: RunningReceiver) -> dict[str, int]:
    parts = [address.split("://") for address in found.wait_for_addresses()]
    return {kind: int(place.rpartition(":")[2]) for kind, place in parts}


def messages(found: RunningReceiver, count: int) -> list[str]:
    return [row["message"] for row in found.wait_for_records(count, HANG_S)]


def test_what_rsyslog_sends_by_rfc_5424_is_parsed(tmp_path: Path) -> None:
    with (
        running(tcp=0) as (found, ports),
        rsyslog_to(tmp_path, ports["tcp"]) as path,
    ):
        log("-u", str(path), "-t", "app", "-p", "mail.err", "one, and öther")
        (row,) = found.wait_for_records(1, HANG_S)
        assert (row["facility"], row["severity"]) == (2, 3)
        assert (row["app_name"], row["message"]) == ("app", " one, and öther")
        assert row["hostname"] == socket.gethostname().split(".")[0]
        assert abs((row["time"] - datetime.now(timezone.utc)).total_seconds()) < HANG_S
        assert row["peer"].startswith("127.0.0.1:")


@pytest.mark.parametrize(
    ("protocol", "framing"),
    [("udp", "traditional"), ("tcp", "traditional"), ("tcp", "octet-counted")],
)
@pytest.mark.parametrize(
    "template", ["RSYSLOG_SyslogProtocol23Format", "RSYSLOG_TraditionalForwardFormat"]
)
def test_all_that_rsyslog_sends_comes_in_its_order(
    tmp_path: Path, protocol: str, framing: str, template: str
) -> None:
    lines = tmp_path / "lines"
    lines.write_text("".join(f"message {number}\n" for number in range(500)))
    with (
        running(**{protocol: 0}) as (found, ports),
        rsyslog_to(
            tmp_path, ports[protocol], protocol=protocol, framing=framing, template=template
        ) as path,
    ):
        log("-u", str(path), "-t", "app", "-f", str(lines))
        texts = [text.strip() for text in messages(found, 500)]
        assert texts == [f"message {number}" for number in range(500)]
        assert {row["app_name"] for row in found.records} == {"app"}
        assert not found.errors


@pytest.mark.parametrize("kind", ["udp", "tcp"])
@pytest.mark.parametrize("form", ["--rfc3164", "--rfc5424"])
def test_what_logger_sends_is_parsed(kind: str, form: str) -> None:
    framing = ["--octet-count"] if kind == "tcp" else []
    with running(udp=0, tcp=0) as (found, ports):
        log(
            *("--server", "127.0.0.1", "--port", str(ports[kind]), f"--{kind}", form, *framing),
            *("--tag", "app", "--id=77", "--priority", "local0.warning", "hello"),
        )
        (row,) = found.wait_for_records(1, HANG_S)
        assert (row["facility"], row["severity"]) == (16, 4)
        assert (row["app_name"], row["procid"], row["message"]) == ("app", "77", "hello")
        assert abs((row["time"] - datetime.now(timezone.utc)).total_seconds()) < HANG_S


def test_what_the_handler_of_python_sends_ends_with_a_nul() -> None:
    with running(tcp=0) as (found, ports):
        handler = SysLogHandler(("127.0.0.1", ports["tcp"]), socktype=socket.SOCK_STREAM)
        with contextlib.closing(handler):
            for number in range(3):
                text = f"no. {number}"
                handler.emit(logging.LogRecord("app", logging.INFO, "", 0, text, None, None))
            assert messages(found, 3) == ["no. 0", "no. 1", "no. 2"]


AT = datetime(2026, 2, 8, 18, 46, 11, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("sent", "time", "hostname", "app_name", "message"),
    [
        ("Feb  8 2026 18:46:11: %ASA-6-302013: Built", AT, None, "%ASA-6-302013", "Built"),
        ("Feb 08 2026 18:46:11 fw : %ASA-6-302013: Built", AT, "fw", "%ASA-6-302013", "Built"),
        ("Feb  8 18:46:11 2026 sw1 stm: up", AT, "sw1", "stm", "up"),
        ("Feb 8 18:46:11 web app: text", AT, "web", "app", "text"),
        ("Feb  8 18:46:11 dropbear[1]: Exit", AT, None, "dropbear", "Exit"),
        ("date=2026-02-08 time=18:46:11 devname=fw", None, None, None, "date=2026-02-08 time=1"),
        ("1 2026-02-08T18:46:11Z web app web.1 - State changed", AT, "web", "app", "State changed"),
        ('1 2026-02-08T18:46:11Z gw app 1930 - [a:"b"; c:"d"]', AT, "gw", "app", '[a:"b"; c:"d"]'),
        ("1 2026-02-08T18:46:11Z web app 7 id", AT, "web", "app", None),
        ("1 1770576371.123 MX84 urls src=10.0.0.1 text", None, None, None, "1 1770576371.123 MX84"),
        ("1 2026-02-08T18:46:11,5Z web app - - - text", None, None, None, "1 2026-02-08T18:46:11,"),
    ],
)
def test_devices_that_keep_to_no_rfc_are_read_as_far_as_they_do(
    sent: str, time: Any, hostname: str | None, app_name: str | None, message: str | None
) -> None:
    found = read_message(f"<166>{sent}", timezone.utc, NOW)
    assert (found.facility, found.severity, found.time) == (20, 6, time)
    assert (found.hostname, found.app_name) == (hostname, app_name)
    assert found.message == message or (message and (found.message or "").startswith(message))


def test_tls_takes_those_that_have_a_right_certificate(tmp_path: Path) -> None:
    certificate = certificate_of_host(tmp_path)
    pem = str(tmp_path / "server.pem")
    named = {"certificate": pem, "clientAuthorities": str(certificate)}
    with running(tls=0, **named) as (found, ports):
        context = ssl.create_default_context(cafile=str(certificate))
        with socket.create_connection(("127.0.0.1", ports["tls"]), HANG_S) as plain:
            plain.sendall(b"<13>1 - - - - - - not TLS\n")
            found.wait_for_error("was disconnected")
        context.load_cert_chain(pem)
        large = "x" * 60_000
        with (
            socket.create_connection(("127.0.0.1", ports["tls"]), HANG_S) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as secret,
        ):
            for number in range(20):
                secret.sendall(b"<13>1 - - - - - - %d %s\n" % (number, large.encode()))
            assert messages(found, 20) == [f"{number} {large}" for number in range(20)]


def test_a_peer_of_tls_that_resets_its_connection_disturbs_no_other(tmp_path: Path) -> None:
    certificate = certificate_of_host(tmp_path)
    with running(tls=0, certificate=str(tmp_path / "server.pem")) as (found, ports):
        context = ssl.create_default_context(cafile=str(certificate))
        with (
            socket.create_connection(("127.0.0.1", ports["tls"]), HANG_S) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as secret,
        ):
            secret.sendall(b"<13>1 - - - - - - before\n")
            assert messages(found, 1) == ["before"]
            for _ in range(100):
                with socket.create_connection(("127.0.0.1", ports["tls"]), HANG_S) as reset:
                    reset.sendall(b"<13>")
                    reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            secret.sendall(b"<13>1 - - - - - - after\n")
            assert messages(found, 2) == ["before", "after"]
        assert found.events == ["registered"]


def test_a_peer_of_tls_that_says_nothing_holds_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syslog, "_HANDSHAKE_S", 0.01)
    certificate_of_host(tmp_path)
    with running(tls=0, certificate=str(tmp_path / "server.pem")) as (found, ports):
        with socket.create_connection(("127.0.0.1", ports["tls"]), HANG_S) as silent:
            assert silent.recv(1) == b""
        found.wait_for_error("gave no TLS handshake within 0.01 s")


def test_a_certificate_that_is_not_there_is_told() -> None:
    receiver = SyslogReceiver(tls=0, host="127.0.0.1", certificate="/nowhere.pem")
    with run_receiver(receiver, settings=SOON) as found:
        assert "TLS with /nowhere.pem" in found.wait_for_error("Error listening")


def test_what_is_no_message_or_is_too_large_or_cut_is_a_dead_letter() -> None:
    with running(tcp=0, udp=0, maxMessage=480) as (found, ports):
        with socket.create_connection(("127.0.0.1", ports["tcp"]), HANG_S) as sending:
            sending.sendall(b"no priority\n<192>too high\n")
            sending.sendall(b"1000 <13>" + b"y" * 996 + b"<13>" + b"z" * 1000 + b"\n<13>one\n")
            sending.sendall(b"400 <13>cut")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            datagrams.sendto(b"<13>two \xff\xfe", ("127.0.0.1", ports["udp"]))
        assert set(messages(found, 2)) == {"one", "two \ufffd\ufffd"}
        found.wait_for_error("its connection ended before it did")
        found.stop()
        reasons = {data[:20]: reason for data, reason in found.discarded}
        assert "does not begin with a priority" in reasons[b"no priority"]
        assert "its priority is 192" in reasons[b"<192>too high"]
        assert "1000 bytes, and 480 are accepted" in reasons[b"<13>" + b"y" * 16]
        assert "longer than the 480 bytes" in reasons[b"<13>" + b"z" * 16]
        assert len(reasons) == 5


def test_a_sender_waits_while_the_receiver_is_held_and_nothing_is_lost() -> None:
    count = 30_000
    small = {"spark.penstock.memory.size": "4m", "spark.penstock.block.maxSize": "1m"}
    with running(small, tcp=0) as (found, ports):
        found.hold()
        with socket.create_connection(("127.0.0.1", ports["tcp"]), HANG_S) as sending:
            sending.settimeout(0.5)
            data = b"".join(b"<13>no. %d %s\n" % (number, b"x" * 1000) for number in range(count))
            at = 0
            try:
                while at < len(data):
                    at += sending.send(data[at : at + (1 << 20)])
            except TimeoutError:
                assert not found.errors
            assert at < len(data)
            found.go_on()
            sending.settimeout(HANG_S)
            sending.sendall(data[at:])
            assert [int(each.split()[1]) for each in messages(found, count)] == list(range(count))


def test_more_senders_than_allowed_are_refused_and_told() -> None:
    with running(tcp=0, maxConnections=1) as (found, ports):
        place = ("127.0.0.1", ports["tcp"])
        first = socket.create_connection(place, HANG_S)
        first.sendall(b"<13>one\n")
        assert messages(found, 1) == ["one"]
        with first, socket.create_connection(place, HANG_S) as second:
            assert second.recv(1) == b""
            found.wait_for_error("1 senders are connected (maxConnections)")


def test_a_port_that_is_taken_is_told_and_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        receiver = SyslogReceiver(tcp=taken.getsockname()[1], host="127.0.0.1")
        with run_receiver(receiver, settings=SOON) as found:
            found.wait_for_error("cannot listen at port")
            taken.close()
            with socket.create_connection(("127.0.0.1", ports_of(found)["tcp"]), HANG_S) as sending:
                sending.sendall(b"<13>one\n")
                assert messages(found, 1) == ["one"]


def test_what_came_before_a_stop_is_stored() -> None:
    with running(tcp=0) as (found, ports):
        with socket.create_connection(("127.0.0.1", ports["tcp"]), HANG_S) as sending:
            sending.sendall(b"".join(b"<13>no. %d\n" % number for number in range(1000)))
            messages(found, 1)
            found.stop()
        assert [row["message"] for row in found.records] == [f"no. {n}" for n in range(1000)]
        assert not found.errors


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=timezone.utc)  # type: ignore[misc,arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            # RFC 5424, 6.5, examples 1 and 3
            "<34>1 2003-10-11T22:14:15.003Z mymachine su - ID47 - \ufeff'su root' failed",
            Message(
                *(4, 2, at(2003, 10, 11, 22, 14, 15, 3000), "mymachine", "su", None),
                *("ID47", None, "'su root' failed"),
            ),
        ),
        (
            "<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 myproc 8710 - - %% It's time",
            Message(
                *(20, 5, at(2003, 8, 24, 12, 14, 15, 3), "192.0.2.1", "myproc", "8710", None),
                *(None, "%% It's time"),
            ),
        ),
        (
            '<165>1 - - - - - [a@1 x="\\]\\" b"][b]',
            Message(20, 5, None, None, None, None, None, '[a@1 x="\\]\\" b"][b]', None),
        ),
        (
            # RFC 3164, 5.4
            "<34>Oct 11 22:14:15 mymachine su: 'su root' failed for lonvick",
            Message(
                *(4, 2, at(2025, 10, 11, 22, 14, 15), "mymachine", "su", None, None, None),
                "'su root' failed for lonvick",
            ),
        ),
        (
            "<13>Feb  5 17:32:18 app[77]: text: more",
            Message(1, 5, at(2026, 2, 5, 17, 32, 18), None, "app", "77", None, None, "text: more"),
        ),
        (
            "<13>2026-02-05T17:32:18.5+01:00 ::1 only text",
            Message(
                *(1, 5, at(2026, 2, 5, 16, 32, 18, 500_000), "::1", None, None, None, None),
                "only text",
            ),
        ),
        ("<0>no time", Message(0, 0, None, None, None, None, None, None, "no time")),
        ("<13>", Message(1, 5, None, None, None, None, None, None, "")),
    ],
)
def test_messages_are_read_as_the_rfcs_have_them(text: str, expected: Message) -> None:
    assert read_message(text, timezone.utc, NOW) == expected


def test_a_time_without_a_year_is_of_the_nearest_one_and_of_its_zone() -> None:
    def time_of(text: str, now: datetime) -> datetime | None:
        return read_message(f"<13>{text} host app: x", ZoneInfo("Europe/Berlin"), now).time

    assert time_of("Dec 31 23:59:59", at(2026, 1, 1)) == at(2025, 12, 31, 22, 59, 59)
    assert time_of("Jan  1 00:00:01", at(2025, 12, 31, 23)) == at(2025, 12, 31, 23, 0, 1)
    assert time_of("Jul  1 00:00:00", at(2026, 6, 1)) == at(2026, 6, 30, 22)
    assert time_of("Feb 29 12:00:00", at(2024, 3, 1)) == at(2024, 2, 29, 11)
    assert time_of("Feb 30 12:00:00", at(2024, 3, 1)) is None


@given(st.text(max_size=100), st.booleans())
def test_any_text_is_a_message_or_refused(text: str, is_new: bool) -> None:
    for begin in ("", "<13>", "<13>1 ", '<13>1 2003-10-11T22:14:15Z h a p m [x y="', "<13>Oct 11 "):
        try:
            found = read_message(begin + text, timezone.utc, NOW)
        except ValueError:
            continue
        assert 0 <= found.facility < 24
        assert 0 <= found.severity < 8


@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=40), st.booleans()), max_size=20),
    st.randoms(use_true_random=False),
)
def test_frames_are_cut_the_same_however_a_stream_comes(
    sent: list[tuple[bytes, bool]], chance: random.Random
) -> None:
    expected, stream = [], b""
    for data, is_counted in sent:
        message = b"<13>" + (data if is_counted else re.sub(rb"[\n\0]", b" ", data))
        end = chance.choice([b"\n", b"\0", b"\0\n"])
        stream += b"%d " % len(message) * is_counted + message + end * (not is_counted)
        expected.append(message if len(message) <= 30 else None)
    frames, found = Frames(30), []
    while stream:
        step = chance.randint(1, 50)
        found += list(frames.feed(stream[:step]))
        stream = stream[step:]
    assert [frame.data if frame.reason is None else None for frame in found] == expected
    assert frames.rest() is None


def test_a_line_that_begins_with_a_number_takes_no_other_message() -> None:
    stream = b"<13>trace:\n3 more\n999999999 more\n12\n1234567890 <13>\n7 <13>one<13>two\n"
    for step in (1, 2, 3, len(stream)):
        frames = Frames(1000)
        found = [
            frame
            for begin in range(0, len(stream), step)
            for frame in frames.feed(stream[begin : begin + step])
        ]
        assert all(frame.reason is None for frame in found)
        lines = b"<13>trace:", b"3 more", b"999999999 more", b"12", b"1234567890 <13>"
        assert [frame.data for frame in found] == [*lines, b"<13>one", b"<13>two"]


@pytest.mark.parametrize("end", [b"\n", b"\0"])
def test_behind_a_line_that_is_too_long_the_next_one_is_taken(end: bytes) -> None:
    frames = Frames(20)
    assert [frame.data for frame in frames.feed(b"<13>" + b"x" * 20)] == [b"<13>" + b"x" * 20]
    assert list(frames.feed(b"xx" + end + b"<13>one" + end)) == [Frame(b"<13>one")]
    exactly = b"<13>" + b"y" * 16
    assert [*frames.feed(exactly), *frames.feed(end)] == [Frame(exactly)]
    assert [*frames.feed(b"20 " + exactly), *frames.feed(b"21 " + exactly + b"z")] == [
        Frame(exactly),
        Frame(exactly + b"z", "its frame has 21 bytes, and 20 are accepted"),
    ]


def test_what_is_too_large_or_cut_is_shown_by_its_first_bytes_and_passed_over() -> None:
    frames = Frames(1000)
    large = b"<13>" + b"x" * 99_996
    (refused,) = frames.feed(b"100000 " + large[:90_000])
    assert refused.data == large[: 64 << 10]
    assert list(frames.feed(large[90_000:] + b"7 <13>one")) == [Frame(b"<13>one")]
    assert list(frames.feed(b"<13>cut")) == []
    assert frames.rest() == Frame(b"<13>cut", "its connection ended before it did")


def test_a_time_is_read_to_its_fraction_and_a_tag_may_have_an_empty_number() -> None:
    found = read_message("<13>Feb  5 17:32:18.25 web app[]: text", timezone.utc, NOW)
    assert found.time == at(2026, 2, 5, 17, 32, 18, 250_000)
    assert (found.app_name, found.procid, found.message) == ("app", None, "text")


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"tcp": 70_000},
        {"tls": 0},
        {"certificate": "x.pem", "tcp": 0},
        {"tcp": 0, "privateKey": "k"},
        {"tcp": 0, "timezone": "Europe/Nowhere"},
    ],
)
def test_arguments_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"needs a port|accepted|belong together|are for a server"):
        SyslogReceiver(**wrong)
