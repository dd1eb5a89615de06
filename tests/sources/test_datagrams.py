"""Datagrams: each a record, and none that is lost without being counted."""

from __future__ import annotations

import os
import re
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.sources.datagrams import DatagramReceiver
from penstock.testing import RunningReceiver, run_receiver
from tests.bounds import HANG_S

SOON = {"spark.streaming.blockInterval": "10ms", "spark.streaming.receiverRestartDelay": "10"}


def sender_to(running: RunningReceiver) -> socket.socket:
    (address,) = running.wait_for_addresses()
    if address.startswith("unix:"):
        sending = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sending.connect(address.removeprefix("unix:"))
    else:
        sending = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sending.connect(("127.0.0.1", int(address.rpartition(":")[2])))
    return sending


def test_each_datagram_of_a_udp_port_is_a_record() -> None:
    with run_receiver(DatagramReceiver(0, "127.0.0.1"), settings=SOON) as running:
        with sender_to(running) as sending:
            for data in (b"one", b"", b"\xff\x00\n", b"x" * 60_000):
                sending.send(data)
        assert running.wait_for_records(4) == [b"one", b"", b"\xff\x00\n", b"x" * 60_000]


def test_each_datagram_of_a_unix_socket_is_a_record(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with run_receiver(DatagramReceiver(path=path), settings=SOON) as running:
        with sender_to(running) as sending:
            for number in range(1000):  # the sender waits while the socket is full
                sending.send(b"%d" % number)
        assert running.wait_for_records(1000) == [b"%d" % number for number in range(1000)]
        running.restart()
        running.wait_for_event("registered", 2)
    assert not path.exists()


def test_a_socket_that_a_killed_process_left_is_no_hindrance_and_one_in_use_is(
    tmp_path: Path,
) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as left:
        left.bind(str(path))
        with run_receiver(DatagramReceiver(path=path), settings=SOON) as running:
            assert f"Address already in use: {path}" in running.wait_for_error("Error listening")
            left.close()
            with sender_to(running) as sending:
                sending.send(b"one")
            assert running.wait_for_records(1) == [b"one"]


def test_columns_say_who_sent_it_and_when() -> None:
    receiver = DatagramReceiver(0, "127.0.0.1", columns=True)
    began_s = time.time()
    with run_receiver(receiver, settings=SOON) as running, sender_to(running) as sending:
        sending.send(b"one")
        (row,) = running.wait_for_records(1)
        assert row["value"] == b"one"
        assert row["peer"] == f"127.0.0.1:{sending.getsockname()[1]}"
        assert began_s - 1 < row["time"].timestamp() < time.time() + 1


def test_a_sender_whose_name_is_no_text_is_shown_as_far_as_it_is(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    names = [os.fsencode(tmp_path) + b"/\xff", b"\0abstract \xfe"]
    with run_receiver(DatagramReceiver(path=path, columns=True), settings=SOON) as running:
        running.wait_for_addresses()
        for name in names:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
                sending.bind(name)
                sending.sendto(b"one", path)
        found = [row["peer"] for row in running.wait_for_records(2)]
        assert found == [f"{tmp_path}/\ufffd", "\0abstract \ufffd"]


def test_a_datagram_that_is_too_large_is_a_dead_letter() -> None:
    with run_receiver(DatagramReceiver(0, "127.0.0.1", maxDatagram=10), settings=SOON) as running:
        with sender_to(running) as sending:
            sending.send(b"0123456789")
            sending.send(b"0123456789a")
            sending.send(b"last")
        assert running.wait_for_records(2) == [b"0123456789", b"last"]
        running.stop()
        ((data, reason),) = running.discarded
        assert data == b"0123456789a"
        assert "larger than 10 bytes" in reason


def test_what_the_kernel_drops_is_counted_and_reported() -> None:
    count = 20_000
    settings = {**SOON, "spark.streaming.receiver.maxRate": "500"}
    receiver = DatagramReceiver(0, "127.0.0.1", receiveBuffer=1)
    with run_receiver(receiver, settings=settings) as running:
        with sender_to(running) as sending:
            for number in range(count):
                sending.send(b"%d" % number)
        error = running.wait_for_error("The kernel dropped", HANG_S)
        assert re.search(r"dropped \d+ datagrams at udp://127.0.0.1:\d+, \d+ since", error)
        running.stop()
        assert 0 < len(running.records) < count


def test_what_came_before_a_stop_is_stored() -> None:
    with run_receiver(DatagramReceiver(0, "127.0.0.1"), settings=SOON) as running:
        with sender_to(running) as sending:
            for number in range(5000):
                sending.send(b"%d" % number)
        running.stop()
        assert running.records == [b"%d" % number for number in range(5000)]
        assert not running.errors


def test_several_receivers_share_a_port() -> None:
    with run_receiver(DatagramReceiver(0, "127.0.0.1", share=True), settings=SOON) as first:
        port = int(first.wait_for_addresses()[0].rpartition(":")[2])
        second_receiver = DatagramReceiver(port, "127.0.0.1", share=True)
        with run_receiver(second_receiver, settings=SOON) as second:
            second.wait_for_addresses()
            for number in range(100):  # each from a port of its own: the kernel deals them out
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
                    sending.sendto(b"%d" % number, ("127.0.0.1", port))
            first.stop()
            second.stop()
            found = [*first.records, *second.records]
            assert sorted(found) == sorted(b"%d" % number for number in range(100))


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"port": 0, "path": "/tmp/socket"},
        {"port": 70_000},
        {"port": 0, "maxDatagram": 0},
        {"path": "socket"},
        {"path": f"/tmp/{'x' * 103}"},
    ],
)
def test_arguments_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"accepted|not both"):
        DatagramReceiver(**wrong)
