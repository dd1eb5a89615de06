"""Reading a block of another host, also when its block server was replaced meanwhile.

A batch's tasks know the block servers, and where a block's copies are, as that was when the batch
was made. A block that is on two hosts is asked for on both. When none of the servers that are known
can be reached, the tracker is asked, also for copies that were made since. So a block server may be
killed, or a host be cut off for less than the time-out, without failing a batch; a server that is
gone for good is known at once.
"""

from __future__ import annotations

import logging
import ssl
import time
from contextlib import closing
from typing import TYPE_CHECKING

import msgspec

from penstock.blockstore._encryption import opened_copy
from penstock.blockstore.reading.fetch import BlockNotServedError, FetchStatus, fetch
from penstock.errors import PenstockError
from penstock.runtime.backoff import Backoff
from penstock.wal import RECORD_HEADER_SIZE, CorruptRecordError, LogCipher, WalError
from penstock.wire import (
    AuthenticationError,
    Client,
    ConnectionLostError,
    ProtocolError,
    WireError,
    WireOptions,
)
from penstock.wire.messages import (
    BlockServerAt,
    CopiesAt,
    FindBlockServer,
    FindCopies,
    Message,
    ReceivedBlockInfo,
)

if TYPE_CHECKING:
    from penstock.blockstore.reading._readahead import Readahead
    from penstock.blockstore.reading.access import BlockAccess

_log = logging.getLogger("penstock.blockstore")

_FIRST_PAUSE_S = 0.1
_MAX_PAUSE_S = 1.0
_CONNECT_S = 3.0
"""Time limit for connecting to one of several hosts that have a block."""


_LAST_ASK_S = 3.0

_SILENT_S = 30.0
"""How long an unreachable host is tried last for blocks that other hosts have as well."""

_silent: dict[str, float] = {}
"""Hosts that this process could not connect to, with the monotonic time until which that counts."""


def fetch_from_host(
    info: ReceivedBlockInfo,
    access: BlockAccess,
    cipher: LogCipher | None = None,
    log_cipher: LogCipher | None = None,
    ahead: Readahead | None = None,
) -> memoryview:
    """Fetch a block's payload from the block server of a host that has it, wherever that is by now.

    Tried again, until `BlockAccess.fetch_timeout_s` is over: a server that does not answer, breaks
    off or is busy, and one that is about to be replaced. Not tried again: a server that answers
    and does not have the block, and an address at which no one listens, or a stranger, unless the
    tracker knows of another one or expects it.

    Args:
        info: The block.
        access: How blocks are reached.
        cipher: Decrypts copies.
        log_cipher: Decrypts the record in the receiver's log; None: `cipher` does.
        ahead: Which blocks are read after it, and what came of them with earlier ones.

    Raises:
        WireError, CorruptRecordError: As `fetch`; the last try's: no host has the block.
        ConnectionLostError: The host has no block server; or the block is on several hosts, of
            which one is away, and the text says of each what was wrong.
            One of them may have it (`may_have_it`) where its block server is silent, too busy, or
            refuses; or the tracker, which would know whether the host is lost, cannot be asked.
    """
    if ahead is not None and (came := ahead.take_fetched(info)) is not None:
        return came
    # Those of attempts may have other keys.
    together = ahead if cipher is None and log_cipher is None else None
    context = access.link.client_context()
    deadline_s = time.monotonic() + access.fetch_timeout_s

    def source(copy: ReceivedBlockInfo, *, is_copy: bool) -> _Source:
        return _Source(
            copy,
            access.servers.get(copy.host),
            cipher if is_copy else log_cipher or cipher,
            copy_of=(log_cipher or cipher, info.sequence) if is_copy else None,
            together=None if is_copy else together,
        )

    first, *copies = copies_of(info)
    sources = [source(first, is_copy=False), *(source(copy, is_copy=True) for copy in copies)]
    backoff = Backoff(_FIRST_PAUSE_S, _MAX_PAUSE_S)
    while True:
        for each in sorted(sources, key=_expected_last):
            left_s = max(0.001, deadline_s - time.monotonic())
            if (payload := each.fetch(access, context, left_s, len(sources) > 1)) is not None:
                return payload
        # Also when the time is over: whether a silent host is lost only the tracker knows.
        left_s = max(_LAST_ASK_S, deadline_s - time.monotonic())
        now = ask_tracker(FindCopies(info.stream_id, info.block_id), access, left_s)
        if isinstance(now, CopiesAt):
            # By place: one that was lost on a host may have been made there again.
            known = {(each.info.host, each.info.segment) for each in sources}
            new = tuple(copy for copy in now.replicas if (copy.host, copy.segment) not in known)
            _, *copies = copies_of(msgspec.structs.replace(info, replicas=new))
            sources += [source(copy, is_copy=True) for copy in copies]
            if copies:
                # They are tried, also where those before took all the time.
                deadline_s = max(deadline_s, time.monotonic() + _LAST_ASK_S)
        open_ones = [each for each in sources if not each.is_over]
        is_news = False
        for each in open_ones:
            left_s = max(_LAST_ASK_S, deadline_s - time.monotonic())
            found = ask_tracker(FindBlockServer(each.info.host), access, left_s)
            is_news |= each.look(found if isinstance(found, BlockServerAt) else None)
        if time.monotonic() >= deadline_s:
            raise _failed(sources)
        if is_news:
            backoff.reset()
            continue
        if all(each.is_hopeless for each in open_ones):
            raise _failed(sources)
        time.sleep(max(0.0, min(backoff.next_s(), deadline_s - time.monotonic())))


