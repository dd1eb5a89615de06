"""The whole path with what is on disk encrypted: SIGKILLs lose nothing, and nothing is in clear."""

from __future__ import annotations

import base64
import os
import shlex
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.blockstore.building.memory import ArenaError
from penstock.errors import PenstockError
from penstock.streaming import StreamingContext
from penstock.wal import (
    KEY_COMMAND_VARIABLE,
    KEY_VARIABLE,
    EncryptionKey,
    EncryptionMismatchError,
    check,
)
from tests.system.driver_process import DriverProcess
from tests.system.feeder import Feeder
from tests.system.leftovers import await_that, block_servers, memory_files
from tests.system.receivers import NumberedLines
from tests.system.running import run_on
from tests.system.soak import Soak

LOGGED = "in an allocation, logged and not applied"
ON = {"spark.io.encryption.enabled": "true"}
KEY = EncryptionKey.generate()
TEXT = base64.b64encode(KEY.secret).decode()
FORMS = (KEY.secret, TEXT.encode(), KEY.secret.hex().encode(), repr(KEY.secret)[2:-1].encode())
"""How the key might be found where it must not be."""


def contents(folder: Path) -> dict[str, bytes]:
    found = {}
    for path in folder.rglob("*"):
        # What is released goes meanwhile.
        with suppress(FileNotFoundError):
            # Who tried to take a lock last stands in it.
            if path.is_file() and path.name != "LOCK":
                found[str(path)] = path.read_bytes()
    return found


def assert_nowhere(found: dict[str, bytes], *texts: bytes) -> None:
    assert [
        (where, text) for where, content in found.items() for text in texts if text in content
    ] == []


def some() -> Iterator[int]:
    yield 1


