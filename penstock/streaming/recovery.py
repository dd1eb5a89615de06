"""Making a streaming context: with checkpoints to come, and again from one that was written."""

from __future__ import annotations

import logging
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec
from pyspark import SparkConf, SparkContext

from penstock.errors import PenstockError, typed_text
from penstock.host.durability import checkpoint_address
from penstock.host.encryption import recovery_encryption
from penstock.host.spark.contexts import (
    hand_over_storage,
    read_settings,
    settings_to_start_with,
    take_storage,
)
from penstock.runtime.clock import Clock, SystemClock
from penstock.settings import IO_ENCRYPTION, Settings
from penstock.streaming.checkpoint.checkpointer import Checkpointing, Progress, check_picklable
from penstock.streaming.checkpoint.errors import CheckpointReadError, UpgradeError
from penstock.streaming.checkpoint.graph_pickling import load
from penstock.streaming.checkpoint.program_code import (
    ProgramPart,
    changes,
    parts_of,
    shown_setting,
)
from penstock.streaming.checkpoint.record import Checkpoint, CheckpointHeader, read_checkpoint
from penstock.streaming.checkpoint.saved_states import state_names
from penstock.streaming.dstream.graph import DStreamGraph
from penstock.streaming.dstream.states.rdd_files import SparkRDDFiles
from penstock.wal import STORAGE_VARIABLES, EncryptionKey, given_storage, is_storage_setting

if TYPE_CHECKING:
    from penstock.tracker import ReceivedBlockTracker

_log = logging.getLogger("penstock.streaming.checkpoint")

_OF_ONE_RUN = frozenset(
    {
        "spark.app.id",
        "spark.app.startTime",
        "spark.app.submitTime",
        "spark.driver.host",
        "spark.driver.bindAddress",
        "spark.driver.port",
        "spark.ui.port",
        "spark.blockManager.port",
        "spark.kubernetes.driver.pod.name",
        "spark.kubernetes.executor.podNamePrefix",
    }
)
"""What a new run must not take over. The last seven are those that Spark's `Checkpoint` drops."""

_RELOADED = (
    "spark.yarn.app.id",
    "spark.yarn.app.attemptId",
    "spark.driver.host",
    "spark.driver.bindAddress",
    "spark.driver.port",
    "spark.master",
    "spark.ui.port",
    "spark.blockManager.port",
    "spark.kubernetes.driver.pod.name",
    "spark.kubernetes.executor.podNamePrefix",
    "spark.yarn.jars",
    "spark.yarn.keytab",
    "spark.yarn.principal",
    "spark.kerberos.keytab",
    "spark.kerberos.principal",
    "spark.ui.filters",
)
"""What the new environment may replace, as in Spark's `Checkpoint.createSparkConf`."""

_WAY_TO_S3 = tuple(key for key in STORAGE_VARIABLES.values() if ".s3." in key)

_NOT_COMPARED = ("spark.app.", "spark.submit.", "spark.repl.", "spark.ui.showConsoleProgress")
"""What Spark sets itself, by how the program is started."""

_JVM_OPTIONS = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")


