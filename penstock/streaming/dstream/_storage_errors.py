"""What may pass: errors of Python, of Spark's jobs and of Hadoop's file systems, told apart."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator

from penstock.errors import text_of

_NUMBERS = (errno.ENOSPC, errno.EDQUOT)

_TEXTS = re.compile(
    # The system's own, as Java and Python repeat them, also out of a task.
    r"No space left on device|Disk quota exceeded"
    # HDFS: a quota, or no DataNode that has room (those that failed would be excluded).
    r"|DSQuotaExceededException|NSQuotaExceededException|QuotaByStorageTypeExceededException"
    r"|could only be written to \d+ of [^\n]*There are [1-9]\d* datanode\(s\) running and "
    r"no node\(s\) are excluded"
)
"""Recognised by their text: nothing else of a Java error reaches Python."""

_OUT_OF_REACH = re.compile(
    # The NameNode: as Hadoop's client tells that a call did not reach it, or had no answer.
    r"failed on connection exception|failed on socket timeout exception|No Route to Host from"
    r"|End of File Exception between local host|Failed on local exception"
    # It starts, or is the standby.
    r"|SafeModeException|RetriableException|StandbyException"
    # The DataNodes of a file.
    r"|could only be written to \d+ of |All datanodes [^\n]* are bad|replace a bad datanode"
)


def is_full_disk(error: BaseException) -> bool:
    """Tell whether an error, or one that it comes of, says that a disk or a quota is full."""
    return any(
        (isinstance(found, OSError) and found.errno in _NUMBERS)
        or _TEXTS.search(text_of(found)) is not None
        for found in _chain(error)
    )


def is_out_of_reach(error: BaseException) -> bool:
    """Tell whether it says that nodes of HDFS do not answer, which may pass."""
    return any(_OUT_OF_REACH.search(text_of(found)) is not None for found in _chain(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or found.__context__
