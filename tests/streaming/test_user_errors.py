"""Errors of the program's own functions: its frames, and neither PySpark's nor Java's."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

from penstock.streaming.user_errors import FailedTaskError, as_user_sees_it, place_of


def parse(record: str) -> int:
    return int(record)


def test_an_error_of_a_task_is_its_own_error_with_the_frames_of_the_program(sc: Any) -> None:
    def show() -> None:
        sc.parallelize(["1", "x"], 1).map(parse).collect()

    with pytest.raises(Exception, match="Job aborted") as raised:
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


def test_an_error_of_a_function_of_the_driver_is_told_with_its_place() -> None:
    with pytest.raises(ValueError, match="invalid") as raised:
        parse("x")
    seen = as_user_sees_it(raised.value)
    assert seen is raised.value
    assert place_of(seen).endswith("in parse)")