def make_checkpointing(
    graph: DStreamGraph,
    directory: str,
    recovered: Progress | None,
    ledger: ReceivedBlockTracker,
    *,
    version: str = "",
    parts: tuple[ProgramPart, ...] = (),
    upgraded: CheckpointHeader | None = None,
    is_first: bool = False,
    take_up: Callable[[CheckpointHeader], bool] = lambda _: False,
) -> Checkpointing | Checkpoint:
    """Return what a context that starts has checkpointed.

    When it cannot be recovered from, that is the one checkpoint of its run, which says so.

    Args:
        graph: The graph.
        directory: The checkpoint directory.
        recovered: How far the run before was, whose graph this is.
        ledger: Holds the checkpoints.
        version: The program's version.
        parts: What its streams were made with.
        upgraded: The last checkpoint of another version.
        is_first: Whether none was found before the streams were made.
        take_up: Lets the program's states go on from that one's; returns whether it resumes.

    Raises:
        UnpicklableFunctionError: A function of the program cannot be written to a checkpoint.
        UpgradeError: It would go on from another version, and cannot be checkpointed itself.
        CheckpointReadError: Another program ran from the folder until after the checkpoint was
            read, or looked for in vain.
    """
    spark_context = graph.spark_context
    newest = _newest_in(ledger, directory)
    if is_first or recovered is not None or upgraded is not None:
        _check_newest(newest, directory, recovered or upgraded)
    elif newest is not None and newest.states:
        _log.warning(
            "This program starts over: with its first checkpoint in %s the states of application "
            "%s (%s) are gone, which are there as of the batch of %d ms. To go on with them, make "
            "the context by StreamingContext.getOrCreate",
            directory,
            newest.app_name,
            ", ".join(state.name for state in newest.states),
            newest.last_batch_ms,
        )
    refusal = graph.refusal()
    header = CheckpointHeader(
        program=recovered.program if recovered is not None else uuid.uuid4().hex,
        batch_ms=graph.batch_ms,
        zero_ms=0,
        last_batch_ms=0,
        master=spark_context.master or "",
        app_name=spark_context.appName or "",
        conf=tuple(saved_conf(spark_context)),
        rdd_folder=spark_context.getCheckpointDir() or "",
        refusal=refusal,
        version=version,
        state_names=tuple(state_names(graph)),
        parts=parts,
    )
    if refusal and upgraded is not None:
        # It could not take up the states, and the old version could not be started again.
        raise UpgradeError(directory, upgraded.version, version, refusal)
    if refusal:
        _log.warning("No checkpoints are written, the program cannot be recovered: %s", refusal)
        now_ms = SystemClock().time_ms()
        return Checkpoint(msgspec.structs.replace(header, last_batch_ms=now_ms), b"")
    if upgraded is not None and take_up(upgraded):
        recovered = _resume(graph, upgraded, header)
    graph.save_given_rdds()
    check_picklable(graph)
    return Checkpointing(
        header, ledger, directory, SparkRDDFiles(spark_context), recovered, upgraded
    )


def _newest_in(ledger: ReceivedBlockTracker, directory: str) -> CheckpointHeader | None:
    if not ledger.checkpoint:
        return None
    try:
        return Checkpoint.decode(ledger.checkpoint, directory).header
    except CheckpointReadError:
        # One of another format: going on from it was refused before.
        return None


def _check_newest(
    newest: CheckpointHeader | None, directory: str, before: Progress | CheckpointHeader | None
) -> None:
    """Check that what was read is still the newest: the folder's former owner may have gone on."""

    def shown(found: Progress | CheckpointHeader | None) -> str:
        if found is None:
            return "there was none"
        pending = f" but for {found.pending_ms} ms" if found.pending_ms else ""
        return f"its batches are complete up to that of {found.last_batch_ms} ms{pending}"

    if shown(newest) != shown(before):
        raise CheckpointReadError(
            directory,
            f"when it was read, {shown(before)}; and now {shown(newest)}: another program ran from "
            "it until now, or it was replaced. Start it again",
        )


def _resume(graph: DStreamGraph, before: CheckpointHeader, own: CheckpointHeader) -> Progress:
    """Let a graph go on with the batches of another version of the program."""
    received_ms = before.needed_ms
    if received_ms is None:
        states = (state.time_ms + before.batch_ms for state in before.states)
        received_ms = min((before.next_ms, *states))
    graph.take_over(before.zero_ms, before.last_batch_ms, before.next_ms, received_ms)
    return Progress(own.program, before.last_batch_ms, before.pending_ms, own.version, own.parts)


def saved_conf(spark_context: SparkContext) -> Iterator[tuple[str, str]]:
    """Yield the settings of a program as its checkpoints hold them.

    Each SparkContext puts options before those that the user has for the JVMs. They are left out:
    after some seventy restarts there would be more of them than a JVM takes.
    """
    jvm: Any = spark_context._jvm
    modules = re.escape(jvm.org.apache.spark.launcher.JavaModuleOptions.defaultModuleOptions())
    added = re.compile(rf"(-Djava\.net\.preferIPv6Addresses=(true|false) )?{modules}( |$)")
    for key, value in spark_context.getConf().getAll():
        if key in _JVM_OPTIONS and added.search(value):
            value = added.sub("", value).strip()
            if not value:
                continue
        yield key, value


class _Context(Protocol):
    """What of a `StreamingContext` its recovery uses."""

    def __init__(
        self, sparkContext: SparkContext, batchDuration: float, *, clock: Clock | None = None
    ) -> None: ...
    def checkpoint(self, directory: str | None) -> None: ...
    def _take_over(self, graph: DStreamGraph, progress: Progress) -> None: ...


