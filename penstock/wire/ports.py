"""Which ports a server tries, by the rule that Spark has for its own."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

__all__ = ["bind_in_range", "ports_to_try"]

_FIRST, _COUNT = 1024, 65536 - 1024

_T = TypeVar("_T")


def ports_to_try(port: int, max_retries: int) -> Iterator[int]:
    """Yield the ports to try, one after the other (`Utils.startServiceOnPort` of Spark).

    Args:
        port: The first; 0 is any free one, which is tried once.
        max_retries: How many follow it. After 65535 comes 1024.
    """
    yield port
    if port:
        for offset in range(1, max_retries + 1):
            yield (port + offset - _FIRST) % _COUNT + _FIRST


async def bind_in_range(port: int, max_retries: int, bind: Callable[[int], Awaitable[_T]]) -> _T:
    """Return what `bind` returns for the first port that is not taken.

    Raises:
        OSError: All are taken (the last one's error), or something else is wrong with the address.
    """
    taken: OSError | None = None
    for candidate in ports_to_try(port, max_retries):
        try:
            return await bind(candidate)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            taken = error
    if port and max_retries and taken is not None:
        more = f"and so are the {max_retries} ports after {port} (spark.port.maxRetries)"
        raise OSError(errno.EADDRINUSE, f"{taken.strerror}, {more}") from taken
    assert taken is not None
    raise taken
