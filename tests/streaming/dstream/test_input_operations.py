"""The context's streams of sockets: which receivers they run."""

from __future__ import annotations

from typing import Any

from pyspark import StorageLevel

from penstock.sources import ConvertingSocketReceiver, RawSocketReceiver, SocketReceiver
from penstock.streaming import StreamingContext


def receivers_of(ssc: StreamingContext) -> list[Any]:
    inputs: list[Any] = ssc._graph.inputs
    return [node.receiver for node in inputs]


def test_each_stream_of_a_socket_has_its_receiver(sc: Any) -> None:
    def converter(stream: Any) -> list[bytes]:
        return [stream.read()]

    ssc = StreamingContext(sc, 1)
    ssc.socketTextStream("host", 1, StorageLevel.MEMORY_ONLY)
    ssc.socketStream("host", 2, converter, StorageLevel.DISK_ONLY)
    ssc.rawSocketStream("host", 3)
    lines, converting, raw = receivers_of(ssc)
    assert [type(receiver) for receiver in (lines, converting, raw)] == [
        SocketReceiver,
        ConvertingSocketReceiver,
        RawSocketReceiver,
    ]
    assert [receiver.port for receiver in (lines, converting, raw)] == [1, 2, 3]
    assert lines.storageLevel == StorageLevel.MEMORY_ONLY
    assert converting.storageLevel == StorageLevel.DISK_ONLY
    assert converting.converter is converter
    assert raw.storageLevel == StorageLevel.MEMORY_AND_DISK_2
    assert raw.max_frame_bytes == 1 << 30
    ssc.stop(False)


def test_the_limit_of_frames_is_a_setting(sc: Any, monkeypatch: Any) -> None:
    conf = sc.getConf().set("spark.streaming.raw.maxBlockSizeBytes", "1m")
    monkeypatch.setattr(sc, "getConf", lambda: conf)
    ssc = StreamingContext(sc, 1)
    ssc.rawSocketStream("host", 3)
    (raw,) = receivers_of(ssc)
    assert raw.max_frame_bytes == 1 << 20
    ssc.stop(False)
