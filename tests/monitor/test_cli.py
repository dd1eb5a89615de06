"""The commands against a server with a fed model, as a shell runs them."""

from __future__ import annotations

import fcntl
import io
import json
import math
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock import monitor
from penstock.__main__ import main
from penstock.errors import IllegalStateError
from penstock.monitor import cli
from penstock.monitor.registry import RegisteredApp, register
from penstock.monitor.tables import clean, count_text, table
from penstock.monitor.web.access import Access
from penstock.monitor.web.routes import Routes
from penstock.monitor.web.server import WebServer
from tests.bounds import HANG_S
from tests.monitor.asking import ask, serving
from tests.monitor.feeding import Program


class App:
    """A program that can be asked, and its file."""

    def __init__(self, program: Program, access: Access, server: WebServer, file: Path) -> None:
        self.program, self.access, self.server, self.file = program, access, server, file


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("PENSTOCK_TOKEN", raising=False)
    program = Program()
    program.start()
    program.receiver(limit=8000.0, source="estimator")
    program.batch(1)
    program.batch(2, errors=("no \x1b[31msuch\x1b[0m table",))
    program.second(8000, rate_s=0.9, busy_s=0.1)
    access = Access(is_open=False)
    with serving(Routes(program.model, access).answer) as server:
        file = register(
            tmp_path / "penstock",
            application_id="local-1",
            name="a program",
            url=f"http://127.0.0.1:{server.port}/",
            token=access.token,
            started_ms=program.clock.time_ms(),
        )
        yield App(program, access, server, file)


Out = pytest.CaptureFixture[str]


