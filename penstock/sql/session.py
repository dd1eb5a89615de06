"""`connect`: lets a session read the streams of hosts that it has not started itself."""

from __future__ import annotations

import base64
import json
import os
from typing import TYPE_CHECKING

from penstock._arguments import refused
from penstock.blockstore import BlockAccess
from penstock.errors import PenstockError
from penstock.sql.errors import SourceError
from penstock.sql.host import ReceiverHost
from penstock.sql.source.data_source import register
from penstock.sql.source.host_client import HostClient
from penstock.wire import ApplicationLink, TlsIdentity

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def connect(spark: SparkSession, share: str | os.PathLike[str] | None = None) -> None:
    """Let a session read the streams of a `ReceiverHost` in another application.

    Args:
        spark: The session, also one of Spark Connect.
        share: The file that the host wrote, see `ReceiverHost`; of the same user. None: the session
            reads the streams of the host in this process, if there is one, and the directories of
            hosts that have ended.

    Raises:
        SourceError: It is no such file, cannot be read, or others may read it.
        TypeError: It is no path.
    """
    if share is None:
        host = ReceiverHost.getActive()
        if host is None:
            register(spark, None)
        else:
            host.connect(spark)
        return
    if not isinstance(share, (str, os.PathLike)):
        raise TypeError(refused("share", share, "the path of a file that a ReceiverHost wrote"))
    try:
        with open(share, encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise SourceError(
                    f"{share} can be read by others than its owner: it holds a secret. Let the "
                    "host write it again, or set its mode to 0600"
                )
            text = file.read()
    except FileNotFoundError:
        raise SourceError(
            f"there is no share file {share}: its ReceiverHost has not started, or has stopped; "
            "or it was given another share"
        ) from None
    except OSError as error:
        raise SourceError(f"the share file {share} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SourceError(f"{share} is not a file that a ReceiverHost wrote") from None
    try:
        found = json.loads(text)
        host_name, port = found["tracker"]
        access = BlockAccess(
            link=ApplicationLink(
                base64.b64decode(found["secret"]),
                (str(host_name), int(port)),
                None
                if found["certificate"] is None
                else TlsIdentity(found["certificate"], found["key"]),
            ),
            fetch_timeout_s=float(found["fetch_timeout_s"]),
        )
        HostClient(access).close()
    except (ValueError, KeyError, TypeError, PenstockError):
        # The cause would show what the file holds.
        raise SourceError(f"{share} is not a file that a ReceiverHost wrote") from None
    register(spark, access)
