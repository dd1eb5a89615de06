"""The state by key of one part: what it has after which epoch, whatever was killed."""

from __future__ import annotations

import os
import pickle
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.continuous import KeyedState, StateError, StatePlace
from penstock.continuous import state as state_module
from penstock.continuous.state import rows_of_part
from tests.bounds import HANG_S


def opened(folder: Path, number: int = -1, end: int = 0, attempt: str = "a") -> KeyedState:
    place = StatePlace(str(folder / "states" / "0.sqlite"), "key", "none")
    place.claim(attempt)
    return KeyedState(place, attempt, number, end)


@pytest.fixture(params=[None, 1000, 0], ids=["in memory", "grows out of it", "in its file"])
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param is not None:
        monkeypatch.setattr(state_module, "_MOST_BYTES", request.param)


@pytest.mark.usefixtures("size")
def test_it_is_a_mapping_of_integers_text_and_bytes(tmp_path: Path) -> None:
    state = opened(tmp_path)
    state.update({1: "one", "1": [1], b"1": {"n": None}, -(1 << 63): 0})
    assert dict(state) == {1: "one", "1": [1], b"1": {"n": None}, -(1 << 63): 0}
    state.save(0, 5)
    del state[1]
    state["new"] = 2
    assert len(state) == 4
    assert 1 not in state
    assert state.get(1, "none") == "none"
    assert sorted(map(str, state)) == sorted(map(str, ["new", "1", b"1", -(1 << 63)]))
    with pytest.raises(KeyError):
        del state[1]
    with pytest.raises(KeyError):
        state[2]


def test_no_other_user_reads_it(tmp_path: Path) -> None:
    opened(tmp_path)
    assert (tmp_path / "states").stat().st_mode & 0o777 == 0o700


@pytest.mark.usefixtures("size")
def test_a_value_that_is_read_is_a_copy(tmp_path: Path) -> None:
    state = opened(tmp_path)
    given = [1]
    state["k"] = given
    given.append(2)
    state["k"].append(3)
    assert state["k"] == [1]
    state.save(0, 1)
    state["k"].append(3)
    assert state["k"] == [1]


@pytest.mark.parametrize("key", [None, True, 1.0, date(2026, 1, 1), (1,)])
def test_other_keys_are_refused(tmp_path: Path, key: Any) -> None:
    state = opened(tmp_path)
    state[1] = 1
    for use in (lambda: state[key], lambda: state.__setitem__(key, 1), lambda: key in state):
        with pytest.raises(TypeError, match="a key of a state is an int, str or bytes"):
            use()
    for beyond in (1 << 63, -(1 << 63) - 1):
        with pytest.raises(ValueError, match=r"from -2\*\*63 to 2\*\*63 - 1"):
            state[beyond] = 1
    with pytest.raises(ValueError, match="surrogates"):
        state["\ud800"] = 1
    state.save(0, 1)
    assert dict(state) == {1: 1}


def test_an_iteration_keeps_no_other_attempt_from_the_state(tmp_path: Path) -> None:
    state = opened(tmp_path)
    state.update(dict.fromkeys(range(5000), 0))
    state.save(0, 1)
    keys = iter(state)
    next(keys)
    assert len(opened(tmp_path, 0, 1, attempt="b")) == 5000
    assert len(list(keys)) == 4999


@pytest.mark.parametrize("value", [threading.Lock(), lambda: 1, {"made": [lambda: 1]}])
def test_a_value_that_cannot_be_kept_is_refused_with_its_key(tmp_path: Path, value: Any) -> None:
    state = opened(tmp_path)
    state["k"] = 1
    says = f"the state of key 'k' cannot be a {type(value).__name__}: .*ickle.* plain pickle"
    with pytest.raises(TypeError, match=says):
        state["k"] = value
    assert state["k"] == 1


