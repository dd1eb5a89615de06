"""Every operation gives what PySpark's has."""

from __future__ import annotations

import functools
import io
import operator
import sys
from datetime import datetime
from operator import add
from typing import Any

import pytest

from penstock.streaming import StreamGraphError
from tests.streaming.batches import batches, outcome


class Times:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __call__(self, x: int) -> int:
        return x * self.factor

    def method(self, x: int) -> int:
        return x * self.factor


def scale(factor: int, x: int) -> int:
    return factor * x


class TestRecordByRecord:
    def test_map(self, sc: Any) -> None:
        assert outcome(sc, [[1, 2], [3]], lambda s: s.map(str)) == [["1", "2"], ["3"]]

    def test_flat_map(self, sc: Any) -> None:
        assert outcome(sc, [["a b", ""]], lambda s: s.flatMap(str.split)) == [["a", "b"]]

    def test_filter(self, sc: Any) -> None:
        assert outcome(sc, [[1, 2, 3]], lambda s: s.filter(lambda x: x % 2)) == [[1, 3]]

    def test_functions_may_be_partials_bound_methods_and_callables(self, sc: Any) -> None:
        found = outcome(
            sc,
            [[1, 2]],
            lambda s: s.map(functools.partial(scale, 2)).map(Times(3)).map(Times(5).method),
        )
        assert found == [[30, 60]]

    def test_map_partitions_and_glom(self, sc: Any) -> None:
        def total(records: Any) -> Any:
            yield sum(records)

        assert [sum(x) for x in outcome(sc, [[1, 2, 3]], lambda s: s.mapPartitions(total))] == [6]
        [parts] = outcome(sc, [[1, 2, 3]], lambda s: s.glom())
        assert [x for part in parts for x in part] == [1, 2, 3]

    def test_map_partitions_with_index(self, sc: Any) -> None:
        [found] = outcome(
            sc, [[1, 2, 3, 4]], lambda s: s.mapPartitionsWithIndex(lambda i, it: [(i, list(it))])
        )
        assert [i for i, _ in found] == list(range(len(found)))

    def test_a_partition_function_may_leave_records_unread(self, sc: Any) -> None:
        found = outcome(
            sc,
            [[1, 2, 3, 4]],
            lambda s: s.repartition(1).map(Times(1)).mapPartitions(lambda it: [next(iter(it))]),
        )
        assert len(found[0]) == 1

    def test_map_values_and_flat_map_values(self, sc: Any) -> None:
        pairs = [[("a", 1), ("b", 2)]]
        assert outcome(sc, pairs, lambda s: s.mapValues(Times(10))) == [[("a", 10), ("b", 20)]]
        found = outcome(sc, pairs, lambda s: s.flatMapValues(range))
        assert found == [[("a", 0), ("b", 0), ("b", 1)]]


class TestAllRecords:
    def test_count_and_reduce(self, sc: Any) -> None:
        inputs = [[1, 2, 3], [4], []]
        # An empty list has partitions, so its count is 0; its reduction is nothing.
        assert outcome(sc, inputs, lambda s: s.count()) == [[3], [1], [0]]
        assert outcome(sc, inputs, lambda s: s.reduce(operator.add)) == [[6], [4], []]

    def test_count_of_a_batch_without_partitions_is_nothing(self, sc: Any) -> None:
        with batches(sc) as run:
            found = run.collect(run.ssc.queueStream([sc.emptyRDD()]).count())
            run.run(2)
        assert found == [[], [0]]

    def test_count_by_value(self, sc: Any) -> None:
        [found] = outcome(sc, [["a", "b", "a"]], lambda s: s.countByValue())
        assert sorted(found) == [("a", 2), ("b", 1)]

    @pytest.mark.parametrize(
        "add", [lambda a, b: a + b, operator.add, lambda a, b: b + a], ids=["plain", "op", "called"]
    )
    def test_word_count(self, sc: Any, add: Any) -> None:
        found = outcome(
            sc,
            [["a b a", "c a"], ["b"], []],
            lambda s: (
                s.flatMap(lambda line: line.split(" ")).map(lambda w: (w, 1)).reduceByKey(add)
            ),
        )
        assert [dict(x) for x in found] == [{"a": 3, "b": 1, "c": 1}, {"b": 1}, {}]

    def test_combine_and_group_by_key(self, sc: Any) -> None:
        pairs = [[("a", 1), ("b", 2), ("a", 3)]]
        [found] = outcome(
            sc,
            pairs,
            lambda s: s.combineByKey(lambda v: [v], lambda c, v: [*c, v], operator.add),
        )
        assert {k: sorted(v) for k, v in found} == {"a": [1, 3], "b": [2]}
        [found] = outcome(sc, pairs, lambda s: s.groupByKey().mapValues(sorted))
        assert dict(found) == {"a": [1, 3], "b": [2]}

    def test_keys_of_every_kind_meet(self, sc: Any) -> None:
        keys = [None, ("a", None, (1,)), 1, 1.0, True, b"x", "x", frozenset({1})]
        pairs = [(key, 1) for key in keys]
        [found] = outcome(sc, [pairs], lambda s: s.reduceByKey(operator.add, 3))
        expected = sc.parallelize(pairs).reduceByKey(operator.add, 3).collect()
        assert dict(found) == dict(expected)

    def test_results_are_placed_as_pyspark_places_them(self, sc: Any) -> None:
        pairs = [(f"key{i}", i) for i in range(50)]
        with batches(sc) as run:
            reduced = run.ssc.queueStream([pairs]).reduceByKey(operator.add, 3)
            found = run.collect(reduced.glom())
            run.run(1)
        mine = [sorted(part) for part in found[0]]
        theirs = sc.parallelize(pairs).reduceByKey(operator.add, 3).glom().collect()
        assert mine == [sorted(part) for part in theirs]

    def test_partition_by_and_repartition(self, sc: Any) -> None:
        pairs = [[(i, i) for i in range(8)]]
        [found] = outcome(sc, pairs, lambda s: s.partitionBy(4, lambda k: k).glom())
        assert [sorted(k % 4 for k, _ in part) for part in found] == [[i, i] for i in range(4)]
        [found] = outcome(sc, [[1, 2, 3]], lambda s: s.repartition(5).glom())
        assert len(found) == 5


