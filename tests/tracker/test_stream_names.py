"""A stream is known by its name from version to version of a program, by its number within."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from penstock.tracker import ReceivedBlockTracker, StreamsDoNotFitError
from penstock.wire.messages import Ok
from tests.tracker.ledger_cases import LOG_OPTIONS, add, attempt_name, block


def recover(folder: Path) -> ReceivedBlockTracker:
    return ReceivedBlockTracker.recover((), str(folder), options=LOG_OPTIONS)


class Streams:
    """A program's streams over one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.attempts = 0

    def run(self, *names: str, removed: tuple[str, ...] = ()) -> dict[str, int]:
        """Run a program with these streams; each stores a block with its name as position."""
        ledger = recover(self.folder)
        try:
            ledger.return_unfinished_batches()
            wishes = {name: order for order, name in enumerate(names)}
            numbers = ledger.register_streams(wishes, removed)
            for name, number in numbers.items():
                self.attempts += 1
                attempt = attempt_name(self.attempts)
                found = ledger.register_attempt(number, attempt, "host")
                assert found.last_position in (None, name.encode())
                first = found.first_block_number
                blocks = [block(number, attempt, first, position=name.encode())]
                assert add(ledger, number, attempt, blocks) == Ok()
            return numbers
        finally:
            ledger.close()

    def waiting(self) -> dict[str, int]:
        ledger = recover(self.folder)
        try:
            return {
                stream.name: len(stream.unallocated) for stream in ledger._state.streams.values()
            }
        finally:
            ledger.close()


@pytest.fixture
def streams(tmp_path: Path) -> Streams:
    return Streams(tmp_path / "log")


def test_streams_in_another_order_keep_their_numbers_positions_and_records(
    streams: Streams,
) -> None:
    assert streams.run("orders", "clicks") == {"orders": 0, "clicks": 1}
    assert streams.run("clicks", "orders") == {"orders": 0, "clicks": 1}
    assert streams.waiting() == {"orders": 2, "clicks": 2}


def test_a_new_stream_gets_a_number_that_nobody_had(streams: Streams) -> None:
    streams.run("orders", "clicks")
    numbers = streams.run("visits", "clicks", "orders")
    assert numbers == {"orders": 0, "clicks": 1, "visits": 2}
    # Also when its place is free now.
    removed = streams.run("visits", "clicks", removed=("orders",))
    assert removed == {"visits": 2, "clicks": 1}
    assert streams.run("sales", "visits", "clicks")["sales"] == 3


def test_a_stream_that_is_not_there_any_more_is_refused_with_both_names(streams: Streams) -> None:
    streams.run("orders", "clicks")
    with pytest.raises(StreamsDoNotFitError) as raised:
        streams.run("sales", "clicks")
    error = raised.value
    assert (error.left, error.new) == (("orders",), ("sales",))
    told = str(error)
    assert str(streams.folder) in told
    assert "'orders'" in told
    assert "'sales'" in told
    assert "spark.penstock.removedStreams=orders" in told
    assert str(pickle.loads(pickle.dumps(error))) == told
    assert "receiverStream(..., name='orders')" in told
    # Nothing was changed.
    assert streams.run("orders", "clicks") == {"orders": 0, "clicks": 1}


@pytest.mark.parametrize(
    ("before", "after", "how"),
    [
        (("s/0", "s/1", "s/2"), ("s/0",), "name='s', numReceivers=..., maxReceivers=3); fewer"),
        (("s/0", "s/1"), ("s",), "name='s', numReceivers=..., maxReceivers=2); fewer"),
        (("s",), ("s/0", "s/1"), "name='s') without numReceivers. "),
        (("s/x",), ("s",), "name='s/x'). "),
    ],
)
def test_receivers_that_share_a_source_are_asked_for_together(
    streams: Streams, before: tuple[str, ...], after: tuple[str, ...], how: str
) -> None:
    streams.run(*before)
    with pytest.raises(StreamsDoNotFitError) as raised:
        streams.run(*after)
    assert f"under the name that it had: receiverStream(..., {how}" in str(raised.value)


def test_a_stream_of_a_host_is_asked_for_as_a_host_has_it(tmp_path: Path) -> None:
    ledger = recover(tmp_path)
    ledger.register_streams({"orders": 0}, are_kept=True)
    name = attempt_name(1)
    first = ledger.register_attempt(0, name, "host").first_block_number
    add(ledger, 0, name, [block(0, name, first)])
    with pytest.raises(StreamsDoNotFitError, match=r"had: stream\('orders', \.\.\.\)\. ") as raised:
        ledger.register_streams({"clicks": 0}, are_kept=True)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
    ledger.close()


def test_a_removed_stream_leaves_nothing_and_can_come_back_as_new(streams: Streams) -> None:
    streams.run("orders", "clicks")
    streams.run("clicks", removed=("orders",))
    assert streams.waiting() == {"orders": 0, "clicks": 2}
    ledger = recover(streams.folder)
    assert ledger.register_streams({"clicks": 0, "orders": 1}) == {"orders": 0, "clicks": 1}
    assert ledger.last_position(0) is None
    released = {release.attempt: release for release in ledger.cleanup_old_batches(0)}
    assert released[attempt_name(1)].whole
    ledger.close()


def test_records_of_a_batch_that_was_running_count_for_their_stream(tmp_path: Path) -> None:
    ledger = recover(tmp_path)
    ledger.register_streams({"orders": 0})
    name = attempt_name(1)
    first = ledger.register_attempt(0, name, "host").first_block_number
    add(ledger, 0, name, [block(0, name, first)])
    ledger.allocate_blocks_to_batch(1000)
    ledger.close()
    ledger = recover(tmp_path)
    with pytest.raises(StreamsDoNotFitError):
        ledger.register_streams({"clicks": 0})
    ledger.complete_batches([1000])
    ledger.close()
    ledger = recover(tmp_path)
    assert ledger.register_streams({"clicks": 0}) == {"clicks": 1}
    ledger.close()
