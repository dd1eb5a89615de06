"""`DeadLetterInputDStream`: the dead letters that come while a program runs, as a stream of it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from penstock.listeners.input_info import BatchInput
from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.streaming.dstream.inputs.input_streams import InputDStream
from penstock.streaming.kernels.deferred import no_partitions

if TYPE_CHECKING:
    from pyspark import RDD

    from penstock.dead_letters import LetterTail, StoredLetter
    from penstock.streaming.dstream.graph import DStreamGraph

_limited_log = RateLimitedLog(logging.getLogger("penstock.streaming"))

_MOST = 10_000
_MOST_BYTES = 16 << 20
"""The most bytes of letters in a batch; the others come with the next ones."""


class DeadLetterInputDStream(InputDStream):
    """The dead letters of the program that its driver sees, each in one batch.

    Which letters a batch had is in checkpoints: a batch that is made again has the same, but for
    those that were removed meanwhile. What functions of this stream discard does not come back.
    """

    transient = ("_tail",)

    def __init__(self, graph: DStreamGraph) -> None:
        super().__init__(graph)
        self.name = "DeadLetters"
        self._tail: LetterTail | None = None
        # Up to which record of each log batches have it; None before the first start.
        self._after: dict[str, int] | None = None
        # The same before and after each batch.
        self._taken: dict[int, tuple[dict[str, int], dict[str, int]]] = {}

    def start(self) -> None:
        from penstock.dead_letters import LetterTail

        letters = self.graph.runtime.letters
        if letters is None:
            return
        self._tail = LetterTail(
            letters.place.folder, letters.place.encryption, but=self.stream_id, tell=_tell
        )
        if self._after is None:
            self._after = self._tail.end()

    def compute(self, time_ms: int) -> RDD[Any]:
        found = self._letters(time_ms)
        self.graph.runtime.input_info.report_info(time_ms, BatchInput(self.stream_id, len(found)))
        spark = self.graph.spark_context
        if not found:
            return no_partitions(spark)
        return spark.parallelize(found, min(len(found), spark.defaultParallelism))

    def _letters(self, time_ms: int) -> list[StoredLetter]:
        if self._tail is None or self._after is None:
            return []
        known = self._taken.get(time_ms)
        if known is not None:
            before, upto = known
            if not upto:
                return []
            return self._tail.read(before, most=_MOST, most_bytes=_MOST_BYTES, upto=upto).letters
        found, after = self._tail.read(self._after, most=_MOST, most_bytes=_MOST_BYTES)
        before = {name: self._after.get(name, 0) for name in after}
        moved = {name: number for name, number in after.items() if number > before[name]}
        self._taken[time_ms] = ({name: before[name] for name in moved}, moved)
        self._after = after
        return found

    def must_be_saved_before(self, time_ms: int) -> bool:
        """A batch that is made again must have these letters."""
        return bool(self._taken.get(time_ms, ({}, {}))[1])

    def clear_metadata(self, time_ms: int, unpersist: bool) -> None:
        """Forget old RDDs, and what batches had that no restart makes again."""
        super().clear_metadata(time_ms, unpersist)
        assert self.remember_ms is not None
        kept_ms = time_ms - self.remember_ms
        if self.needed_ms is not None:
            kept_ms = min(kept_ms, self.needed_ms)
        self._taken = {ms: taken for ms, taken in self._taken.items() if ms >= kept_ms}


def _tell(message: str) -> None:
    _limited_log.log(message)