class TestTwoStreams:
    def both(self, sc: Any, operation: Any) -> list[Any]:
        with batches(sc) as run:
            left = run.ssc.queueStream([[("a", 1), ("b", 2)]])
            right = run.ssc.queueStream([[("b", 3), ("c", 4)]])
            found = run.collect(operation(left, right))
            run.run(1)
        return found[0]

    def test_union(self, sc: Any) -> None:
        expected = [("a", 1), ("b", 2), ("b", 3), ("c", 4)]
        assert sorted(self.both(sc, lambda a, b: a.union(b))) == expected
        assert sorted(self.both(sc, lambda a, b: a.context().union(a, b))) == expected

    def test_union_of_one_is_that_one(self, sc: Any) -> None:
        with batches(sc) as run:
            stream = run.ssc.queueStream([[1]])
            assert run.ssc.union(stream) is stream
            with pytest.raises(ValueError, match="should have at least one DStream to union"):
                run.ssc.union()

    @pytest.mark.slow
    def test_joins(self, sc: Any) -> None:
        assert self.both(sc, lambda a, b: a.join(b)) == [("b", (2, 3))]
        left = self.both(sc, lambda a, b: a.leftOuterJoin(b))
        assert dict(left) == {"a": (1, None), "b": (2, 3)}
        right = self.both(sc, lambda a, b: a.rightOuterJoin(b))
        assert dict(right) == {"b": (2, 3), "c": (None, 4)}
        full = self.both(sc, lambda a, b: a.fullOuterJoin(b))
        assert dict(full) == {"a": (1, None), "b": (2, 3), "c": (None, 4)}

    def test_cogroup(self, sc: Any) -> None:
        found = self.both(
            sc, lambda a, b: a.cogroup(b).mapValues(lambda p: (list(p[0]), list(p[1])))
        )
        assert dict(found) == {"a": ([1], []), "b": ([2], [3]), "c": ([], [4])}

    def test_different_slides_do_not_go_together(self, sc: Any) -> None:
        with batches(sc) as run:
            stream = run.ssc.queueStream([[1]])
            with pytest.raises(ValueError, match="same slide duration"):
                stream.union(stream.window(2, 2))


