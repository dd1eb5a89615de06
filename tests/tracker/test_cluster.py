"""What is asked of Spark before receivers start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark import StorageLevel

from penstock.tracker import ExecutorLocation, SparkCluster
from tests.tracker.tracker_cases import Events, Source, ThreadCluster, make_tracker


class Up(SparkCluster):
    """A cluster with executors that are up, and what its jobs are described as."""

    def __init__(self, executors: int) -> None:
        self.up = [ExecutorLocation(f"host-{number}", str(number)) for number in range(executors)]
        self.jobs: list[str] = []
        super().__init__(self)  # type: ignore[arg-type]  # In place of the Spark context.

    master = "spark://driver:7077"
    _jvm = _jsc = property(lambda self: self)
    java = util = Collections = property(lambda self: self)

    def executors(self) -> list[ExecutorLocation]:
        return self.up

    def setJobDescription(self, text: str) -> None:
        self.jobs.append(text)

    def setLocalProperty(self, *_: Any) -> None:
        pass

    def __getattr__(self, _: str) -> Any:
        return lambda *_: self


@pytest.mark.parametrize(
    ("executors", "tasks", "jobs"), [(0, 0, 1), (1, 1, 0), (2, 1, 0), (7, 8, 1), (8, 8, 0)]
)
def test_executors_get_time_to_come_up_where_not_each_task_can_have_its_own(
    executors: int, tasks: int, jobs: int
) -> None:
    cluster = Up(executors)
    cluster.wait_for_executors(tasks)
    assert cluster.jobs == ["Streaming job waiting for executors"] * jobs


@pytest.mark.parametrize(("replication", "enough"), [(1, 2), (2, 3)])
def test_second_copies_need_an_executor_more_than_receivers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replication: int, enough: int
) -> None:
    cluster = ThreadCluster(is_local=False)
    asked: list[int] = []
    monkeypatch.setattr(cluster, "wait_for_executors", asked.append)
    sources = {number: (Source(), f"Source {number}") for number in range(2)}
    for source, _ in sources.values():
        source.storageLevel = StorageLevel(True, True, False, False, replication)
    tracker = make_tracker(tmp_path, cluster, Events(), receivers=dict(sources))
    tracker.start()
    for _ in sources:
        cluster.next_attempt().finish()
    tracker.stop()
    cluster.close()
    assert asked == [enough]
