"""A context that has stopped leaves nothing: no thread, process, shared memory, folder."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from penstock.tracker.errors import ReceiverPickleError
from penstock.wire.errors import WireError
from tests.system.feeder import Feeder
from tests.system.leftovers import (
    assert_nothing_left,
    await_that,
    block_servers,
    memory_files,
    scratch_folders,
    threads,
)
from tests.system.receivers import NumberedLines
from tests.system.running import Run, run_on, settings

pytestmark = pytest.mark.slow


@pytest.mark.long
@pytest.mark.parametrize("graceful", [True, False], ids=["graceful", "at once"])
@pytest.mark.parametrize("durable", [False, True], ids=["scratch", "checkpoint"])
def test_a_stopped_context_leaves_only_the_logs_that_were_asked_for(
    sc: Any, tmp_path: Path, graceful: bool, durable: bool
) -> None:
    with Feeder() as feeder, settings(sc, {}):
        before = threads()
        run = Run(sc)
        if durable:
            run.ssc.checkpoint(str(tmp_path))
        run.process(NumberedLines(feeder.address))
        run.start()
        feeder.await_acknowledged(1000)
        # An attempt that was killed leaves files that nobody but others can remove.
        os.kill(feeder.pids[0], signal.SIGKILL)
        feeder.await_connection(2)
        feeder.await_acknowledged(1000)
        await_that("a block server", lambda: block_servers(run.application_id))
        assert threads() - before
        assert memory_files(run.application_id)
        assert len(scratch_folders(run.application_id)) == (0 if durable else 1)
        run.stop(graceful=graceful)
        assert_nothing_left(run.application_id, before)
        left = {path.name for path in tmp_path.iterdir() if path.name.startswith(("rec", "block"))}
        assert left == ({"receivedData", "receivedBlockMetadata"} if durable else set())


def test_a_context_that_stops_before_its_block_server_is_up_leaves_nothing(sc: Any) -> None:
    with Feeder() as feeder, settings(sc, {}):
        before = threads()
        run = Run(sc)
        run.process(NumberedLines(feeder.address))
        run.start()
        feeder.await_connection(1)
        run.stop()
        assert_nothing_left(run.application_id, before)


class _Changed:
    """Can be pickled when a stream is made of it, and not any more when it is to be sent."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.is_to_fail = False

    def run(self, ctx: Any) -> None:
        ctx.stopped.wait()

    def __getstate__(self) -> dict[str, Any]:
        if self.is_to_fail:
            raise self.error
        return {}


@pytest.mark.parametrize("error", [ValueError("not any more"), KeyboardInterrupt()])
def test_a_start_that_fails_at_the_last_step_leaves_nothing(sc: Any, error: BaseException) -> None:
    receiver = _Changed(error)
    before = threads()
    with run_on(sc) as run:
        run.process(receiver)
        receiver.is_to_fail = True
        with pytest.raises((ReceiverPickleError, KeyboardInterrupt)):
            run.start()
        assert_nothing_left(run.application_id, before)


def test_a_start_that_finds_its_port_taken_leaves_nothing(sc: Any) -> None:
    before = threads()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with run_on(sc, {"spark.penstock.tracker.port": port, "spark.port.maxRetries": "0"}) as run:
            run.process(_Changed(ValueError()))
            with pytest.raises(WireError):
                run.start()
            assert_nothing_left(run.application_id, before)
