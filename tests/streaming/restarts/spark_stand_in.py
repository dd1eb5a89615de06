"""A stand-in for Spark's execution of RDDs: lists of pickled records in partitions, in this thread.

Streaming programs of thousands of restarts cannot start a JVM each. What stands in for Spark here
is below PySpark's Python code: an RDD of the JVM, the few calls that make one, and a job. All that
is in front of it is real, PySpark's `RDD` and this project's kernels included: partitioners,
shuffles written as pickled pieces, sections, lazily made RDDs.

As in Spark, an RDD is computed anew from what it is made of whenever a job needs it, unless it is
persisted or was checkpointed; a job saves the RDDs that are marked for a checkpoint, but looks
behind such a one only with ``spark.checkpoint.checkpointAllMarkedAncestors``; what a job reads
must not be deeper than `MAX_DEPTH` RDDs.

It does not show: pickled functions and what they drag along, Python workers, several tasks at a
time, tasks that are tried again, memory that ends, spilling, order of records after a shuffle
(here it is always the same), and what Py4J costs or raises.
"""

from __future__ import annotations

import io
import itertools
import os
import pickle
import shutil
import struct
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any
from unittest import mock

from pyspark import RDD, SparkContext
from pyspark import serializers as _untyped_serializers

__all__ = ["LocalContext", "LocalRDDFiles", "stand_in_for_spark"]

_serializers: Any = _untyped_serializers

MAX_DEPTH = 400
"""RDDs behind each other that a job gets through; the JVM's stack ends at some number like that."""

ALL_MARKED = "spark.checkpoint.checkpointAllMarkedAncestors"

_LENGTH = struct.Struct("!i")
_NUMBER = struct.Struct("!q")

Compute = Callable[[int], list[bytes]]


class LineageTooDeepError(RuntimeError):
    """Stands for the JVM's StackOverflowError."""


class _Option:
    def __init__(self, value: Any) -> None:
        self._value = value

    def isDefined(self) -> bool:
        return self._value is not None

    def get(self) -> Any:
        return self._value


class _JavaRDD:
    """An RDD as the JVM has it: partitions of byte strings, made of other such RDDs."""

    def __init__(
        self,
        context: LocalContext,
        count: int,
        compute: Compute,
        parents: Sequence[_JavaRDD],
        partitioner: Any = None,
    ) -> None:
        self.context = context
        self.size = count
        self._compute = compute
        self.parents = tuple(parents)
        self.partitioner = partitioner
        self._number = next(context.rdd_numbers)
        self._cached: dict[int, list[bytes]] | None = None
        self._is_marked = False
        self._was_visited = False
        self._file: str | None = None
        self._saves_all_marked = context.properties.getProperty(ALL_MARKED) == "true"

    def rdd(self) -> _JavaRDD:
        return self

    asJavaRDD = asJavaPairRDD = rdd

    def id(self) -> int:
        return self._number

    def isBarrier(self) -> bool:
        return False

    def partitions(self) -> Any:
        return SimpleNamespace(size=lambda: self.size)

    def count(self) -> int:
        self.context.run_job(self, lambda split: len(self.read(split)))
        return 0

    def persist(self, _: Any) -> None:
        if self._cached is None:
            self._cached = {}
            self.context.cached.append(self)

    def unpersist(self, _: bool) -> None:
        self._cached = None
        self.context.cached = [rdd for rdd in self.context.cached if rdd is not self]

    def lose_cached(self) -> None:
        """Forget what was computed, as when an executor dies."""
        self._cached = {}

    def checkpoint(self) -> None:
        self._is_marked = True

    def forget_checkpoint(self, _: Any) -> None:
        """What ``checkpointData_$eq`` does with nothing."""
        self._is_marked = False

    def checkpointData(self) -> _Option:
        return _Option(SimpleNamespace(checkpoint=self._run_and_save))

    def _run_and_save(self) -> None:
        # Spark would write it over itself.
        assert self._file is None, "it is saved already"
        # In progress, also when it fails: no job saves it then.
        self._is_marked = False
        self.context.run_job(self, self.read)
        if self._file is None:
            self._save()

    def isCheckpointed(self) -> bool:
        return self._file is not None

    def getCheckpointFile(self) -> _Option:
        return _Option(self._file)

    def partitionBy(self, partitioner: tuple[int, int]) -> _JavaRDD:
        """Place pairs: what `PairwiseRDD` makes of numbers and values in turn."""
        count = partitioner[0]
        outputs: list[list[list[bytes]]] = []

        def compute(split: int) -> list[bytes]:
            if not outputs:
                buckets: list[list[bytes]] = [[] for _ in range(count)]
                for index in range(self.size):
                    items = iter(self.read(index))
                    for number, value in zip(items, items, strict=True):
                        buckets[_NUMBER.unpack(number)[0] % count].append(value)
                outputs.append(buckets)
            return outputs[0][split]

        # Spark keeps what a shuffle wrote for as long as the RDD is there.
        return _JavaRDD(self.context, count, compute, (self,), partitioner)

    def depth(self) -> int:
        """Return how many RDDs are behind each other from here on, down to what is saved."""
        deepest: dict[int, int] = {}
        waiting: list[_JavaRDD] = [self]
        while waiting:
            rdd = waiting[-1]
            left = [parent for parent in rdd.parents if id(parent) not in deepest]
            if left:
                waiting.extend(left)
                continue
            waiting.pop()
            deepest[id(rdd)] = 1 + max((deepest[id(p)] for p in rdd.parents), default=0)
        return deepest[id(self)]

    def read(self, split: int) -> list[bytes]:
        """Return a partition: what is persisted of it, or else computed."""
        if self._cached is None:
            return self._compute(split)
        found = self._cached.get(split)
        if found is None:
            found = self._cached[split] = self._compute(split)
        return found

    def save_marked(self) -> None:
        """Save what is marked for a checkpoint, as after a job (`RDD.doCheckpoint`)."""
        waiting = [self]
        marked = []
        while waiting:
            rdd = waiting.pop()
            if rdd._was_visited:
                continue
            rdd._was_visited = True
            if rdd._is_marked:
                marked.append(rdd)
            if not rdd._is_marked or rdd._saves_all_marked:
                waiting.extend(rdd.parents)
        # What is made of others comes after those.
        for rdd in sorted(marked, key=_JavaRDD.id):
            rdd._save()

    def _save(self) -> None:
        folder = self.context.getCheckpointDir()
        assert folder is not None
        path = os.path.join(folder, f"rdd-{self._number}")
        partitions = [self.read(split) for split in range(self.size)]
        self.context.on_save(path)
        write_saved(path, partitions)
        self._file = path
        self._compute = partitions.__getitem__
        self.parents = ()


