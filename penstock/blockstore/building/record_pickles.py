"""Pickling records one by one, also those whose classes no module defines.

A batch task cannot import what a user's script defines: its ``__main__`` is PySpark's worker. So
such a class is pickled by value, as PySpark does. Its definition is some kilobytes and takes
cloudpickle long; with each record it would be most of the block. So records name it by a digest,
and each block of pickles brings the *definitions* of this process along, once.

Plain pickling is tried first, and is all that most records need. It names a class by its module,
which may be ``__main__`` of *this* process: such a pickle is not used.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import threading
from typing import Any
from zoneinfo import ZoneInfo

from pyspark import cloudpickle

from penstock.errors import PenstockError

MAX_DEFINITIONS_BYTES = 32 << 10
"""What definitions may take of each block. A class beyond it is pickled into each record."""

_lock = threading.Lock()
_digests: dict[type, bytes] = {}
"""Classes of this process that are pickled by value."""
_defined: dict[bytes, bytes] = {}
"""What this process has defined: digest to cloudpickle."""
_definitions = b""
"""A pickle of `_defined`."""
_learned: dict[bytes, bytes] = {}
"""What other processes have defined, of the blocks that were read last."""
_MAX_LEARNED = 1024
_classes: dict[bytes, type] = {}


_PLAIN = frozenset(
    (
        *(("builtins", name) for name in ("bytearray", "complex", "frozenset", "set")),
        *(("datetime", name) for name in ("date", "datetime", "time", "timedelta", "timezone")),
        ("_codecs", "encode"),
        ("collections", "OrderedDict"),
        ("decimal", "Decimal"),
        ("pyspark.sql.types", "Row"),
        ("pyspark.sql.types", "_create_row"),
        ("uuid", "UUID"),
        ("zoneinfo", "ZoneInfo"),
    )
)
"""What a record of plain values may name, besides what pickles have without a name."""


class ProgramObjectError(PenstockError):
    """A pickled record is, or has in it, an object of a class that only programs should load.

    Attributes:
        module: The module that it names.
        name: The name in it.
    """

    def __init__(self, module: str, name: str) -> None:
        super().__init__(f"a record is, or has in it, an object of {module}.{name}")
        self.module = module
        self.name = name


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "getattr"):
            return _unpickle_of
        if (module, name) not in _PLAIN:
            raise ProgramObjectError(module, name)
        return super().find_class(module, name)


def _unpickle_of(owner: Any, name: str) -> Any:
    """Stand for `getattr`, by which pickles name how time zones are made, and nothing else here."""
    if owner is not ZoneInfo or name != "_unpickle":
        raise ProgramObjectError("builtins", "getattr")
    return getattr(owner, name)


def plain_record(data: bytes) -> Any:
    """Return a record of plain values from its pickle, which can run no code of a program.

    Raises:
        ProgramObjectError: It has something else in it.
    """
    return _PlainUnpickler(io.BytesIO(data)).load()


class _ByValuePickler(cloudpickle.Pickler):
    """Cloudpickle's, but for classes that it would write out: it names their definitions."""

    def reducer_override(self, obj: Any) -> Any:
        original: Any = super()  # PySpark's copy has no types.
        if not isinstance(obj, type) or obj.__module__ == "builtins":
            return original.reducer_override(obj)
        digest = _digests.get(obj)
        if digest is None:
            reduced = original.reducer_override(obj)
            if reduced is NotImplemented:
                return reduced
            digest = _define(obj)
            if digest is None:
                return reduced
        return _class_of, (digest,)


def pickle_record(record: object) -> bytes:
    """Pickle one record as a ``pickled`` block holds it; its block needs `definitions`.

    Raises:
        Exception: What pickling the record raises; a `pickle.PicklingError` or `TypeError` mostly.
    """
    try:
        if type(record) not in _digests:
            pickled = pickle.dumps(record, protocol=pickle.HIGHEST_PROTOCOL)
            if b"__main__" not in pickled:
                return pickled
    except Exception:  # noqa: BLE001 - what pickling by value does not mend, it raises again
        pass
    file = io.BytesIO()
    pickler: Any = _ByValuePickler
    pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(record)
    return file.getvalue()


def definitions() -> bytes:
    """Return what a block brings along, so that its records can be unpickled in any process."""
    return _definitions


def learn(data: bytes | memoryview) -> None:
    """Take note of the definitions of a block that is about to be read."""
    found: dict[bytes, bytes] = pickle.loads(data)
    with _lock:
        for digest, definition in found.items():
            if digest not in _learned:
                while len(_learned) >= _MAX_LEARNED:
                    oldest = next(iter(_learned))
                    del _learned[oldest]
                    _classes.pop(oldest, None)
                _learned[digest] = definition


def _define(cls: type) -> bytes | None:
    """Add a class to the definitions; None if they are full."""
    global _definitions
    dumps: Any = cloudpickle.dumps
    definition: bytes = dumps(cls, protocol=pickle.HIGHEST_PROTOCOL)
    digest = hashlib.blake2b(definition, digest_size=8).digest()
    with _lock:
        pickled = pickle.dumps({**_defined, digest: definition}, protocol=pickle.HIGHEST_PROTOCOL)
        if len(pickled) > MAX_DEFINITIONS_BYTES:
            return None
        _defined[digest] = definition
        _definitions = pickled
        _classes[digest] = cls
        _digests[cls] = digest
    return digest


def _class_of(digest: bytes) -> type:
    """Return a class by its digest; the name of this function is in stored blocks."""
    found = _classes.get(digest)
    if found is None:
        with _lock:
            definition = _learned.get(digest) or _defined[digest]
        found = _classes.setdefault(digest, pickle.loads(definition))
    return found
