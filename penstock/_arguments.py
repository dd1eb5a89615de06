"""What a program may give as an argument, looked at where it is given.

Each function returns the value in the form that is used, or raises an error that names the
argument, the value, and what is accepted.
"""

from __future__ import annotations

import math
import operator
import os
from numbers import Real
from typing import Any

from pyspark import StorageLevel

from penstock.settings.values import rate_per_second

_LEVELS = {
    name: level for name, level in vars(StorageLevel).items() if isinstance(level, StorageLevel)
}
_MOST_COPIES = 39  # As in Spark.
_SHOWN = 100


def refused(name: str, value: object, accepted: str) -> str:
    """Return the message of an error."""
    text = repr(value)
    shown = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
    return f"{name}={shown} is not accepted: {accepted}"


def as_storage_level(value: Any, name: str = "storageLevel") -> StorageLevel:
    """Return a storage level of Spark's, which may be given by its name.

    Raises:
        TypeError: It is neither a storage level nor text.
        ValueError: There is no storage level of that name, or it keeps no copy or too many.
    """
    if isinstance(value, StorageLevel):
        if type(value.replication) is not int or not 1 <= value.replication <= _MOST_COPIES:
            copies = f"its last value, replication, is a number of copies from 1 to {_MOST_COPIES}"
            raise ValueError(refused(name, value, copies))
        return value
    accepted = f"a pyspark.StorageLevel or the name of one ({', '.join(sorted(_LEVELS))})"
    if not isinstance(value, str):
        raise TypeError(refused(name, value, accepted))
    level = _LEVELS.get(value.strip().upper())
    if level is None:
        raise ValueError(refused(name, value, accepted))
    return level


def as_rate(value: Any, name: str = "rate") -> float | None:
    """Return records or bytes per second; None is no limit.

    Raises:
        ValueError: It is not one rate above 0.
        TypeError: It is neither text nor a number.
    """
    if value is None:
        return None
    accepted = (
        'records or bytes per second as a number, text such as "50000/second" or '
        '"600000 per minute", or None for no limit; it must be above 0'
    )
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise TypeError(refused(name, value, accepted))
    try:
        per_second = rate_per_second(value) if isinstance(value, str) else float(value)
    except (ValueError, OverflowError):
        raise ValueError(refused(name, value, accepted)) from None
    if not 0 < per_second < math.inf:
        raise ValueError(refused(name, value, accepted))
    return per_second


def as_folder(value: Any, name: str) -> str:
    """Return the address of a folder, which may be a `pathlib.Path`.

    Raises:
        TypeError: It is neither a path nor text.
        ValueError: It is empty.
    """
    accepted = "a folder's path, or an address such as hdfs://…"
    text = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(text, str):
        raise TypeError(refused(name, value, accepted))
    if not text:
        raise ValueError(refused(name, value, accepted))
    return text


def check_flag(value: Any, name: str) -> None:
    """Check a switch: text such as ``"no"`` would count as True.

    Raises:
        TypeError: It is neither True nor False.
    """
    if not isinstance(value, bool):
        raise TypeError(refused(name, value, "True or False"))


def check_timeout(timeout: Any) -> None:
    """Check the seconds that something may take, or None; with 0 or less it is over at once.

    Raises:
        TypeError, ValueError: It is no number.
    """
    accepted = "seconds as a number, or None for no end"
    if timeout is None:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, Real):
        raise TypeError(refused("timeout", timeout, accepted))
    if math.isnan(timeout):
        raise ValueError(refused("timeout", timeout, accepted))


def check_stored_name(name: object, what: str) -> None:
    """Check a name that is written to logs, and that lists have with commas between.

    Raises:
        TypeError: It is no text, so that what it is written to could not be read again.
        ValueError: It is empty, or could not stand in a list such as
            ``spark.penstock.removedStreams``.
    """
    accepted = (
        f"a {what}'s name is printable text that is not empty, without commas or spaces around it"
    )
    if not isinstance(name, str):
        raise TypeError(refused("name", name, accepted))
    if not name or name != name.strip() or "," in name or not name.isprintable():
        raise ValueError(refused("name", name, accepted))


def as_version(value: Any) -> str | None:
    """Return the version of a program, which is kept in its checkpoints.

    Raises:
        TypeError: It is neither text nor None.
        ValueError: It is empty.
    """
    accepted = 'text that is not empty, such as "2"'
    if value is not None and not isinstance(value, str):
        raise TypeError(refused("version", value, accepted))
    if value == "":
        raise ValueError(refused("version", value, accepted))
    return value


def as_host(value: Any, name: str) -> str:
    """Return the name or address of a host.

    Raises:
        TypeError: It is not text.
        ValueError: It is empty.
    """
    accepted = "a host's name or address as text, and then the port"
    if not isinstance(value, str):
        raise TypeError(refused(name, value, accepted))
    if not value.strip():
        raise ValueError(refused(name, value, accepted))
    return value


def as_port(value: Any, name: str) -> int:
    """Return the port of a server.

    Raises:
        TypeError: It is not a whole number.
        ValueError: There is no such port.
    """
    accepted = "a whole number from 1 to 65535"
    port = _whole(value, name, accepted)
    if not 1 <= port <= 65535:
        raise ValueError(refused(name, value, accepted))
    return port


def as_count(value: Any, name: str, what: str, least: int = 0, most: int | None = None) -> int:
    """Return how many of something are wanted.

    Raises:
        TypeError: It is not a whole number.
        ValueError: It is below `least` or above `most`.
    """
    bounds = f"{least} or more" if most is None else f"from {least} to {most}"
    accepted = f"a whole number of {what}, {bounds}"
    count = _whole(value, name, accepted)
    if count < least or (most is not None and count > most):
        raise ValueError(refused(name, value, accepted))
    return count


def check_share(value: Any, name: str) -> None:
    """Check a share of a whole; None is none.

    Raises:
        TypeError: It is no number.
        ValueError: It is not above 0 and at most 1.
    """
    accepted = "a number above 0, and at most 1, or None"
    if value is not None:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(refused(name, value, accepted))
        if not 0 < value <= 1:
            raise ValueError(refused(name, value, accepted))


def _whole(value: Any, name: str, accepted: str) -> int:
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise TypeError(refused(name, value, accepted))
