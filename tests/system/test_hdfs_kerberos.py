"""Logs on an HDFS that asks for Kerberos, which encrypts what goes over the network."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.wal import LogReader, LogWriteError, LogWriter
from penstock.wal._hdfs.client import HdfsAuthenticationError
from penstock.wal._hdfs.filesystem import HdfsFileSystem
from tests.services.hdfs import Hdfs, write_configuration
from tests.services.kerberos import POM, Kdc
from tests.wal.test_hdfs import BOUND_S, OPTIONS

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Realm:
    """A KDC, an HDFS that believes it, and a cache with a ticket of the user."""

    kdc: Kdc
    hdfs: Hdfs
    cache: Path


@pytest.fixture(scope="module")
def running(
    start_hdfs: Callable[..., AbstractContextManager[Hdfs]],
    require_jars: Callable[[Path], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Realm]:
    require_jars(POM)
    try:
        ctypes.CDLL("libgssapi_krb5.so.2")
    except OSError:
        pytest.skip("Kerberos needs libgssapi_krb5 (Debian: libgssapi-krb5-2)")
    kdc = Kdc(tmp_path_factory.mktemp("kdc"))
    cache = tmp_path_factory.mktemp("tickets") / "cache"
    with pytest.MonkeyPatch.context() as patched:
        for name, value in kdc.environment(cache).items():
            patched.setenv(name, value)
        # The service itself is looked at by a client that takes its ticket from the keytab.
        patched.setenv("KRB5_CLIENT_KTNAME", f"FILE:{kdc.keytab}")
        with (
            kdc,
            start_hdfs(
                tmp_path_factory.mktemp("hdfs-kerberos"),
                settings=kdc.hdfs_settings("privacy"),
                options=kdc.java_options,
            ) as hdfs,
        ):
            yield Realm(kdc, hdfs, cache)


@pytest.fixture
def realm(running: Realm, monkeypatch: pytest.MonkeyPatch) -> Realm:
    """A realm, as programs know it that have a ticket and no keytab."""
    monkeypatch.delenv("KRB5_CLIENT_KTNAME")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(running.hdfs.conf_dir))
    return running


@pytest.mark.long
def test_with_a_ticket_a_log_is_written_recovered_and_read(realm: Realm) -> None:
    path = realm.hdfs.path(realm.hdfs.new_folder())
    written = [b"%d " % number * 10_000 for number in range(30)]
    first = LogWriter.create(path, options=OPTIONS, fs=HdfsFileSystem(realm.hdfs.address))
    for payload in written:
        first.append(1, payload)
    # It is not closed: its lease is recovered by the next one, as that of a dead one.
    again = HdfsFileSystem(realm.hdfs.address)
    again.settle([f"{path}/{name}" for name in again.list_folder(path) if "segment" in name])
    found = LogReader.open(path, fs=again).records()
    assert [bytes(record.payload) for record in found] == written
    with pytest.raises(LogWriteError):
        first.append(1, b"too late")
    first.close()


@pytest.mark.long
def test_without_a_ticket_the_error_says_how_to_get_one(
    realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/none")
    with pytest.raises(LogWriteError, match="asks for Kerberos") as raised:
        LogWriter.create("/a", options=OPTIONS, fs=HdfsFileSystem(realm.hdfs.address))
    assert isinstance(raised.value.__cause__, HdfsAuthenticationError)
    for said in (realm.hdfs.address, "No Kerberos credentials available", "kinit", "KRB5CCNAME"):
        assert said in str(raised.value)


@pytest.mark.long
def test_a_ticket_that_expires_is_said(
    realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    realm.kdc.take_ticket(cache, realm.hdfs.address, realm.hdfs.conf_dir, lifetime_s=5)
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")

    def ask_until_it_expires() -> None:
        end = time.monotonic() + BOUND_S
        while time.monotonic() < end:
            # Each has a connection of its own; one that is open stays so.
            HdfsFileSystem(realm.hdfs.address).is_folder("/")
            time.sleep(0.1)

    with pytest.raises(HdfsAuthenticationError, match=r"expired.*kinit"):
        ask_until_it_expires()


@pytest.mark.long
def test_without_the_cluster_configuration_the_error_names_it(
    realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_configuration(tmp_path / "core-site.xml", {})
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    # It is not taken for a NameNode that is away, with a ticket or without.
    for cache in (os.environ["KRB5CCNAME"], f"FILE:{tmp_path}/none"):
        monkeypatch.setenv("KRB5CCNAME", cache)
        with pytest.raises(HdfsAuthenticationError, match=r"hadoop\.security\.authentication"):
            HdfsFileSystem(realm.hdfs.address).is_folder("/")
