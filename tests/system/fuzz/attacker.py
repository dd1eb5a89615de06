"""Carries out attacks, one after the other, each on a connection of its own."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections import Counter, deque

from penstock.blockstore.reading.fetch import SERVICE
from penstock.wire import AuthenticationError, ClientHandshake, Seals
from tests.blockstore.peers import receive
from tests.bounds import HANG_S
from tests.system.fuzz.application import Application
from tests.system.fuzz.attacks import BLOCKS, TRACKER, Attack, Ending, Proof
from tests.system.fuzz.recording import sealed

PATIENCE_S = HANG_S
READ_S = 0.01
HELD = 60
SLOW_S = 0.002
CROWD = 10
"""Of each kind; a block server has 16 records on their way at one time, others wait."""
CROWD_S = 1.0
_RESET = struct.pack("ii", 1, 0)
_BROKEN = (OSError, EOFError, AuthenticationError)


class Attacker:
    """Belongs to one thread.

    Args:
        applications: What is attacked, by TLS.

    Attributes:
        counts: Attacks by proof, by way and by ending.
    """

    def __init__(self, applications: dict[bool, Application]) -> None:
        self.counts: dict[str, Counter[str]] = {"proof": Counter(), "way": Counter()}
        self.counts["ending"] = Counter()
        self._applications = applications
        self._held: deque[socket.socket] = deque()
        self._hellos: dict[tuple[bool, str], bytes] = {}
        self._pause = threading.Event()

    def carry_out(self, attack: Attack) -> None:
        """Do it. What the server does to this connection is its good right."""
        self.counts["proof"][attack.proof.value] += 1
        self.counts["way"][attack.way] += 1
        self.counts["ending"][attack.ending.value] += 1
        with contextlib.suppress(*_BROKEN):
            peer = self._connected(attack)
            self._speak(peer, attack)

    def _connected(self, attack: Attack) -> socket.socket:
        application = self._applications[attack.tls]
        address = application.tracker if attack.port == TRACKER else application.server
        peer = socket.socket()
        try:
            if attack.ending is Ending.HOLD:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            peer.settimeout(PATIENCE_S)
            peer.connect(address)
            if application.tls is not None and attack.proof is not Proof.NO_TLS:
                return application.tls.client_context().wrap_socket(peer)
            return peer
        except BaseException:
            peer.close()
            raise

    def _speak(self, peer: socket.socket, attack: Attack) -> None:
        try:
            with contextlib.suppress(*_BROKEN):
                seals = self._prove(peer, attack, self._applications[attack.tls].secret)
                pieces = attack.pieces
                if attack.proof is Proof.RIGHT and seals is not None and pieces:
                    data = sealed(seals.outgoing, b"".join(pieces))
                    size = max(1, -(-len(data) // len(pieces)))
                    pieces = tuple(data[at : at + size] for at in range(0, len(data), size))
                # What does not fit into the buffers because nobody reads must not stop this end.
                peer.settimeout(READ_S)
                for piece in pieces:
                    peer.sendall(piece)
                    if attack.slow:
                        self._pause.wait(SLOW_S)
            self._end(peer, attack.ending)
        except BaseException:
            peer.close()
            raise

    def crowd(self) -> None:
        """Have as many take nothing of large answers as the good peers can stand beside them.

        What a server needs at most is in use once then; what comes later is seen against it.
        """
        crowd = []
        for tls, application in self._applications.items():
            largest = max(application.conversations[BLOCKS], key=len)
            for port, asked in ((BLOCKS, largest), (TRACKER, b"")):
                for _ in range(CROWD):
                    attack = Attack(port, tls, Proof.RIGHT, "crowd", (), False, Ending.HOLD)
                    peer = self._connected(attack)
                    crowd.append(peer)
                    seals = self._prove(peer, attack, application.secret)
                    assert seals is not None
                    peer.sendall(sealed(seals.outgoing, asked * 5))
        self._pause.wait(CROWD_S)
        for peer in crowd:
            peer.close()

    def close(self) -> None:
        """Let go of what is held."""
        while self._held:
            self._held.popleft().close()

    def _prove(self, peer: socket.socket, attack: Attack, secret: bytes) -> Seals | None:
        if attack.proof in (Proof.NONE, Proof.NO_TLS):
            return None
        key = (attack.tls, attack.port)
        if attack.proof is Proof.REPLAYED and key in self._hellos:
            peer.sendall(self._hellos[key])
            return None
        services = {True: "tracker", False: SERVICE}
        is_tracker = attack.port == TRACKER
        service = services[is_tracker is not (attack.proof is Proof.OTHER_SERVICE)]
        known = bytes(32) if attack.proof is Proof.WRONG else secret
        handshake = ClientHandshake(known, service, "the attacked")
        while handshake.expects:
            said = handshake.receive(receive(peer, handshake.expects))
            peer.sendall(said)
            if said and attack.proof is Proof.RIGHT:
                self._hellos[key] = said
        return handshake.seals()

    def _end(self, peer: socket.socket, ending: Ending) -> None:
        if ending is Ending.HOLD:
            self._held.append(peer)
            if len(self._held) > HELD:
                self._held.popleft().close()
            return
        with contextlib.suppress(*_BROKEN):
            if ending is Ending.RESET:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            elif ending is Ending.HALF_OPEN:
                _shut_down(peer)
                peer.recv(65536)
            elif ending is Ending.READ:
                peer.settimeout(READ_S)
                while peer.recv(1 << 20):
                    pass
        peer.close()


def _shut_down(peer: socket.socket) -> None:
    """Close the sending half; of TLS, under it, as a process does that was killed half-way."""
    if isinstance(peer, ssl.SSLSocket):
        with contextlib.suppress(OSError):
            socket.socket.shutdown(peer, socket.SHUT_WR)
    else:
        peer.shutdown(socket.SHUT_WR)
