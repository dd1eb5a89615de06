"""`mapOrDeadLetter` and `flatMapOrDeadLetter` in a program that runs on Spark."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.dead_letters import letters, read
from penstock.errors import PenstockError
from penstock.receiver import receiver
from penstock.streaming import OutputOperationError, StreamGraphError, StreamingContext
from penstock.wal import UnwritableFolderError
from tests.bounds import HANG_S
from tests.streaming.batches import batches
from tests.streaming.checkpoint.recovering import BATCH_MS, ZERO_MS, Program, ProgramOf

pytestmark = pytest.mark.slow


def parse(text: str) -> int:
    return int(text)


def set_conf(sc: Any, monkeypatch: Any, **settings: str) -> None:
    conf = sc.getConf()
    for name, value in settings.items():
        conf.set(f"spark.penstock.{name.replace('_', '.')}", value)
    monkeypatch.setattr(sc, "getConf", lambda: conf)


def test_the_batch_goes_on_and_its_letters_are_there_when_it_is_done(
    sc: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    set_conf(sc, monkeypatch, deadLetters_dir=str(tmp_path))
    with batches(sc) as run:
        run.ssc.queueStream([["0"]]).pprint()
        lines = run.ssc.queueStream([["1", "x", "3"], ["4"], ["y"]])
        numbers = lines.mapOrDeadLetter(parse)
        doubled = run.collect(numbers.map(lambda n: n * 2))
        total = run.collect(numbers.map(lambda n: ("sum", n)).reduceByKey(lambda a, b: a + b, 1))
        run.run(1)
        (found,) = letters(str(tmp_path))
        run.run(2)
        assert doubled == [[2, 6], [8], []]
        assert total == [[("sum", 4)], [("sum", 4)], []]
    letter = found.letter
    assert (letter.data, letter.form, letter.error) == (b"x", "text", "ValueError")
    assert f"({__file__}:{parse.__code__.co_firstlineno + 1} in parse)" in letter.reason
    assert letter.receiver.startswith("mapOrDeadLetter at test_dead_letters.py:")
    assert (letter.stream, letter.batch_ms) == (1, 1_700_000_001_000)
    # Two outputs computed each batch, and the letters outlive the program.
    assert [each.letter.data for each in letters(str(tmp_path))] == [b"x", b"y"]


def test_the_words_of_a_line_that_fails_are_left_out_together(
    sc: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    set_conf(sc, monkeypatch, deadLetters_dir=str(tmp_path))
    with batches(sc) as run:
        lines = run.ssc.queueStream([["1 2", "3 x 4", "5"]])
        found = run.collect(lines.flatMapOrDeadLetter(lambda line: (int(w) for w in line.split())))
        run.run(1)
        assert found == [[1, 2, 5]]
        (row,) = read(_session(sc), tmp_path).collect()
    assert (bytes(row.data), row.form, row.error) == (b"3 x 4", "text", "ValueError")
    assert row.batch.timestamp() == 1_700_000_001


def _session(sc: Any) -> Any:
    from pyspark.sql import SparkSession

    return SparkSession(sc)


def test_a_batch_that_is_computed_again_after_a_restart_leaves_no_second_letter(
    program_of: ProgramOf,
) -> None:
    inputs = [["1", "a"], ["2", "b"], ["3"], ["4", "d"]]

    def build(program: Program, ssc: StreamingContext) -> None:
        program.keep(program.listed(ssc, inputs).mapOrDeadLetter(parse).window(3))

    program = program_of(build)
    program.run(2)
    program.run(2)
    assert program.result(4) == [[2, 3, 4]]
    stored = list(letters(str(program.checkpoint)))
    # The window of batch 3 had the records of the batches before computed again.
    logs = len(list((program.checkpoint / "deadLetters").iterdir()))
    assert logs > 1
    found = sorted((each.letter.batch_ms, each.letter.data) for each in stored)
    expected = [(1, b"a"), (2, b"b"), (4, b"d")]
    assert found == [(ZERO_MS + number * BATCH_MS, data) for number, data in expected]


def test_without_a_folder_that_lasts_they_go_with_the_program_which_is_told(
    sc: Any, tmp_path: Path, monkeypatch: Any, caplog: Any
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    with caplog.at_level(logging.WARNING, "penstock.streaming"), batches(sc) as run:
        run.collect(run.ssc.queueStream([["x"]]).mapOrDeadLetter(parse))
        run.run(1)
        (folder,) = tmp_path.glob("penstock-*/deadLetters")
        assert [each.letter.data for each in letters(str(folder))] == [b"x"]
    assert f"are in {folder}, which goes with the program; set spark.penstock.de" in caplog.text
    assert not folder.exists()


def test_they_are_only_told_where_they_are_not_to_be_kept(
    sc: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    set_conf(sc, monkeypatch, deadLetters_dir=str(tmp_path), deadLetters_enabled="false")
    with batches(sc) as run:
        found = run.collect(run.ssc.queueStream([["1", "x"]]).mapOrDeadLetter(parse))
        run.run(1)
        assert found == [[1]]
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_told_at_the_start(
    sc: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    (tmp_path / "file").write_text("in the way")
    set_conf(sc, monkeypatch, deadLetters_dir=str(tmp_path / "file" / "letters"))
    with batches(sc) as run:
        run.collect(run.ssc.queueStream([["x"]]).mapOrDeadLetter(parse))
        with pytest.raises(UnwritableFolderError, match="file/letters"):
            run.start()


def test_a_record_that_cannot_be_kept_fails_its_batch(
    sc: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    set_conf(sc, monkeypatch, deadLetters_dir=str(tmp_path / "letters"))
    with batches(sc) as run:
        found = run.collect(run.ssc.queueStream([["x"], ["2"]]).mapOrDeadLetter(parse))
        run.start()
        (tmp_path / "letters").rmdir()
        (tmp_path / "letters").write_text("in the way")
        run.run(2)
        with pytest.raises(OutputOperationError) as raised:
            run.ssc.awaitTermination(5)
        assert isinstance(raised.value.__cause__, PenstockError)
        assert found == [[2]]


@pytest.mark.parametrize("method", ["mapOrDeadLetter", "flatMapOrDeadLetter"])
def test_the_function_is_looked_at_by_the_call(sc: Any, method: str) -> None:
    with batches(sc) as run:
        stream = run.ssc.queueStream([["x"]])
        with pytest.raises(TypeError, match="a function is needed, not str"):
            getattr(stream, method)("int")
        with pytest.raises(TypeError, match="it is called with 1 argument, a record"):
            getattr(stream, method)(lambda a, b: a)


def test_objects_of_the_program_are_kept_as_json_or_pickled(
    sc: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    set_conf(sc, monkeypatch, deadLetters_dir=str(tmp_path))
    with batches(sc) as run:
        records = [{"a": 1}, ("a", 2)]
        found = run.collect(run.ssc.queueStream([records]).mapOrDeadLetter(lambda r: r["b"]))
        run.run(1)
        assert found == [[]]
    stored = {each.letter.form: each.letter for each in letters(str(tmp_path))}
    assert json.loads(stored["json"].data) == {"a": 1}
    assert stored["pickle"].error == "TypeError"


class TestDeadLetters:
    """`StreamingContext.deadLetters`."""

    def test_a_program_gets_what_came_since_the_last_batch(
        self, sc: Any, tmp_path: Path, monkeypatch: Any
    ) -> None:
        set_conf(sc, monkeypatch, deadLetters_dir=str(tmp_path))
        for begun in range(2):
            with batches(sc) as run:
                lines = run.ssc.queueStream([["x", "1"], [], ["y"]])
                numbers = run.collect(lines.mapOrDeadLetter(parse))
                found = run.collect(run.ssc.deadLetters().map(lambda stored: stored.letter.data))
                run.run(4)
                # What was there before the program began does not come.
                assert found == [[], [b"x"], [], [b"y"]], begun
                assert numbers == [[1], [], [], []]

    def test_what_a_receiver_refuses_comes_too(
        self, sc: Any, tmp_path: Path, monkeypatch: Any
    ) -> None:
        set_conf(sc, monkeypatch, deadLetters_dir=str(tmp_path))

        @receiver(validate=lambda record: record > 0, finite=True)
        def numbers() -> Any:
            yield from (1, -2)

        ssc = StreamingContext(sc, 0.2)
        ssc.receiverStream(numbers).foreachRDD(lambda rdd: None)
        found: list[Any] = []
        came = threading.Event()

        def keep(rdd: Any) -> None:
            found.extend(rdd.collect())
            if found:
                came.set()

        ssc.deadLetters().foreachRDD(keep)
        ssc.start()
        try:
            assert came.wait(HANG_S)
        finally:
            ssc.stop(stopSparkContext=False)
        (stored,) = found
        assert json.loads(stored.letter.data) == -2
        assert stored.letter.reason.endswith("returned False")
        assert stored.id == next(letters(str(tmp_path))).id

    def test_a_letter_of_a_letter_does_not_come_back(
        self, sc: Any, tmp_path: Path, monkeypatch: Any
    ) -> None:
        set_conf(sc, monkeypatch, deadLetters_dir=str(tmp_path))
        with batches(sc) as run:
            run.collect(run.ssc.queueStream([["x"]]).mapOrDeadLetter(parse))
            again = run.ssc.deadLetters().mapOrDeadLetter(lambda stored: parse(stored.letter.data))
            found = run.collect(again)
            run.run(4)
            assert found == [[], [], [], []]
        assert len(list(letters(str(tmp_path)))) == 2

    def test_after_a_restart_it_goes_on_and_a_batch_has_the_same_letters_again(
        self, program_of: ProgramOf
    ) -> None:
        inputs = [["a"], ["b"], ["c"], [], ["d"], []]

        def build(program: Program, ssc: StreamingContext) -> None:
            program.keep(program.listed(ssc, inputs).mapOrDeadLetter(parse), "numbers")
            data = ssc.deadLetters().map(lambda stored: stored.letter.data.decode())
            program.keep(data, "new")
            program.keep(data.window(3), "last")

        program = program_of(build)
        program.run(3)
        program.run(3)
        new = [program.result(number, "new")[-1] for number in range(1, 7)]
        assert new == [[], ["a"], ["b"], ["c"], [], ["d"]]
        # The window had batches of before the restart made again.
        assert program.result(4, "last") == [["a", "b", "c"]]

    def test_it_is_empty_where_none_are_kept_and_that_is_told(
        self, sc: Any, tmp_path: Path, monkeypatch: Any, caplog: Any
    ) -> None:
        set_conf(sc, monkeypatch, deadLetters_dir=str(tmp_path), deadLetters_enabled="false")
        with batches(sc) as run:
            run.collect(run.ssc.queueStream([["x"]]).mapOrDeadLetter(parse))
            found = run.collect(run.ssc.deadLetters())
            run.run(2)
            assert found == [[], []]
        assert "deadLetters() stays empty: spark.penstock.deadLetters.enabled is" in caplog.text

    def test_on_a_cluster_they_must_lie_where_the_driver_sees_them(
        self, sc: Any, monkeypatch: Any
    ) -> None:
        with batches(sc) as run:
            run.collect(run.ssc.deadLetters())
            monkeypatch.setattr(sc, "master", "spark://somewhere:7077")
            try:
                with pytest.raises(StreamGraphError, match="to a folder on HDFS"):
                    run.start()
            finally:
                monkeypatch.undo()
