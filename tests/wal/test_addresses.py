"""Addresses of folders, and what the client of HDFS raises; no HDFS is needed for it."""

from __future__ import annotations

import errno
import os
import pickle
import sys

import pytest

from penstock.files.addresses import is_on_hdfs, is_on_objects, is_shared
from penstock.wal import (
    LocalFileSystem,
    MissingClientError,
    UnsupportedAddressError,
    locate,
    normal_address,
)
from penstock.wal._hdfs.client import HdfsUnavailableError, translated


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("/a/b/", "/a/b"),
        ("file:/a", "/a"),
        ("file:///a/../b", "/b"),
        ("a", os.path.abspath("a")),
        ("hdfs://host:8020/a//b/", "hdfs://host:8020/a/b"),
        ("hdfs://service", "hdfs://service/"),
        ("hdfs:///a", "hdfs:///a"),
        ("s3://bucket/a//b/", "s3://bucket/a/b"),
        ("s3://bucket", "s3://bucket/"),
        ("gs://bucket/a//b/", "gs://bucket/a/b"),
        ("abfss://c@a.dfs.core.windows.net/a/", "abfss://c@a.dfs.core.windows.net/a"),
        ("abfss://c@a.dfs.core.windows.net", "abfss://c@a.dfs.core.windows.net/"),
    ],
)
def test_addresses_have_one_form(given: str, normal: str) -> None:
    assert normal_address(given) == normal
    assert normal_address(normal) == normal


@pytest.mark.parametrize(
    "address",
    [
        "s3a://bucket/a",
        "s3:relative",
        "s3:///a",
        "gs:///a",
        "abfss://container/a",
        "abfss://container@account/a",
        "abfss://container@account.example.com/a",
        "abfss://account.dfs.core.windows.net/a",
        "wasbs://container@account.blob.core.windows.net/a",
        "http://host/a",
        "hdfs:relative",
        "hdfs://host/a\nb",
    ],
)
def test_other_addresses_are_refused_with_what_to_use(address: str) -> None:
    with pytest.raises(UnsupportedAddressError, match="Use hdfs://host:port/path") as raised:
        locate(address)
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (str(copy), copy.address) == (str(raised.value), address)


def test_a_path_is_on_this_host(tmp_path: object) -> None:
    fs, path = locate(f"file:{tmp_path}")
    assert isinstance(fs, LocalFileSystem)
    assert path == str(tmp_path)


def test_without_the_client_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    with pytest.raises(MissingClientError, match=r"pip install 'penstock\[hdfs\]'") as raised:
        locate("hdfs://no-such-host:1/a")
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_without_the_client_of_object_stores_the_error_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    for address, extra in (
        ("s3://no-such-bucket/a", "s3"),
        ("gs://no-such-bucket/a", "gcs"),
        ("abfss://none@account.dfs.core.windows.net/a", "azure"),
    ):
        with pytest.raises(MissingClientError, match=rf"pip install 'penstock\[{extra}\]'"):
            locate(address)


PACKAGE = "org.apache.hadoop.hdfs.protocol"


@pytest.mark.parametrize(
    ("error", "number"),
    [
        (FileNotFoundError("/a\n\tat java"), errno.ENOENT),
        (
            RuntimeError(f'RPCError("{PACKAGE}.DSQuotaExceededException", "full\\n\\tat x")'),
            errno.EDQUOT,
        ),
        (RuntimeError('RPCError("java.io.IOException", "broken\\n\\tat x")'), errno.EIO),
        (
            RuntimeError(
                'RPCError("java.io.IOException", "File /a could only be written to 0 of the 1 '
                "minReplication nodes. There are 2 datanode(s) running and no node(s) are excluded "
                'in this operation.\\n\\tat x")'
            ),
            errno.ENOSPC,
        ),
        (
            RuntimeError(
                'RPCError("java.io.IOException", "File /a could only be written to 0 of the 1 '
                "minReplication nodes. There are 1 datanode(s) running and 1 node(s) are excluded "
                'in this operation.\\n\\tat x")'
            ),
            errno.EIO,
        ),
        (RuntimeError('DataTransferError("All nodes failed for write")'), errno.EIO),
        (TimeoutError(errno.ETIMEDOUT, "too long"), errno.ETIMEDOUT),
    ],
)
def test_errors_of_the_client_get_numbers(error: Exception, number: int) -> None:
    found = translated(error, "/a")
    assert (found.errno, found.filename) == (number, "/a")
    assert "\\n" not in str(found)
    assert "\n" not in str(found)


def test_what_may_be_asked_again_is_told_from_the_rest() -> None:
    package = "org.apache.hadoop.hdfs.server.namenode"
    safe = translated(
        RuntimeError(f'RPCError("{package}.SafeModeException", "in safe mode")'), "/a"
    )
    assert isinstance(safe, HdfsUnavailableError)
    assert (safe.is_refusal, safe.by_name_node) == (True, True)
    away = translated(OSError("Connection refused (os error 111)"), "/a")
    assert isinstance(away, HdfsUnavailableError)
    assert (away.is_refusal, away.by_name_node) == (True, False)
    lost = translated(OSError("Connection reset by peer (os error 104)"), "/a")
    assert isinstance(lost, HdfsUnavailableError)
    assert (lost.is_refusal, lost.by_name_node) == (False, False)


@pytest.mark.parametrize(
    ("address", "is_there"),
    [
        ("/a", (False, False)),
        ("s3", (False, False)),
        ("file:/a", (False, False)),
        ("hdfs://host/a", (True, False)),
        ("s3://bucket/a", (False, True)),
        ("gs://bucket/a", (False, True)),
        ("abfss://c@a.dfs.core.windows.net/a", (False, True)),
    ],
)
def test_addresses_tell_where_they_are(address: str, is_there: tuple[bool, bool]) -> None:
    assert (is_on_hdfs(address), is_on_objects(address)) == is_there
    assert is_shared(address) is any(is_there)
