"""What a receiver's code raises: where it is told, and when it is enough."""

from __future__ import annotations

import importlib
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from penstock.errors import IllegalStateError
from penstock.receiver import Receiver, ReceiverContext, receiver
from penstock.receiver.attempts.attempt_state import Failures
from penstock.receiver.exit_report import described
from penstock.receiver.splits import PositionError
from penstock.wire.messages import RegisterReceiver, ReportError, StopReceiver
from tests.doubles import UntoldError
from tests.receiver.conftest import SETTINGS
from tests.receiver.running import Running, Shared, Tracker

Run = Callable[..., Running]


class InOnStart(Receiver):
    error: BaseException = OSError("gone")

    def onStart(self) -> None:
        raise self.error

    def onStop(self) -> None: ...


class InThread(InOnStart):
    def onStart(self) -> None:
        threading.Thread(target=self.receive).start()

    def receive(self) -> None:
        raise self.error


class InRun:
    def run(self, context: ReceiverContext) -> None:
        raise InOnStart.error


def in_generator(context: ReceiverContext) -> Iterator[str]:
    raise InOnStart.error
    yield ""


async def in_async_generator(context: ReceiverContext) -> AsyncIterator[str]:
    raise InOnStart.error
    yield ""


FORMS = [InOnStart(), InThread(), InRun(), in_generator, in_async_generator]


@pytest.mark.parametrize("form", FORMS)
def test_what_a_receiver_raises_is_told_as_an_error_whatever_its_form(
    run: Run, tracker: Tracker, form: Any
) -> None:
    running = run(form)
    tracker.wait_for_count(ReportError, 1)
    report = tracker.of(ReportError)[0]
    assert "OSError: gone (" in report.message
    assert "test_failures.py" in report.message
    assert "Traceback" in report.error
    assert not report.permanent
    tracker.send(StopReceiver())
    running.join()


@pytest.mark.parametrize("error", [ValueError("\ud800"), UntoldError("404")])
@pytest.mark.parametrize("form", FORMS[1:])  # of `onStart` another attempt
def test_an_error_that_cannot_be_shown_is_told_and_the_receiver_started_again(
    run: Run, tracker: Tracker, monkeypatch: pytest.MonkeyPatch, form: Any, error: Exception
) -> None:
    monkeypatch.setattr(InOnStart, "error", error)
    running = run(form)
    tracker.wait_for_count(RegisterReceiver, 2)
    report = tracker.of(ReportError)[0]
    assert f"{type(error).__name__}: " in report.message
    assert not report.permanent
    assert len({each.attempt for each in tracker.of(RegisterReceiver)}) == 1, "in the same process"
    tracker.send(StopReceiver())
    running.join()


@pytest.mark.parametrize("form", FORMS)
def test_a_mistake_in_the_program_ends_it_at_once(
    run: Run, tracker: Tracker, monkeypatch: pytest.MonkeyPatch, form: Any
) -> None:
    monkeypatch.setattr(InOnStart, "error", NameError("name 'jsn' is not defined"))
    assert run(form).join() is None, "no other attempt is started"
    tracker.wait_for_count(ReportError, 1)
    (report,) = tracker.of(ReportError)
    assert report.permanent
    assert "NameError: name 'jsn' is not defined (" in report.message
    assert len(tracker.of(RegisterReceiver)) == 1


