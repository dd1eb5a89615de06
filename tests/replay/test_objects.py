"""``penstock replay`` of records that are Python objects: dicts, rows, and plain values."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyspark.sql import Row

from penstock.__main__ import main
from penstock.blockstore.building.record_pickles import (
    ProgramObjectError,
    pickle_record,
    plain_record,
)
from tests.replay.stored import Stored


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[Stored]:
    made = Stored(tmp_path)
    yield made
    made.close()


def replayed(stored: Stored, capsys: Any, *arguments: str) -> tuple[int, list[Any], str]:
    code = main(["replay", str(stored.folder), "--stream", "0", *arguments])
    shown = capsys.readouterr()
    return code, [json.loads(line) for line in shown.out.splitlines()], shown.err


def test_dicts_rows_and_plain_values_are_an_object_a_line(stored: Stored, capsys: Any) -> None:
    stored.put_objects({"n": 1, "tags": {"a"}}, Row(n=2, of=Row(m=3)), (4, "pair"), None, 5)
    stored.put(b"six")
    stored.put_rows(pa.record_batch({"m": [7]}))
    stored.put_objects({"at": datetime(2026, 1, 2), "rows": [Row(n=8)]}, {1: "a", b"k": b"\xff"})
    code, found, _ = replayed(stored, capsys)
    assert code == 0
    assert found == [
        {"n": 1, "tags": ["a"]},
        {"n": 2, "of": {"m": 3}},
        {"value": [4, "pair"]},
        {"value": None},
        {"value": 5},
        {"value": "six"},
        {"m": 7},
        {"at": "2026-01-02T00:00:00", "rows": [{"n": 8}]},
        {"1": "a", "k": {"base64": "/w=="}},
    ]


def test_text_and_numbers_that_json_has_not_are_kept(stored: Stored, capsys: Any) -> None:
    stored.put_objects({"text": "\ud800é", "n": float("nan"), "big": 1 << 70})
    assert replayed(stored, capsys)[:2] == (
        0,
        [{"text": "\ud800é", "n": "NaN", "big": 1 << 70}],
    )


@pytest.mark.parametrize("kind", ["same names", "itself"])
def test_what_json_cannot_have_is_told(stored: Stored, kind: str, capsys: Any) -> None:
    record: dict[Any, Any] = {1: "a", "1": "b"}
    if kind == "itself":
        record["1"] = record
        del record[1]
    stored.put_objects(record)
    code, found, told = replayed(stored, capsys)
    assert (code, found) == (2, [])
    assert ("the same as text" if kind == "same names" else "holds itself") in told


class OfTheProgram:
    def __reduce__(self) -> Any:
        return os.system, ("touch was-run",)


def test_objects_of_a_program_are_named_and_not_loaded(
    stored: Stored, capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    stored.put_objects({"n": 1}, {"n": OfTheProgram()})
    output = tmp_path / "out.json"
    code, _, told = replayed(stored, capsys, "--output", str(output))
    assert code == 2
    assert "an object of posix.system, which is not loaded here" in told
    assert "penstock.replay.read_rdd reads it in a program" in told
    assert not output.exists()
    assert not Path("was-run").exists()


def test_a_stream_of_dicts_is_written_by_the_command(stored: Stored, tmp_path: Path) -> None:
    stored.put_objects(*({"n": n} for n in range(900)))
    stored.put_objects(*({"n": n} for n in range(900, 1500)))
    output = tmp_path / "out.json"
    command = [sys.executable, "-m", "penstock", "replay", str(stored.folder), "--stream", "clicks"]
    subprocess.run([*command, "--output", str(output)], check=True)
    lines = output.read_text().splitlines()
    assert [json.loads(line)["n"] for line in lines] == list(range(1500))


@pytest.mark.parametrize(
    "value",
    [
        [1, 2.5, True, None, "a", b"b", 1 + 2j],
        {"set": {1}, "frozen": frozenset({1}), "bytes": bytearray(b"a")},
        OrderedDict(a=1),
        (date(2026, 1, 2), timedelta(1), Decimal("1.5"), uuid.UUID(int=1)),
        datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=2))),
        datetime(2026, 1, 2, tzinfo=ZoneInfo("Europe/Berlin")),
        Row(a=1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_plain_values_are_loaded_as_they_were(value: Any) -> None:
    assert plain_record(pickle_record(value)) == value


@pytest.mark.parametrize("value", [eval, {}.get, OfTheProgram(), pytest.raises, type])
def test_anything_else_is_not_loaded(value: Any) -> None:
    with pytest.raises(ProgramObjectError):
        plain_record(pickle_record(value))
