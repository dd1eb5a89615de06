"""The whole path with encrypted connections."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from tests.system.feeder import Feeder
from tests.system.receivers import NumberedLines
from tests.system.running import WAIT_S, run_on


@pytest.mark.slow
@pytest.mark.parametrize("key", ["spark.penstock.tls.enabled", "spark.network.crypto.enabled"])
def test_records_reach_their_batches_inside_tls(sc: Any, tmp_path: Path, key: str) -> None:
    with Feeder() as feeder, run_on(sc, {key: "true"}, checkpoint=str(tmp_path)) as run:
        run.process(NumberedLines(feeder.address, positions=True))
        run.start()
        feeder.await_acknowledged(10_000)
        engine = run.ssc._engine
        assert engine is not None
        tracker = engine._receivers.hosted.tracker
        assert tracker is not None
        with socket.create_connection(tracker._link.tracker, WAIT_S) as stranger:
            stranger.settimeout(WAIT_S)
            stranger.sendall(b"no TLS" * 100)
            assert b"PENSTOCK" not in stranger.recv(1000)
        run.stop()
        assert run.processed == list(range(len(run.processed)))
        assert len(run.processed) >= feeder.acknowledged