C = TypeVar("C", bound=_Context)


def recover_context(contexts: type[C], directory: str, clock: Clock | None = None) -> C | None:
    """Return the context that the checkpoint in a folder describes, not started.

    The active SparkContext is used; if there is none, one is made as it was.

    Args:
        contexts: The class of contexts.
        directory: The checkpoint directory.
        clock: The clock of the batches; for tests.

    Returns:
        None when there is no checkpoint.

    Raises:
        CheckpointVersionError: It was written by another version.
        CheckpointReadError: It cannot be used for another reason.
        PenstockError, OSError: The environment has a key that is none; see `read_checkpoint`.
    """
    path = checkpoint_address(directory)
    spark_context = SparkContext._active_spark_context
    encryption, checkpoint = _newest(path)
    if checkpoint is None:
        return None
    checkpoint.check_versions(path)
    header = checkpoint.header
    if header.refusal:
        raise CheckpointReadError(path, header.refusal)
    own = spark_context is None
    if spark_context is None:
        spark_context = SparkContext(conf=recovered_conf(header.conf, path))
    else:
        _tell_of_settings(
            "The settings of the SparkContext count, and not those of the checkpoint, where they "
            "differ",
            dict(saved_conf(spark_context)),
            dict(header.conf),
        )
    try:
        context = contexts(spark_context, header.batch_ms / 1000, clock=clock)
        context.checkpoint(directory)
        if header.rdd_folder and spark_context.getCheckpointDir() is None:
            # The program had one of its own; each SparkContext makes a folder below it.
            spark_context.setCheckpointDir(header.rdd_folder.rstrip("/").rpartition("/")[0])
        graph = load(checkpoint.body, spark_context, context, encryption)
        graph.restore(spark_context)
    except Exception as error:
        if own:
            spark_context.stop()
        # Errors of our own say what is wrong; others come of functions that are unpickled.
        reason = (
            str(error)
            if isinstance(error, PenstockError)
            else f"its graph cannot be made again ({typed_text(error)}); code that it "
            "refers to may have changed or be missing, or files of it were removed. `penstock "
            f"checkpoint {path}` shows its contents"
        )
        raise CheckpointReadError(path, reason) from error
    context._take_over(
        graph,
        Progress(
            header.program, header.last_batch_ms, header.pending_ms, header.version, header.parts
        ),
    )
    _log.info(
        "Recovered from the checkpoint of %d ms in %s: application %s, %d batches not complete",
        header.last_batch_ms,
        path,
        header.app_name,
        len(header.pending_ms),
    )
    return context


def _newest(path: str) -> tuple[EncryptionKey | None, Checkpoint | None]:
    """Return the newest checkpoint in a folder, and the key that it was read with."""
    spark: Any = SparkContext
    spark_context: SparkContext | None = spark._active_spark_context
    if spark_context is not None:
        read_settings(spark_context, is_storage_setting)
        hand_over_storage(spark_context)
    elif "PYSPARK_GATEWAY_PORT" in os.environ:
        # What spark-submit was given is known before there is a Spark context.
        spark._ensure_initialized()
        _take_storage(SparkConf(loadDefaults=True, _jvm=spark._jvm).getAll())
    elif spark._jvm is None:
        # Spark is not started for it: memory and class path are those that the program asks for.
        _take_storage(settings_to_start_with(os.environ))
    encryption = recovery_encryption(_is_encryption_enabled(spark_context), os.environ)
    return encryption, read_checkpoint(path, encryption)


def _take_storage(pairs: Iterable[tuple[str, str]]) -> None:
    pairs = [pair for pair in pairs if is_storage_setting(pair[0])]
    # In the environment it would be named as a variable, which no one has set.
    Settings.from_pairs(pairs)
    take_storage(pairs)


def find_upgrade(directory: str, version: str) -> CheckpointHeader | None:
    """Return the checkpoint's header when another version of the program wrote it.

    Returns:
        None when there is no checkpoint, or this version wrote it.

    Raises:
        PenstockError, OSError: As `recover_context`.
    """
    _, checkpoint = _newest(checkpoint_address(directory))
    if checkpoint is None or checkpoint.header.version == version:
        return None
    return checkpoint.header


