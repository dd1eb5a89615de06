"""The recoverable program with three states: ``python -m tests.system.three_states JSON``.

Each operation that keeps a state counts the words; each writes what it has after a batch to the
file of the batch's time.
"""

from __future__ import annotations

import json
import operator
import sys
from typing import Any

from penstock.streaming import State, StateSpec, StreamingContext
from tests.system import recoverable

WINDOW_BATCHES = 3


def with_one(number: int) -> tuple[str, int]:
    return recoverable.word_of(number), 1


def count(_: str, one: int | None, state: State[int]) -> None:
    state.update((state.getOption() or 0) + (one or 0))


def counts(pairs: list[tuple[str, int]]) -> dict[str, Any]:
    return {word: found for word, found in pairs if found}


def build(config: dict[str, Any]) -> StreamingContext:
    ssc, numbers = recoverable.build_with_numbers(config)
    words = numbers.map(with_one)
    mapped = words.mapWithState(StateSpec.function(count).numPartitions(2))
    mapped.checkpoint(config["state_s"])
    mapped.stateSnapshots().foreachRDD(recoverable.Write(config["mapped"], counts))
    window = words.reduceByKeyAndWindow(
        operator.add, operator.sub, WINDOW_BATCHES * config["batch_s"], config["batch_s"], 2
    )
    window.checkpoint(config["state_s"])
    window.foreachRDD(recoverable.Write(config["windows"], counts))
    return ssc


if __name__ == "__main__":
    # Its functions belong to the module, not to `__main__`.
    from tests.system import three_states

    recoverable.CONFIG.update(json.loads(sys.argv[1]))
    recoverable.main(three_states.build)