def test_an_error_that_comes_again_without_a_record_in_between_ends_the_receiver(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    def parse(context: ReceiverContext) -> Iterator[str]:
        shared.say("start")
        count = shared.events.count("start")
        if count <= 4:
            yield "a record"
        raise ValueError("cannot parse this")

    settings = replace(SETTINGS, receiver_max_failures=3, receiver_restart_delay_ms=1)
    assert run(parse, settings=settings).join() is None
    tracker.wait_for(lambda: any(each.permanent for each in tracker.of(ReportError)))
    assert shared.events.count("start") == 6, "the fourth and two that stored nothing"
    last = tracker.of(ReportError)[-1]
    assert last.permanent
    assert "ValueError: cannot parse this (" in last.message
    assert "3 times in a row" in last.message


def test_the_pause_doubles_up_to_a_bound_and_begins_anew_after_a_record() -> None:
    failures = Failures(100, 1000)
    pauses = []
    for _ in range(6):
        failures.note(ValueError("x"), 7)
        pauses.append(failures.delay_ms(100))
    assert pauses == [100, 200, 400, 800, 1000, 1000]
    failures.note(ValueError("x"), 8)
    assert failures.delay_ms(100) == 100
    assert failures.delay_ms(5000) == 5000, "never shorter than asked for"


def test_a_refused_position_is_enough_the_second_time() -> None:
    failures = Failures(10, 1000)
    error = PositionError("c is none of its splits", {"c": 1})
    failures.note(error, 0)
    assert not failures.is_enough(error, is_new=True), "others may go on with the next"
    failures.note(error, 0)
    assert failures.is_enough(error, is_new=True)


def test_what_an_async_generator_yields_and_cannot_be_sent_is_named(
    run: Run, tracker: Tracker
) -> None:
    async def source(context: ReceiverContext) -> AsyncIterator[Any]:
        yield [1, threading.Lock()]

    run(source).join()
    (report,) = tracker.of(ReportError)
    assert "RecordPickleError: a record of type list cannot be pickled" in report.message


def test_a_source_that_is_away_is_tried_for_ever() -> None:
    failures = Failures(2, 1000)
    for _ in range(10):
        error = ConnectionRefusedError("no broker")
        failures.note(error, 0)
        assert not failures.is_enough(error, is_new=True)
        assert failures.delay_ms(100) == 100
    # A bug after that is the first one.
    bug = ValueError("x")
    failures.note(bug, 0)
    assert failures.count == 1
    assert not failures.is_enough(bug, is_new=True)


def test_an_error_is_described_by_where_it_came_from_in_the_code_of_its_author() -> None:
    with pytest.raises(IllegalStateError) as raised:
        Receiver().store("x")
    assert "test_failures.py" in described(raised.value)
    assert described(KeyError()) == "KeyError"


def test_an_error_of_a_library_is_described_by_the_line_that_called_it() -> None:
    with pytest.raises(ValueError, match="Expecting value") as raised:
        json.loads("no JSON")
    assert f"({__file__}:" in described(raised.value)
    with pytest.raises(ModuleNotFoundError) as not_found:
        importlib.import_module("no_such_module")
    assert f"({__file__}:" in described(not_found.value)
    # Where nothing else is known.
    raised.value.__traceback__ = raised.tb.tb_next
    assert "decoder.py:" in described(raised.value)


def test_the_traceback_of_an_error_begins_with_the_code_of_the_author(
    run: Run, tracker: Tracker
) -> None:
    def source(context: ReceiverContext) -> Iterator[str]:
        yield json.loads("no JSON")

    run(source, settings=replace(SETTINGS, receiver_max_failures=1)).join()
    first, second = tracker.of(ReportError)[0].error.splitlines()[:2]
    assert first == "Traceback (most recent call last):"
    assert f'File "{__file__}"' in second
    assert second.endswith(" in source")


def test_a_stop_iteration_in_a_generator_is_described_by_its_own_place() -> None:
    def stops() -> Iterator[int]:
        raise StopIteration
        yield 1

    with pytest.raises(RuntimeError) as raised:
        deque(stops())
    # As where a generator is read by code of Penstock alone.
    raised.value.__traceback__ = None
    assert f"({__file__}:" in described(raised.value)
    assert described(raised.value).endswith(" in stops)")


@pytest.mark.parametrize("position", ["x" * 70_000, {1, 2}, 0, float("nan")])
def test_a_position_that_is_refused_again_ends_the_receiver_for_good(
    run: Run, tracker: Tracker, shared: Shared, position: Any
) -> None:
    """A source that begins after its last position gives it each time (once, it may be chance)."""

    @receiver(positions=True)
    def source(context: ReceiverContext) -> Iterator[tuple[str, Any]]:
        shared.say("start")
        if context.last_position is None:
            yield "a", 1
        yield "b", position

    settings = replace(SETTINGS, receiver_restart_delay_ms=1)
    assert run(source, settings=settings).join() is None
    tracker.wait_for(lambda: any(each.permanent for each in tracker.of(ReportError)))
    assert shared.events.count("start") <= 3
    last = tracker.of(ReportError)[-1]
    assert last.permanent
    assert "position" in last.message
    assert tracker.records() == ["a"]
    assert tracker.last_position() == 1
