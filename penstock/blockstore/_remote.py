"""Reading a block of another host, also when its block server was replaced meanwhile.

A batch's tasks know the block servers as they were when the batch was made. When the one that they
know cannot be reached, they ask the tracker. So a block server may be killed, or a host be cut off
for less than the time-out, without failing a batch; a server that is gone for good is told at once.
"""

from __future__ import annotations

import logging
import ssl
import time
from contextlib import closing
from typing import TYPE_CHECKING

from penstock.blockstore._fetch import BlockNotServedError, FetchStatus, fetch
from penstock.wal import LogCipher
from penstock.wire import (
    AuthenticationError,
    Client,
    ConnectionLostError,
    ProtocolError,
    WireError,
)
from penstock.wire.messages import BlockServerAt, FindBlockServer, ReceivedBlockInfo

if TYPE_CHECKING:
    from penstock.blockstore.reader import BlockAccess

__all__ = ["fetch_from_host"]

_log = logging.getLogger("penstock.blockstore")

_FIRST_PAUSE_S = 0.1
_MAX_PAUSE_S = 1.0


def fetch_from_host(
    info: ReceivedBlockInfo, access: BlockAccess, cipher: LogCipher | None = None
) -> memoryview:
    """Fetch a block's payload from the block server of its host, wherever that is by now.

    Tried again, until `BlockAccess.fetch_timeout_s` is over: a server that does not answer, breaks
    off or is busy, and one that is about to be replaced. Not tried again: a server that answers
    and does not have the block, and an address at which nobody listens, or a stranger, unless the
    tracker knows of another one or expects it.

    Raises:
        WireError, CorruptRecordError: As `fetch`; the last try's.
        ConnectionLostError: The host has no block server.
    """
    context = access.tls.client_context() if access.tls else None
    deadline_s = time.monotonic() + access.fetch_timeout_s
    address = access.servers.get(info.host)
    last: WireError | None = None
    pause_s = _FIRST_PAUSE_S
    while True:
        left_s = max(0.001, deadline_s - time.monotonic())
        if address is not None:
            try:
                return fetch(
                    address, access.secret, info, left_s, ssl_context=context, cipher=cipher
                )
            except BlockNotServedError as error:
                if error.status is not FetchStatus.BUSY:
                    raise
                last = error
            except WireError as error:
                last = error
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise last or _nobody(info)
        found = _ask_tracker(info, access, context, left_s)
        if found is not None and found.address is not None and found.address != address:
            address, pause_s = found.address, _FIRST_PAUSE_S
            continue
        if _is_hopeless(last, found):
            raise last or _nobody(info)
        time.sleep(max(0.0, min(pause_s, deadline_s - time.monotonic())))
        pause_s = min(_MAX_PAUSE_S, 2 * pause_s)


def _ask_tracker(
    info: ReceivedBlockInfo,
    access: BlockAccess,
    context: ssl.SSLContext | None,
    timeout_s: float,
) -> BlockServerAt | None:
    """Return what the tracker says, or None when it cannot be asked."""
    if access.tracker is None:
        return None
    client = Client(
        access.tracker,
        access.secret,
        ask_timeout_s=timeout_s,
        name="block-reader",
        ssl_context=context,
    )
    try:
        with closing(client):
            client.connect(timeout_s)
            answer = client.ask(FindBlockServer(info.host), timeout_s)
    except WireError as error:
        _log.info("the tracker cannot say where the blocks of %s are: %s", info.host, error)
        return None
    return answer if isinstance(answer, BlockServerAt) else None


def _is_hopeless(last: WireError | None, found: BlockServerAt | None) -> bool:
    """Whether no later try can do better.

    Args:
        last: What was wrong with the address that was tried last, if there was one.
        found: What the tracker knows: no other address than that.
    """
    stranger = isinstance(last, (AuthenticationError, ProtocolError))
    nobody = last is None or isinstance(last.__cause__, ConnectionRefusedError)
    if not stranger and not nobody:
        return False  # it was silent, busy, or broke off
    if found is None:
        return True
    if found.address is not None:
        return stranger  # of one that is killed the tracker hears in a moment
    return not found.is_expected


def _nobody(info: ReceivedBlockInfo) -> ConnectionLostError:
    return ConnectionLostError(
        info.host,
        f"{info.host} has no block server: it is lost, or no receiver runs there to start one",
    )
