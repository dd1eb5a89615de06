"""Which Python the executors run, and what is said when it cannot run the program."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.host.spark.executor_python import _answers
from penstock.streaming import ExecutorPythonError, StreamingContext


@pytest.fixture(autouse=True)
def as_before(sc: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sc, "pythonExec", sc.pythonExec)


def program(sc: Any) -> StreamingContext:
    ssc = StreamingContext(sc, 1)
    ssc.queueStream([[1]]).foreachRDD(lambda rdd: None)
    return ssc


def test_with_a_local_master_the_drivers_own_python_is_used(
    sc: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON")
    sc.pythonExec = "python3"
    StreamingContext(sc, 1)
    assert sc.parallelize([0], 1).map(lambda _: sys.executable).collect() == [sys.executable]


def test_a_python_that_was_asked_for_is_kept(sc: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python3")
    sc.pythonExec = "/opt/python3"
    StreamingContext(sc, 1)
    assert sc.pythonExec == "/opt/python3"


def test_a_python_without_the_packages_is_told_in_three_lines_before_anything_starts(
    sc: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sc.environment, "PYTHONPATH", "")
    python = tmp_path / "python"
    # Neither site-packages nor PYTHONPATH nor this folder.
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    python.chmod(0o755)
    ssc = program(sc)
    sc.pythonExec = str(python)
    with pytest.raises(ExecutorPythonError) as caught:
        ssc.start()
    first, second, third = str(caught.value).splitlines()
    assert ", Python " in first
    assert "penstock" in second
    assert "pyarrow; numpy; msgspec; limits; crc32c" in second
    assert "unset PYSPARK_PYTHON" in third
    assert sys.executable in third
    assert StreamingContext.getActive() is None


def test_a_python_that_is_not_there_is_told_without_a_job_that_fails(sc: Any) -> None:
    ssc = program(sc)
    before = set(sc.statusTracker().getJobIdsForGroup())
    sc.pythonExec = "/nowhere/python3"
    with pytest.raises(ExecutorPythonError, match="/nowhere/python3: not found"):
        ssc.start()
    asked = set(sc.statusTracker().getJobIdsForGroup()) - before
    jobs = [sc.statusTracker().getJobInfo(job) for job in asked]
    assert "FAILED" not in [job.status for job in jobs if job]


def test_a_python_that_is_missing_on_one_host_only_is_told() -> None:
    there = 'penstock-python:{"host": "worker-1"}'
    missing = ["/bin/sh: 1: /opt/python3: not found", " (/opt/python3 ended with code 127)"]
    assert _answers([there, there], 2, "/opt/python3", "") == [{"host": "worker-1"}] * 2
    with pytest.raises(ExecutorPythonError) as caught:
        _answers([there, *missing, there], 3, "/opt/python3", "install it")
    (lack,) = caught.value.lacks
    assert lack == f"it cannot be run on hosts other than worker-1: {missing[0]}{missing[1]}"
