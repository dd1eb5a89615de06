"""Exactly once over SIGKILLs of tasks, receivers, executors and the driver, at any moment."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.bounds import HANG_S
from tests.continuous.kafka_topic import values
from tests.continuous.program import KEYS, OTHERS, STORED, STREAMS, TOPICS, WIDE, WINDOW_MS
from tests.programs import kill_one
from tests.services.kafka import Kafka
from tests.services.ports import free_ports
from tests.services.postgres import PostgresServer, postgres_server
from tests.sources.kafka.conftest import own, started
from tests.system.driver_process import DriverProcess

__all__ = ["own", "started"]

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


def rows_of(folder: Path) -> list[list[dict[str, int]]]:
    """Return what each part has, in the order of its epochs."""
    parts: dict[str, list[dict[str, int]]] = {}
    for path in sorted(folder.glob("part-*.parquet")):
        parts.setdefault(path.stem[-4:], []).extend(pq.ParquetFile(str(path)).read().to_pylist())
    return list(parts.values())


def in_files(folder: Path) -> list[list[int]]:
    return [[row["n"] for row in part] for part in rows_of(folder / "files")]


def by_key(folder: Path) -> list[list[int]]:
    """Return the numbers; -1 for one that was counted wrongly."""
    return [
        [row["n"] if row["count"] == row["n"] // KEYS + 1 else -1 for row in part]
        for part in rows_of(folder / "state")
    ]


def in_database(folder: Path) -> list[list[int]]:
    # A commit holds it for as long as the disk takes.
    with sqlite3.connect(folder / "numbers.db", timeout=HANG_S) as connection:
        return [[n for (n,) in connection.execute("SELECT n FROM numbers ORDER BY rowid")]]


def in_function(folder: Path) -> list[list[int]]:
    files = sorted((folder / "function").glob("*.json"))
    return [[n for path in files for n in json.loads(path.read_text())]]


def found(folder: Path) -> dict[str, list[list[int]]]:
    parts = (in_files(folder), in_database(folder), in_function(folder), by_key(folder))
    return dict(zip(STREAMS, parts, strict=True))


def victims_of(driver: DriverProcess, kind: str, folder: Path) -> list[int]:
    running = driver.processes()
    if kind == "receiver":
        pids = [path.read_text() for path in folder.glob("receiver-*")]
        return [int(pid) for pid in pids if pid and int(pid) in running]
    word = {"worker": "pyspark/daemon", "executor": "CoarseGrainedExecutorBackend"}[kind]
    return [pid for pid, command in running.items() if word in command.replace(".", "/")]


@pytest.mark.parametrize(
    ("seed", "master", "runs"),
    [
        (1, "local[12]", 2),
        pytest.param(2, "local-cluster[2,6,1024]", 5, marks=pytest.mark.exhaustive),
        pytest.param(3, "local[12]", 5, marks=pytest.mark.exhaustive),
        pytest.param(4, "local-cluster[2,6,1024]", 5, marks=pytest.mark.exhaustive),
    ],
)
def test_every_sink_is_exact_and_in_order_whatever_is_killed(
    tmp_path: Path, seed: int, master: str, runs: int
) -> None:
    make_table(tmp_path)
    kill(tmp_path, seed, master, runs, lambda: found(tmp_path), {"stored": STORED})


@pytest.mark.parametrize(
    ("seed", "master", "runs"),
    [
        # The next test kills a host, and the first one all else.
        pytest.param(11, "local[12]", 1, marks=pytest.mark.exhaustive),
        pytest.param(12, "local-cluster[2,6,1024]", 5, marks=pytest.mark.exhaustive),
        pytest.param(13, "local[12]", 5, marks=pytest.mark.exhaustive),
    ],
)
def test_every_sink_of_a_host_is_exact_and_in_order_whatever_is_killed(
    tmp_path: Path, seed: int, master: str, runs: int
) -> None:
    make_table(tmp_path)
    more = {"host": True, "stored": STORED}
    kill(tmp_path, seed, master, runs, lambda: found(tmp_path), more)


@pytest.mark.parametrize("seed", [14, pytest.param(15, marks=pytest.mark.exhaustive)])
def test_a_query_and_a_function_of_one_stream_are_exact_when_their_host_is_killed(
    tmp_path: Path, seed: int
) -> None:
    """At any moment once both have some, as a query needs seconds to begin."""
    make_table(tmp_path)

    def both() -> dict[str, list[list[int]]]:
        return {"database": in_database(tmp_path), "query": in_query(tmp_path)}

    more = {"host": True, "query": True, "kills": 0.0, "block_s": 0.6}
    kill(tmp_path, seed, "local[4]", 2, both, more, kinds=(), at_steps=False)


def make_table(folder: Path) -> None:
    with sqlite3.connect(folder / "numbers.db") as connection:
        connection.execute("CREATE TABLE numbers (n INTEGER)")


def in_query(folder: Path) -> list[list[int]]:
    """Return what the query's batches have that Spark's sink has committed."""
    logs = (folder / "query" / "_spark_metadata").glob("[0-9]*")
    paths = {json.loads(line)["path"] for log in logs for line in log.read_text().splitlines()[1:]}
    tables = [pq.ParquetFile(path.removeprefix("file://")).read() for path in paths]
    return [sorted(int(value) for table in tables for value in table.column(0).to_pylist())]


@pytest.mark.parametrize(
    ("seed", "master", "runs"),
    [
        # `test_kafka_sink` kills at each step.
        pytest.param(5, "local[7]", 1, marks=pytest.mark.exhaustive),
        pytest.param(7, "local[7]", 5, marks=pytest.mark.exhaustive),
        pytest.param(6, "local-cluster[2,4,1024]", 5, marks=pytest.mark.exhaustive),
    ],
)
def test_kafka_is_exact_and_in_order_whatever_is_killed(
    tmp_path: Path, started: Kafka, seed: int, master: str, runs: int
) -> None:
    topics = {name: started.create_topic() for name in TOPICS}
    more = {"kafka": started.address, **topics}

    def in_kafka() -> dict[str, list[list[int]]]:
        return {name: [values(started.address, topic)] for name, topic in topics.items()}

    kill(tmp_path, seed, master, runs, in_kafka, more)


@pytest.mark.parametrize(
    ("seed", "master", "runs", "more"),
    [
        # The first test kills the same steps, and `test_sinks` writes all formats.
        pytest.param(16, "local[13]", 2, {}, marks=pytest.mark.exhaustive),
        pytest.param(17, "local-cluster[2,7,1024]", 5, {}, marks=pytest.mark.exhaustive),
        pytest.param(18, "local[13]", 5, {"host": True}, marks=pytest.mark.exhaustive),
    ],
)
def test_other_files_postgresql_and_another_stream_are_exact_whatever_is_killed(
    tmp_path: Path, seed: int, master: str, runs: int, more: dict[str, Any]
) -> None:
    make_table(tmp_path)
    with postgres_server() as server:
        with server.connect() as connection:
            connection.execute("CREATE TABLE numbers (id bigserial, n bigint)")
        more = {"postgres": server.conninfo(), "port": free_ports(1)[0], **more}
        kill(tmp_path, seed, master, runs, lambda: in_others(tmp_path, server), more)


def in_others(folder: Path, server: PostgresServer) -> dict[str, list[list[int]]]:
    """Return what those have that write with PostgreSQL."""
    arrow: dict[str, list[int]] = {}
    for path in sorted((folder / "arrow").glob("part-*.arrow")):
        with pa.ipc.open_file(str(path)) as reader:
            arrow.setdefault(path.stem[-4:], []).extend(reader.read_all()["n"].to_pylist())
    files = sorted((folder / "jsonl").glob("part-*.jsonl"))
    lines = [json.loads(line)["n"] for path in files for line in path.read_text().splitlines()]
    with server.connect() as connection:
        rows = connection.execute("SELECT n FROM numbers ORDER BY id").fetchall()
    parts = (list(arrow.values()), [lines], [[n for (n,) in rows]], in_database(folder))
    return dict(zip(OTHERS, parts, strict=True))


@pytest.mark.parametrize(
    ("seed", "master", "runs"),
    [
        # `test_timers_model` computes epochs again, and the first test here kills.
        pytest.param(8, "local[4]", 2, marks=pytest.mark.exhaustive),
        pytest.param(9, "local[4]", 5, marks=pytest.mark.exhaustive),
        pytest.param(10, "local-cluster[2,2,1024]", 5, marks=pytest.mark.exhaustive),
    ],
)
def test_windows_and_sessions_are_exact_whatever_is_killed(
    tmp_path: Path, seed: int, master: str, runs: int
) -> None:
    """Sessions are by processing time: how many they are depends, and not how many are in them."""
    count = 6_000 * runs

    def windows() -> dict[str, list[list[int]]]:
        parts = rows_of(tmp_path / "timers")
        full = WINDOW_MS // KEYS
        found = [
            [row["n"] if row["count"] == full else -1 for row in part if row["n"] >= 0]
            for part in parts
        ]
        # It ends when the last session is over, too, in which is the record behind all windows.
        if sum(row["count"] for part in parts for row in part if row["n"] < 0) <= count:
            found = [part[:-1] for part in found]
        return {"windows": found}

    kill(tmp_path, seed, master, runs, windows, {"timers": True, "kills": 0.03})
    rows = [row for part in rows_of(tmp_path / "timers") for row in part if row["n"] < 0]
    assert sum(row["count"] for row in rows) == count + 1
    assert all(row["count"] > 0 for row in rows)


def kill(
    tmp_path: Path,
    seed: int,
    master: str,
    runs: int,
    found: Callable[[], dict[str, list[list[int]]]],
    more: dict[str, Any],
    kinds: Sequence[str] = ("worker", "receiver"),
    at_steps: bool = True,
) -> None:
    """Run the program so often, kill what is of it, and compare what is found with what was given.

    Args:
        tmp_path: A folder of the test's.
        seed: Of all choices.
        master: Where it runs.
        runs: How often the driver is killed.
        found: Returns what is there by stream and part.
        more: What the program is told beside.
        kinds: Which processes are killed beside the driver.
        at_steps: Whether the driver may kill itself around what it logs.
    """

    def totals() -> dict[str, int]:
        return {name: sum(map(len, parts)) for name, parts in found().items()}

    chance = random.Random(seed)
    count = 6_000 * runs
    if master.startswith("local-cluster"):
        kinds = (*kinds, "executor")
    config: dict[str, Any] = {
        "folder": str(tmp_path),
        "master": master,
        "count": count,
        "block_s": 0.1,
        "seed": seed,
        "kills": 0.01,
        **more,
    }
    moments = [
        ["log_epoch", chance.randint(5, 60), True],
        ["log_epoch", chance.randint(5, 60), False],
        ["commit", 1, False],
        None,
        None,
    ]
    killed: Counter[str] = Counter()
    for number, moment in enumerate(moments[:runs]):
        moment = moment if at_steps else None
        run = {**config, "driver_at": moment, "parallelism": 2 + number % 2, "seed": seed + number}
        with DriverProcess(tmp_path, run, module="tests.continuous.program") as driver:
            driver.wait_for("started")
            # Not all at the start, which is slow on a machine that has other things to do.
            before, end_s = totals(), time.monotonic() + 60
            while driver.process.poll() is None and time.monotonic() < end_s:
                if all(total > before[name] for name, total in totals().items()):
                    break
                time.sleep(0.2)
            # Beside the driver something is killed every second or two, where anything is.
            end_s = time.monotonic() + (chance.uniform(8, 15) if kinds else chance.uniform(0, 4))
            while time.monotonic() < end_s and driver.process.poll() is None:
                time.sleep(chance.uniform(0.5, 2))
                if not kinds:
                    continue
                kind = chance.choice(kinds)
                killed[kind] += kill_one(victims_of(driver, kind, tmp_path), chance)
            assert driver.process.poll() in (None, -signal.SIGKILL), driver.report()
            driver.kill_group()
            killed["driver"] += 1
        print(f"run {number}: {moment}, {totals()}")
    last = {**config, "kills": 0.0, "block_s": 0.01, "parallelism": 2}
    with DriverProcess(tmp_path, last, module="tests.continuous.program") as driver:
        driver.wait_for("started")
        end_s = time.monotonic() + 2 * HANG_S  # It starts first.
        while min(totals().values()) < count:
            assert driver.process.poll() is None, driver.report()
            assert time.monotonic() < end_s, f"{totals()} {driver.report()}"
            time.sleep(0.5)
        driver.stop()
    tally = tmp_path / "kills"
    killed.update(tally.read_text().splitlines() if tally.exists() else ())
    print(f"{killed.total()} kills: {dict(killed)}")
    for name, parts in found().items():
        everything = sorted(n for part in parts for n in part)
        assert everything == list(range(count)), name
        if name not in WIDE:
            if name != "windows":  # Of one time, those of several keys.
                assert [sorted(part) for part in parts] == parts, name
            assert len(parts) == (2 if name in ("state", "windows") else 1), name
