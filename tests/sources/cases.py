"""What `test_every_source` must know of a source: a server of it, and what it claims.

A source is added by a file ``case_NAME.py`` here that has ``CASES``, a list of `SourceCase`.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

SECRET = "correct-horse-battery"
"""What clients need where a case has a `refusal`."""


class Source(abc.ABC):
    """A queue, topic, table or folder of a test's own, on a server of its own or a shared one.

    Attributes:
        port: Where receivers connect to, or listen.
    """

    port: int

    @abc.abstractmethod
    def receiver(self, port: int, secret: str = SECRET) -> object:
        """Return a receiver.

        Time-outs after which the server gives again what it had given to a receiver that was
        killed, and after which a connection without a sign of life is given up, should be a second
        or two.

        Args:
            port: Where it connects to, of a proxy before the server; or `port`, where it listens.
            secret: A password, token or key; a wrong one in one test.
        """

    @abc.abstractmethod
    def send(self, payloads: Sequence[bytes]) -> None:
        """Send messages, each once, and return when the source has them (for a while, maybe).

        It is called while the server runs, and asks again until its end where a receiver listens.
        """

    def stored(self, payload: bytes) -> object:
        """Return what a receiver stores of a message."""
        return payload

    def kill(self) -> None:
        """Kill the server with SIGKILL; what it has is kept as it keeps it."""
        raise NotImplementedError

    def start(self) -> None:
        """Start it again after a kill, at the same port; waits until it takes connections."""
        raise NotImplementedError

    def wait_until_heard(self) -> None:
        """Wait until a receiver gets what is sent; for sources that keep nothing for one."""
        return

    def unacknowledged(self) -> int:
        """Return how many messages the server has given and not yet been told of as taken."""
        raise NotImplementedError


@dataclass(frozen=True)
class SourceCase:
    """One source.

    Attributes:
        name: Of the test's parameter.
        open: Opens a `Source` in an empty folder; its server runs and it has no messages.
        claim: What holds after kills; None: nothing does, since it keeps nothing for a receiver.
        connects: Whether the receiver connects to a server; else it listens, or reads files.
        refusal: What an error says of a wrong secret (a regular expression); None: it has none.
        most_unacknowledged: The receiver's own bound, as `Source.unacknowledged` counts; None: the
            source cannot say how many there are.
        notices_stalls: Whether the receiver gives up a connection that is open and dead.
        keeps_connection: Whether a connection serves many calls, as far as the server lets it.
        largest_bytes: The largest message of a test.
        takes_empty: Whether a message may be empty.
    """

    name: str
    open: Callable[[Path], AbstractContextManager[Source]]
    claim: Literal["at least once", "exactly once"] | None
    connects: bool = True
    refusal: str | None = None
    most_unacknowledged: int | None = None
    notices_stalls: bool = False
    keeps_connection: bool = True
    largest_bytes: int = 1 << 20
    takes_empty: bool = True