class TestFunctionsOfRDDs:
    def test_transform_with_and_without_time(self, sc: Any) -> None:
        assert outcome(sc, [[1, 2]], lambda s: s.transform(lambda r: r.map(str))) == [["1", "2"]]
        [found] = outcome(
            sc, [[1]], lambda s: s.transform(lambda time, rdd: rdd.map(lambda _: time))
        )
        assert found == [datetime.fromtimestamp(1_700_000_001)]

    def test_transform_to_none_makes_no_batch(self, sc: Any) -> None:
        with batches(sc) as run:
            stream = run.ssc.queueStream([[1], [2]])
            skipped = run.collect(stream.transform(lambda rdd: None).map(str))
            found = run.collect(stream)
            run.run(2)
        assert skipped == []
        assert found == [[1], [2]]

    def test_transform_with_another_stream(self, sc: Any) -> None:
        def check(sc: Any, func: Any) -> list[Any]:
            with batches(sc) as run:
                left, right = run.ssc.queueStream([[1, 2]]), run.ssc.queueStream([[2, 3]])
                found = run.collect(left.transformWith(func, right))
                run.run(1)
            return sorted(found[0])

        assert check(sc, lambda a, b: a.union(b)) == [1, 2, 2, 3]
        assert check(sc, lambda t, a, b: a.subtract(b)) == [1]

    def test_a_missing_rdd_of_one_stream_is_empty(self, sc: Any) -> None:
        with batches(sc) as run:
            left = run.ssc.queueStream([[1]])
            right = run.ssc.queueStream([[2]]).transform(lambda rdd: None)
            found = run.collect(left.transformWith(lambda a, b: a.union(b), right))
            run.run(1)
        assert found == [[1]]

    def test_transform_of_several_streams_gets_a_tuple(self, sc: Any) -> None:
        with batches(sc) as run:
            streams = [run.ssc.queueStream([[i]]) for i in range(3)]
            found = run.collect(
                run.ssc.transform(streams, lambda rdds: sc.union(list(rdds)).map(lambda x: x + 1))
            )
            run.run(1)
        assert sorted(found[0]) == [1, 2, 3]

    def test_foreach_rdd_takes_functions_of_every_shape(self, sc: Any) -> None:
        seen: list[Any] = []

        class Sink:
            def with_time(self, time: datetime, rdd: Any) -> None:
                seen.append((time, rdd.collect()))

            def __call__(self, rdd: Any) -> int:
                seen.append(rdd.collect())
                return 7

        def tagged(tag: str, rdd: Any) -> None:
            seen.append((tag, rdd.collect()))

        with batches(sc) as run:
            stream = run.ssc.queueStream([[1]])
            stream.foreachRDD(Sink().with_time)
            stream.foreachRDD(Sink())
            stream.foreachRDD(functools.partial(tagged, "x"))
            stream.foreachRDD(lambda rdd: rdd.count())
            run.run(1)
        assert seen == [(datetime.fromtimestamp(1_700_000_001), [1]), [1], ("x", [1])]

    def test_wrong_arity_is_said_at_once(self, sc: Any) -> None:
        with batches(sc) as run:
            stream = run.ssc.queueStream([[1]])
            with pytest.raises(
                TypeError, match=r"<lambda>\(a, b, c\) is not accepted: func should take one or two"
            ):
                stream.transform(lambda a, b, c: a)
            with pytest.raises(TypeError, match="func should take two or three arguments"):
                stream.transformWith(lambda a: a, stream)
            with pytest.raises(TypeError, match="a function is needed"):
                stream.map(3)  # type: ignore[arg-type]

    def test_functions_and_streams_that_cannot_be_right_are_named_in_the_call(
        self, sc: Any
    ) -> None:
        def one(value: Any) -> Any:
            return value

        with batches(sc) as run:
            ssc, stream = run.ssc, run.ssc.queueStream([[(1, 1)]])
            wrong = (
                ("f", lambda func: stream.map(func), add),
                ("f", lambda func: stream.flatMap(func), add),
                ("f", lambda func: stream.filter(func), add),
                ("f", lambda func: stream.mapPartitions(func), add),
                ("f", lambda func: stream.mapPartitionsWithIndex(func), one),
                ("f", lambda func: stream.mapValues(func), add),
                ("f", lambda func: stream.flatMapValues(func), add),
                ("func", lambda func: stream.reduce(func), one),
                ("func", lambda func: stream.reduceByKey(func), one),
                ("mergeValue", lambda func: stream.combineByKey(one, func, add), one),
                ("partitionFunc", lambda func: stream.partitionBy(2, func), add),
                ("updateFunc", lambda func: stream.updateStateByKey(func), one),
                ("reduceFunc", lambda func: stream.reduceByWindow(func, None, 2, 1), one),
                ("invFunc", lambda func: stream.reduceByKeyAndWindow(add, func, 2), one),
                (
                    "filterFunc",
                    lambda func: stream.reduceByKeyAndWindow(add, None, 2, 1, 1, func),
                    add,
                ),
                ("transformFunc", lambda func: ssc.transform([stream], func), add),
            )
            for name, call, func in wrong:
                with pytest.raises(TypeError, match=rf"^{name}=.* is not accepted: it is called"):
                    call(func)
                with pytest.raises(TypeError, match="a function is needed, not str"):
                    call("x")
            others = (
                ("other", lambda other: stream.union(other)),
                ("other", lambda other: stream.join(other)),
                ("other", lambda other: stream.cogroup(other)),
                ("other", lambda other: stream.transformWith(lambda a, b: a, other)),
                ("dstreams", lambda other: ssc.union(other)),
                ("dstreams", lambda other: ssc.union(stream, other)),
                ("dstreams", lambda other: ssc.transform([other], one)),
            )
            for name, call_with in others:
                with pytest.raises(TypeError, match=rf"^{name}=.* is not accepted: a DStream"):
                    call_with([stream])
            with pytest.raises(TypeError, match=r"^spec=.* is not accepted: StateSpec"):
                stream.mapWithState(one)  # type: ignore[arg-type]

    def test_foreach_batch_needs_a_receiver(self, sc: Any) -> None:
        with (
            batches(sc) as run,
            pytest.raises(StreamGraphError, match="straight from a receiver"),
        ):
            run.ssc.queueStream([[1]]).foreachBatch(lambda df, time: None)