@pytest.mark.usefixtures("size")
def test_all_keys_are_removed_at_once(tmp_path: Path) -> None:
    state = opened(tmp_path)
    state.update(dict.fromkeys(range(100), 0))
    state.save(0, 1)
    state["new"] = 1
    del state[0]
    asked: list[str] = []
    state._database.set_trace_callback(asked.append)
    state.clear()
    assert len(asked) <= 1
    assert dict(state) == {}
    state[1] = 1
    state.save(1, 2)
    assert dict(state) == {1: 1}


@pytest.mark.usefixtures("size")
def test_an_attempt_begins_after_the_last_epoch_or_the_one_before(tmp_path: Path) -> None:
    state = opened(tmp_path)
    state.update(a=1, b=1)
    state.save(0, 10)
    state["a"] = 2
    del state["b"]
    state["c"] = 2
    state.save(1, 20)
    state["a"] = 3  # It is not saved.
    state.close()
    assert dict(opened(tmp_path, 1, 20)) == {"a": 2, "c": 2}
    assert dict(opened(tmp_path, 0, 10)) == {"a": 1, "b": 1}
    again = opened(tmp_path, 0, 10)
    again["d"] = 4
    again.save(1, 25)
    assert dict(opened(tmp_path, 1, 25)) == {"a": 1, "b": 1, "d": 4}


@pytest.mark.parametrize(("number", "end"), [(0, 5), (3, 30), (1, 21), (-1, 0)])
def test_an_epoch_that_is_not_there_is_an_error_for_good(
    tmp_path: Path, number: int, end: int
) -> None:
    if (number, end) != (0, 5):
        state = opened(tmp_path)
        state.save(0, 10)
        state.save(1, 20)
        state.close()
    with pytest.raises(StateError, match=f"the state after epoch {number} is not in") as caught:
        opened(tmp_path, number, end)
    assert caught.value.is_permanent


def test_an_attempt_that_was_replaced_changes_nothing(tmp_path: Path) -> None:
    old = opened(tmp_path, attempt="old")
    old["k"] = "old"
    late = StatePlace(str(tmp_path / "states" / "0.sqlite"), "key")
    late.claim("late")  # The driver gives it blocks, and then it waits.
    new = opened(tmp_path, attempt="new")
    with pytest.raises(StateError, match="another attempt of the task has the state") as caught:
        old.save(0, 10)
    assert not caught.value.is_permanent
    new["k"] = "new"
    new.save(0, 10)
    with pytest.raises(StateError, match="another attempt"):
        old.save(1, 20)
    with pytest.raises(StateError, match="another attempt"):
        KeyedState(late, "late", -1, 0)
    new["k"] = "newer"
    new.save(1, 20)
    late.claim("later")  # The driver refuses it, and the newest ends.
    with pytest.raises(StateError, match="another attempt"):
        new.save(2, 30)
    assert dict(opened(tmp_path, 1, 20)) == {"k": "newer"}


@pytest.mark.usefixtures("size")
def test_at_each_epoch_it_has_what_a_dictionary_would_have(tmp_path: Path) -> None:
    chance = random.Random(5)
    model: dict[Any, int] = {}
    before: dict[Any, int] = {}
    number = -1
    state = opened(tmp_path)
    undone = 0
    for _ in range(300):
        next_one = dict(model)
        for _ in range(chance.choice([0, 1, 5, 250])):
            key = chance.choice([str, int, lambda n: b"%d" % n])(chance.randrange(300))
            assert state.get(key) == next_one.get(key)
            if chance.random() < 0.4 and key in next_one:
                del state[key], next_one[key]
            else:
                state[key] = next_one[key] = chance.randrange(1000)
        is_saved = chance.random() < 0.9
        if is_saved:
            number += 1
            state.save(number, number)
            model, before = next_one, model
        if not is_saved or chance.random() < 0.2:
            state.close()
            if number > 0 and chance.random() < 0.5:
                number, model, undone = number - 1, before, undone + 1
            state = opened(tmp_path, number, number if number >= 0 else 0)
            assert dict(state) == model
            # The epoch before this one is not known any more: it is committed.
            number += 1
            state.save(number, number)
            before = model
    assert undone > 10


