"""Streams that are saved in formats of Spark and of Hadoop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from tests.streaming.batches import batches

FIRST_MS, SECOND_MS = 1_700_000_001_000, 1_700_000_002_000


@pytest.mark.slow
def test_pickled_records_are_read_back(sc: Any, tmp_path: Path) -> None:
    with batches(sc) as run:
        stream = run.ssc.queueStream([[{"a": 1}], [None, (1, "é")]])
        stream.saveAsObjectFiles(str(tmp_path / "out"))
        run.run(2)
    assert sc.pickleFile(str(tmp_path / f"out-{FIRST_MS}")).collect() == [{"a": 1}]
    found = sc.pickleFile(str(tmp_path / f"out-{SECOND_MS}")).collect()
    assert sorted(found, key=repr) == [(1, "é"), None]


def test_pairs_are_saved_in_formats_of_both_apis(sc: Any, tmp_path: Path) -> None:
    old = "org.apache.hadoop.mapred.SequenceFileOutputFormat"
    new = "org.apache.hadoop.mapreduce.lib.output.SequenceFileOutputFormat"
    with batches(sc) as run:
        stream = run.ssc.queueStream([[("a", 1), ("b", 2)]])
        stream.saveAsHadoopFiles(str(tmp_path / "old"), "seq", old)
        stream.saveAsNewAPIHadoopFiles(str(tmp_path / "new"), None, new)
        run.run(1)
    for name in (f"old-{FIRST_MS}.seq", f"new-{FIRST_MS}"):
        assert sorted(sc.sequenceFile(str(tmp_path / name)).collect()) == [("a", 1), ("b", 2)]


def test_a_batch_that_was_saved_before_is_left_as_it_is(sc: Any, tmp_path: Path) -> None:
    (tmp_path / f"out-{FIRST_MS}").mkdir()
    with batches(sc) as run:
        run.ssc.queueStream([[1]]).saveAsObjectFiles(str(tmp_path / "out"))
        run.run(1)
        assert run.ssc.statistics().failed_batches == 0
    assert list((tmp_path / f"out-{FIRST_MS}").iterdir()) == []


def test_an_operation_that_runs_again_writes_again_to_its_folder(sc: Any, tmp_path: Path) -> None:
    """Spark: SPARK-4835, for what batches save and nobody else."""
    path = str(tmp_path / "out")
    with batches(sc) as run:
        run.ssc.queueStream([["1"], ["2"]]).foreachRDD(lambda rdd: rdd.saveAsTextFile(path))
        run.run(2)
        assert run.ssc.statistics().failed_batches == 0
    assert sc.textFile(path).collect() == ["2"]
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        sc.parallelize(["3"]).saveAsTextFile(path)


def test_a_function_of_transform_that_runs_again_writes_again_to_its_folder(
    sc: Any, tmp_path: Path
) -> None:
    """Spark: "recovery with saveAsHadoopFile inside transform operation"."""
    path = str(tmp_path / "out")

    def save(rdd: Any) -> Any:
        rdd.saveAsTextFile(path)
        return rdd

    with batches(sc) as run:
        found = run.collect(run.ssc.queueStream([["1"], ["2"]]).transform(save))
        run.run(2)
        assert run.ssc.statistics().failed_batches == 0
    assert found == [["1"], ["2"]]
    assert sc.textFile(path).collect() == ["2"]


def test_a_prefix_must_be_text(sc: Any) -> None:
    with batches(sc) as run, pytest.raises(TypeError, match="prefix must be a str, not NoneType"):
        run.ssc.queueStream([]).saveAsObjectFiles(None)  # type: ignore[arg-type]  # shown here
