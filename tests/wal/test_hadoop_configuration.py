"""What the log takes from Hadoop's configuration folder; no HDFS is needed for it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from penstock.wal._hdfs.client import (
    HadoopConfiguration,
    HdfsAuthenticationError,
    explained,
    translated,
)
from penstock.wal._hdfs.filesystem import HdfsFileSystem
from tests.services.hdfs import write_configuration


def of(folder: Path, settings: dict[str, str]) -> HadoopConfiguration:
    write_configuration(folder / "hdfs-site.xml", settings)
    return HadoopConfiguration.of({"HADOOP_CONF_DIR": str(folder)})


def test_later_files_win_and_a_missing_one_says_nothing(tmp_path: Path) -> None:
    write_configuration(tmp_path / "core-site.xml", {"a": "1", "b": "2"})
    assert HadoopConfiguration.of({"HADOOP_CONF_DIR": str(tmp_path)}).settings["b"] == "2"
    assert of(tmp_path, {"b": " 3\n"}).settings == {"a": "1", "b": "3"}


def test_the_folder_is_found_as_the_client_finds_it(tmp_path: Path) -> None:
    folder = tmp_path / "etc" / "hadoop"
    folder.mkdir(parents=True)
    write_configuration(folder / "core-site.xml", {"a": "1"})
    home = {"HADOOP_HOME": str(tmp_path)}
    assert HadoopConfiguration.of(home).settings == {"a": "1"}
    elsewhere = HadoopConfiguration.of({**home, "HADOOP_CONF_DIR": "/no/such/folder"})
    assert elsewhere.settings == {}
    nowhere = HadoopConfiguration.of({})
    assert nowhere.settings == {}
    assert "HADOOP_CONF_DIR" in nowhere.where


@pytest.mark.parametrize(
    ("text", "value"), [("134217728", 128 << 20), ("128m", 128 << 20), (" 2K ", 2048), ("0", 0)]
)
def test_sizes_are_written_as_hadoop_writes_them(tmp_path: Path, text: str, value: int) -> None:
    found = of(tmp_path, {"dfs.blocksize": text})
    assert found.number("dfs.blocksize") == value
    assert found.number("dfs.replication") is None


def test_a_size_that_is_none_names_itself_and_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of(tmp_path, {"dfs.blocksize": "many"})
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(OSError, match=r"dfs.blocksize is no number: 'many'") as raised:
        HdfsFileSystem("hdfs://127.0.0.1:1")
    assert raised.value.filename == str(tmp_path)


def test_a_file_that_is_no_plain_xml_is_left_to_the_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "core-site.xml").write_text("<configuration>&more;</configuration>")
    assert of(tmp_path, {"a": "1"}).settings == {"a": "1"}
    assert "core-site.xml" in caplog.text


def test_a_service_that_no_file_knows_is_said_with_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(OSError, match="the NameNodes of hdfs://service are not known") as raised:
        HdfsFileSystem("hdfs://service")
    assert str(tmp_path) in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        'GSSAPIError(GssMajorCodes(GSS_S_NO_CRED), 0, "No credentials were supplied")',
        "NoSASLMechanism",
        'RPCError("javax.security.sasl.SaslException", "GSS initiate failed")',
    ],
)
def test_who_is_not_believed_is_told_the_way_out(tmp_path: Path, text: str) -> None:
    secure = of(tmp_path, {"hadoop.security.authentication": "kerberos"})
    found = explained(translated(RuntimeError(text), "/a"), "hdfs://nn:8020", secure)
    assert isinstance(found, HdfsAuthenticationError)
    assert (found.errno, found.filename) == (errno.ENOKEY, "/a")
    assert "hdfs://nn:8020 asks for Kerberos" in str(found)
    for way_out in ("kinit", "KRB5CCNAME", "KRB5_CLIENT_KTNAME", "spark.executorEnv"):
        assert way_out in str(found)


def test_who_does_not_know_of_kerberos_is_told_where_that_is_said(tmp_path: Path) -> None:
    told = (
        'FatalRPCError("org.apache.hadoop.security.AccessControlException", '
        '"SIMPLE authentication is not enabled.  Available:[TOKEN, KERBEROS]")'
    )
    found = explained(translated(RuntimeError(told), "/a"), "hdfs://nn:8020", of(tmp_path, {}))
    assert isinstance(found, HdfsAuthenticationError)
    assert "hadoop.security.authentication" in str(found)
    assert str(tmp_path) in str(found)
