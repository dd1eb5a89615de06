"""Lines that repeat: shown once, counted, and shown again in a while."""

from __future__ import annotations

import logging

import pytest

from penstock.runtime.clock import ManualClock
from penstock.runtime.rate_limited_log import RateLimitedLog
from tests.programs import run_to_end


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def limited_log(clock):
    return RateLimitedLog(logging.getLogger("penstock.test"), clock)


def test_a_line_that_repeats_is_shown_again_after_a_minute_with_how_often_it_came(
    limited_log, clock, caplog
):
    for _ in range(13):
        limited_log.log("no server")
        clock.advance(5_000)
    assert caplog.messages == ["no server", "no server … 12 times in the last minute"]


def test_lines_that_differ_in_numbers_only_are_alike(limited_log, caplog):
    limited_log.log("restarting in 2000 ms")
    limited_log.log("restarting in 4000 ms")
    limited_log.log("gave up after 4000 ms")
    assert caplog.messages == ["restarting in 2000 ms", "gave up after 4000 ms"]


def test_lines_that_differ_in_an_id_only_are_alike(limited_log, caplog):
    for attempt in ("3a566385b2794848a7964312101a0451", "ae30df0e937c4e659bccfd5812c1f0f4"):
        limited_log.log(f"no space in /data/0-{attempt}")
    assert caplog.messages == ["no space in /data/0-3a566385b2794848a7964312101a0451"]


def test_lines_about_two_streams_are_not_alike(limited_log, caplog):
    for _ in range(2):
        for stream in (0, 1):
            limited_log.log(f"receiver {stream}: no server", about=stream)
    assert caplog.messages == ["receiver 0: no server", "receiver 1: no server"]


def test_the_traceback_is_in_the_log_the_first_time(limited_log, clock, caplog):
    for _ in range(2):
        limited_log.log("it failed", error=ValueError("x"))
        limited_log.log("it failed there", trace="Traceback (most recent call last):\n…\n")
        clock.advance(60_000)
    assert [bool(record.exc_info) for record in caplog.records] == [True, False, False, False]
    assert caplog.messages[1::2] == [
        "it failed there\nTraceback (most recent call last):\n…",
        "it failed there",
    ]


def test_warnings_reach_the_terminal_of_a_program_that_sets_up_no_logging_and_infos_do_not():
    program = (
        "import logging, penstock\n"
        "logging.getLogger('penstock.tracker').warning('receiver 0 is away')\n"
        "logging.getLogger('penstock.tracker').info('receiver 0 is back')\n"
    )
    assert run_to_end("-c", program).stderr == "receiver 0 is away\n"
