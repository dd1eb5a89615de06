"""``penstock consumers``, over the ledger of a host that has stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.__main__ import main
from penstock.host.durability import LEDGER
from penstock.tracker import ReceivedBlockTracker
from penstock.wire.messages import Ok
from tests.tracker.ledger_cases import LOG_OPTIONS, add, attempt_name, block


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    ledger = ReceivedBlockTracker.recover((), str(tmp_path / LEDGER), options=LOG_OPTIONS)
    ledger.register_streams({"clicks": 0}, are_kept=True)
    name = attempt_name(1)
    first = ledger.register_attempt(0, name, "host").first_block_number
    assert add(ledger, 0, name, [block(0, name, first + n) for n in range(4)]) == Ok()
    ledger.places.commit(0, "report-1", 3)
    ledger.places.hold(0, "new-2", 0)
    ledger.close()
    return tmp_path


def test_it_shows_who_reads_and_how_far(directory: Path, capsys: Any) -> None:
    assert main(["consumers", str(directory)]) == 0
    shown = capsys.readouterr().out
    assert "clicks: places 0 to 4" in shown
    assert "report-1: place 3, 10 records behind" in shown
    assert "new-2: place 0, 40 records behind" in shown
    assert shown.count("no batch yet") == 1


def test_who_is_dropped_is_gone_for_good(directory: Path, capsys: Any) -> None:
    assert main(["consumers", str(directory), "--drop", "new-2"]) == 0
    assert "new-2" not in capsys.readouterr().out
    assert main(["consumers", str(directory), "--drop", "new-2"]) == 1
    assert "no consumer new-2" in capsys.readouterr().err


def test_the_folder_of_a_streaming_context_is_told_to_be_none(tmp_path: Path, capsys: Any) -> None:
    ledger = ReceivedBlockTracker.recover((), str(tmp_path / LEDGER), options=LOG_OPTIONS)
    ledger.register_streams({"clicks": 0})
    ledger.close()
    assert main(["consumers", str(tmp_path)]) == 2
    assert f"no stream of a ReceiverHost in {tmp_path}" in capsys.readouterr().err


def test_a_folder_without_a_ledger_is_said_to_be_none(tmp_path: Path, capsys: Any) -> None:
    assert main(["consumers", str(tmp_path)]) == 2
    assert "no ledger" in capsys.readouterr().err
    assert main(["consumers", str(tmp_path / "none")]) == 2
    assert f"no such folder: {tmp_path}/none" in capsys.readouterr().err


def test_the_directory_of_a_running_host_is_left_alone(directory: Path, capsys: Any) -> None:
    ledger = ReceivedBlockTracker.recover((), str(directory / LEDGER), options=LOG_OPTIONS)
    assert main(["consumers", str(directory)]) == 2
    ledger.close()
    assert capsys.readouterr().err