def copies_of(info: ReceivedBlockInfo) -> list[ReceivedBlockInfo]:
    """Return a block once for each host that has it, as it is on that; the receiver's first."""
    replace = msgspec.structs.replace
    first = replace(info, replicas=())
    return [
        first,
        *(
            replace(
                first,
                host=replica.host,
                sequence=replica.sequence,
                memory=None,
                segment=replica.segment,
            )
            for replica in info.replicas
        ),
    ]


class _Source:
    """One host that has the block.

    Attributes:
        info: The block as it is on it.
        last: What was wrong at the last try.
        is_over: It does not have the block after all, or refuses it.
        is_hopeless: No later try can do better.
        is_gone: What it had is lost: it said so, or the tracker knows that the host is gone.
    """

    def __init__(
        self,
        info: ReceivedBlockInfo,
        address: tuple[str, int] | None,
        cipher: LogCipher | None,
        *,
        copy_of: tuple[LogCipher | None, int] | None,
        together: Readahead | None,
    ) -> None:
        self.info = info
        self._together = together
        self._cipher = cipher
        # Of a copy: what decrypts the receiver's record, and its sequence. Its log has no cipher:
        # what it holds was encrypted before it was sent to it.
        self._copy_of = copy_of
        self.last: PenstockError | None = None
        self.is_over = False
        self.is_hopeless = False
        self.is_gone = False
        self._address = address

    def fetch(
        self,
        access: BlockAccess,
        context: ssl.SSLContext | None,
        timeout_s: float,
        is_one_of_many: bool,
    ) -> memoryview | None:
        """Try once; None when it cannot be had now, or never (`is_over`)."""
        if self._address is None or self.is_over:
            return None
        try:
            wanted, cipher = self.info, self._cipher
            if self._copy_of is not None and cipher is not None and wanted.segment is not None:
                length = wanted.segment.length - RECORD_HEADER_SIZE
                wanted = msgspec.structs.replace(wanted, num_bytes=length)
            ahead = self._together
            payload = fetch(
                self._address,
                access.link.secret,
                wanted,
                timeout_s,
                connect_s=_CONNECT_S if is_one_of_many else None,
                ssl_context=context,
                cipher=None if self._copy_of is not None else cipher,
                others=() if ahead is None else ahead.next_of_host(wanted),
                found=None if ahead is None else ahead.fetched,
            )
            if self._copy_of is None:
                return payload
            return opened_copy(cipher, wanted.block_id, payload, *self._copy_of)
        except BlockNotServedError as error:
            self.last = error
            self.is_over = error.status is not FetchStatus.BUSY
            self.is_gone = error.status is FetchStatus.NOT_FOUND
        except WalError as error:
            self.last = error
            self.is_over = True
            self.is_gone = isinstance(error, CorruptRecordError)
        except WireError as error:
            self.last = error
            if isinstance(error.__cause__, TimeoutError):
                _silent[self.info.host] = time.monotonic() + _SILENT_S
        return None

    def look(self, found: BlockServerAt | None) -> bool:
        """Take note of what the tracker knows; return whether there is another address to try."""
        if found is not None and found.address not in (None, self._address):
            self._address = found.address
            return True
        self.is_hopeless = _is_hopeless(self.last, found)
        if found is None:
            self.is_gone = self.is_hopeless
        else:
            self.is_gone = found.address is None and not found.is_expected
        return False

    def error(self) -> PenstockError:
        """Return what was wrong."""
        return self.last or _nobody(self.info)


def _expected_last(source: _Source) -> bool:
    return _silent.get(source.info.host, 0.0) > time.monotonic()


def _failed(sources: list[_Source]) -> PenstockError:
    errors = [source.error() for source in sources]
    text = "; ".join(map(str, errors))
    if not all(source.is_gone for source in sources):
        silent = ConnectionLostError(sources[0].info.host, text, may_have_it=True)
        silent.__cause__ = errors[0]
        return silent
    if len(errors) == 1:
        return errors[0]
    # None is away where each has said that it does not have the block.
    kind = WireError if all(source.is_over for source in sources) else ConnectionLostError
    return kind(sources[0].info.host, text)


def ask_tracker(message: Message, access: BlockAccess, timeout_s: float) -> Message | None:
    """Return the tracker's answer, or None when it cannot be asked."""
    link = access.link
    if link.tracker is None:
        return None
    client = Client(link, name="block-reader", options=WireOptions(ask_timeout_s=timeout_s))
    try:
        with closing(client):
            client.connect(timeout_s)
            return client.ask(message, timeout_s)
    except WireError as error:
        _log.info("the tracker cannot be asked about a block: %s", error)
        return None


def _is_hopeless(last: PenstockError | None, found: BlockServerAt | None) -> bool:
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
