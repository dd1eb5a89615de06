"""The page over HTTPS: with a certificate of the user's, or one that the driver makes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from penstock.__main__ import main
from penstock.errors import SettingError
from penstock.monitor import Model, start_monitor
from penstock.monitor.cli import AppClient, AppError
from penstock.monitor.registry import registered, runtime_folder
from penstock.monitor.web.exchange import Answer, Request
from penstock.monitor.web.server import Bounds, PageTls, WebServer
from penstock.settings import Settings
from penstock.wire.tls import TlsIdentity
from tests.monitor.asking import WAIT_S, connect, serving, until
from tests.monitor.feeding import Program

MADE = [("spark.penstock.tls.enabled", "true")]


def page_tls(*pairs: tuple[str, str]) -> PageTls:
    tls = PageTls.of(Settings.from_pairs(pairs))
    assert tls is not None
    return tls


def echo(request: Request) -> Answer:
    return Answer(200, json.dumps(request.path).encode(), "application/json")


def client(server: WebServer, certificate: str) -> AppClient:
    return AppClient(f"https://127.0.0.1:{server.port}/", certificate=certificate)


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what an authority of somebody's own hands out, by OpenSSL's own command."""
    folder = tmp_path_factory.mktemp("pem")

    def run(*command: str) -> None:
        subprocess.run(["openssl", *command], cwd=folder, check=True, capture_output=True)

    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj")
    run("req", "-x509", *new, "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")
    run("req", *new, "/CN=driver.example", "-keyout", "page.key", "-out", "page.csr")
    run(
        *("x509", "-req", "-in", "page.csr", "-CA", "ca.pem", "-CAkey", "ca.key"),
        *("-set_serial", "7", "-days", "3650", "-out", "leaf.pem"),
    )
    run("ec", "-in", "page.key", "-aes256", "-passout", "pass:secret", "-out", "locked.key")
    leaf, authority = (folder / "leaf.pem").read_text(), (folder / "ca.pem").read_text()
    (folder / "chain.pem").write_text(leaf + authority)
    (folder / "all.pem").write_text((folder / "page.key").read_text() + leaf + authority)
    return folder


def test_it_answers_who_knows_the_certificate_that_was_made_and_others_do_not_believe_it() -> None:
    tls = page_tls(*MADE)
    with serving(echo, tls=tls.context) as server:
        assert client(server, tls.certificate).get("/found") == "/found"
        for other in ("", TlsIdentity.make().certificate):
            with pytest.raises(AppError, match="certificate verify failed"):
                client(server, other).get("/found")
        assert client(server, tls.certificate).get("/found") == "/found"


@pytest.mark.parametrize("files", [("chain.pem", "page.key"), ("all.pem", None)])
def test_a_certificate_of_the_users_own_is_shown(pem: Path, files: tuple[str, str | None]) -> None:
    certificate, key = files
    pairs = [("spark.penstock.ui.certificate", str(pem / certificate))]
    if key is not None:
        pairs.append(("spark.penstock.ui.privateKey", str(pem / key)))
    tls = page_tls(*pairs)
    assert tls.certificate == (pem / "leaf.pem").read_text()
    with serving(echo, tls=tls.context) as server:
        assert client(server, tls.certificate).get("/found") == "/found"


@pytest.mark.parametrize(
    ("certificate", "key", "told"),
    [
        ("gone.pem", None, r"ui\.certificate='.*gone\.pem'.*No such file"),
        ("page.key", None, r"ui\.certificate=.*there is no certificate in that file"),
        ("leaf.pem", None, r"ui\.certificate=.*the private key that belongs to it"),
        ("leaf.pem", "gone.key", r"ui\.privateKey='.*gone\.key'.*No such file"),
        ("leaf.pem", "ca.key", r"ui\.privateKey=.*the private key that belongs to it"),
        ("leaf.pem", "locked.key", r"ui\.privateKey=.*not encrypted, as PEM"),
        (None, "page.key", r"ui\.privateKey=.*only together with spark\.penstock\.ui\.certificate"),
    ],
)
def test_files_that_cannot_be_used_are_named_at_the_start(
    pem: Path, certificate: str | None, key: str | None, told: str
) -> None:
    given = [("certificate", certificate), ("privateKey", key)]
    pairs = [(f"spark.penstock.ui.{name}", str(pem / file)) for name, file in given if file]
    added: list[Model] = []
    with pytest.raises(SettingError, match=told):
        start_monitor(Program().application(), Settings.from_pairs(pairs), added.append, print)
    assert added == []


def test_who_speaks_http_is_told_to_speak_https() -> None:
    with serving(echo, tls=page_tls(*MADE).context) as server, connect(server) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        found = b""
        while part := connection.recv(1 << 16):
            found += part
    assert found.startswith(b"HTTP/1.1 400 ")
    assert b"ask with https:// in the address" in found


@pytest.mark.slow
@pytest.mark.parametrize("said", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01"])
def test_who_does_not_finish_the_handshake_is_cut_off(said: bytes) -> None:
    tls = page_tls(*MADE)
    with serving(echo, Bounds(connections=1, request_s=0.3), tls.context) as server:
        with connect(server) as connection:
            connection.sendall(said)
            connection.settimeout(WAIT_S)
            with contextlib.suppress(ConnectionResetError):
                while connection.recv(1 << 10):
                    pass
        until(lambda: client(server, tls.certificate).get("/found") == "/found")
    # And by a stop, whatever time it has.
    with serving(echo, Bounds(request_s=3600), tls.context) as server:
        connection = connect(server)
        connection.sendall(said)
        time.sleep(0.1)
    with connection, contextlib.suppress(ConnectionResetError):
        connection.settimeout(WAIT_S)
        while connection.recv(1 << 10):
            pass
    until(lambda: "penstock-ui-connection" not in {t.name for t in threading.enumerate()})


def test_commands_find_a_program_that_speaks_https(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    told: list[str] = []
    settings = Settings.from_pairs([*MADE, ("spark.penstock.ui.port", "0")])
    monitor = start_monitor(Program().application(), settings, lambda _: None, told.append)
    assert monitor is not None
    try:
        (app,) = registered(runtime_folder(os.environ))
        assert app.url.startswith("https://")
        assert told == [f"It can be looked at on {app.url}"]
        assert main(["receivers"]) == 0
        assert main(["apps"]) == 0
        shown = capsys.readouterr().out
        assert f"{app.url}#code=" in shown
        assert "PRIVATE KEY" not in app.certificate
        with pytest.raises(AppError, match="ask with https://"):
            AppClient(app.url.replace("https", "http")).get("/api/penstock/status")
    finally:
        monitor.stop(WAIT_S)
