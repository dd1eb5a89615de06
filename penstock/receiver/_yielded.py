"""How one thing that a generator yielded is stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from penstock.receiver._door import acknowledge_nothing

__all__ = ["BULK", "store_yielded"]

BULK = (list, pa.RecordBatch, pa.Table)
"""What holds many records."""


def store_yielded(store: Callable[..., None], item: Any, *, with_position: bool) -> None:
    """Store one record, or many, or with `with_position` a pair of these and a position.

    Nobody waits for many records to be durable: the queue of blocks bounds what is on its way,
    and a generator has no use for knowing more.

    Raises:
        TypeError: A pair was promised, and this is none.
    """
    position = None
    if with_position:
        # Exactly a tuple: a Row of two fields is a record without its position.
        if type(item) is not tuple or len(item) != 2:
            raise TypeError(
                "with positions=True everything that is yielded must be a pair (records, "
                f"position), but this is {type(item).__name__}: {str(item)[:200]!r}"
            )
        item, position = item
    if isinstance(item, BULK):
        store(item, position, acknowledge_nothing)
    else:
        store(item, position)