setattr(_JavaRDD, "checkpointData_$eq", _JavaRDD.forget_checkpoint)


def write_saved(path: str, partitions: list[list[bytes]]) -> None:
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "part"), "wb") as file:
        pickle.dump(partitions, file)


class _PythonRDD:
    """The class of the JVM that runs a Python function on each partition."""

    def __init__(self, context: LocalContext) -> None:
        self._context = context

    def __call__(
        self, parent: _JavaRDD, function: _Function, keeps_partitioning: bool, _: bool
    ) -> _JavaRDD:
        def compute(split: int) -> list[bytes]:
            return function(split, parent.read(split))

        partitioner = parent.partitioner if keeps_partitioning else None
        return _JavaRDD(self._context, parent.size, compute, (parent,), partitioner)

    def valueOfPair(self, pairs: _JavaRDD) -> _JavaRDD:
        return pairs


class _Function:
    """What a Python worker does: reads a partition, calls the function, writes the result."""

    def __init__(self, func: Any, deserializer: Any, serializer: Any) -> None:
        self._func = func
        self._deserializer = deserializer
        self._serializer = serializer

    def __call__(self, split: int, items: list[bytes]) -> list[bytes]:
        found = self._func(split, load(self._deserializer, items))
        return dump(self._serializer, found)


def load(deserializer: Any, items: Iterable[bytes]) -> Iterator[Any]:
    """Return the records of a partition."""
    stream = io.BytesIO(
        b"".join(part for item in items for part in (_LENGTH.pack(len(item)), item))
    )
    found: Iterator[Any] = deserializer.load_stream(stream)
    return found


def dump(serializer: Any, records: Iterable[Any]) -> list[bytes]:
    """Return records as the items of a partition."""
    stream = io.BytesIO()
    serializer.dump_stream(iter(records), stream)
    data = stream.getvalue()
    items = []
    at = 0
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        items.append(data[at : at + length])
        at += length
    return items


class _Properties(dict[str, str]):
    """Stands for the local properties of a thread."""

    def clone(self) -> _Properties:
        return _Properties(self)

    def getProperty(self, name: str) -> str | None:
        return self.get(name)

    def setProperty(self, name: str, value: str) -> None:
        self[name] = value

    def remove(self, name: str) -> None:
        self.pop(name, None)


