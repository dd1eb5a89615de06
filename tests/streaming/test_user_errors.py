"""Errors of the program's own functions: its frames, and neither PySpark's nor Java's."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

from penstock.user_errors import FailedTaskError, as_user_sees_it, place_of, worker_error


def parse(record: str) -> int:
    return int(record)


def test_an_error_of_a_task_is_its_own_error_with_the_frames_of_the_program(sc: Any) -> None:
    def show() -> None:
        sc.parallelize(["1", "x"], 1).map(parse).collect()

    with pytest.raises(Exception, match="invalid literal") as raised:
        show()
    seen = as_user_sees_it(raised.value)
    assert isinstance(seen, FailedTaskError)
    assert seen.what == "ValueError: invalid literal for int() with base 10: 'x'"
    assert "in parse\n    return int(record)" in seen.frames
    assert "worker.py" not in seen.frames
    assert place_of(seen).endswith("in parse)")
    shown = "".join(traceback.format_exception(seen))
    assert "\tat " not in shown
    assert "in show" in shown
    assert "/pyspark/" not in shown


def test_of_the_text_of_a_failed_job_the_last_traceback_counts() -> None:
    text = (
        "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
        ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed, most "
        "recent failure: org.apache.spark.api.python.PythonException: "
        "Traceback (most recent call last):\n"
        '  File "/opt/spark/python/lib/pyspark.zip/pyspark/worker.py", line 1247, in main\n'
        "    process()\n"
        '  File "/home/me/program.py", line 7, in parse\n'
        "    return int(record)\n"
        "           ^^^^^^^^^^^\n"
        "ValueError: a text\nof two lines\n"
        " SQLSTATE: 38000\n"
        "\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:581)\n"
        "\tat java.base/java.lang.Thread.run(Thread.java:840)\n"
        "\n"
        "Driver stacktrace:\n"
        "\tat org.apache.spark.scheduler.DAGScheduler.abort(DAGScheduler.scala:2844)\n"
    )
    found = worker_error(text)
    assert found is not None
    assert found[0] == "ValueError: a text\nof two lines"
    assert found[1] == (
        '  File "/home/me/program.py", line 7, in parse\n'
        "    return int(record)\n"
        "           ^^^^^^^^^^^\n"
    )
    assert worker_error("[TABLE_OR_VIEW_NOT_FOUND] there is none") is None


def test_an_error_of_a_function_of_the_driver_is_told_with_its_place() -> None:
    with pytest.raises(ValueError, match="invalid") as raised:
        parse("x")
    seen = as_user_sees_it(raised.value)
    assert seen is raised.value
    assert place_of(seen).endswith("in parse)")
