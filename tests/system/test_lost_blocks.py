"""A block that is nowhere any more: its batch fails, or goes on without it, as the user chose."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.receiver import receiver
from penstock.wire.messages import ReceivedBlockInfo
from tests.system.running import WAIT_S, run_on
from tests.system.spoiling import spoil

pytestmark = pytest.mark.slow

TOTAL = 40


@receiver
def numbers(ctx: Any) -> Iterator[str]:
    for number in range(TOTAL):
        yield str(number)
        ctx.stopped.wait(0.05)
    ctx.stopped.wait(WAIT_S)


class Batches:
    """Spoils the first block of the first batch that has any, and keeps the records of all."""

    def __init__(self) -> None:
        self.spoilt: list[ReceivedBlockInfo] = []
        self.found: list[Any] = []
        self.counted = 0
        self.framed = 0

    def on_rdd(self, rdd: Any) -> None:
        blocks = getattr(rdd, "blocks", ())  # a batch without blocks has another kind of RDD
        if blocks and not self.spoilt:
            spoil(blocks[0])
            self.spoilt.append(blocks[0])
        self.found += map(int, rdd.collect())
        self.counted += rdd.count()

    def on_frame(self, frame: Any, _: Any) -> None:
        self.framed += frame.count()

    def __reduce__(self) -> tuple[Any, ...]:
        raise AssertionError("no checkpoint is written")


@pytest.mark.long
def test_a_batch_goes_on_without_a_lost_block_which_is_told_and_counted_once(sc: Any) -> None:
    batches = Batches()
    with run_on(sc, {"spark.penstock.lostBlocks": "skip"}) as run:
        stream = run.ssc.receiverStream(numbers)
        stream.foreachRDD(batches.on_rdd)
        stream.foreachBatch(batches.on_frame)
        run.start()
        told = run.events.wait_for(
            "error", lambda info: "goes on without" in info.lastErrorMessage()
        )
        run.events.wait_for("batch", lambda _: TOTAL - 1 in batches.found)
        lost = batches.spoilt[0]
        assert lost.block_id in told.lastErrorMessage()
        assert "checksum" in told.lastError() or "no record begins here" in told.lastError()
        assert run.ssc.statistics().skipped_blocks == 1
        assert run.ssc.statistics().failed_batches == 0
        assert len(batches.found) == batches.counted == batches.framed == TOTAL - lost.num_records
        assert batches.found == [n for n in range(TOTAL) if n in batches.found]


@pytest.mark.long
def test_without_that_choice_the_batch_fails_and_names_the_block(sc: Any) -> None:
    batches = Batches()
    with run_on(sc) as run:
        run.ssc.receiverStream(numbers).foreachRDD(batches.on_rdd)
        run.start()
        with pytest.raises(Exception, match="is in none of its places") as raised:
            run.ssc.awaitTerminationOrTimeout(WAIT_S)
        assert batches.spoilt[0].block_id in str(raised.value)
        assert run.ssc.statistics().skipped_blocks == 0
