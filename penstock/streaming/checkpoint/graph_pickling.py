"""Pickling a graph, and making it again.

Functions of a program may refer to its `SparkContext`, `StreamingContext` or `SparkSession`: in the
recovered program they get that program's. Broadcast variables are made again with their values,
accumulators with the values that they had. What belongs to a driver that will be gone (RDDs,
DataFrames, objects of the JVM) is refused, because it would be of no use then. The key that things
on disk are encrypted with is left out, and given again.
"""

from __future__ import annotations

import io
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from py4j.java_gateway import JavaClass, JavaObject, JavaPackage, JVMView
from pyspark import RDD, Accumulator, Broadcast, SparkContext
from pyspark import cloudpickle as _untyped_cloudpickle

from penstock.wal import EncryptionKey

# It comes without types.
_cloudpickle: Any = _untyped_cloudpickle

_MAKE_IT_LATER = "is gone after a restart of the driver; make it in the function, when it is needed"

_GONE: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (RDD, f"an RDD {_MAKE_IT_LATER}, for example from rdd.context"),
    ((JavaObject, JavaClass, JavaPackage, JVMView), f"an object of the JVM {_MAKE_IT_LATER}"),
)


class NotForCheckpointsError(TypeError):
    """An object would be of no use after a restart.

    Attributes:
        thing: The object.
    """

    def __init__(self, thing: object, reason: str) -> None:
        super().__init__(reason)
        self.thing = thing


def dump(thing: Any) -> bytes:
    """Pickle a graph, or a part of it.

    Raises:
        Exception: Whatever pickling runs into in the program's objects.
    """
    buffer = io.BytesIO()
    _GraphPickler(buffer).dump(thing)
    return buffer.getvalue()


def load(
    data: bytes,
    spark_context: SparkContext,
    streaming_context: object,
    encryption: EncryptionKey | None = None,
) -> Any:
    """Unpickle; contexts in it, and the key, become these.

    Raises:
        Exception: Whatever unpickling runs into; mostly code that has changed.
    """
    with _restoring(spark_context, streaming_context, encryption):
        return pickle.loads(data)


class _GraphPickler(_cloudpickle.Pickler):  # type: ignore[misc]  # it comes without types
    def reducer_override(self, obj: Any) -> Any:
        stand_in = _stand_in(obj)
        if stand_in is not None:
            return stand_in, ()
        if isinstance(obj, Broadcast):
            return _broadcast, (_pickled_value(obj),)
        if isinstance(obj, Accumulator):
            return _accumulator, (obj.value, obj.accum_param)
        for kind, reason in _GONE:
            if isinstance(obj, kind):
                raise NotForCheckpointsError(obj, reason)
        if _is_of("pyspark.sql", "DataFrame", obj):
            raise NotForCheckpointsError(obj, f"a DataFrame {_MAKE_IT_LATER}")
        return super().reducer_override(obj)


def _stand_in(obj: Any) -> Callable[[], Any] | None:
    if isinstance(obj, SparkContext):
        return _spark_context
    if isinstance(obj, EncryptionKey):
        return _encryption_key
    if _is_of("penstock.streaming.context", "StreamingContext", obj):
        return _streaming_context
    if _is_of("pyspark.sql", "SparkSession", obj):
        return _spark_session
    return None


def _pickled_value(broadcast: Broadcast[Any]) -> bytes:
    """Return the value of a broadcast variable, which does not change, pickled once."""
    pickled = _pickled_values.get(broadcast)
    if pickled is None:
        pickled = _pickled_values[broadcast] = dump(broadcast.value)
    return pickled


_pickled_values: WeakKeyDictionary[Broadcast[Any], bytes] = WeakKeyDictionary()


def _is_of(module: str, name: str, obj: Any) -> bool:
    """Return whether `obj` is of a class of a module that is not imported for this alone."""
    found = getattr(sys.modules.get(module), name, None)
    return isinstance(found, type) and isinstance(obj, found)


_local = threading.local()


@contextmanager
def _restoring(
    spark_context: SparkContext,
    streaming_context: object,
    encryption: EncryptionKey | None,
) -> Iterator[None]:
    _local.contexts = (spark_context, streaming_context, encryption)
    try:
        yield
    finally:
        _local.contexts = None


_Contexts = tuple[SparkContext, object, EncryptionKey | None]


def _contexts() -> _Contexts:
    found: _Contexts | None = getattr(_local, "contexts", None)
    if found is None:
        raise RuntimeError("this is part of a checkpoint, and can be read by getOrCreate only")
    return found


def _spark_context() -> SparkContext:
    return _contexts()[0]


def _streaming_context() -> object:
    return _contexts()[1]


def _encryption_key() -> EncryptionKey | None:
    return _contexts()[2]


def _broadcast(value: bytes) -> Broadcast[Any]:
    return _contexts()[0].broadcast(pickle.loads(value))


def _accumulator(value: Any, param: Any) -> Accumulator[Any]:
    return _contexts()[0].accumulator(value, param)


def _spark_session() -> Any:
    from pyspark.sql import SparkSession

    return SparkSession(_contexts()[0])