def tell_of_changes(
    directory: str, setup: Callable[..., Any], before: Progress, version: str | None
) -> None:
    """Warn when a program that goes on from a checkpoint is not the one that wrote it."""
    changed = changes(before.parts, parts_of(setup)) if before.parts else []
    of_version = f" of version {before.version!r}" if before.version else ""
    if changed:
        _log.warning(
            "The program has changed, and what the checkpoint in %s has of it%s goes on: its "
            "functions, streams and settings as they were. To go on with the program as it is "
            "now, give it a version of its own, such as getOrCreate(..., version=%r)\n%s",
            directory,
            of_version,
            _other_version(before.version),
            "\n".join(f"  {line}" for line in changed),
        )
    elif version is None and before.version:
        _log.warning(
            "The code%s of the program goes on, which is in the checkpoint; for other code give "
            "getOrCreate(..., version=...) another version",
            of_version,
        )


def _other_version(version: str) -> str:
    if not version:
        return "2"
    return str(int(version) + 1) if version.isascii() and version.isdigit() else f"{version}-2"


def _is_encryption_enabled(spark_context: SparkContext | None) -> bool | None:
    if spark_context is None:
        return None
    settings = Settings.from_pairs(
        pair for pair in spark_context.getConf().getAll() if pair[0] == IO_ENCRYPTION
    )
    return settings.io_encryption_enabled


def recovered_conf(pairs: Iterable[tuple[str, str]], path: str = "") -> SparkConf:
    """Return Spark's configuration of a recovered program.

    It is the one that was saved, without what belongs to one run. What the new environment sets
    of `_RELOADED` counts instead: by ``spark-submit``, or by ``PYSPARK_SUBMIT_ARGS``; and what it
    sets of object storage. What is saved of the way to S3 is not needed where the checkpoint was
    found there without it, and may be of a place that is no more.

    Args:
        pairs: What was saved.
        path: Where the checkpoint was found.
    """
    dropped = _WAY_TO_S3 if path.startswith("s3:") else ()
    kept = {key: value for key, value in pairs if key not in _OF_ONE_RUN and key not in dropped}
    spark: Any = SparkContext
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    is_first = spark._jvm is None
    spark._ensure_initialized(conf=_conf(kept))
    # An earlier JVM knows the environment of another program.
    keys = _RELOADED if is_submitted or is_first else ()
    environment = SparkConf(loadDefaults=True, _jvm=spark._jvm)
    for key in keys:
        value = environment.get(key, None)
        if value is not None:
            kept[key] = value
    # By these the checkpoint was reached.
    stored = given_storage(os.environ)
    kept.update((STORAGE_VARIABLES[name], text) for name, text in stored.items())
    if keys:
        named = dict(environment.getAll())
        if not is_submitted:
            # The JVM was given those that were saved, which hide what else its files have.
            hidden = {key for key in kept if named.get(key) == kept[key]}
            named.update(
                (key, value) for key, value in _default_settings().items() if key in hidden
            )
        _tell_of_settings(
            "The settings of the checkpoint count. What is set otherwise now does not, until the "
            "program has another version, getOrCreate(..., version=...)",
            named,
            kept,
            added_only=True,
        )
    return _conf(kept)


def _default_settings() -> dict[str, str]:
    """Return what ``spark-defaults.conf`` has; the JVM also has it, except what it was given."""
    spark: Any = SparkContext
    utils = spark._jvm.org.apache.spark.util.Utils
    path = utils.getDefaultPropertiesFile(getattr(utils, "getDefaultPropertiesFile$default$1")())
    if path is None:
        return {}
    pairs = utils.getPropertiesFromFile(path).iterator()
    found = {}
    while pairs.hasNext():
        pair = pairs.next()
        found[str(pair._1())] = str(pair._2())
    return found


def _tell_of_settings(
    what: str, now: Mapping[str, str], saved: Mapping[str, str], *, added_only: bool = False
) -> None:
    keys = now.keys() if added_only else now.keys() | saved.keys()
    differ = [
        shown_setting(key, now.get(key), saved.get(key))
        for key in sorted(keys)
        if now.get(key) != saved.get(key)
        and key not in _OF_ONE_RUN
        and key not in _RELOADED
        and key not in _JVM_OPTIONS
        and not key.startswith(_NOT_COMPARED)
    ]
    if differ:
        _log.warning("%s: %s", what, "; ".join(differ))


def _conf(values: Mapping[str, str]) -> SparkConf:
    return SparkConf(loadDefaults=False).setAll(list(values.items()))
