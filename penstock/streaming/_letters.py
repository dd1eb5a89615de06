"""Where the dead letters of a program go, as far as its streams need it; what is said of it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.host.durability import check_writable
from penstock.streaming.dstream.dead_letter_stream import DeadLetterInputDStream
from penstock.streaming.dstream.derived_streams import NarrowDStream
from penstock.streaming.errors import StreamGraphError
from penstock.streaming.kernels.dead_letters import LetterOperation, LettersOfRun
from penstock.wal import is_on_hdfs, is_shared

if TYPE_CHECKING:
    from penstock.host.preparation import Run
    from penstock.streaming.dstream.graph import DStreamGraph

_log = logging.getLogger("penstock.streaming")


def letters_of_run(graph: DStreamGraph, run: Run) -> LettersOfRun | None:
    """Return where the dead letters of the program go.

    Args:
        graph: The graph.
        run: The run.

    Returns:
        None where no stream of the graph writes or reads any, or they are not to be kept.

    Raises:
        UnwritableFolderError: They are to lie on this host and cannot be written.
        StreamGraphError: They are to be read, and lie on other hosts.
    """
    nodes = graph.nodes()
    writes = any(
        isinstance(node, NarrowDStream) and isinstance(node.operation, LetterOperation)
        for node in nodes
    )
    reads = any(isinstance(node, DeadLetterInputDStream) for node in nodes)
    if not (writes or reads):
        return None
    settings = run.settings
    if not settings.dead_letters_enabled:
        if reads:
            _log.warning(
                "deadLetters() stays empty: spark.penstock.deadLetters.enabled is false, so that "
                "none are kept"
            )
        return None
    place = run.letters_place()
    on_all_hosts = is_shared(place.folder)
    if reads and not run.is_local and not on_all_hosts:
        raise StreamGraphError(
            f"deadLetters() is read by the driver, and dead letters lie in {place.folder} on each "
            "host; set spark.penstock.deadLetters.dir to a folder on HDFS or an object store, or "
            "read those of a host there with penstock.dead_letters.letters"
        )
    if run.is_local and settings.dead_letters_dir is not None and not on_all_hosts:
        check_writable(settings.dead_letters_dir)
    if writes and settings.dead_letters_dir is None and not run.durability.keeps_blocks:
        _log.warning(
            "The dead letters of mapOrDeadLetter and flatMapOrDeadLetter lie in %s, which goes "
            "with the program; set spark.penstock.deadLetters.dir, spark.penstock.wal.dir or a "
            "checkpoint directory to keep them",
            place.folder,
        )
    return LettersOfRun(run.run_id, place, is_on_hdfs(place.folder))