@pytest.fixture
def key_command(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A command that prints the key, which lies in memory."""
    with tempfile.NamedTemporaryFile(dir="/dev/shm", mode="w") as file:
        file.write(TEXT)
        file.flush()
        command = f"cat {shlex.quote(file.name)}"
        monkeypatch.delenv(KEY_VARIABLE, raising=False)
        monkeypatch.setenv(KEY_COMMAND_VARIABLE, command)
        yield command


@pytest.mark.long
@pytest.mark.slow
def test_a_killed_receiver_and_lost_memory_lose_nothing(
    sc: Any, tmp_path: Path, key_command: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "penstock")
    with Feeder() as feeder, run_on(sc, ON, checkpoint=str(tmp_path)) as run:
        run.process(NumberedLines(feeder.address, positions=True))
        run.start()
        pid = feeder.await_connection(1)
        feeder.await_acknowledged(5000)
        os.kill(pid, signal.SIGKILL)
        # Its blocks are now in its log only.
        for name in memory_files(run.application_id):
            with suppress(FileNotFoundError):
                os.unlink(f"/dev/shm/{name}")
        feeder.await_connection(2)
        feeder.await_acknowledged(5000)
        await_that("a block server", lambda: block_servers(run.application_id))
        [server] = block_servers(run.application_id)
        environment = {str(server): Path(f"/proc/{server}/environ").read_bytes()}
        assert_nowhere(environment, *FORMS, KEY_COMMAND_VARIABLE.encode())
        written = contents(tmp_path)
        total = feeder.finish()
        run.stop()
        assert run.processed == list(range(total))
        engine = run.ssc._engine
        assert engine is not None
        tracker = engine._receivers.hosted.tracker
        assert tracker is not None
        shown = {"log": caplog.text.encode(), "repr": repr(tracker.block_access).encode()}
    assert_nowhere(shown, *FORMS)
    written |= contents(tmp_path)
    # Lines of the blocks, paths in the ledger, settings in the checkpoints.
    lines = b"%099d\n" % 1000
    assert_nowhere(written, lines, b"receivedData", b"spark.app.name", *FORMS)
    assert {"receivedData", "receivedBlockMetadata"} <= {
        Path(path).relative_to(tmp_path).parts[0] for path in written
    }


# Receivers are killed above, and drivers without encryption in `test_recovered_driver`.
@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("moments", [(LOGGED,), (LOGGED, "while it runs")], ids=len)
def test_results_are_exact_when_the_driver_is_killed(
    tmp_path: Path,
    key_command: str,
    monkeypatch: pytest.MonkeyPatch,
    moments: tuple[str, ...],
) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "")  # The soak sets it.
    seen: dict[str, bytes] = {}
    stop = DriverProcess.stop

    def look_and_stop(driver: DriverProcess) -> None:
        for pid in driver.processes():
            with suppress(OSError):
                seen[f"environment of {pid}"] = Path(f"/proc/{pid}/environ").read_bytes()
                seen[f"arguments of {pid}"] = Path(f"/proc/{pid}/cmdline").read_bytes()
        stop(driver)

    monkeypatch.setattr(DriverProcess, "stop", look_and_stop)
    soak = Soak(tmp_path, seed=1, latest_occasion=4, settings=ON)
    soak.run(len(moments), moments)
    assert soak.conf["spark.io.encryption.enabled"] == "true"
    # All has run by now: driver, JVM, Python's workers, block server.
    assert any(
        b"penstock.blockstore.server.block_server" in arguments for arguments in seen.values()
    )
    checkpoint = tmp_path / "checkpoint"
    saved = [path for path in contents(checkpoint) if "/rdd-" in path and "/part-" in path]
    assert saved
    # The words of the states, the numbers of the blocks, the settings and functions of the graph.
    texts = (b"question", b"%099d\n" % 100, b"spark.app.name", b"tests.system.recoverable")
    assert_nowhere(contents(checkpoint), *texts)
    # The key is in nothing that any of the drivers wrote or showed.
    assert_nowhere({**contents(tmp_path), **seen}, *FORMS)
    # And without it, the logs can be looked after.
    report = check(str(checkpoint / "receivedBlockMetadata"))
    assert report.damages == ()
    assert {segment.key_id for segment in report.segments} == {KEY.key_id}


@pytest.mark.long
def test_a_program_whose_files_outlive_it_needs_a_key(
    sc: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    monkeypatch.delenv(KEY_COMMAND_VARIABLE, raising=False)
    with run_on(sc, ON, checkpoint=str(tmp_path)) as run:
        run.process(some)
        with pytest.raises(PenstockError, match=KEY_VARIABLE):
            run.start()
    with run_on(sc, {**ON, "spark.penstock.memory.dir": "/proc"}) as run:
        run.process(some)
        with pytest.raises(ArenaError, match="not in memory"):
            run.start()


@pytest.mark.long
@pytest.mark.slow
def test_a_program_whose_files_go_with_it_needs_none(
    sc: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    monkeypatch.delenv(KEY_COMMAND_VARIABLE, raising=False)
    with Feeder() as feeder, run_on(sc, ON) as run:
        run.process(NumberedLines(feeder.address))
        run.start()
        feeder.await_acknowledged(2000)
        engine = run.ssc._engine
        assert engine is not None
        assert engine._durability.scratch is not None
        written = contents(Path(engine._durability.scratch))
        assert len(written) > 1
        assert_nowhere(written, b"%099d\n" % 100, b"receivedData")
        total = feeder.finish()
        run.stop()
        assert run.processed == list(range(total))


@pytest.mark.long
@pytest.mark.slow
def test_what_another_run_wrote_needs_its_key_and_stays_as_it_was(
    sc: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEY_COMMAND_VARIABLE, raising=False)
    monkeypatch.setenv(KEY_VARIABLE, TEXT)
    checkpoint = str(tmp_path)

    def never() -> StreamingContext:
        raise AssertionError("there is a checkpoint")

    with Feeder() as feeder, run_on(sc, ON, checkpoint=checkpoint) as run:
        run.process(NumberedLines(feeder.address, positions=True))
        run.start()
        feeder.await_acknowledged(1000)
        run.stop()
    before = contents(tmp_path)
    other = base64.b64encode(EncryptionKey.generate().secret).decode()
    for values, text, error in (
        (ON, other, EncryptionMismatchError),
        ({}, other, EncryptionMismatchError),
        ({}, "", EncryptionMismatchError),
    ):
        monkeypatch.setenv(KEY_VARIABLE, text)
        with run_on(sc, values, checkpoint=checkpoint) as run:
            run.process(some)
            with pytest.raises(error):
                run.start()
            with pytest.raises(error):
                StreamingContext.getOrCreate(checkpoint, never)
    # The segments that these starts began hold nothing, and do no harm.
    after = contents(tmp_path)
    assert {path: after[path] for path in before} == before
    monkeypatch.setenv(KEY_VARIABLE, TEXT)
    with Feeder() as feeder, run_on(sc, ON, checkpoint=checkpoint) as run:
        run.process(NumberedLines(feeder.address))
        run.start()
        feeder.await_acknowledged(1000)
        run.stop()