def test_a_file_of_an_earlier_version_is_an_error_for_good(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with sqlite3.connect(tmp_path / "states" / "0.sqlite") as database:
        database.execute("CREATE TABLE before (key, value)")
    with pytest.raises(StateError, match="earlier development version") as caught:
        opened(tmp_path)
    assert caught.value.is_permanent


@pytest.mark.parametrize(("table", "most"), [("undo", 0), ("log", 1 << 30)])
def test_large_values_are_in_several_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, most: int
) -> None:
    """All of an epoch in one would be more than SQLite takes, however often it is tried."""
    monkeypatch.setattr(state_module, "_MOST_BYTES", most)
    state = opened(tmp_path)
    for number in range(2):
        state.update(dict.fromkeys(range(5), bytes([number]) * 600_000))
        state.save(number, number)
    lengths = state._database.execute(f"SELECT length(changes) FROM {table}").fetchall()
    assert [length // 600_000 for (length,) in lengths[-5:]] == [1] * 5
    state.close()
    assert dict(opened(tmp_path, 0, 0)) == dict.fromkeys(range(5), bytes(600_000))


def test_all_of_it_is_in_memory_until_it_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {number: number for number in range(2500)}
    state = opened(tmp_path)
    state.update(given)
    state.save(0, 10)
    state.close()
    state = opened(tmp_path, 0, 10)
    assert state._known is not None
    assert {key: state[key] for key in given} == given
    monkeypatch.setattr(state_module, "_MOST_BYTES", 1000)
    state["k"] = 1
    state.save(1, 20)
    assert state._known is None
    assert {key: state[key] for key in given} == given


def test_a_state_that_stays_small_stays_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = opened(tmp_path)
    monkeypatch.setattr(state_module, "_MOST_BYTES", 1000)
    for number in range(10):
        for key in range(4):
            state[number % 2 * 4 + key] = number
            if number:
                del state[(number - 1) % 2 * 4 + key]
        state.save(number, number)
        assert state._known is not None


def test_of_two_copies_of_an_attempt_one_writes_an_epoch(tmp_path: Path) -> None:
    """Spark itself may start a task again whose executor it takes for lost."""
    one = opened(tmp_path)
    two = KeyedState(one._place, "a", -1, 0)
    one["k"] = "one"
    one.save(0, 10)
    two["k"] = "two"
    for number in (0, 2):
        with pytest.raises(StateError, match="another attempt"):
            two.save(number, 10)
    assert dict(opened(tmp_path, 0, 10)) == {"k": "one"}


def test_it_waits_for_one_that_is_writing(tmp_path: Path) -> None:
    state = opened(tmp_path)
    writer = sqlite3.connect(state._place.path, check_same_thread=False, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    end = threading.Timer(0.2, writer.execute, ["COMMIT"])
    end.start()
    state.save(0, 10)
    end.join()
    writer.close()


def test_its_folders_are_forced_to_disk_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced: list[str] = []
    sync = os.fsync

    def kept(fd: int) -> None:
        forced.append(os.readlink(f"/proc/self/fd/{fd}"))
        sync(fd)

    monkeypatch.setattr(os, "fsync", kept)
    opened(tmp_path / "log").close()
    assert {str(tmp_path), str(tmp_path / "log")} <= set(forced)


@pytest.mark.parametrize(("sync", "synchronous"), [("none", 0), ("interval", 1), ("always", 2)])
def test_it_is_forced_to_disk_as_the_logs_are(tmp_path: Path, sync: str, synchronous: int) -> None:
    with closing(StatePlace(str(tmp_path / "0.sqlite"), "key", sync).connect()) as database:
        assert database.execute("PRAGMA synchronous").fetchone() == (synchronous,)
        # Other hosts may have mounted the folder, and a crash leaves no half.
        assert database.execute("PRAGMA journal_mode").fetchone() == ("truncate",)


def test_an_epoch_writes_what_was_changed_in_it(tmp_path: Path) -> None:
    state = opened(tmp_path)
    state["k"] = 1
    state.save(0, 10)
    written: list[str] = []
    state._database.set_trace_callback(written.append)
    state.save(1, 20)
    assert not [statement for statement in written if "INSERT" in statement]
    state.close()
    with pytest.raises(StateError, match=r"cannot be written: .*closed"):
        state.save(2, 30)


@pytest.mark.usefixtures("size")
def test_what_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    state = opened(tmp_path)
    state.save(0, 10)
    state._database.execute("PRAGMA max_page_count = 1")
    state.update({number: os.urandom(5000) for number in range(100)})
    with pytest.raises(StateError, match=r"cannot be written: .*full") as caught:
        state.save(1, 20)
    assert not caught.value.is_permanent
    state.close()
    assert dict(opened(tmp_path, 0, 10)) == {}


@pytest.mark.parametrize(
    ("table", "most", "when"),
    [("state", 0, "NEW.key = 'c'"), ("log", 1 << 30, "(SELECT count(*) FROM log) > 2")],
)
def test_an_epoch_that_fails_in_the_midst_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, most: int, when: str
) -> None:
    monkeypatch.setattr(state_module, "_MOST_BYTES", most)
    monkeypatch.setattr(state_module, "_ROW_BYTES", 1)
    state = opened(tmp_path)
    state["a"] = 1
    state.save(0, 10)
    state._database.execute(
        f"CREATE TEMP TRIGGER broken BEFORE INSERT ON {table} WHEN {when} "
        "BEGIN SELECT RAISE(FAIL, 'it is broken'); END"
    )
    state.update(a=2, b=2, c=2)
    with pytest.raises(StateError, match="cannot be written: it is broken"):
        state.save(1, 20)
    state.close()
    with pytest.raises(StateError, match="after epoch 1 is not in"):
        opened(tmp_path, 1, 20)
    assert dict(opened(tmp_path, 0, 10)) == {"a": 1}


def test_a_damaged_state_is_an_error_for_good_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "_MOST_BYTES", 0)
    state = opened(tmp_path)
    state.update({number: os.urandom(100) for number in range(1000)})
    state.save(0, 10)
    size = state._database.execute("PRAGMA page_size").fetchone()[0]
    state.close()
    path = tmp_path / "states" / "0.sqlite"
    whole = path.read_bytes()

    def refused(use: Callable[[], object]) -> None:
        says = rf"{path} cannot be (had|read|written): .*; a stream whose state was lost begins"
        with pytest.raises(StateError, match=says) as caught:
            use()
        assert caught.value.is_permanent

    pages = [whole[at : at + size] for at in range(0, len(whole), size)]
    leaf = 10  # Of an index; those of keys are full.
    damaged = [
        bytes(size) if page[0] == leaf and page.count(0) < size // 2 else page for page in pages
    ]
    assert damaged != pages
    path.write_bytes(b"".join(damaged))
    monkeypatch.setattr(state_module, "_MOST_BYTES", 1 << 30)
    refused(lambda: opened(tmp_path, 0, 10))
    monkeypatch.setattr(state_module, "_MOST_BYTES", 0)
    state = opened(tmp_path, 0, 10)
    refused(lambda: [state[number] for number in range(1000)])
    refused(lambda: list(state))
    state.update(dict.fromkeys(range(1000), 1))
    refused(lambda: state.save(1, 20))
    state.close()
    path.write_bytes(b"no database" * 1000)
    refused(lambda: opened(tmp_path, 0, 10))


