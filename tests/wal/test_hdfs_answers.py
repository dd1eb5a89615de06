"""What the file system makes of its client's answers; the client is a double, no HDFS is needed.

What comes between two calls of a real NameNode cannot be timed; tests with real ones are in
`test_hdfs_away`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.wal import Answer, answer_of
from penstock.wal._hdfs.filesystem import HdfsFileSystem
from tests.services.hdfs import write_configuration

PATIENCE_S = 0.2
NODES = "dfs.ha.namenodes.cluster"


class Client:
    """Answers as a test says it: by a function for each call's name."""

    def __init__(self, **answers: Any) -> None:
        self.__dict__.update(answers)


def file_system(client: Any = None) -> HdfsFileSystem:
    fs = HdfsFileSystem("hdfs://127.0.0.1:1", patience_s=PATIENCE_S)
    fs._client = client
    return fs


def test_a_rename_after_which_another_folder_has_the_name_was_not_done() -> None:
    """Somebody moved the source away meanwhile; what stands at the target is not it."""
    known = {
        "/a": SimpleNamespace(isdir=True, length=0, modification_time=1),
        "/b": SimpleNamespace(isdir=True, length=0, modification_time=2),
    }

    def rename(*_: Any) -> None:
        raise FileNotFoundError("File does not exist: /a")

    fs = file_system(Client(get_file_info=known.__getitem__, rename=rename))
    with pytest.raises(FileNotFoundError, match="/a"):
        fs.rename("/a", "/b")
    # It was done, and the answer was lost.
    known["/b"] = known["/a"]
    fs.rename("/a", "/b")


@pytest.mark.parametrize(
    ("error", "answer", "text"),
    [
        (PermissionError("Permission denied: user=x, access=WRITE"), Answer.REFUSED, "denied"),
        (OSError("IO error occurred while communicating: refused"), Answer.AWAY, "refused"),
    ],
)
def test_a_lease_whose_recovery_is_refused_or_not_answered_is_not_asked_for_again(
    error: Exception, answer: Answer, text: str
) -> None:
    asked: list[str] = []

    def recover_lease(path: str) -> bool:
        asked.append(path)
        raise error

    fs = file_system(Client(recover_lease=recover_lease))
    with pytest.raises(OSError, match=text) as caught:
        fs.truncate("/a", 0)
    assert answer_of(caught.value) is answer
    if answer is Answer.REFUSED:
        assert asked == ["/a"]


@pytest.fixture
def released() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_after_a_name_node_that_hangs_each_new_client_asks_another_one_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, released: threading.Event
) -> None:
    settings = {
        NODES: "a,b",
        "dfs.nameservices": "cluster",
        "dfs.namenode.rpc-address.cluster.a": "127.0.0.1:1",
        "dfs.namenode.rpc-address.cluster.b": "127.0.0.1:2",
    }
    write_configuration(tmp_path / "hdfs-site.xml", settings)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    fs = HdfsFileSystem("hdfs://cluster", patience_s=PATIENCE_S)
    asked_first: list[str] = []

    def new_client(config: dict[str, str]) -> Client:
        asked_first.append(config.get(NODES, "a,b").split(",")[0])
        return Client(get_file_info=lambda _: released.wait())

    monkeypatch.setattr(fs, "_new_client", new_client)
    fs._client = new_client({})
    for _ in range(3):
        assert not fs.answers()
    assert asked_first == ["a", "b", "a", "b"]
