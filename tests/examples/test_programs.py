"""The smaller examples run as they stand."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import HANG_S
from tests.examples.running import ROOT, Run
from tests.services.ports import free_ports

BOUND_S = HANG_S

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def text_server() -> Iterator[int]:
    """Serve one line of text, and then keep the connection open; one connection at a time."""
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            with connection:
                connection.sendall(b"to be or not to be\n")
                wait_for_end(connection)

    def wait_for_end(connection: socket.socket) -> None:
        connection.settimeout(0.1)
        while not over.is_set():
            try:
                if not connection.recv(1):
                    return
            except TimeoutError:
                continue
            except OSError:
                return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        thread = threading.Thread(target=serve, name="text-server")
        thread.start()
        yield listener.getsockname()[1]
        over.set()
        thread.join()


@pytest.mark.long
def test_the_word_count_of_a_text_server(run: Callable[..., Run], text_server: int) -> None:
    program = run(str(ROOT / "examples" / "word_count.py"), "127.0.0.1", str(text_server))
    for count in ("('to', 2)", "('be', 2)", "('or', 1)", "('not', 1)"):
        program.wait_for_line(lambda line, count=count: line == count, BOUND_S)
    program.interrupt()
    assert program.wait_until_ended(BOUND_S) == 0, program.output
    assert "Traceback" not in program.output
    program.wait_until_nothing_is_left()


@pytest.mark.exhaustive  # The tutorial's durable program is killed in CI.
def test_word_totals_go_on_after_a_crash(
    run: Callable[..., Run], text_server: int, tmp_path: Path
) -> None:
    script = str(ROOT / "examples" / "recoverable_word_count.py")
    folder = str(tmp_path / "words")
    program = run(script, "127.0.0.1", str(text_server), folder)
    program.wait_for_line(lambda line: line.endswith("be 2, not 1, or 1, to 2"), BOUND_S)
    program.kill()
    # The server sends its line once more to the new connection.
    again = run(script, "127.0.0.1", str(text_server), folder)
    again.wait_for_line(lambda line: line.endswith("be 4, not 2, or 2, to 4"), BOUND_S)
    again.interrupt()
    assert again.wait_until_ended(BOUND_S) == 0, again.output
    assert "Traceback" not in again.output
    again.wait_until_nothing_is_left()


def wait_for_count(program: Run, count: int) -> None:
    """Wait until what is printed of each batch, a number on its line, comes to `count`."""

    def so_far(_: str) -> bool:
        return sum(int(line) for line in program.lines if line.isdigit()) == count

    program.wait_for_line(so_far, BOUND_S)


@pytest.mark.exhaustive  # CI runs those of docs/writing-receivers.md.
def test_generators_of_kernel_counters_and_of_a_file(
    run: Callable[..., Run], tmp_path: Path
) -> None:
    followed = tmp_path / "followed"
    followed.write_text("".join(f"line {number}\n" for number in range(1000)) + "no end")
    program = run(
        str(ROOT / "examples" / "generator_receiver.py"),
        "--seconds=600",
        f"--follow={followed}",
    )
    wait_for_count(program, 1000)
    program.wait_for_line(lambda line: "user load: cpu0" in line, BOUND_S)
    with followed.open("a") as file:
        file.write(" yet\nand another\n")
    wait_for_count(program, 1002)
    program.interrupt()
    assert program.wait_until_ended(BOUND_S) == 0, program.output
    assert "Traceback" not in program.output
    program.wait_until_nothing_is_left()


def post(port: int, body: bytes, bound_s: float) -> None:
    """Post to the webhook, until there is one; return when it has answered with 204."""
    end = time.monotonic() + bound_s
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 5) as connection:
                connection.sendall(b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body))
                connection.sendall(body)
                connection.settimeout(bound_s)
                answer = connection.makefile("rb").readline()
            assert answer == b"HTTP/1.1 204 No Content\r\n"
            return
        except OSError:
            assert time.monotonic() < end, "nobody listens"
            threading.Event().wait(0.1)


@pytest.mark.exhaustive
def test_what_a_webhook_answered_outlives_its_kill(run: Callable[..., Run], tmp_path: Path) -> None:
    script = str(ROOT / "examples" / "webhook.py")
    (port,) = free_ports(1)
    command = (script, str(tmp_path / "orders"), f"--port={port}")
    program = run(*command)
    post(port, b"first order", BOUND_S)
    post(port, b"second order", BOUND_S)
    program.close()
    again = run(*command)
    post(port, b"third order", BOUND_S)
    again.wait_for_line(lambda line: line == "third order", BOUND_S)
    again.interrupt()
    assert again.wait_until_ended(BOUND_S) == 0, again.output
    assert "Traceback" not in again.output
    told = [*program.lines, *again.lines]
    for order in ("first order", "second order", "third order"):
        assert order in told
    again.wait_until_nothing_is_left()


@pytest.mark.parametrize(
    ("name", "known_by"),
    [
        pytest.param("windowed_count", ("card", "start"), marks=pytest.mark.long),
        pytest.param("deduplicate", ("id",), marks=pytest.mark.exhaustive),
        pytest.param("hourly_join", ("amount",), marks=pytest.mark.exhaustive),
    ],
)
def test_a_program_with_timers_writes_what_its_functions_return(
    run: Callable[..., Run], tmp_path: Path, name: str, known_by: tuple[str, ...]
) -> None:
    """What exactly that is, `tests/continuous/test_timers.py` knows."""
    rates = tmp_path / "rates.json"
    rates.write_text(json.dumps({"USD": 0.5, "GBP": 2.0, "EUR": 1.0}))
    folder = tmp_path / "out"
    arguments = [str(rates)] if name == "hourly_join" else []
    program = run(str(ROOT / "examples" / f"{name}.py"), *arguments, str(folder))

    def rows() -> list[dict[str, Any]]:
        files = sorted(folder.glob("*/part-*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    end_s = time.monotonic() + BOUND_S
    while not rows():
        assert time.monotonic() < end_s, program.output
        assert program.process.poll() is None, program.output
        time.sleep(0.2)
    program.interrupt()
    assert program.wait_until_ended(BOUND_S) == 0, program.output
    assert "Traceback" not in program.output
    program.wait_until_nothing_is_left()
    found = [tuple(row[column] for column in known_by) for row in rows()]
    assert len(found) == len(set(found))