class _Conf:
    def __init__(self, pairs: Mapping[str, str]) -> None:
        self._pairs = dict(pairs)

    def get(self, name: str, default: str | None = None) -> str | None:
        return self._pairs.get(name, default)

    def getAll(self) -> list[tuple[str, str]]:
        return list(self._pairs.items())


class LocalContext(SparkContext):
    """A Spark context whose jobs run here.

    Args:
        conf: The settings.

    Attributes:
        on_save: Called with the path before an RDD is saved.
        properties: The local properties of this thread.
        cached: The RDDs that are persisted.
        jobs: How many jobs have run.
        deepest: The largest depth of a job's RDD.
    """

    def __init__(self, conf: Mapping[str, str]) -> None:
        # PySpark's own would start a JVM.
        self.settings = _Conf({"spark.python.worker.memory": "1024g", **conf})
        self._conf: Any = self.settings
        self.rdd_numbers = itertools.count()
        self.on_save: Callable[[str], None] = lambda _: None
        self.properties = _Properties()
        self.cached: list[_JavaRDD] = []
        self.jobs = 0
        self.deepest = 0
        self.serializer = _serializers.AutoBatchedSerializer(_serializers.CPickleSerializer())
        self._unbatched_serializer = _serializers.CPickleSerializer()
        self._batchSize = 0
        self.profiler_collector: Any = None
        self.master = "local[4]"
        self.pythonExec = sys.executable
        self.appName = "stand-in"
        self.environment: dict[str, str] = {}
        self._folder: str | None = None
        runtime = SimpleNamespace(getRuntime=lambda: SimpleNamespace(availableProcessors=lambda: 4))
        self._jvm: Any = SimpleNamespace(
            JavaRDD=_JavaRDD,
            PythonRDD=_PythonRDD(self),
            PairwiseRDD=lambda rdd: rdd,
            PythonPartitioner=lambda count, function: (count, function),
            java=SimpleNamespace(lang=SimpleNamespace(Runtime=runtime)),
            scala=SimpleNamespace(Option=SimpleNamespace(empty=lambda: None)),
        )
        self._gateway: Any = SimpleNamespace(
            jvm=self._jvm, new_array=lambda _, length: [None] * length
        )
        self._jsc: Any = SimpleNamespace(
            union=self._union,
            emptyRDD=lambda: _JavaRDD(self, 0, _nothing, ()),
            sc=lambda: SimpleNamespace(
                getLocalProperties=lambda: self.properties,
                setLocalProperties=self._set_local_properties,
                isStopped=lambda: False,
            ),
        )

    def __reduce__(self) -> Any:
        raise TypeError("a Spark context is not pickled")

    @property
    def applicationId(self) -> str:
        return "stand-in"

    @property
    def uiWebUrl(self) -> str | None:
        return None

    @property
    def defaultParallelism(self) -> int:
        return 2

    def pairs(self) -> list[tuple[str, str]]:
        """Return the settings, as `saved_conf` does."""
        return self.settings.getAll()

    def getConf(self) -> Any:
        return self.settings

    def getCheckpointDir(self) -> str | None:
        return self._folder

    def setCheckpointDir(self, dirName: str) -> None:
        self._folder = os.path.join(dirName, str(uuid.uuid4()))
        os.makedirs(self._folder, exist_ok=True)

    def _set_local_properties(self, properties: _Properties) -> None:
        self.properties = properties

    def cancelJobsWithTag(self, tag: str) -> None:
        """No job runs meanwhile."""

    def _getJavaStorageLevel(self, storageLevel: Any) -> Any:
        return storageLevel

    # -- RDDs ------------------------------------------------------------------------------------

    def parallelize(self, c: Iterable[Any], numSlices: int | None = None) -> RDD[Any]:
        records = list(c)
        count = numSlices or self.defaultParallelism
        partitions = [
            dump(
                self.serializer,
                records[i * len(records) // count : (i + 1) * len(records) // count],
            )
            for i in range(count)
        ]
        return RDD(_JavaRDD(self, count, partitions.__getitem__, ()), self, self.serializer)

    def of_partitions(self, parts: Sequence[Callable[[], Iterable[Any]]]) -> RDD[Any]:
        """Return an RDD whose partitions are what functions return, at each time they are read."""

        def compute(split: int) -> list[bytes]:
            return dump(self.serializer, parts[split]())

        return RDD(_JavaRDD(self, len(parts), compute, ()), self, self.serializer)

    def emptyRDD(self) -> RDD[Any]:
        return RDD(self._jsc.emptyRDD(), self, _serializers.NoOpSerializer())

    def textFile(
        self, name: str, minPartitions: int | None = None, use_unicode: bool = True
    ) -> RDD[str]:
        return self.of_partitions(
            [_LinesOf(path.removeprefix("file:")) for path in name.split(",")]
        )

    def union(self, rdds: list[RDD[Any]]) -> RDD[Any]:
        alike = [rdd._reserialize(self.serializer) for rdd in rdds]
        return RDD(self._union([rdd._jrdd for rdd in alike]), self, self.serializer)

    def _union(self, rdds: Sequence[_JavaRDD]) -> _JavaRDD:
        first = rdds[0].partitioner
        if first is not None and all(rdd.partitioner == first for rdd in rdds):

            def side_by_side(split: int) -> list[bytes]:
                return [item for rdd in rdds for item in rdd.read(split)]

            return _JavaRDD(self, first[0], side_by_side, rdds, first)
        places = [(rdd, split) for rdd in rdds for split in range(rdd.size)]

        def one_after_the_other(split: int) -> list[bytes]:
            rdd, own = places[split]
            return rdd.read(own)

        return _JavaRDD(self, len(places), one_after_the_other, rdds)

    def _checkpointFile(self, name: str, input_deserializer: Any) -> RDD[Any]:
        with open(os.path.join(name, "part"), "rb") as file:
            partitions: list[list[bytes]] = pickle.load(file)
        saved = _JavaRDD(self, len(partitions), partitions.__getitem__, ())
        saved._file = name
        return RDD(saved, self, input_deserializer)

    # -- jobs ------------------------------------------------------------------------------------

    def run(self, rdd: RDD[Any]) -> list[list[Any]]:
        """Run a job that returns the records of each partition."""
        java_rdd: Any = rdd._jrdd
        deserializer = rdd._jrdd_deserializer
        return self.run_job(java_rdd, lambda split: list(load(deserializer, java_rdd.read(split))))

    def run_job(self, rdd: _JavaRDD, func: Callable[[int], Any]) -> list[Any]:
        self.jobs += 1
        depth = rdd.depth()
        self.deepest = max(self.deepest, depth)
        if depth > MAX_DEPTH:
            raise LineageTooDeepError(f"{depth} RDDs behind each other")
        found = [func(split) for split in range(rdd.size)]
        rdd.save_marked()
        return found

    def lose_cached(self) -> None:
        """Forget all that is persisted, as when executors die."""
        for rdd in self.cached:
            rdd.lose_cached()


class _LinesOf:
    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self) -> list[str]:
        with open(self._path, encoding="utf-8") as file:
            return file.read().splitlines()


