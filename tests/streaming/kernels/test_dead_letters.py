"""Functions whose failures go to the dead letters, as one task sees them."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.dead_letters import DeadLetterPlace, StoredLetter, letters
from penstock.streaming.kernels.dead_letters import (
    FlatMapOrLetterOperation,
    LetterOperation,
    LettersOfRun,
    MapOrLetterOperation,
)
from penstock.streaming.kernels.fusion import FusedFunction, MapOperation
from penstock.wal import WalError

BATCH_MS = 1_700_000_001_000
RUNS = itertools.count()


def of_run(folder: Path) -> LettersOfRun:
    place = DeadLetterPlace(str(folder / "deadLetters"), 0, "", "", "")
    return LettersOfRun(f"run-{next(RUNS)}", place)


def operation(
    kind: type[LetterOperation], func: Callable[[Any], Any], run: LettersOfRun | None
) -> LetterOperation:
    made = kind(func, name="parse", made_by="mapOrDeadLetter at program.py:1")
    return made.in_batch(BATCH_MS, 3, run)


def kept(folder: Path) -> list[StoredLetter]:
    return sorted(letters(str(folder)), key=lambda found: int(found.letter.origin.split(":")[-1]))


def odd_only(number: int) -> int:
    if number % 2 == 0:
        raise ValueError(f"{number} is even")
    return number * 10


class TestMap:
    def test_a_record_for_which_it_raises_is_kept_and_the_others_go_on(
        self, tmp_path: Path
    ) -> None:
        parse = operation(MapOrLetterOperation, odd_only, of_run(tmp_path))
        results = FusedFunction([MapOperation(abs), parse, MapOperation(str)])(5, range(-200, 0))
        assert list(results) == [str(n * 10) for n in range(200, 0, -1) if n % 2]
        found = kept(tmp_path)
        assert [json.loads(each.letter.data) for each in found] == list(range(200, 0, -2))
        letter = found[0].letter
        assert (letter.error, letter.form, letter.shown) == ("ValueError", "json", "200")
        assert (letter.stream, letter.batch_ms) == (3, BATCH_MS)
        assert letter.receiver == "mapOrDeadLetter at program.py:1"
        line = odd_only.__code__.co_firstlineno + 2
        assert letter.reason == f"200 is even ({__file__}:{line} in odd_only)"

    def test_bytes_and_text_are_kept_as_they_are_and_objects_pickled(self, tmp_path: Path) -> None:
        records = [b"\x00\xff", "text", {1, 2}, (1, 2)]
        parse = operation(MapOrLetterOperation, lambda record: record.nothing, of_run(tmp_path))
        assert list(FusedFunction([parse])(0, records)) == []
        found = [each.letter for each in kept(tmp_path)]
        assert [letter.form for letter in found] == ["bytes", "text", "pickle", "pickle"]
        assert [letter.data for letter in found[:2]] == [b"\x00\xff", b"text"]
        assert [pickle.loads(letter.data) for letter in found[2:]] == records[2:]
        assert {letter.error for letter in found} == {"AttributeError"}

    def test_a_stop_iteration_is_a_failure_of_its_record_only(self, tmp_path: Path) -> None:
        def stops(record: int) -> int:
            if record == 1:
                raise StopIteration
            return record

        parse = operation(MapOrLetterOperation, stops, of_run(tmp_path))
        assert list(FusedFunction([parse])(0, range(4))) == [0, 2, 3]
        assert [each.letter.error for each in kept(tmp_path)] == ["StopIteration"]

    @given(st.lists(st.integers(0, 3), max_size=300), st.sampled_from([0, 1, 2]))
    def test_results_are_those_of_a_loop_with_a_try(self, records: list[int], bad: int) -> None:
        def fails(record: int) -> int:
            return record // (record - bad)

        expected = []
        for record in records:
            try:
                expected.append(fails(record))
            except ZeroDivisionError:
                continue
        parse = operation(MapOrLetterOperation, fails, None)
        assert list(FusedFunction([parse])(0, iter(records))) == expected

    def test_what_reading_raises_ends_the_task_and_what_failed_before_is_kept(
        self, tmp_path: Path
    ) -> None:
        def cut_off() -> Iterator[int]:
            yield from range(100)
            raise OSError("the block is gone")

        parse = operation(MapOrLetterOperation, odd_only, of_run(tmp_path))
        with pytest.raises(OSError, match="the block is gone"):
            list(FusedFunction([parse])(0, cut_off()))
        assert all(int(each.letter.data) % 2 == 0 for each in kept(tmp_path))

    def test_no_memory_says_nothing_of_the_record(self, tmp_path: Path) -> None:
        def huge(_: int) -> None:
            raise MemoryError

        parse = operation(MapOrLetterOperation, huge, of_run(tmp_path))
        with pytest.raises(MemoryError):
            list(FusedFunction([parse])(0, [1]))
        assert not (tmp_path / "deadLetters").exists()

    def test_no_log_is_made_where_nothing_fails(self, tmp_path: Path) -> None:
        parse = operation(MapOrLetterOperation, str, of_run(tmp_path))
        assert list(FusedFunction([parse])(0, range(1000))) == list(map(str, range(1000)))
        assert not (tmp_path / "deadLetters").exists()

    def test_they_are_written_where_nobody_reads_to_the_end(self, tmp_path: Path) -> None:
        parse = operation(MapOrLetterOperation, odd_only, of_run(tmp_path))
        results = FusedFunction([parse])(0, range(1000))
        assert next(results) == 10
        del results
        assert 0 in [int(each.letter.data) for each in kept(tmp_path)]

    def test_many_do_not_wait_in_memory_for_the_end_of_the_task(self, tmp_path: Path) -> None:
        written = []

        def records() -> Iterator[bytes]:
            for _ in range(3):
                yield from itertools.repeat(bytes(20_000), 64)
            written.append(len(kept(tmp_path)))

        parse = operation(MapOrLetterOperation, int, of_run(tmp_path))
        assert list(FusedFunction([parse])(0, records())) == []
        assert written[0] > 100
        assert len(kept(tmp_path)) == 192

    def test_a_folder_that_cannot_be_written_fails_the_task(self, tmp_path: Path) -> None:
        (tmp_path / "deadLetters").write_text("in the way")
        parse = operation(MapOrLetterOperation, odd_only, of_run(tmp_path))
        with pytest.raises(WalError):
            list(FusedFunction([parse])(0, range(10)))
        (tmp_path / "deadLetters").unlink()
        assert len(list(FusedFunction([parse])(0, range(10)))) == 5
        assert [int(each.letter.data) for each in kept(tmp_path)] == [0, 2, 4, 6, 8]


class TestTelling:
    def test_the_first_of_many_is_told_with_its_place_and_beginning(
        self, tmp_path: Path, caplog: Any
    ) -> None:
        for run, kept in ((of_run(tmp_path), "is a dead letter now"), (None, "was discarded")):
            caplog.clear()
            parse = replace(operation(MapOrLetterOperation, odd_only, run), name=kept)
            list(FusedFunction([parse])(0, range(100)))
            (told,) = caplog.messages
            line = odd_only.__code__.co_firstlineno + 2
            assert told == (
                f"A record of stream 3 {kept}, for which the function of mapOrDeadLetter at "
                f"program.py:1 raised ValueError: 0 is even ({__file__}:{line} in odd_only); it "
                "begins with 0"
            )


class TestComputedAgain:
    def test_a_record_comes_once(self, tmp_path: Path) -> None:
        for _ in range(3):
            # Another run stands for another worker: it has a log of its own.
            parse = operation(MapOrLetterOperation, odd_only, of_run(tmp_path))
            list(FusedFunction([parse])(0, range(10)))
        assert len(list((tmp_path / "deadLetters").iterdir())) == 3
        assert [int(each.letter.data) for each in kept(tmp_path)] == [0, 2, 4, 6, 8]

    def test_like_records_of_other_places_partitions_and_batches_are_others(
        self, tmp_path: Path
    ) -> None:
        parse = operation(MapOrLetterOperation, odd_only, of_run(tmp_path))
        list(FusedFunction([parse])(0, [2, 2]))
        list(FusedFunction([parse])(1, [2]))
        list(FusedFunction([parse.in_batch(BATCH_MS + 1, 3, parse.letters)])(0, [2]))
        assert len(kept(tmp_path)) == 4

    def test_the_oldest_go_when_there_are_too_many_of_a_stream(self, tmp_path: Path) -> None:
        for number in range(30):
            run = of_run(tmp_path)
            run = replace(run, place=replace(run.place, max_bytes=1 << 20))
            parse = operation(MapOrLetterOperation, int, run)
            list(FusedFunction([parse])(number, [bytes(100_000)]))
        found = [each.letter.origin.split(":")[2] for each in letters(str(tmp_path))]
        assert "29" in found
        assert len(found) < 15

    def test_what_fails_only_at_another_try_is_kept_too(self, tmp_path: Path) -> None:
        run = of_run(tmp_path)
        for bad in ("a", "b"):
            parse = operation(MapOrLetterOperation, {"a": 1, "b": 2}.__getitem__, run)
            list(FusedFunction([parse])(0, ["a", bad + "?", "b"]))
        assert [each.letter.data for each in kept(tmp_path)] == [b"a?", b"b?"]


class TestFlatMap:
    def test_a_record_has_all_of_its_results_or_none(self, tmp_path: Path) -> None:
        def words(line: str) -> Iterator[str]:
            for word in line.split():
                if word == "bad":
                    raise ValueError("a bad word")
                yield word

        parse = operation(FlatMapOrLetterOperation, words, of_run(tmp_path))
        assert list(FusedFunction([parse])(0, ["a b", "c bad d", "e"])) == ["a", "b", "e"]
        (found,) = kept(tmp_path)
        assert found.letter.data == b"c bad d"
        assert f"({__file__}:" in found.letter.reason
        assert "in words)" in found.letter.reason

    def test_what_is_no_iterable_is_a_failure(self, tmp_path: Path) -> None:
        parse = operation(FlatMapOrLetterOperation, abs, of_run(tmp_path))
        assert list(FusedFunction([parse])(0, [1])) == []
        assert [each.letter.error for each in kept(tmp_path)] == ["TypeError"]
