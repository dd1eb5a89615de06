"""`PeerLink`: sending copies of blocks to the block server of another host (`replica_service`)."""

from __future__ import annotations

import hashlib
import ssl

import msgspec

from penstock.blockstore.reading.fetch import BlockConnection, FetchStatus
from penstock.blockstore.server.replica_service import ReplicaRequest, WrittenReplica
from penstock.wire import ConnectionLostError, ProtocolError, WireError
from penstock.wire.addresses import address_text
from penstock.wire.messages import ReplicaPlace

_CONNECT_S = 3.0
_COPY_S = 60.0
"""Time limit for one whole copy; ten seconds of silence end it earlier."""
_STEP_BYTES = 1 << 20


class PeerLink:
    """A connection to the block server of another host; for one thread, but for `close`.

    Args:
        host: The other host.
        address: Its block server.
        secret: The application's secret.
        ssl_context: Makes it a TLS connection, below the authentication.

    Attributes:
        host: The other host.
        is_fresh: No copy was made over it yet.

    Raises:
        ConnectionLostError: It does not answer.
        AuthenticationError: It does not know the secret.
    """

    def __init__(
        self,
        host: str,
        address: tuple[str, int],
        secret: bytes,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.host = host
        self.is_fresh = True
        self._peer = address_text(*address)
        try:
            self._connection = BlockConnection(
                address, self._peer, _COPY_S, ssl_context, connect_s=_CONNECT_S
            )
            with self._connection.closed_if_it_fails():
                self._connection.authenticate(secret)
        except (OSError, EOFError) as error:
            raise self._lost(error) from error

    def _lost(self, error: Exception) -> ConnectionLostError:
        reason = str(error) or type(error).__name__
        return ConnectionLostError(
            self._peer, f"no copies can be made on {self.host} ({self._peer}): {reason}"
        )

    def keep(self, stream_id: int, attempt: str, payload: memoryview, crc: int) -> ReplicaPlace:
        """Have a block kept by that server; returns when it is as durable as its log is.

        Args:
            stream_id: The stream.
            attempt: The receiver attempt.
            payload: The payload of the block's record.
            crc: Its CRC-32C.

        Raises:
            WireError: It does not take it.
            ConnectionLostError: The connection broke, or ten seconds passed without a sign; the
                block may be there all the same, and no one knows of it.
            ProtocolError: The answer is none.
            TamperedError: The answer is not that server's.
        """
        connection = self._connection
        sealed = connection.seals_blocks
        digest = hashlib.sha256()
        try:
            connection.extend(_COPY_S)
            connection.ask(ReplicaRequest(stream_id, attempt, len(payload), crc, sealed))
            for start in range(0, len(payload), _STEP_BYTES):
                with payload[start : start + _STEP_BYTES] as piece:
                    connection.send(piece)
                    if sealed:
                        digest.update(piece)
            if sealed:
                connection.send_seal(digest.digest())
            status, length = connection.answer()
            text = connection.text(length)
            if status is not FetchStatus.KEPT:
                answer = status.name.lower().replace("_", " ")
                reason = text.decode(errors="replace")
                what = f"the block server {self._peer} took no copy ({answer}): {reason}"
                raise WireError(self._peer, what)
            kept = msgspec.msgpack.decode(text, type=WrittenReplica)
        except (OSError, EOFError) as error:
            raise self._lost(error) from error
        except msgspec.MsgspecError as error:
            raise ProtocolError(self._peer, f"an answer that cannot be read: {error}") from error
        self.is_fresh = False
        return ReplicaPlace(self.host, kept.segment, kept.sequence)

    def close(self) -> None:
        """Close it; a copy that is on its way in another thread fails."""
        self._connection.close()
