"""The receivers that hold cores of an application."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.errors import IllegalStateError, PenstockError
from penstock.host import receivers
from penstock.host.durability import choose_durability
from penstock.host.preparation import Run
from penstock.host.receivers import HostedReceivers
from penstock.settings import Settings
from penstock.wire.messages import RestartReceiver, SealBlock
from tests.tracker.tracker_cases import Events, ThreadCluster, make_tracker


def test_a_receiver_holds_a_core_from_the_start_until_it_has_ended_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = ThreadCluster()
    tracker = make_tracker(tmp_path, cluster, Events())
    monkeypatch.setattr(receivers, "ReceiverTracker", lambda *_, **__: tracker)
    application: Any = SimpleNamespace(master="local[2]")
    settings = Settings()
    run = Run("run", choose_durability(settings, None, "run", str(tmp_path)), settings)
    nothing: Any = object()
    hosted = HostedReceivers(application, {}, run, nothing, events=Events(), readings=nothing)
    assert HostedReceivers.running_in(application) == 0
    meanwhile: list[int] = []
    monkeypatch.setattr(
        cluster,
        "wait_for_executors",
        lambda _: meanwhile.append(HostedReceivers.running_in(application)),
    )
    tracker.start()
    assert meanwhile == [1]
    # Whether or not its job has been submitted by now.
    assert HostedReceivers.running_in(application) == 1
    assert HostedReceivers.running_in(nothing) == 0
    for _ in range(3):
        attempt = cluster.next_attempt()
        attempt.register()
        attempt.fail()
        assert HostedReceivers.running_in(application) == 1
    attempt = cluster.next_attempt()
    attempt.register()
    attempt.deregister("the source has ended")
    attempt.finish()
    assert cluster.ended_for_good()
    assert HostedReceivers.running_in(application) == 0
    hosted.stop(0.0)
    cluster.close()


def test_what_is_asked_of_a_receiver_that_does_not_run_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = ThreadCluster()
    tracker = make_tracker(tmp_path, cluster, Events())
    monkeypatch.setattr(receivers, "ReceiverTracker", lambda *_, **__: tracker)
    settings = Settings()
    run = Run("run", choose_durability(settings, None, "run", str(tmp_path)), settings)
    nothing: Any = object()
    application: Any = SimpleNamespace(master="local[2]")
    hosted = HostedReceivers(application, {}, run, nothing, events=Events(), readings=nothing)
    tracker.start()
    attempt = cluster.next_attempt()
    with pytest.raises(IllegalStateError, match="receiver of stream 0 does not run now"):
        hosted.seal(0)
    with pytest.raises(
        PenstockError, match="0 was not sent its dead letters: its receiver does not run now"
    ):
        hosted.send_letters(0, [(("log", 1), b"key")], False)
    attempt.register()
    hosted.seal(0)
    hosted.restart(0, "it was asked for")
    asked = [attempt.next_message(), attempt.next_message()]
    assert asked == [SealBlock(), RestartReceiver("it was asked for")]
    hosted.stop(0.0)
    cluster.close()
