"""What errors of a storage say, and how long it may be away; no storage is needed for it."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.wal import Answer, StorageAwayError, answer_of, calls_left_behind
from penstock.wal._answers import BoundedCalls, Outage, TooLongError
from penstock.wal._hdfs.client import (
    HadoopConfiguration,
    HdfsAuthenticationError,
    HdfsUnavailableError,
    translated,
)
from penstock.wal._hdfs.filesystem import HdfsFileSystem
from tests.bounds import HANG_S

PATIENCE_S = 60.0


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (FileNotFoundError(errno.ENOENT, "no such file", "/a"), Answer.GONE),
        (NotADirectoryError(errno.ENOTDIR, "a file", "/a"), Answer.GONE),
        (PermissionError(errno.EACCES, "not yours", "/a"), Answer.REFUSED),
        (OSError(errno.EROFS, "read-only", "/a"), Answer.REFUSED),
        (HdfsAuthenticationError("expired", "/a"), Answer.REFUSED),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), Answer.AWAY),
        (TimeoutError("no answer"), Answer.AWAY),
        (OSError(errno.EMFILE, "too many open files"), Answer.AWAY),
        (StorageAwayError("away", "/a"), Answer.AWAY),
        (TooLongError("no answer", "/a"), Answer.AWAY),
        (HdfsUnavailableError("later", "/a", is_refusal=True, by_name_node=True), Answer.AWAY),
        (OSError(errno.ENOSPC, "full", "/a"), Answer.OTHER),
        (OSError(errno.EIO, "a bad sector", "/a"), Answer.OTHER),
        (ValueError("no error of a storage"), Answer.OTHER),
    ],
)
def test_gone_refused_and_away_are_three_answers(error: Exception, answer: Answer) -> None:
    assert answer_of(error) is answer


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (FileNotFoundError("File does not exist: /a"), Answer.GONE),
        (PermissionError("Permission denied: user=x, access=READ"), Answer.REFUSED),
        (
            RuntimeError('RPCError("org.apache.hadoop.security.AccessControlException", "no")'),
            Answer.REFUSED,
        ),
        (RuntimeError('GSSAPIError(ContextError, "Ticket expired")'), Answer.REFUSED),
        (OSError("IO error occurred while communicating: Connection refused"), Answer.AWAY),
        (
            RuntimeError('RPCError("org.apache.hadoop.ipc.StandbyException", "standby")'),
            Answer.AWAY,
        ),
        (RuntimeError('DataTransferError("All DataNodes failed: []")'), Answer.AWAY),
    ],
)
def test_what_the_client_of_hdfs_raises_is_one_of_them(error: Exception, answer: Answer) -> None:
    assert answer_of(translated(error, "/a")) is answer


def test_a_call_that_does_not_return_is_left_behind() -> None:
    calls, is_over = BoundedCalls("HDFS"), threading.Event()
    with pytest.raises(TooLongError, match=r"HDFS has not answered for 0\.05 s.*/a"):
        calls.call(is_over.wait, 0.05, "/a")
    before = calls_left_behind()
    calls.abandon()
    # The end of a program waits for it, and a command knows that it must not.
    assert calls_left_behind() == before + 1
    is_over.set()
    calls._loop.thread.join(PATIENCE_S)
    assert calls_left_behind() == before
    assert not calls._loop.thread.is_alive()


def test_what_was_never_called_leaves_nothing_behind() -> None:
    before = calls_left_behind()
    calls = BoundedCalls("HDFS")
    calls.abandon()
    assert calls_left_behind() == before
    calls._loop.thread.join(PATIENCE_S)
    assert not calls._loop.thread.is_alive()


def test_a_timeout_of_the_call_itself_is_not_taken_for_one_that_does_not_return() -> None:
    def time_out() -> None:
        raise TimeoutError("its own")

    calls = BoundedCalls("HDFS")
    with pytest.raises(TimeoutError, match="its own"):
        calls.call(time_out, PATIENCE_S, "/a")
    assert calls.call(lambda: 7, PATIENCE_S, "/a") == 7
    calls.end()
    assert not calls._loop.thread.is_alive()


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_the_patience_counts_from_the_first_call_that_failed_not_from_each() -> None:
    clock = Hand()
    outage = Outage("HDFS", PATIENCE_S, clock)
    left = []
    for _ in range(4):
        left.append(outage.failed())
        clock.now_s += 25
    assert left == [60, 35, 10, 0]
    outage.answered()
    assert outage.age_s == 0
    assert outage.failed() == 60


def test_what_was_away_long_ago_and_was_not_asked_since_is_borne_again() -> None:
    clock = Hand()
    outage = Outage("HDFS", PATIENCE_S, clock)
    outage.failed()
    clock.now_s += 59
    assert outage.failed() == 1
    clock.now_s += 61
    assert outage.age_s == 0
    assert outage.failed() == 60


def test_calls_may_take_longer_the_longer_it_is_away_and_no_longer_than_the_patience() -> None:
    clock = Hand()
    outage = Outage("HDFS", PATIENCE_S, clock)
    assert outage.limit_s(10) == 10
    outage.failed()
    found = {}
    for age_s in (0, 30, 48, 55, 59.9, 100, 3600):
        while outage.age_s < age_s:
            clock.now_s = min(clock.now_s + 50, 1000 + age_s)
            outage.failed()
        found[age_s] = outage.limit_s(10)
    assert found == {0: 10, 30: 10, 48: 12, 55: 5, 59.9: 1, 100: 25, 3600: 60}
    # Whoever has less patience waits less: the doctor, say.
    assert Outage("HDFS", 3, clock).limit_s(10) == 3


def test_when_the_patience_is_over_one_call_at_a_time_asks() -> None:
    clock = Hand()
    outage = Outage("HDFS", PATIENCE_S, clock)
    outage.failed()
    with outage.asking("/a"), outage.asking("/b"):
        clock.now_s += 60
    outage.failed()
    with outage.asking("/a"):
        with (
            pytest.raises(StorageAwayError, match="HDFS has been away for 60 s"),
            outage.asking("/b"),
        ):
            raise AssertionError("not reached")
        outage.answered()
        with outage.asking("/b"):
            pass
    outage.failed()
    clock.now_s += 60
    with outage.asking("/a"):
        pass


def test_after_a_name_node_that_hangs_the_next_one_is_asked_first() -> None:
    settings = {"fs.defaultFS": "hdfs://pair", "dfs.ha.namenodes.pair": "one,two"}
    configuration = HadoopConfiguration("", settings)
    for authority in ("hdfs://pair", ""):
        first = configuration.in_turn(authority, 1)
        assert first["dfs.ha.namenodes.pair"] == "two,one"
        assert first["dfs.client.failover.random.order.pair"] == "false"
        assert configuration.in_turn(authority, 2) == {}
    assert configuration.in_turn("hdfs://host:8020", 1) == {}


@pytest.fixture
def hdfs() -> HdfsFileSystem:
    """Return one that has no NameNode: what its client answers is made here."""
    return HdfsFileSystem("hdfs://127.0.0.1:1", patience_s=0.3)


def raising(error: Exception) -> Callable[[], Any]:
    def call() -> Any:
        raise error

    return call


def test_whether_it_asks_for_kerberos_is_asked_within_a_bound(hdfs: HdfsFileSystem) -> None:
    may_end = threading.Event()
    hdfs._new_client = lambda **_: may_end.wait(HANG_S)  # type: ignore[assignment]
    is_over = threading.Event()

    def call() -> None:
        with contextlib.suppress(StorageAwayError):
            hdfs.call("/a", raising(OSError("RPC listener disconnected")))
        is_over.set()

    calling = threading.Thread(target=call)
    calling.start()
    try:
        # With the name servers silent a new client takes as long as they do.
        assert is_over.wait(HANG_S / 2)
    finally:
        may_end.set()
        calling.join()


def test_an_answer_that_there_is_none_ends_the_time_for_which_it_was_away(
    hdfs: HdfsFileSystem,
) -> None:
    hdfs._outage.failed()
    assert hdfs._outage.age_s > 0
    with pytest.raises(FileNotFoundError):
        hdfs.call("/a", raising(FileNotFoundError("/a")))
    assert hdfs._outage.age_s == 0
