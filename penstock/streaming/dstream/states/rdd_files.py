"""RDD checkpoints: where an RDD was saved, and how it is read back."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.streaming.kernels.encrypted_rdds import encrypted
from penstock.wal import EncryptionKey

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext


class RDDFiles:
    """What the writer asks of the file system that holds RDD checkpoints; does nothing itself."""

    def sync(self, path: str) -> None:
        """Return when an RDD checkpoint is on the disk, where it is a folder of this host."""

    def remove(self, path: str) -> None:
        """Remove an RDD checkpoint, or a folder of them."""


@dataclass(frozen=True)
class RDDFile:
    """An RDD checkpoint.

    Attributes:
        path: Hadoop's address of its folder; empty when there are no records to save.
        deserializer: How PySpark reads its records.
        part_sizes: The sizes of its parts in bytes, where the folder is on this host; else None.
    """

    path: str
    deserializer: Any
    part_sizes: tuple[int, ...] | None = None

    def read(self, spark_context: SparkContext) -> RDD[Any]:
        """Return the RDD. It has no partitioner.

        Raises:
            PenstockError: A part is missing or was cut.
            Py4JJavaError: The folder is missing or cannot be read.
        """
        if not self.path:
            return spark_context.emptyRDD()
        if self.part_sizes is not None and (found := _part_sizes(self.path)) != self.part_sizes:
            # Spark takes the end of a part for the end of its records, and knows no last part.
            raise _damaged(self.path, self.part_sizes, found)
        return spark_context._checkpointFile(self.path, self.deserializer)


NO_RECORDS = RDDFile("", None)
"""Stands for an RDD that is known to have no records."""


def checkpoint_file(rdd: RDD[Any]) -> RDDFile | None:
    """Return where an RDD was saved; None when no job has done that yet."""
    path = rdd.getCheckpointFile()
    return None if path is None else RDDFile(path, rdd._jrdd_deserializer, _part_sizes(path))


def save_copy(rdd: RDD[Any], key: EncryptionKey | None = None) -> RDDFile:
    """Save the records of an RDD in the checkpoint directory; runs a Spark job.

    Args:
        rdd: The RDD.
        key: The key to encrypt them with; None: they are saved in clear.
    """
    # A copy: an RDD that a job has run on is not checkpointed any more.
    if key is None:
        copy: RDD[Any] = rdd.mapPartitions(_itself, preservesPartitioning=True)
    else:
        copy = encrypted(rdd, key)
    copy.checkpoint()
    copy.count()
    found = checkpoint_file(copy)
    assert found is not None
    return found


def save_marked(rdd: RDD[Any]) -> None:
    """Save an RDD that is marked for a checkpoint; runs a Spark job. May be tried again.

    Spark itself tries once, in the job that first uses the RDD, and never again.

    Raises:
        OSError: The driver could not make its folder.
        Py4JJavaError: It cannot be saved. Nothing of it is left.
    """
    context = rdd.context
    java: Any = context._jvm
    marked: Any = rdd._jrdd.rdd()
    path = f"{context.getCheckpointDir()}/rdd-{marked.id()}"
    local = _local_path(path)
    if local is not None:
        # Of a full disk Java would say only that it could not.
        os.makedirs(local, exist_ok=True)
    # As new: the one that failed, also in a job of the program's, stays "in progress" for ever.
    getattr(marked, "checkpointData_$eq")(java.scala.Option.empty())
    marked.checkpoint()
    try:
        marked.checkpointData().get().checkpoint()
    except BaseException:
        with contextlib.suppress(Exception):  # the error of the job is the one to report
            SparkRDDFiles(context).remove(path)
        raise


def _itself(records: Any) -> Any:
    return records


def remove_unfinished_output(spark_context: SparkContext, path: str) -> bool:
    """Remove a folder of saved records that a job left unfinished; return whether it was one."""
    java: Any = spark_context._jvm
    target = java.org.apache.hadoop.fs.Path(path)
    files = target.getFileSystem(spark_context._jsc.hadoopConfiguration())
    if not files.exists(java.org.apache.hadoop.fs.Path(target, "_temporary")):
        return False
    files.delete(target, True)
    return True


class SparkRDDFiles(RDDFiles):
    """Forces and removes RDD checkpoints, whichever file system they are on."""

    def __init__(self, spark_context: SparkContext) -> None:
        self._context = spark_context

    def sync(self, path: str) -> None:
        # Hadoop's local file system leaves it to the page cache. On HDFS a file that is closed is
        # with its DataNodes, which force it if `dfs.datanode.synconclose` says so.
        local = _local_path(path)
        if local is None or not os.path.isdir(local):
            return
        for name in sorted(os.listdir(local)):
            _sync(os.path.join(local, name))
        _sync(local)
        _sync(os.path.dirname(local))

    def remove(self, path: str) -> None:
        java: Any = self._context._jvm
        target = java.org.apache.hadoop.fs.Path(path)
        conf = self._context._jsc.hadoopConfiguration()
        target.getFileSystem(conf).delete(target, True)


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _part_sizes(path: str) -> tuple[int, ...] | None:
    """Return the sizes of an RDD checkpoint's parts; None where it is not on this host."""
    local = _local_path(path)
    if local is None:
        return None
    try:
        parts = sorted(name for name in os.listdir(local) if name.startswith("part-"))
        return tuple(os.path.getsize(os.path.join(local, name)) for name in parts)
    except FileNotFoundError:
        return None


def _local_path(path: str) -> str | None:
    scheme, colon, rest = path.partition(":")
    if not colon:
        return path if path.startswith("/") else None
    return "/" + rest.lstrip("/") if scheme == "file" else None


def _damaged(path: str, sizes: tuple[int, ...], found: tuple[int, ...] | None) -> PenstockError:
    if found is None:
        return PenstockError(
            f"the RDD that was saved in {path} is not there. Bring that folder back, or the "
            "checkpoint directory to its place if it was moved; or start with another one, without "
            "the states"
        )
    wrong = [
        f"part {number} has {had} bytes instead of {size}"
        for number, (size, had) in enumerate(zip(sizes, found, strict=False))
        if had != size
    ]
    what = wrong[0] if wrong else f"it has {len(found)} parts instead of {len(sizes)}"
    return PenstockError(
        f"the RDD that was saved in {path} is damaged, {what}; bring that folder back from a copy, "
        "or start with another checkpoint directory, without the states"
    )
