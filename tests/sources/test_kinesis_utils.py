"""A program of `pyspark.streaming.kinesis` whose import line was changed."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.sources.kinesis import InitialPositionInStream, KinesisUtils, MetricsLevel
from penstock.streaming import StreamingContext
from tests.services.aws_front import wait_until
from tests.services.moto import KEYS, REGION, MotoServer, moto_server


@pytest.fixture
def moto(tmp_path: Path) -> Iterator[MotoServer]:
    with moto_server(tmp_path) as server:
        yield server


def create(ssc: Any, url: str = "http://127.0.0.1:1", **more: Any) -> Any:
    arguments = {
        "kinesisAppName": "app",
        "streamName": "orders",
        "endpointUrl": url,
        "regionName": REGION,
        "initialPositionInStream": InitialPositionInStream.TRIM_HORIZON,
        "checkpointInterval": 2,
        "awsAccessKeyId": KEYS["aws_access_key_id"],
        "awsSecretKey": KEYS["aws_secret_access_key"],
    }
    return KinesisUtils.createStream(ssc, **{**arguments, **more})


@pytest.mark.slow
def test_streams_of_one_application_give_each_record_once(
    sc: Any, moto: MotoServer, caplog: pytest.LogCaptureFixture
) -> None:
    client = moto.client("kinesis")
    client.create_stream(StreamName="orders", ShardCount=2)
    records = [{"Data": f"ä{number}".encode(), "PartitionKey": str(number)} for number in range(50)]
    client.put_records(StreamName="orders", Records=records)
    found: list[str] = []
    ssc = StreamingContext(sc, 0.5)
    try:
        with caplog.at_level(logging.WARNING, "penstock.sources"):
            streams = [create(ssc, moto.url) for _ in range(2)]
        ssc.union(*streams).foreachRDD(lambda rdd: found.extend(rdd.collect()))
        lengths: list[int] = []
        sizes = create(ssc, moto.url, kinesisAppName="another", decoder=len)
        sizes.foreachRDD(lambda rdd: lengths.extend(rdd.collect()))
        ssc.start()
        wait_until(lambda: len(found) >= 50 and len(lengths) >= 50, "all records are in batches")
    finally:
        ssc.stop(stopSparkContext=False)
    assert sorted(found) == sorted(f"ä{number}" for number in range(50))
    assert set(lengths) == {3, 4}
    assert "what the application app has in dynamodb is not read" in caplog.text.lower()
    assert "the first one reads all shards" in caplog.text
    assert KEYS["aws_secret_access_key"] not in caplog.text


def test_it_takes_what_pyspark_takes() -> None:
    from pyspark.streaming import kinesis

    theirs = inspect.signature(kinesis.KinesisUtils.createStream).parameters
    ours = inspect.signature(KinesisUtils.createStream).parameters
    assert list(ours) == list(theirs)
    for name, parameter in theirs.items():
        if name != "decoder":
            assert ours[name].default == parameter.default
    assert ours["decoder"].default(b"a") == "a"
    assert ours["decoder"].default(None) is None
    names = (name for name in vars(kinesis.InitialPositionInStream) if name.isupper())
    for name in names:
        theirs_value = getattr(kinesis.InitialPositionInStream, name)
        assert getattr(InitialPositionInStream, name) == theirs_value
    assert (MetricsLevel.DETAILED, MetricsLevel.SUMMARY, MetricsLevel.NONE) == (0, 1, 2)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"initialPositionInStream": 2}, "InitialPositionInStream.LATEST"),
        ({"initialPositionInStream": "LATEST"}, "InitialPositionInStream.LATEST"),
        ({"awsSecretKey": None}, "awsAccessKeyId and awsSecretKey are given both or none"),
        ({"stsAssumeRoleArn": "arn"}, "stsAssumeRoleArn, stsSessionName and stsExternalId"),
        ({"decoder": None}, "decoder=None is not accepted"),
        ({"streamName": ""}, "is not accepted"),
    ],
)
def test_what_it_cannot_take_is_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises((ValueError, TypeError), match=told) as found:
        create(None, **wrong)
    assert KEYS["aws_secret_access_key"] not in str(found.value)