def test_a_damaged_log_is_an_error_for_good(tmp_path: Path) -> None:
    state = opened(tmp_path)
    state.update({number: os.urandom(100) for number in range(1000)})
    state.save(0, 10)
    state._database.execute("UPDATE log SET changes = zeroblob(length(changes))")
    state.close()
    says = "cannot be had: a row of its log is damaged; a stream whose state was lost"
    with pytest.raises(StateError, match=says) as caught:
        opened(tmp_path, 0, 10)
    assert caught.value.is_permanent


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_written_follows_what_changes(tmp_path: Path, restarts: bool) -> None:
    state = opened(tmp_path)
    model = dict.fromkeys(range(1000), "a value")
    state.update(model)
    state.save(0, 0)
    most = 0
    for number in range(1, 300):
        if restarts and not number % 10:
            state.close()
            state = opened(tmp_path, number - 1, number - 1)
        before = dict(model)
        changes = {number * at % 400: f"now {number}" for at in range(40)}
        changes |= {-number: "new", 500 + number: None}
        for key, value in changes.items():
            model.pop(key, None)
            state.pop(key, None)
            if value is not None:
                state[key] = model[key] = value
        written: list[str] = []
        state._database.set_trace_callback(written.append)
        state.save(number, number)
        state._database.set_trace_callback(None)
        if not restarts:
            assert sum("INSERT INTO log" in one for one in written) == 1
        rows = state._database.execute("SELECT changes FROM log").fetchall()
        most = max(most, sum(len(pickle.loads(row)) for (row,) in rows))
    assert most < (3000 if restarts else 7000)
    assert dict(state) == model
    state.close()
    # The last epoch can be undone, also after an attempt that began behind it.
    for _ in range(2):
        assert dict(opened(tmp_path, 299, 299)) == model
    assert dict(opened(tmp_path, 298, 298)) == before


