"""A sink that keeps its promise passes the crash test, and one that does not is shown."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.streaming import DatabaseSink, FileSink, FunctionSink, Sink, SinkError
from penstock.testing import SINK_CRASH_POINTS, ClaimNotHeldError, sink_crash_test
from tests.services.postgres import postgres_server

pytestmark = pytest.mark.slow


def lines(folder: Path) -> list[int]:
    files = [path for path in folder.iterdir() if not path.name.startswith(".")]
    return [json.loads(line)["n"] for path in files for line in path.read_text().splitlines()]


@pytest.mark.long
@pytest.mark.parametrize("kills", [12, pytest.param(30, marks=pytest.mark.exhaustive)])
def test_files_hold(tmp_path: Path, kills: int) -> None:
    sink = FileSink(tmp_path, "jsonl")
    report = sink_crash_test(sink, lambda: lines(tmp_path), kills=kills, seed=1)
    assert sum(report.kills.values()) == kills
    assert set(report.kills) <= set(SINK_CRASH_POINTS)
    assert len(report.kills) > 4
    assert report.late > 0
    assert report.records > 100


@pytest.mark.exhaustive  # The next test does it with a server.
def test_a_database_holds(tmp_path: Path) -> None:
    path = tmp_path / "numbers.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE numbers (n INTEGER)")

    def read() -> list[int]:
        with sqlite3.connect(path) as connection:
            return [n for (n,) in connection.execute("SELECT n FROM numbers")]

    sink = DatabaseSink(lambda: sqlite3.connect(path), "INSERT INTO numbers VALUES (?)")
    sink_crash_test(sink, read, kills=15, seed=2)


@pytest.mark.long
def test_a_database_server_holds_and_one_that_commits_each_statement_is_refused() -> None:
    psycopg = pytest.importorskip("psycopg")
    with postgres_server() as server:
        where = server.conninfo()

        def read() -> list[int]:
            with psycopg.connect(where) as connection:
                return [n for (n,) in connection.execute("SELECT n FROM numbers")]

        insert = "INSERT INTO numbers VALUES (%s)"
        with psycopg.connect(where) as connection:
            connection.execute("CREATE TABLE numbers (n BIGINT)")
        sink_crash_test(
            DatabaseSink(lambda: psycopg.connect(where), insert), read, kills=15, seed=2
        )
        committing = DatabaseSink(lambda: psycopg.connect(where, autocommit=True), insert)
        with pytest.raises(SinkError, match="without autocommit"):
            committing.open(32 * "0", 0)
        committing.close()


def test_a_function_that_remembers_the_name_holds(tmp_path: Path) -> None:
    def write(epoch: Any, table: Any) -> None:
        unnamed = tmp_path / f".{epoch.name}.{epoch.attempt}"
        unnamed.write_text("".join(json.dumps({"n": n}) + "\n" for n in table["n"].to_pylist()))
        unnamed.rename(tmp_path / epoch.name)

    sink_crash_test(FunctionSink(write), lambda: lines(tmp_path), kills=8, seed=3)


class Wrong(Sink):
    """Writes a file for each part, in a wrong way."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, batches: Any) -> None:
        with open(self.folder / name, "a") as file:
            file.writelines(json.dumps(row) + "\n" for b in batches for row in b.to_pylist())


class Appends(Wrong):
    def commit(self, epoch: Any, batches: Any) -> None:
        self.write("all", batches)


class ForgetsTheSource(Wrong):
    def commit(self, epoch: Any, batches: Any) -> None:
        name = f"{epoch.number}"
        if not (self.folder / name).exists():
            self.write(f".{name}.{epoch.attempt}", batches)
            (self.folder / f".{name}.{epoch.attempt}").rename(self.folder / name)


class ShowsWhatIsPrepared(Wrong):
    def prepare(self, epoch: Any, batches: Any) -> None:
        self.write(f"{epoch.name}-{epoch.attempt}", batches)

    def commit(self, epoch: Any, batches: Any) -> None:
        pass


@pytest.mark.parametrize(
    "make",
    [
        Appends,
        pytest.param(ForgetsTheSource, marks=pytest.mark.exhaustive),
        pytest.param(ShowsWhatIsPrepared, marks=pytest.mark.exhaustive),
    ],
)
def test_one_that_is_wrong_is_shown(tmp_path: Path, make: Callable[[Path], Sink]) -> None:
    with pytest.raises(ClaimNotHeldError, match="'exactly once' does not hold") as raised:
        sink_crash_test(make(tmp_path), lambda: lines(tmp_path), kills=8, seed=4)
    assert raised.value.missing or raised.value.doubled
    assert raised.value.kills
