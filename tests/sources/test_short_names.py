"""Sources by their short names."""

from __future__ import annotations

import inspect
import pickle
import pkgutil
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock.sources
from penstock.receiver import Receiver, as_receiver
from penstock.sources import _SOURCES, source
from penstock.sources.datagrams import DatagramReceiver
from penstock.sources.syslog import SyslogReceiver
from penstock.sql import ReceiverHost, readStream
from tests.sql.sources import await_records


def test_each_receiver_of_the_room_has_a_short_name() -> None:
    names = [each.name for each in pkgutil.iter_modules(penstock.sources.__path__)]
    modules = {name: import_module(f"penstock.sources.{name}") for name in names if name[0] != "_"}
    found = {
        f"{module}.{name}"
        for module, has in modules.items()
        for name, kind in vars(has).items()
        if inspect.isclass(kind) and issubclass(kind, Receiver) and not inspect.isabstract(kind)
        if name in getattr(has, "__all__", ()) or kind.__module__ == has.__name__
        if not name.startswith("_")
    }
    assert set(_SOURCES.values()) == found


def test_a_source_is_made_with_the_arguments_of_its_class() -> None:
    made = source("datagrams", 5140, columns=True)
    assert type(made) is DatagramReceiver
    assert made.schema is not None
    sent: Any = as_receiver(pickle.loads(pickle.dumps(made)))
    assert (sent.__name__, sent.port) == ("datagrams", 5140)
    assert type(source("syslog", udp=0)) is SyslogReceiver


@pytest.mark.parametrize("name", ["Datagrams", "kafka2", "", None, 5])
def test_another_name_is_refused_with_those_that_there_are(name: Any) -> None:
    with pytest.raises(ValueError, match=r"datagrams.*websocket"):
        source(name)


def test_an_option_that_its_class_has_not_is_its_own_error() -> None:
    with pytest.raises(TypeError, match="prot"):
        source("datagrams", prot=5)


@pytest.mark.slow
def test_a_query_reads_a_source_by_its_short_name(sc: Any, tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("one\ntwo\n")
    spark = SparkSession(sc)
    frame = readStream(spark, source("growing-files", str(tmp_path / "*.log")))
    host = ReceiverHost.getActive()
    assert host is not None
    try:
        await_records(host, "growing-files", 2)
        assert (frame.isStreaming, frame.columns) == (True, ["value"])
        read = spark.read.format("penstock").option("stream", "growing-files").load()
        assert sorted(row.value for row in read.collect()) == ["one", "two"]
    finally:
        host.stop()
