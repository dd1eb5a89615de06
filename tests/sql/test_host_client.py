"""A host that does not answer is an error within a bound, whatever keeps it from answering."""

from __future__ import annotations

import socket
import traceback

import pytest

from penstock.blockstore import BlockAccess
from penstock.sql import HostNotReachableError
from penstock.sql.source import host_client
from penstock.sql.source.host_client import HostClient
from penstock.wire import ApplicationLink
from penstock.wire.messages import FindStream, StreamAt


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_client, "_PATIENCE_S", 0.5)


def test_where_nobody_listens_any_more_it_is_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A host that is started again has another secret, and mostly another port."""
    monkeypatch.setattr(host_client, "_PATIENCE_S", 3600.0)
    monkeypatch.setattr(host_client, "_REFUSED_S", 0.2)
    with socket.socket() as host:
        host.bind(("127.0.0.1", 0))
        link = ApplicationLink(b"a secret of this test alone", host.getsockname())
        with pytest.raises(HostNotReachableError, match=r"for 0\.2 s"):
            HostClient(BlockAccess({}, link, 10.0)).ask(FindStream("numbers"), StreamAt)


@pytest.mark.parametrize("is_listening", [True, False], ids=["silent", "gone"])
def test_a_host_that_is_silent_or_gone_is_named(is_listening: bool) -> None:
    with socket.socket() as host:
        host.bind(("127.0.0.1", 0))
        port = host.getsockname()[1]
        if is_listening:
            # As for a process that is paused: connections are taken, and that is all.
            host.listen()
        link = ApplicationLink(b"a secret of this test alone", ("127.0.0.1", port))
        client = HostClient(BlockAccess({}, link, fetch_timeout_s=10.0))
        with pytest.raises(
            HostNotReachableError, match=f"at 127.0.0.1:{port} does not answer"
        ) as told:
            client.ask(FindStream("numbers"), StreamAt)
    # Spark shows all of this: the way out is not to stand behind an error that has none.
    assert "AskTimeoutError" not in "".join(traceback.format_exception(told.value))
    assert "asked twice" not in str(told.value)
