"""The commands on each of the three object stores, each as a process of its own."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from penstock.dead_letters import DeadLetterPlace, DeadLetterWriter
from tests.programs import run_to_end
from tests.replay.stored import Stored
from tests.services.object_stores import MOSTLY_S3, make_server

pytestmark = [pytest.mark.slow, pytest.mark.long]


def command(*arguments: str, code: int = 0) -> str:
    found = run_to_end("-m", "penstock", *arguments, code=code)
    return found.stdout + found.stderr


@pytest.mark.parametrize("kind", MOSTLY_S3)
def test_the_commands_take_these_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    server = make_server(kind, tmp_path / "store")
    server.start()
    try:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        address = f"{server.authority}/app"
        _use(tmp_path, address)
        # Of receivers that share a log.
        (tmp_path / "shared").mkdir()
        _use(tmp_path / "shared", f"{server.authority}/shared", "process-1")
        told = command("doctor", "--folder", f"{address}/new")
        assert "can be written to" in told
        for name, value in server.of_a_stranger().items():
            monkeypatch.setenv(name, value)
        assert "credentials" in command("doctor", "--folder", f"{address}/new", code=1)
    finally:
        server.stop()


def _use(folder: Path, address: str, log: str = "") -> None:
    stored = Stored(folder, address, log)
    for number in range(9):
        stored.put(*(b"%d" % n for n in range(number * 10, number * 10 + 10)))
    # While it is written.
    assert _replayed(address) == [str(n) for n in range(90)]
    stored.close()
    place = DeadLetterPlace(f"{address}/deadLetters", 0, "a" * 32, "Gauge", "here")
    writer = DeadLetterWriter(place, tell=lambda message, error: None)
    writer.add(b"bad", ValueError("no number"), "bad")
    assert writer.write()
    writer.close()
    assert "no number" in command("dead-letters", address, "list")
    logs = [line.split(": ") for line in command("wal", "ls", address).splitlines()]
    assert len(logs) == 3
    assert logs[0][0] == f"{address}/receivedBlockMetadata"
    assert all(re.fullmatch(r"1 segment, [1-9]\d+ bytes", told) for _, told in logs), logs
    found = command("wal", "check", address, code=2).partition("below it are ")[2].split(",")[0]
    assert found.startswith(f"{address}/")
    command("wal", "check", found)
    command("wal", "dump", found)
    command("wal", "repair", found)
    (blocks,) = [found for found, _ in logs if "/receivedData/" in found]
    assert os.path.basename(blocks).startswith(log or "0-")
    assert " 9 records, sequences 1 to 9" in command("wal", "check", blocks)
    assert len(command("wal", "dump", blocks).splitlines()) == 9
    assert "nothing to repair" in command("wal", "repair", blocks)
    assert _replayed(address) == [str(n) for n in range(90)]


def _replayed(address: str) -> list[Any]:
    lines = command("replay", address, "--stream", "clicks").splitlines()
    return [json.loads(line)["value"] for line in lines]
