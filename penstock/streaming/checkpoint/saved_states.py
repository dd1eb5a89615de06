"""States that outlive a program's code: written with every checkpoint, taken up by another version.

A checkpoint holds a graph with its functions, so it is of use to the code that wrote it only. What
another version of the program needs of a state are its entries, under its name: where they were
saved last, and as of which batch. With them and with the blocks of all later batches, which are
kept, another version *resumes*: it makes the states of those batches itself, and then goes on as
the old code would after a restart. So it does not matter how the old one ended.

That needs batches of the same times. Where the interval is another one, or a state has a slide in
which the saved one's time is not, the new version *begins*: with the states that a graceful stop
saved as of the last batch, and with the blocks that no state has.

A name is the program's own, or else made: that of the operation, and from the second on with its
place among them.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

from penstock.errors import typed_text
from penstock.streaming.checkpoint.errors import UpgradeError
from penstock.streaming.checkpoint.graph_pickling import dump, load
from penstock.streaming.checkpoint.record import CheckpointHeader, SavedState
from penstock.streaming.dstream.names import by_name
from penstock.streaming.dstream.states.rdd_files import RDDFile, save_copy
from penstock.streaming.dstream.states.state_saver import why_to_wait

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyspark import RDD

    from penstock.streaming.dstream.graph import DStreamGraph
    from penstock.streaming.dstream.states.stateful import StatefulDStream
    from penstock.wal import EncryptionKey

_log = logging.getLogger("penstock.streaming.checkpoint")


def state_names(graph: DStreamGraph) -> dict[str, StatefulDStream]:
    """Return the states of a program by name, in the order of its operations.

    Raises:
        StreamGraphError: Two have the same name.
    """
    from penstock.streaming.dstream.states.stateful import StatefulDStream

    states = sorted(
        (node for node in graph.nodes() if isinstance(node, StatefulDStream)),
        key=lambda node: node.order,
    )
    return by_name(((node.state_name, node) for node in states), "state")


def save_states(
    graph: DStreamGraph, last_ms: int
) -> tuple[tuple[SavedState, ...], tuple[str, ...]] | None:
    """Save the states as of the last batch, for a version that begins; runs a Spark job for each.

    Returns:
        The saved states and their paths; None when a state of that batch was never made.
    """
    states: list[SavedState] = []
    paths: list[str] = []
    for name, node in state_names(graph).items():
        with graph.lock:
            time_ms = node.last_time(last_ms)
            entries = node.entries_at(time_ms)
        if entries is None:
            return None
        file = save_copy(entries, graph.encryption)
        states.append(SavedState(name=name, file=dump(file), time_ms=time_ms))
        if file.path:
            paths.append(file.path)
    return tuple(states), tuple(paths)


class SavedStates:
    """The states of a running graph, as its checkpoints have them.

    Args:
        graph: The graph.
    """

    def __init__(self, graph: DStreamGraph) -> None:
        self._nodes = state_names(graph)
        self._known: dict[str, SavedState] = {}

    def find(self) -> tuple[SavedState, ...]:
        """Return each as it was saved last; after `DStreamGraph.note_checkpoints`."""
        for name, node in self._nodes.items():
            time_ms, form, file = node.saved()
            known = self._known.get(name)
            if known is None or known.time_ms != time_ms:
                data = dump(file)
                self._known[name] = SavedState(name=name, file=data, time_ms=time_ms, form=form)
        return tuple(self._known.values())


def take_up_states(
    context: object,
    graph: DStreamGraph,
    before: CheckpointHeader,
    folder: str,
    version: str,
    removed: Collection[str],
    encryption: EncryptionKey | None,
) -> bool:
    """Let a program go on with the states of another version of it.

    Args:
        context: The program's context, for functions that refer to it.
        graph: Its graph.
        before: The last checkpoint of the other version.
        folder: The checkpoint directory.
        version: The program's version.
        removed: Names of states that it gives up.
        encryption: The key of saved RDDs.

    Returns:
        Whether it resumes; else it begins.

    Raises:
        UpgradeError: A saved state has no place in this program, or cannot be read by it, or it
            begins and they are not as of the last batch.
    """

    def refuse(reason: str) -> UpgradeError:
        return UpgradeError(folder, before.version, version, reason)

    nodes = state_names(graph)
    saved = {state.name: state for state in before.states if state.name not in removed}
    kinds = Counter(node.state_name for node in nodes.values() if not node.is_named)
    alike = sorted(kind for kind, count in kinds.items() if count > 1 and kind in saved)
    if alike:
        raise refuse(
            f"several states of {', '.join(alike)} have no name here, so their order alone would "
            f"tell them apart; name them, with stream.named(...): the saved ones are "
            f"{_names(saved)}"
        )
    left = [name for name in saved if name not in nodes]
    if left:
        raise refuse(
            f"the states {_names(left)} have no place in it: its own are {_names(nodes) or 'none'}."
            f" Name a state as it was, with stream.named({left[0]!r}); or give it up with "
            f"spark.penstock.removedStates={','.join(left)}"
        )
    # An earlier Penstock named none, or wrote down none but at a graceful stop.
    had = nodes if before.state_names is None else before.state_names
    lost = [name for name in had if name not in saved and name not in removed]
    if lost and not before.is_last:
        raise refuse(
            f"its states ({_names(lost)}) are not in its last checkpoint, which another Penstock "
            f"wrote. Start version {before.version!r} once more, with the Penstock that it ran "
            f"with, and stop it with stop(stopGraceFully=True); or give them up with "
            f"spark.penstock.removedStates={','.join(lost)}"
        )
    reason = _why_not_resumed(graph, before, {name: nodes[name] for name in saved}, saved)
    if reason:
        _check_ended(before, saved, reason, refuse)
    for name, node in nodes.items():
        if name not in saved:
            _log.info("The state %s is new in version %s: it begins empty", name, version)
            continue
        try:
            entries = _read(saved[name], graph, context, encryption)
            # The old run's files go with the first checkpoint of this one.
            if reason:
                node.seed(entries)
                node.save_given_rdds()
            else:
                node.resume(entries, saved[name].time_ms)
            node.restore(graph.spark_context)
        except Exception as error:
            if cause := why_to_wait(error):
                raise refuse(
                    f"the state {name!r} cannot be saved again, because {cause}; the saved one is "
                    f"as it was: try again when that has passed ({typed_text(error)})"
                ) from error
            raise refuse(
                f"the state {name!r} cannot be read by it ({typed_text(error)}); "
                f"classes of its keys and values must be where they were, or give it up with "
                f"spark.penstock.removedStates={name}"
            ) from error
        _log.info("The state %s goes on from version %s", name, before.version or "without a name")
    return not reason


def _why_not_resumed(
    graph: DStreamGraph,
    before: CheckpointHeader,
    nodes: dict[str, StatefulDStream],
    saved: dict[str, SavedState],
) -> str:
    """Return why the batches of the version before cannot be gone on with; empty when they can."""
    if before.refusal:
        return "it could not be checkpointed"
    if before.batch_ms != graph.batch_ms:
        return (
            f"its batch interval was {before.batch_ms / 1000:g} s and is {graph.batch_ms / 1000:g}"
        )
    for name, node in nodes.items():
        if (saved[name].time_ms - before.zero_ms) % node.slide_ms:
            return f"the state {name!r} has another slide than it had"
    return ""


def _check_ended(
    before: CheckpointHeader,
    saved: dict[str, SavedState],
    reason: str,
    refuse: Callable[[str], UpgradeError],
) -> None:
    """Check that a version can begin with these states: each has all batches.

    Raises:
        UpgradeError: They are older, or of different times.
    """
    if not saved or before.refusal:
        return
    ways = (
        f"keep the interval and the slides in this version; or give the states up with "
        f"spark.penstock.removedStates={','.join(saved)}"
    )
    if not before.is_last:
        raise refuse(
            f"{reason}, and its last run did not end by a graceful stop that processed everything, "
            f"so the states {_names(saved)} may be older than its last batches. Start version "
            f"{before.version!r} once more and stop it with stop(stopGraceFully=True); where that "
            f"cannot process everything either, {ways}"
        )
    if len({state.time_ms for state in saved.values()}) > 1:
        raise refuse(
            f"{reason}, and the states {_names(saved)} have different slides, so that one has seen "
            f"batches that another one has not: {ways}"
        )


def _read(
    state: SavedState,
    graph: DStreamGraph,
    context: object,
    encryption: EncryptionKey | None,
) -> RDD[Any]:
    from penstock.streaming.dstream.states.stateful import entries_of

    file: Any = load(state.file, graph.spark_context, context, encryption)
    rdd = (
        file.read(graph.spark_context)
        if isinstance(file, RDDFile)
        else graph.spark_context.parallelize(file, 1)
    )
    return entries_of(state.form, rdd)


def _names(names: Collection[str]) -> str:
    return ", ".join(map(repr, names))
