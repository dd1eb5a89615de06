"""RDDs whose records are encrypted wherever Spark puts them: so also in an RDD checkpoint.

Spark writes RDD checkpoints as they are, also with ``spark.io.encryption.enabled``. What it has of
an RDD of Python's are pickles, and those are encrypted here by the tasks that make them, each with
a key of its own (`LogCipher.seal`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from pyspark import RDD
from pyspark import serializers as _untyped_serializers

from penstock.streaming.kernels.deferred import narrow
from penstock.wal import EncryptionKey, LogCipher

# PySpark does not type these.
_serializers: Any = _untyped_serializers


class EncryptedPickles(_serializers.FramedSerializer):  # type: ignore[misc]  # without types
    """Pickles, encrypted.

    Args:
        key: The key. It is pickled with this object, except into checkpoints.
    """

    def __init__(self, key: EncryptionKey) -> None:
        self._key = key

    def dumps(self, obj: Any) -> bytes:
        return _cipher(self._key).seal(_pickles.dumps(obj))

    def loads(self, obj: bytes) -> Any:
        """Raises `CorruptRecordError` for what was changed, or has another key."""
        return _pickles.loads(_cipher(self._key).unseal(obj))


_pickles = _serializers.CPickleSerializer()


@functools.lru_cache(maxsize=4)
def _cipher(key: EncryptionKey) -> LogCipher:
    return key.cipher("RDD checkpoints")


def encrypted(rdd: RDD[Any], key: EncryptionKey) -> RDD[Any]:
    """Return an RDD of the same records and placement, which Spark has in an encrypted form only.

    It must not have been used yet when it is checkpointed, as `RDD.checkpoint` says.
    """
    made = narrow(rdd, _itself, preserves_partitioning=True, is_per_record=True)
    untyped: Any = made
    # Nothing was made in the JVM yet.
    untyped._jrdd_deserializer = _serializers.AutoBatchedSerializer(EncryptedPickles(key))
    return made


def _itself(_: int, records: Iterable[Any]) -> Iterable[Any]:
    return records