def test_a_state_that_came_back_into_memory_may_grow_out_of_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: dict[Any, Any] = {}
    most = (0, 1 << 30, 1 << 30, 0, 0, 1 << 30)
    for number, size in enumerate(most):
        monkeypatch.setattr(state_module, "_MOST_BYTES", size)
        state = opened(tmp_path, number - 1, max(0, number - 1))
        assert dict(state) == model
        before = dict(model)
        for key in (number, "always"):
            state[key] = model[key] = number
        if number > 1:
            del state[number - 2]
            del model[number - 2]
        state.save(number, number)
        assert (state._known is None) is (size == 0)
        state.close()
        if number:
            assert dict(opened(tmp_path, number, number)) == model
            undone = opened(tmp_path, number - 1, number - 1)
            assert dict(undone) == before
            for key in (number, "always"):
                undone[key] = number
            if number > 1:
                del undone[number - 2]
            undone.save(number, number)
            undone.close()


def test_a_key_that_is_gone_does_not_come_back_from_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "_MOST_BYTES", 0)
    state = opened(tmp_path)
    state.update(gone=1, stays=1)
    state.save(0, 0)
    state.close()
    monkeypatch.setattr(state_module, "_MOST_BYTES", 1 << 30)
    state = opened(tmp_path, 0, 0)
    del state["gone"]
    for number in range(1, 8):
        state["stays"] = number
        state.save(number, number)
    state.close()
    assert dict(opened(tmp_path, 7, 7)) == {"stays": 7}


_WRITER = """
import os, random, sys
from penstock.continuous import KeyedState, StatePlace
path, number = sys.argv[1], int(sys.argv[2])
place, attempt = StatePlace(path, "key", "none"), str(os.getpid())
place.claim(attempt)
state = KeyedState(place, attempt, number, 0)
while True:
    number += 1
    for key in range(20):
        state[key] = number
    state[100 + number % 7] = number
    state.pop(100 + (number + 3) % 7, None)
    state.save(number, 0)
    print(number, flush=True)
"""


