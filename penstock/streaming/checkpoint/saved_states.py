"""States that outlive a program's code: saved by a graceful stop, taken up by another version.

A checkpoint holds a graph with its functions, so it is of use to the code that wrote it only. What
another version of the program needs of a state are its entries as of the last batch: ``(key, state,
time of the key's last value or None)``, whichever operation keeps it. They are saved by a graceful
stop, when every batch is complete, under the state's name; so they are exact. After a crash the
newest saved state is older than the last batches, and only the old code can bring it up to date.

A name is the program's own, or else made: that of the operation, and from the second on with its
place among them.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

from penstock.streaming.checkpoint.errors import UpgradeError
from penstock.streaming.checkpoint.folder import CheckpointHeader, SavedState
from penstock.streaming.checkpoint.graph_pickling import dump, load
from penstock.streaming.dstream.names import by_name
from penstock.streaming.dstream.rdd_files import RDDFile, save_copy

if TYPE_CHECKING:
    from collections.abc import Collection

    from penstock.streaming.context import StreamingContext
    from penstock.streaming.dstream.graph import DStreamGraph
    from penstock.streaming.dstream.stateful import StatefulDStream
    from penstock.wal import EncryptionKey

__all__ = ["save_states", "seed_states", "state_names"]

_log = logging.getLogger("penstock.streaming.checkpoint")


def state_names(graph: DStreamGraph) -> dict[str, StatefulDStream]:
    """Return the states of a program by name, in the order of its operations.

    Raises:
        StreamGraphError: Two have the same name.
    """
    from penstock.streaming.dstream.stateful import StatefulDStream

    states = sorted(
        (node for node in graph.nodes() if isinstance(node, StatefulDStream)),
        key=lambda node: node.order,
    )
    return by_name(((node.state_name, node) for node in states), "state")


def save_states(
    graph: DStreamGraph, last_ms: int
) -> tuple[tuple[SavedState, ...], tuple[str, ...]] | None:
    """Save the states as of the last batch; runs a Spark job for each.

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


def seed_states(
    context: StreamingContext,
    graph: DStreamGraph,
    before: CheckpointHeader,
    folder: str,
    version: str,
    removed: Collection[str],
    encryption: EncryptionKey | None,
) -> None:
    """Let a program's states begin with those that another version of it saved.

    Args:
        context: The program's context.
        graph: Its graph.
        before: The last checkpoint of the other version.
        folder: The checkpoint directory.
        version: The program's version.
        removed: Names of states that it gives up.
        encryption: The key of saved RDDs.

    Raises:
        UpgradeError: A saved state has no place in this program, or cannot be read by it.
    """

    def refuse(reason: str) -> UpgradeError:
        return UpgradeError(folder, before.version, version, reason)

    nodes = state_names(graph)
    saved = {state.name: state for state in before.states}
    kinds = Counter(node.state_name for node in nodes.values() if not node.is_named)
    alike = sorted(kind for kind, count in kinds.items() if count > 1 and kind in saved)
    if alike:
        raise refuse(
            f"several states of {', '.join(alike)} have no name here, so their order alone would "
            f"tell them apart; name them, with stream.named(...): the saved ones are "
            f"{_names(saved)}"
        )
    left = [name for name in saved if name not in nodes and name not in removed]
    if left:
        raise refuse(
            f"the states {_names(left)} have no place in it: its own are {_names(nodes) or 'none'}."
            f" Name a state as it was, with stream.named({left[0]!r}); or give it up with "
            f"spark.penstock.removedStates={','.join(left)}"
        )
    for name, node in nodes.items():
        if name not in saved:
            _log.info("The state %s is new in version %s: it begins empty", name, version)
            continue
        try:
            file: Any = load(saved[name].file, graph.spark_context, context, encryption)
            assert isinstance(file, RDDFile)
            node.seed(file.read(graph.spark_context))
            # The old run's files go with the first checkpoint of this one.
            node.save_given_rdds()
            node.restore(graph.spark_context)
        except Exception as error:
            raise refuse(
                f"the state {name!r} cannot be read by it ({type(error).__name__}: {error}); "
                f"classes of its keys and values must be where they were, or give it up with "
                f"spark.penstock.removedStates={name}"
            ) from error
        _log.info("The state %s goes on from version %s", name, before.version or "without a name")


def _names(names: Collection[str]) -> str:
    return ", ".join(map(repr, names))