def _nothing(_: int) -> list[bytes]:
    return []


class LocalRDDFiles:
    """Removes saved RDDs; see `penstock.streaming.checkpoint.checkpointer.RDDFiles`."""

    def __init__(self, _: Any) -> None:
        """Made in place of `SparkRDDFiles`."""

    def sync(self, path: str) -> None:
        """Nothing here survives a loss of power."""

    def remove(self, path: str) -> None:
        shutil.rmtree(path, ignore_errors=True)


def _wrapped(_: Any, func: Any, deserializer: Any, serializer: Any, profiler: Any = None) -> Any:
    return _Function(func, deserializer, serializer)


def _pickled(_: Any, thing: Any) -> bytes:
    # Records are plain, and cloudpickle takes ten times as long.
    return pickle.dumps(thing, pickle.HIGHEST_PROTOCOL)


def _nothing_at_all() -> None:
    """There is no worker to be made ready."""


def _no_memory() -> int:
    return 0


def _collected(rdd: RDD[Any]) -> list[Any]:
    context: Any = rdd.context
    return [record for part in context.run(rdd) for record in part]


@contextmanager
def stand_in_for_spark() -> Iterator[None]:
    """Let PySpark's Python code work with a `LocalContext`, for the time of a block."""
    with (
        mock.patch("pyspark.core.rdd._wrap_function", _wrapped),
        mock.patch("pyspark.core.rdd.RDD.collect", _collected),
        mock.patch("pyspark.serializers.CPickleSerializer.dumps", _pickled),
        mock.patch("pyspark.traceback_utils.SCCallSiteSync", nullcontext),
        mock.patch("penstock.streaming.kernels.deferred.begin_task", _nothing_at_all),
        mock.patch("penstock.streaming.kernels.shuffle.used_memory_mb", _no_memory),
    ):
        yield
