"""Garbage is collected after an allocation, not amid it."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Iterator

import pytest

from penstock.tracker._collection import collect_later
from tests.bounds import HANG_S


@pytest.fixture(autouse=True)
def often() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(10, 1, 1)
    yield
    gc.enable()
    gc.set_threshold(*before)


def collections_while_objects_are_made() -> int:
    before = sum(each["collections"] for each in gc.get_stats())
    kept = [[number] for number in range(1000)]
    assert len(kept) == 1000
    return sum(each["collections"] for each in gc.get_stats()) - before


def test_no_thread_collects_meanwhile_and_all_do_after_also_when_it_fails() -> None:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(collections_while_objects_are_made()))
    with contextlib.suppress(ValueError), collect_later(), collect_later():
        thread.start()
        thread.join(HANG_S)
        assert [*found, collections_while_objects_are_made()] == [0, 0]
        raise ValueError("it fails")
    assert collections_while_objects_are_made() > 0


def test_a_program_that_collects_by_itself_goes_on_to_do_so() -> None:
    gc.disable()
    with collect_later():
        pass
    assert not gc.isenabled()


def test_a_process_that_is_forked_meanwhile_collects() -> None:
    with collect_later():
        child = os.fork()
        if not child:
            os._exit(0 if collections_while_objects_are_made() else 1)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