def test_apps_lists_what_runs_with_a_link_that_lets_in_once(app: App, capsys: Out) -> None:
    assert main(["apps"]) == 0
    told = capsys.readouterr().out
    assert "local-1" in told
    link = told.split()[-1]
    body = json.dumps({"code": link.partition("#code=")[2]}).encode()
    for status in (200, 403):
        headers = {"Host": "localhost"}
        assert ask(app.server, "/api/penstock/login", "POST", headers, body)[0] == status
    assert main(["apps", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["id"], found["pid"]) == ("local-1", os.getpid())
    assert "token" not in found


def test_receivers_say_what_they_wait_for(app: App, capsys: Out) -> None:
    assert main(["receivers"]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["RECEIVER", "STATE", "HOST"]
    assert line.startswith("numbers-0  running  h1")
    assert line.endswith("tokens (estimator) 90 %, nothing 10 %")
    assert main(["receivers", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["waits"]["tokens"] == 90
    assert found["limitPerSecond"] == 8000


def test_top_into_a_pipe_prints_plain_lines(app: App, capsys: Out) -> None:
    assert main(["top", "--once"]) == 0
    told = capsys.readouterr().out
    assert "held at 8,000 records/s by backpressure" in told
    assert "numbers-0" in told
    assert "ValueError: no [31msuch[0m table" in told
    assert "\x1b" not in told
    assert main(["top", "--once", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["application"]["id"] == "local-1"


def test_batches_and_errors_are_told_the_newest_first_and_without_what_a_terminal_obeys(
    app: App, capsys: Out
) -> None:
    assert main(["batches", "--status", "completed", "--count", "1"]) == 0
    _, line = capsys.readouterr().out.splitlines()
    assert "completed" in line
    assert "0/1" in line
    assert "\x1b" not in line
    assert main(["errors"]) == 0
    assert "of a batch failed: ValueError" in capsys.readouterr().out
    assert main(["batches", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 2


def test_rate_and_stop_act_and_say_what_they_did(app: App, capsys: Out) -> None:
    assert main(["rate", "numbers", "5000/second"]) == 0
    assert capsys.readouterr().out == "numbers-0: rate 5000/second\n"
    assert main(["rate", "0", "none"]) == 0
    assert main(["rate", "0", "500"]) == 0
    for action in ("pause", "resume", "restart"):
        assert main([action, "numbers"]) == 0
    assert main(["stop", "--app", "local-1"]) == 0
    assert main(["stop", "--app", "a program", "--now"]) == 0
    assert app.program.acted == [
        ("rate", 0, "5000/second"),
        ("rate", 0, None),
        ("rate", 0, 500.0),
        ("pause", 0),
        ("resume", 0),
        ("restart", 0),
        ("stop", True),
        ("stop", False),
    ]
    capsys.readouterr()
    assert main(["rate", "numbers", "-5"]) == 1
    assert "it must be above 0" in capsys.readouterr().err
    assert main(["rate", "nothing", "5"]) == 1
    assert "there is no stream 'nothing'; there are numbers-0" in capsys.readouterr().err


def test_tap_shows_records_of_each_new_block(app: App, capsys: Out) -> None:
    rows = [{"at": datetime(2026, 1, 1), "n": math.nan, "raw": b"\xff", "in": {"deep": (1, None)}}]
    app.program.blocks += [
        ("input-0-1", ["first", "\x1b[31mred", b"bytes"]),
        ("input-0-1", ["first"]),
        ("input-0-2", rows),
        ("input-0-3", ["a" * 5000, 7]),
    ]
    assert main(["tap", "numbers", "--interval", "0.01", "--count", "6"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "first",
        "[31mred",
        "bytes",
        '{"at": "2026-01-01 00:00:00", "n": "nan", "raw": "\\\\xff", "in": {"deep": [1, null]}}',
        "a" * 2000,
        "7",
    ]
    app.program.blocks += [("input-0-4", ["no", "yes"]), ("input-0-5", ["yes, too"])]
    shown = ["tap", "0", "--filter", "^y", "--json", "--count", "2", "--interval", "0.01"]
    assert main(shown) == 0
    assert capsys.readouterr().out.splitlines() == ['"yes"', '"yes, too"']


def test_tap_gives_columns_to_programs(app: App, capfdbinary: Any) -> None:
    app.program.blocks += [
        ("input-0-1", [{"n": 1, "name": "a"}, {"n": 2, "name": "no"}]),
        ("input-0-2", [{"n": 3}]),
        ("input-0-3", [{"n": 4, "more": 1}]),
    ]
    shown = ["tap", "0", "--format", "arrow", "--interval", "0.01", "--filter", '"n": [134]']
    assert main(shown) == 2
    out, error = capfdbinary.readouterr()
    with pa.ipc.open_stream(out) as stream:
        assert stream.read_all().to_pylist() == [{"n": 1, "name": "a"}, {"n": 3, "name": None}]
    assert error == b"penstock tap: the first records had no column more; see --format json\n"
    app.program.blocks.append(("input-0-4", ["one", 2]))
    assert main(["tap", "0", "--format", "arrow"]) == 2
    assert b"such records make no columns; see --format json" in capfdbinary.readouterr().err
    app.program.blocks.append(("input-0-5", ["one"]))
    assert main(["tap", "0", "--format", "arrow", "--count", "1"]) == 0
    with pa.ipc.open_stream(capfdbinary.readouterr().out) as stream:
        assert stream.read_all().to_pylist() == [{"value": "one"}]


@pytest.mark.parametrize(
    ("blocks", "written", "why"),
    [
        ([[{"n": 1}, {"more": 2}]], [{"n": 1, "more": None}, {"n": None, "more": 2}], ""),
        ([[{"in": {"n": 1}}], [{"in": {}}]], [{"in": {"n": 1}}, {"in": {"n": None}}], ""),
        ([[{"in": {"n": 1}}], [{"in": {"m": 2}}]], [{"in": {"n": 1}}], "column in of the first"),
        ([[{"in": [1]}], [{"in": [2.5]}]], [{"in": [1]}], "no room for [2.5]; see --format json"),
        ([[1 << 70]], None, "Python int too large"),
        ([[{}]], None, "empty objects: such records make no columns"),
    ],
)
def test_tap_writes_all_of_a_record_into_columns_or_says_why_not(
    app: App, capfdbinary: Any, blocks: list[Any], written: Any, why: str
) -> None:
    app.program.blocks += [(f"input-0-{at}", block) for at, block in enumerate(blocks)]
    count = sum(map(len, blocks))
    shown = ["tap", "0", "--format", "arrow", "--interval", "0.01", "--count", str(count)]
    assert main(shown) == (2 if why else 0)
    out, error = capfdbinary.readouterr()
    assert why in error.decode()
    if written is None:
        assert out == b""
        return
    with pa.ipc.open_stream(out) as stream:
        assert stream.read_all().to_pylist() == written


@pytest.mark.parametrize("form", ["arrow", "json"])
def test_tap_that_is_interrupted_adds_nothing_to_what_a_program_reads(
    app: App, capfdbinary: Any, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    app.program.blocks.append(("input-0-1", ["one"]))
    # Not `time.sleep` itself, which threads of other tests in this process may call.
    monkeypatch.setattr("penstock.monitor.cli.time", SimpleNamespace(sleep=interrupt))
    assert main(["tap", "0", "--format", "text", "--format", form]) == 0
    out = capfdbinary.readouterr().out
    if form == "json":
        assert out == b'"one"\n'
        return
    file = io.BytesIO(out)
    assert [batch.to_pylist() for batch in pa.ipc.open_stream(file)] == [[{"value": "one"}]]
    assert file.read() == b""
    assert out[-1:] != b"\n"


def test_tap_says_what_it_cannot_show(app: App, capsys: Out) -> None:
    for error, told in (
        (IllegalStateError("this stream has no receiver"), "this stream has no receiver"),
        (AttributeError("no class Reading"), "cannot be shown: AttributeError: no class Reading"),
    ):
        app.program.blocks.append(("input-0-1", error))
        assert main(["tap", "numbers"]) == 1
        assert told in capsys.readouterr().err
    for interval in ("0", "inf", "nan", "1e300"):
        assert main(["tap", "numbers", "--interval", interval]) == 2
        assert "'--interval'" in capsys.readouterr().err
    assert main(["tap", "numbers", "--filter", "("]) == 2


def test_records_are_shown_to_who_may_act_only(app: App) -> None:
    app.program.blocks.append(("input-0-1", ["secret"]))
    body = json.dumps({"stream": 0, "count": 1}).encode()
    headers = {"Content-Type": "application/json"}
    status, told, _ = ask(app.server, "/api/penstock/actions/tap", "POST", headers, body)
    assert status == 403
    assert b"secret" not in told


def test_a_program_elsewhere_needs_its_token(
    app: App, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By another name than that in its file it is not known to be this user's.
    url = f"http://localhost:{app.server.port}"
    assert main(["receivers", "--app", url]) == 1
    assert "spark.acls.enable" in capsys.readouterr().err
    monkeypatch.setenv("PENSTOCK_TOKEN", "wrong")
    assert main(["stop", "--app", url]) == 1
    monkeypatch.setenv("PENSTOCK_TOKEN", app.access.token)
    assert main(["stop", "--app", url]) == 0
    assert app.program.acted == [("stop", True)]


def test_the_address_of_a_program_of_this_user_names_it(app: App) -> None:
    assert main(["pause", "numbers", "--app", f"http://127.0.0.1:{app.server.port}"]) == 0
    assert app.program.acted == [("pause", 0)]


@pytest.mark.parametrize("given", ["", "given"])
def test_the_address_of_a_program_of_this_user_has_its_certificate_whatever_the_token(
    app: App, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = RegisteredApp("id", "n", "https://h:1/", "of the file", "PEM", 0, 1, "h", "0")
    monkeypatch.setattr(cli, "registered", lambda folder: [known])
    made: list[tuple[str, ...]] = []
    monkeypatch.setattr(cli, "AppClient", lambda *arguments: made.append(arguments))
    monkeypatch.setenv("PENSTOCK_TOKEN", given)
    cli.client_of("https://h:1")
    assert made == [("https://h:1", given or "of the file", "PEM")]


@pytest.mark.slow
def test_top_on_a_terminal_of_80_columns_shows_nothing_longer(app: App) -> None:
    app.program.streams[0] = "a stream with a name that is longer than any terminal is wide " * 3
    app.program.receiver(error="e" * 200)
    app.program.model.tick()
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {**os.environ, "TERM": "xterm"}
    environment.pop("COLUMNS", None)
    shown = b""
    with open(controller, "rb", buffering=0) as screen:
        command = [sys.executable, "-m", "penstock", "top", "--interval", "0.1"]
        process = subprocess.Popen(command, stdout=terminal, stderr=terminal, env=environment)
        os.close(terminal)
        try:
            while shown.count(b"\x1b[H\x1b[J") < 3:
                shown += screen.read(1 << 16)
            process.send_signal(signal.SIGINT)
            assert process.wait(HANG_S) == 0
        finally:
            process.kill()
            process.wait()
    first = shown.decode().split("\x1b[H\x1b[J")[1].splitlines()
    assert "RECEIVER" in "".join(first)
    assert len(first) <= 24
    assert max(map(len, first)) <= 80


def test_top_sends_nothing_to_a_dumb_terminal_that_it_would_show(
    app: App, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock.monitor.cli.time", SimpleNamespace(sleep=interrupt))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert main(["top"]) == 0
    assert "\x1b[H" in capsys.readouterr().out
    monkeypatch.setenv("TERM", "dumb")
    assert main(["top"]) == 0
    told = capsys.readouterr().out
    assert "numbers-0" in told
    assert "\x1b" not in told


def test_a_terminal_without_unicode_gets_escapes_and_the_whole_table(app: App) -> None:
    app.program.streams[0] = "zählt"
    app.program.receiver()
    app.program.model.tick()
    command = [sys.executable, "-m", "penstock", "receivers"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    shown = subprocess.run(
        command, capture_output=True, env=environment, timeout=HANG_S, check=True
    )
    assert b"z\\xe4hlt-0" in shown.stdout


@pytest.mark.skipif(os.getuid() != 0, reason="platform: only root can give a folder away")
def test_a_program_of_another_user_is_not_acted_on(app: App, capsys: Out) -> None:
    os.chown(app.file.parent, 65_534, 65_534)
    assert main(["stop"]) == 2
    assert "belongs to another user" in capsys.readouterr().err
    # Its address alone is no right to act.
    assert main(["stop", "--app", f"http://127.0.0.1:{app.server.port}"]) == 1
    assert "as the user who started the program" in capsys.readouterr().err
    assert app.program.acted == []


def test_a_program_that_just_ended_is_told(app: App, capsys: Out) -> None:
    app.server.stop(30)
    assert main(["top", "--once"]) == 1
    assert "does not answer" in capsys.readouterr().err
    app.file.unlink()
    assert main(["top", "--once"]) == 2
    assert "no program of this user runs on this host" in capsys.readouterr().err
    assert main(["apps"]) == 0


def test_what_is_not_clear_is_wrong_usage(app: App, capsys: Out, tmp_path: Path) -> None:
    register(
        tmp_path / "penstock",
        application_id="local-2",
        name="another",
        url="http://127.0.0.1:1/",
        token="",
        started_ms=1,
    )
    assert main(["receivers"]) == 2
    assert "local-2 (another), local-1 (a program)" in capsys.readouterr().err
    assert main(["receivers", "--app", "nothing"]) == 2
    assert main(["receivers", "--app", "ftp://x"]) == 2
    assert main(["receivers", "--nonsense"]) == 2
    assert main(["rate", "numbers"]) == 2
    assert main(["nothing"]) == 2


def test_tables_fit_their_width_and_numbers_are_easy_to_read() -> None:
    lines = table(("A", ">B", "C"), [("x", 5, "long " * 30), ("yy", 1234, "")], 20)
    assert lines == ["A      B  C", "x      5  long long…", "yy  1234"]
    assert [count_text(value) for value in (None, 0, 999.6, 12_345, 4e6, 7.2e9)] == [
        *("", "0", "1,000"),
        *("12.3k", "4.0M", "7.2G"),
    ]
    assert clean("a\x1b[2J\nb\u202e") == "a[2J b"


@pytest.mark.parametrize("status", ["200 OK", "400 Bad Request"])
def test_a_program_that_dies_while_it_answers_is_told_from_one_that_says_something_else(
    capsys: Out, status: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def half() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 99\r\n\r\n{{".encode())

        program = threading.Thread(target=half)
        program.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        assert main(["top", "--once", "--app", url]) == 1
        program.join(HANG_S)
    assert f"{url} does not answer: it ended in the middle of an answer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        ("200 OK", "{}", "does not answer: what answers there is no program of Penstock"),
        ("404 no", "<html>\n  \x1b[31m404\n</html>", "answered 404: <html> [31m404 </html>\n"),
        (
            "404 Not Found\r\nContent-Type: text/html",
            "<html>" * 99,
            "answered 404: Not Found, with a page that is not Penstock's\n",
        ),
        ("200 OK\r\nX-Penstock: 1", "{", "does not answer: its answer is not whole"),
    ],
)
def test_what_is_no_program_of_penstock_is_told_in_one_line(
    capsys: Out, status: str, body: str, told: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def other() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n"
                connection.sendall((head + body).encode())

        program = threading.Thread(target=other)
        program.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        assert main(["receivers", "--app", url]) == 1
        program.join(HANG_S)
    error = capsys.readouterr().err
    assert f"{url} {told}" in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999/", "http://[::1", "http://", "ftp://x"])
def test_a_url_that_is_none_is_named(url: str, capsys: Out) -> None:
    assert main(["receivers", "--app", url]) == 2
    assert f"{url!r} is not a URL such as http://host:4140/" in capsys.readouterr().err


def test_the_token_for_a_url_comes_from_the_environment(
    app: App, capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["pause", "numbers", "--app", f"http://localhost:{app.server.port}/"]
    assert main(command) == 1
    assert "with that token in PENSTOCK_TOKEN" in capsys.readouterr().err
    monkeypatch.setenv("PENSTOCK_TOKEN", f"{app.access.token}\n")
    assert main(command) == 0
    monkeypatch.setenv("PENSTOCK_TOKEN", "sec\nret")
    assert main(command) == 2
    error = capsys.readouterr().err
    assert error == "penstock pause: PENSTOCK_TOKEN has characters that no token has\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["batches", "--count", "-1"],
        ["batches", "--count", "1001"],
        ["tap", "0", "--count", "-1"],
        ["tap", "0", "--sample", "0"],
        ["tap", "0", "--sample", "1001"],
        ["tap", "0", "--sample", "ten"],
    ],
)
def test_a_number_that_is_not_accepted_is_wrong_usage_and_named(
    app: App, capsys: Out, arguments: list[str]
) -> None:
    assert main(arguments) == 2
    assert f"Invalid value for '{arguments[-2]}'" in capsys.readouterr().err


def test_ctrl_c_while_a_command_is_still_being_imported_ends_it_quietly(
    capsys: Out, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("importlib.import_module", interrupted)
    assert main(["replay", "folder"]) == 130
    assert capsys.readouterr() == ("", "penstock replay: interrupted\n")


def test_a_command_for_a_running_program_imports_neither_arrow_nor_pyspark() -> None:
    code = (
        "import sys; from penstock.__main__ import main; main(['apps']);"
        "print(*sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, timeout=HANG_S
    )
    imported = set(ran.stderr.split())
    assert b"penstock.monitor.cli" in imported
    assert not {b"numpy", b"pyarrow", b"pyspark"} & imported


def test_the_room_has_what_it_names() -> None:
    assert [name for name in monitor.__all__ if not hasattr(monitor, name)] == []
    assert not hasattr(monitor, "Monitors")
