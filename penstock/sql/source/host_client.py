"""`HostClient`: questions of a query to the host of its stream, each with an end."""

from __future__ import annotations

from typing import TypeVar

from penstock.blockstore import BlockAccess
from penstock.sql.errors import HostNotReachableError, SourceError
from penstock.wire import AskTimeoutError, AuthenticationError, Client, WireError, WireOptions
from penstock.wire.addresses import address_text
from penstock.wire.messages import Failure, Message, Refused

M = TypeVar("M")

_PATIENCE_S = 20.0
"""How long a host that is silent is asked; Spark itself waits for ever."""

_REFUSED_S = 2.0
"""How long one is asked where no one listens: a host that is started again has another secret."""


class HostClient:
    """A connection to the tracker of a host, made with the first question.

    Args:
        access: What opens it.
    """

    def __init__(self, access: BlockAccess) -> None:
        if access.link.tracker is None:
            raise ValueError("the access names no tracker")
        self._link = access.link
        self._address = access.link.tracker
        self._client: Client | None = None

    def ask(self, message: Message, kind: type[M]) -> M:
        """Ask, and return the answer.

        Args:
            message: The question.
            kind: What is answered if all is well.

        Raises:
            HostNotReachableError: The host does not answer in time, or another one does.
            SourceError: It says no, or could not do it.
        """
        try:
            if self._client is None:
                self._client = self._connected()
            answer = self._client.ask(message, _PATIENCE_S)
        except AuthenticationError as error:
            self.close()
            address = address_text(*self._address)
            raise HostNotReachableError(address, error.reason, is_another=True) from None
        except WireError as error:
            self.close()
            # Without its cause: Spark shows that first, and it names no way out.
            raise HostNotReachableError(address_text(*self._address), _reason(error)) from None
        if isinstance(answer, kind):
            return answer
        if isinstance(answer, (Refused, Failure)):
            raise SourceError(f"the receiver host says: {answer.reason}")
        raise SourceError(f"the receiver host answered {type(answer).__name__}")

    def close(self) -> None:
        """Close the connection; a later question opens another."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connected(self) -> Client:
        client = Client(
            self._link,
            name="place-reader",
            options=WireOptions(ask_timeout_s=_PATIENCE_S, refused_after_s=_REFUSED_S),
        )
        client.connect(_PATIENCE_S)
        return client


def _reason(error: WireError) -> str:
    if isinstance(error, AskTimeoutError):
        return f"no answer within {error.timeout_s:g} s; {error.connection}"
    return str(error)
