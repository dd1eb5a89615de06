"""The control protocol: how the processes of one application talk to each other.

What must hold:

- *No one unknown* (I9). Both ends of every connection prove that they know the application's
  secret before a byte of it is read as anything else. What a peer sends is MessagePack of known
  types; nothing is unpickled. Frames have a size limit.
- *No one in between speaks.* Each frame carries a tag that only the two ends of this connection
  can make, in this direction and this place. What does not fit ends the connection unread.
- *No one listens in*, if `spark.penstock.tls.enabled`: the challenge and all after it are inside
  TLS (`tls`).
- *One peer's misdeeds are its own.* What cannot be decoded, stalls, is silent, floods or does not
  read ends that connection, with one log line, and changes nothing for the others. Memory per
  connection is bounded and given back when it ends, and the number of connections that have proved
  nothing is bounded from the moment when they are accepted, before TLS (`_arrivals`).
- *An answer or an error.* An ask ends with its answer, or with a named error after a bounded
  time. Until then it survives any number of broken connections: it is sent again, in its order.
  So it may be seen twice, and handlers are idempotent (I2).

On the wire: the handshake (`_authentication`: three messages of fixed size), then frames
(`_frames`: length, id, kind, MessagePack of a `messages.Message`), each with its tag.
Those modules have it byte by byte.

The life of a connection: NEW, AUTHENTICATING (bounded in number and time), OPEN (a heartbeat when
nothing else is sent; silence ends it), CLOSING (what was queued goes out, bounded), CLOSED. A
`Server` and a `Client` each own one thread ``penstock-…`` with an event loop, on which all
callbacks run (clients may share one, a `ClientLoop`); all their public methods may be called from
any thread.

==========================  ======================================================================
`messages`                  every message, as a frozen type
`client`                    the connecting end; its states, statistics, and what has no answer yet
`server`, `_arrivals`       the listening end, and what its owner writes; accepting, within bounds
`_connection`               one connection, as both ends use it
`_authentication`, `tls`    proving the secret, then each frame; TLS around it
`link`                      what that takes, and where the tracker is; limits
`_frames`, `_mailbox`       cutting bytes into messages; handing items to an event loop
`addresses`                 addresses as text, where a server listens
`errors`                    what can go wrong
==========================  ======================================================================
"""

from __future__ import annotations

from penstock.wire import messages
from penstock.wire._arrivals import Arrival, Arrivals
from penstock.wire._authentication import (
    TAG_BYTES,
    ClientHandshake,
    HandshakeState,
    Seal,
    Seals,
    ServerHandshake,
)
from penstock.wire.client import Client, ClientLoop, ClientState
from penstock.wire.errors import (
    AskTimeoutError,
    AuthenticationError,
    ConnectionLostError,
    FrameTooLargeError,
    ProtocolError,
    TamperedError,
    WireError,
)
from penstock.wire.link import ApplicationLink, WireOptions
from penstock.wire.server import Peer, PendingReply, Reply, Server
from penstock.wire.tls import TlsIdentity

__all__ = [
    "TAG_BYTES",
    "ApplicationLink",
    "Arrival",
    "Arrivals",
    "AskTimeoutError",
    "AuthenticationError",
    "Client",
    "ClientHandshake",
    "ClientLoop",
    "ClientState",
    "ConnectionLostError",
    "FrameTooLargeError",
    "HandshakeState",
    "Peer",
    "PendingReply",
    "ProtocolError",
    "Reply",
    "Seal",
    "Seals",
    "Server",
    "ServerHandshake",
    "TamperedError",
    "TlsIdentity",
    "WireError",
    "WireOptions",
    "messages",
]
