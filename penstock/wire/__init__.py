"""The control protocol: how the processes of one application talk to each other.

What must hold:

- *Nobody unknown* (I9). Both ends of every connection prove that they know the application's
  secret before a byte of it is read as anything else. What a peer sends is MessagePack of known
  types; nothing is unpickled. Frames have a size limit.
- *Nobody in between speaks.* Each frame carries a tag that only the two ends of this connection
  can make, in this direction and this place. What does not fit ends the connection unread.
- *Nobody listens in*, if `spark.penstock.tls.enabled`: the challenge and all after it are inside
  TLS (`tls`).
- *One peer's misdeeds are its own.* What cannot be decoded, stalls, is silent, floods or does not
  read ends that connection, with one log line, and changes nothing for the others. Memory per
  connection is bounded and given back when it ends, and the number of connections that have proved
  nothing is bounded from the moment when they are accepted, before TLS (`_arrivals`).
- *An answer or an error.* An ask ends with its answer, or with a named error after a bounded
  time. Until then it survives any number of broken connections: it is sent again, in its order.
  So it may be seen twice, and handlers are idempotent (I2).

On the wire: the handshake (`_authentication`: three messages of fixed size), then frames
(`_frames`: length, id, kind, MessagePack of a `messages.Message`), each with its tag (`_seal`).
``docs/protocol.md`` has it byte by byte. `ports` has the rule of which ports a server tries, and
listens; `addresses` writes addresses of IPv6 as Spark and as sockets want them.

The life of a connection: NEW, AUTHENTICATING (bounded in number and time), OPEN (a heartbeat when
nothing else is sent; silence ends it), CLOSING (what was queued goes out, bounded), CLOSED. A
`Server` and a `Client` each own one thread ``penstock-…`` with an event loop, on which all
callbacks run; all their public methods may be called from any thread.

==============================  ==================================================================
`messages`                      every message, as a frozen type
`client`, `_client_state`,      the connecting end; its states and statistics; what has no answer
`_asks`                         yet
`server`, `_arrivals`,          the listening end; accepting, within bounds; what its owner writes,
`_handler`                      and the peers that it is given
`_connection`                   one connection, as both ends use it
`_authentication`, `_seal`,     proving the secret, then each frame; TLS around it
`tls`
`_frames`, `_mailbox`           cutting bytes into messages; handing items to an event loop
`options`, `ports`,             limits; where a server listens; addresses as text
`addresses`
`errors`                        what can go wrong
==============================  ==================================================================
"""

from __future__ import annotations

from penstock.wire import messages
from penstock.wire._arrivals import Arrival, Arrivals
from penstock.wire._authentication import (
    PROTOCOL_VERSION,
    ClientHandshake,
    HandshakeState,
    ServerHandshake,
)
from penstock.wire._client_state import ClientState, ClientStatistics
from penstock.wire._handler import Handler, Peer, PendingReply, Reply
from penstock.wire._seal import TAG_BYTES, Seal, Seals
from penstock.wire.client import Client
from penstock.wire.errors import (
    AskTimeoutError,
    AuthenticationError,
    ClientClosedError,
    ConnectionLostError,
    FrameTooLargeError,
    ProtocolError,
    ServerStartError,
    TamperedError,
    WireError,
)
from penstock.wire.options import WireOptions
from penstock.wire.server import Server, ServerStatistics
from penstock.wire.tls import TlsIdentity, TlsNotInstalledError

__all__ = [
    "PROTOCOL_VERSION",
    "TAG_BYTES",
    "Arrival",
    "Arrivals",
    "AskTimeoutError",
    "AuthenticationError",
    "Client",
    "ClientClosedError",
    "ClientHandshake",
    "ClientState",
    "ClientStatistics",
    "ConnectionLostError",
    "FrameTooLargeError",
    "Handler",
    "HandshakeState",
    "Peer",
    "PendingReply",
    "ProtocolError",
    "Reply",
    "Seal",
    "Seals",
    "Server",
    "ServerHandshake",
    "ServerStartError",
    "ServerStatistics",
    "TamperedError",
    "TlsIdentity",
    "TlsNotInstalledError",
    "WireError",
    "WireOptions",
    "messages",
]
