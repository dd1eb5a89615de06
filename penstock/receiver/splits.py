"""Splits: the parts of a source that several receivers of one stream share.

A receiver that declares `splits` is asked for their names in the driver, and each of the stream's
receivers is given some. The driver says which has which: see `penstock.tracker.receivers.splits`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from penstock._arguments import refused
from penstock.errors import PenstockError
from penstock.position_changes import PositionChanges

MOST_SPLITS = 100_000
MOST_NAME_BYTES = 1000
_MOST_TOLD = 5
_ACCEPTED = "a method or function without arguments that returns the names of the splits as texts"


class SplitsError(PenstockError):
    """What `splits` raised or returned is no list of the source's splits.

    Attributes:
        receiver: The receiver's type or function.
    """

    def __init__(self, receiver: str, reason: str) -> None:
        super().__init__(f"splits() of {receiver}, which is called in the driver, {reason}")
        self.receiver = receiver


class PositionError(PenstockError, ValueError):
    """A position is not accepted.

    It is too large to be kept with each block, before the last one, of a type that would not come
    back from the driver's log, of a split that the receiver does not have, or of another source.

    Attributes:
        position: The position.
        is_foreign: It is the stream's last one, and of another source than its receiver's.
    """

    def __init__(self, message: str, position: object, *, is_foreign: bool = False) -> None:
        super().__init__(message)
        self.position = position
        self.is_foreign = is_foreign

    @classmethod
    def of_another_source(cls, position: object, receiver: str) -> PositionError:
        """Return the error for the last position of a stream whose receiver read another source."""
        return cls(
            f"the position {position!r:.100} is of another source than {receiver}: give the stream "
            "another name, or another checkpoint directory",
            position,
            is_foreign=True,
        )


def check_splits(splits: Any) -> None:
    """Check that `splits` can be called without arguments, and that a call runs it.

    Raises:
        TypeError: It cannot.
    """
    if splits is None:
        return
    if not callable(splits):
        raise TypeError(refused("splits", splits, _ACCEPTED))
    if inspect.iscoroutinefunction(splits) or inspect.isasyncgenfunction(splits):
        raise TypeError(refused("splits", splits, f"{_ACCEPTED}, that is not async"))
    try:
        inspect.signature(splits).bind()
    except ValueError:
        return  # A builtin without a signature.
    except TypeError:
        raise TypeError(refused("splits", splits, _ACCEPTED)) from None


def names_of(receiver: str, answer: object) -> tuple[str, ...]:
    """Return what `splits` returned, checked.

    Raises:
        SplitsError: It is no list of names.
    """

    def refuse(reason: str) -> SplitsError:
        return SplitsError(
            receiver,
            f"{reason}: it is to return the names of all splits of the source, each once, such as "
            '["orders-0", "orders-1"]',
        )

    if isinstance(answer, (str, bytes)) or not isinstance(answer, Iterable):
        raise refuse(f"returned {answer!r:.100}")
    names: list[str] = []
    for name in answer:
        if not isinstance(name, str) or not 0 < _size_bytes(name) <= MOST_NAME_BYTES:
            raise refuse(
                f"named a split {name!r:.100}, which is no text of 1 to {MOST_NAME_BYTES:,} bytes "
                "of UTF-8"
            )
        names.append(str.__str__(name))  # Also of NumPy's texts and members of an enumeration.
        if len(names) > MOST_SPLITS:
            raise refuse(f"named more than {MOST_SPLITS:,} splits")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise refuse(f"named {twice!r:.100} twice")
    return tuple(names)


def _size_bytes(name: str) -> int:
    try:
        return len(name.encode())
    except UnicodeEncodeError:
        return 0  # A lone surrogate, which no log holds.


def split_of(key: Any) -> Any:
    """Return the split that a key of a position is of: all of it, or what is before a NUL."""
    return key.partition("\0")[0] if isinstance(key, str) else key


def position_of_splits(position: Any, splits: frozenset[str]) -> PositionChanges:
    """Return the places of splits as changes of the last position.

    Raises:
        PositionError: It is something else, or of a split that is another receiver's.
    """
    if not isinstance(position, dict) or not splits.issuperset(map(split_of, position)):
        names = sorted(splits)
        more = f" and {len(names) - _MOST_TOLD} more" if len(names) > _MOST_TOLD else ""
        raise PositionError(
            f"position={position!r:.200} is not accepted: of a receiver with splits it is a dict "
            "of places by split, such as {split: offset}, for splits that it has now: "
            f"{', '.join(names[:_MOST_TOLD])}{more}",
            position,
        )
    return PositionChanges(position)