def test_a_kill_at_any_moment_leaves_whole_epochs(tmp_path: Path) -> None:
    chance = random.Random(7)
    number = -1
    path = str(tmp_path / "states" / "0.sqlite")
    for _ in range(12):
        command = [sys.executable, "-c", _WRITER, path, str(number)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            seen = int(writer.stdout.readline())
            time.sleep(chance.uniform(0, 0.05))
            writer.send_signal(signal.SIGKILL)
            rest = writer.stdout.read().split("\n")
            writer.wait(HANG_S)
        seen = int(rest[-2]) if len(rest) > 1 else seen
        # What it had saved counts, or the driver had not heard of the last one.
        number = seen - chance.randint(0, 1)
        try:
            state = opened(tmp_path, number)
        except StateError:
            number = seen  # One more was saved than it could say.
            state = opened(tmp_path, number)
        found = dict(state)
        state.close()
        assert [found[key] for key in range(20)] == [number] * 20
        assert all(number - 7 < found[key] <= number for key in found if key >= 100)
    assert number > 12


KEYS = {
    "integers": pa.array([1, 2, 3, None, 4, 5, 6, 7, 8, -1, 1], pa.int32()),
    "unsigned": pa.array([1, 2, 3, None, 4, 5, 6, 7, 8, 1 << 63, 1], pa.uint64()),
    "text": pa.array(["a", "b", None, "", "é", "a", "c", "d", "e", "f", "g"]),
    "large text": pa.array(["a", "b", None, "", "é", "a"], pa.large_string()),
    "bytes": pa.array([b"a", None, b"\xff", b"a", b"", b"b", b"c", b"d"], pa.binary()),
    "bytes of one length": pa.array([b"ab", None, b"cd", b"ef", b"ab"], pa.binary(2)),
    "nulls": pa.array([None, None], pa.string()),
    "no type": pa.array([None, None]),
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_each_row_is_of_one_part_and_equal_keys_of_one(kind: str, parts: int) -> None:
    keys = KEYS[kind]
    numbered = pa.RecordBatch.from_pydict({"n": range(len(keys)), "key": keys})
    # A slice: nothing of what is before it counts.
    twice = pa.Table.from_batches([numbered, numbered]).combine_chunks()
    batch = twice.to_batches()[0].slice(len(keys))
    found = [rows_of_part(batch, "key", part, parts) for part in range(parts)]
    assert sorted(n for rows in found for n in rows["n"].to_pylist()) == list(range(len(keys)))
    for rows in found:
        assert rows["n"].to_pylist() == sorted(rows["n"].to_pylist())
    of_key: dict[Any, int] = {}
    for part, rows in enumerate(found):
        for key in rows["key"].to_pylist():
            assert of_key.setdefault(key, part) == part
    assert of_key.get(None, 0) == 0


def test_keys_stay_where_they_are_over_versions() -> None:
    """Their state is there: what this test says may never change."""
    whole = pa.RecordBatch.from_pydict({"key": list(range(-3, 5))})
    text = pa.RecordBatch.from_pydict({"key": ["a", "b", "c", "d", "ä", ""]})
    assert [rows_of_part(whole, "key", part, 3)["key"].to_pylist() for part in range(3)] == [
        [-3, -1, 0, 1, 3],
        [-2],
        [2, 4],
    ]
    assert [rows_of_part(text, "key", part, 3)["key"].to_pylist() for part in range(3)] == [
        ["a", "c", "d", ""],
        [],
        ["b", "ä"],
    ]


@pytest.mark.parametrize("parts", [1, 2])
def test_a_column_that_holds_no_keys_is_an_error_for_good(parts: int) -> None:
    batch = pa.RecordBatch.from_pydict({"x": [1.5], "d": [date(2026, 1, 1)]})
    for key_by, says in (("y", "there is no such column"), ("x", "type double"), ("d", "date32")):
        with pytest.raises(StateError, match=says) as caught:
            rows_of_part(batch, key_by, 0, parts)
        assert caught.value.is_permanent