class TestOutput:
    def test_pprint_prints_what_pyspark_prints(self, sc: Any, capsys: Any) -> None:
        with batches(sc, 0.5) as run:
            run.ssc.queueStream([[1, 2, 3], ["é"]]).pprint(2)
            run.run(2)
        rule = "-------------------------------------------\n"
        first = str(datetime.fromtimestamp(1_700_000_001))
        second = str(datetime.fromtimestamp(1_700_000_001.5))
        assert second.endswith(".500000")
        assert capsys.readouterr().out == (
            f"{rule}Time: {first}\n{rule}1\n2\n...\n\n{rule}Time: {second}\n{rule}é\n\n"
        )

    def test_pprint_on_a_terminal_of_ascii_escapes_what_it_cannot_show(
        self, sc: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shown = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, encoding="ascii"))
        with batches(sc, 0.5) as run:
            run.ssc.queueStream([["é", "e"]]).pprint()
            run.run(1)
        sys.stdout.flush()
        assert shown.getvalue().endswith(b"\\xe9\ne\n\n")

    def test_save_as_text_files(self, sc: Any, tmp_path: Any) -> None:
        with batches(sc) as run:
            stream = run.ssc.queueStream([["x"], ["y"]])
            stream.saveAsTextFiles(str(tmp_path / "out"))
            stream.saveAsTextFiles(str(tmp_path / "out"), "txt")
            run.run(2)
        names = sorted(path.name for path in tmp_path.iterdir())
        assert names == [
            f"out-{ms}{ending}"
            for ms in (1_700_000_001_000, 1_700_000_002_000)
            for ending in ("", ".txt")
        ]
        text = "".join(p.read_text() for p in (tmp_path / names[0]).glob("part-*"))
        assert text == "x\n"


class TestQueue:
    def test_all_at_once_then_default(self, sc: Any) -> None:
        with batches(sc) as run:
            found = run.collect(run.ssc.queueStream([[1], [2]], oneAtATime=False, default=[9]))
            run.run(2)
        assert found == [[1, 2], [9]]

    def test_the_queue_is_taken_as_it_is(self, sc: Any) -> None:
        queue = [[1]]
        with batches(sc) as run:
            found = run.collect(run.ssc.queueStream(queue))
            queue.append([2])
            run.run(2)
        assert found == [[1], []]

    def test_an_exhausted_queue_gives_one_empty_partition(self, sc: Any) -> None:
        with batches(sc) as run:
            found = run.collect(run.ssc.queueStream([]).glom())
            run.run(1)
        assert found == [[[]]]


class TestArrow:
    def test_parts_of_a_column_are_split_again_and_counted(self, sc: Any) -> None:
        rows = [{"text": "a-b c-a", "n": 1}, {"text": None, "n": 2}, {"text": "a b", "n": 3}]
        missed: list[str] = []

        def look(rdd: Any) -> None:
            with pytest.raises(Exception, match="there is no column 'text'") as caught:
                rdd.collect()
            missed.append(str(caught.value))

        with batches(sc) as run:
            words = run.ssc.queueStream([rows]).arrow.split(" ", "text")
            counted = run.collect(words.value_counts(numPartitions=1))
            again = run.collect(words.split("-").value_counts(numPartitions=1))
            # Their only column is "value".
            words.value_counts("text", numPartitions=1).foreachRDD(look)
            run.run(1)
        assert dict(counted[0]) == {"a-b": 1, "c-a": 1, "a": 1, "b": 1}
        assert dict(again[0]) == {"a": 3, "b": 2, "c": 1}
        assert len(missed) == 1
