"""`StopSignals`: signals are real, the end of the process is not."""

from __future__ import annotations

import os
import signal

import pytest

from penstock.host import interrupts
from penstock.host.interrupts import StopSignals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_asks_to_stop_and_only_one_that_comes_later_ends_the_process(
    number: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    before = signal.getsignal(number)
    with StopSignals("some command: ") as signals:
        assert not signals.is_asked
        assert not signals.wait(0)
        signal.raise_signal(number)
        # A terminal sends it to the whole group, and some launchers send it on.
        signal.raise_signal(number)
        assert signals.is_asked
        assert signals.wait(0)
        assert signals.wait(0)
        assert ended == []
        monkeypatch.setattr(interrupts, "SAME_SIGNAL_S", 0)
        signal.raise_signal(number)
        assert ended == [128 + number]
    assert "some command: " in capfd.readouterr().err
    assert signal.getsignal(number) is before
