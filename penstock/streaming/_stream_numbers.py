"""The names of a program's received streams, and the numbers that the ledger has for them.

A stream is known by its number in blocks, folders, events and rates, and by its name from one
version of a program to the next. Before anything starts, each received stream gets the number that
the ledger has for its name; numbers of other inputs give way. A program that did not change finds
its numbers as they are: those of the order in which its inputs were made.

A name is the program's own, or else made: from the receiver's type or function, and from the second
of a kind on with its place among them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

from penstock.streaming.dstream.input_streams import ReceiverInputDStream
from penstock.streaming.dstream.names import by_name
from penstock.streaming.durations import next_multiple
from penstock.streaming.errors import StreamGraphError

if TYPE_CHECKING:
    from penstock.streaming.checkpoint.record import CheckpointHeader
    from penstock.streaming.dstream.graph import DStreamGraph
    from penstock.streaming.rates import RateBook
    from penstock.tracker import ReceivedBlockTracker

_log = logging.getLogger("penstock.streaming")


def stream_names(graph: DStreamGraph) -> dict[str, ReceiverInputDStream]:
    """Return the received streams by name, in the order in which they were made.

    Raises:
        StreamGraphError: Two have the same name.
    """
    received = (node for node in graph.inputs if isinstance(node, ReceiverInputDStream))
    return by_name(((node.name, node) for node in received), "stream")


def number_streams(
    graph: DStreamGraph,
    ledger: ReceivedBlockTracker,
    rates: RateBook,
    *,
    removed: Collection[str] = (),
    is_kept: bool = True,
    before: CheckpointHeader | None = None,
) -> None:
    """Give each received stream the number that the ledger has for its name.

    Args:
        graph: The graph.
        ledger: The ledger; new names are registered in it.
        rates: What knows streams by number, too.
        removed: Names of streams that the program gave up, with what the ledger has of them.
        is_kept: Whether the ledger outlives the program.
        before: The last checkpoint of the other version; None when there is none.

    Raises:
        StreamGraphError: Two streams have the same name, or their order alone would say which is
            which of another version.
        StreamsDoNotFitError: The ledger has records or positions of a stream that is not there.
        LedgerWriteError: The names could not be logged.
    """
    streams = stream_names(graph)
    kinds = Counter(node.name for node in streams.values() if not node.is_named)
    alike = sorted(kind for kind, count in kinds.items() if count > 1)
    if alike and before is not None:
        raise StreamGraphError(
            f"several streams of {', '.join(alike)} have no name, and version {before.version!r} "
            f"of the program may have had them in another order: name them, with stream.named(...)"
        )
    if alike and is_kept:
        _log.warning(
            "Several streams of %s have no name: a changed program tells them apart by their "
            "order only; name them, with stream.named(...)",
            ", ".join(alike),
        )
    if before is not None:
        others = [node.made_by for node in graph.inputs if node not in streams.values()]
        if others:
            _log.warning(
                "Inputs without a receiver begin anew in another version of a program: %s",
                ", ".join(others),
            )
    numbers = ledger.register_streams(
        {name: node.stream_id for name, node in streams.items()}, removed
    )
    new = {node.stream_id: numbers[name] for name, node in streams.items()}
    taken = set(new.values())
    for node in graph.inputs:
        if node.stream_id not in new:
            number = node.stream_id if node.stream_id not in taken else max(taken) + 1
            new[node.stream_id] = number
            taken.add(number)
    if all(before == after for before, after in new.items()):
        return
    rates.renumber(new)
    for node in graph.inputs:
        node.stream_id = new[node.stream_id]


def hand_over(ledger: ReceivedBlockTracker, before: CheckpointHeader, *, is_resumed: bool) -> None:
    """Divide a ledger between two versions of a program; call before receivers start.

    A version that resumes has the batches of the one before. What no batch has gets one of its
    own: records of the new receivers may have another schema. For one that begins, the batches
    that are in the states count as complete.

    Args:
        ledger: The ledger.
        before: The last checkpoint of the version before.
        is_resumed: Which of the two.

    Raises:
        LedgerWriteError: It could not be logged.
    """
    if not is_resumed:
        # What no state has yet, as all of them have longer slides, is given again.
        in_states_ms = max((state.time_ms for state in before.states), default=-1)
        ledger.complete_batches(ms for ms in ledger.incomplete_batches() if ms <= in_states_ms)
    elif ledger.has_unallocated_blocks:
        last_ms = max(before.last_batch_ms, ledger.last_allocated_ms)
        ledger.allocate_blocks_to_batch(
            next_multiple(last_ms - before.zero_ms, before.batch_ms) + before.zero_ms
        )
