"""RDDs that several nodes have, or a node at several times, stay persisted while one needs them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.streaming.batches import WAIT_S, batches


def times(stream: Any) -> list[int]:
    return [ms // 1000 % 100 for ms in stream._node.generated]


def drain(run: Any) -> None:
    assert run.ssc._engine._generator._loop.drain(WAIT_S)


def test_an_rdd_that_others_remember_stays_persisted(sc: Any) -> None:
    with batches(sc) as run:
        stream = run.ssc.queueStream([[1], [2], [3], [4]]).map(str)
        run.collect(stream.window(3))
        # A window of one batch is that batch's RDD, and forgets it before the other does.
        run.collect(stream.window(1))
        run.run(4)
        drain(run)
        assert times(stream)[-3:] == [2, 3, 4]
        assert [rdd.is_cached for rdd in stream._node.generated.values()][-3:] == [True] * 3


@pytest.mark.slow
def test_a_state_that_is_carried_on_stays_persisted(sc: Any, tmp_path: Any) -> None:
    with batches(sc) as run:
        run.ssc.checkpoint(str(tmp_path))
        pairs = run.ssc.queueStream([[("a", 1)], [], [], [("a", 2)]])
        some = pairs.transform(lambda time, rdd: rdd if time.second % 10 in (1, 4) else None)
        states = some.updateStateByKey(lambda values, state: sum(values) + (state or 0))
        found = run.collect(states.checkpoint(1))
        run.run(3)
        drain(run)
        assert [rdd.is_cached for rdd in states._node.generated.values()] == [True, True]
        run.run(1)
    assert found == [[("a", 1)], [("a", 1)], [("a", 1)], [("a", 3)]]
