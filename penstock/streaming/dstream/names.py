"""Names of streams and states: what the ledger and saved states know them by over restarts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Protocol, TypeVar

from penstock.errors import StreamGraphError


class _Nameable(Protocol):
    is_named: bool

    @property
    def made_by(self) -> str: ...


N = TypeVar("N", bound=_Nameable)


def by_name(nodes: Iterable[tuple[str, N]], what: str) -> dict[str, N]:
    """Return nodes by name, in their order.

    Args:
        nodes: Each with its name. Those that no one named have the name of their kind; from the
            second of a kind on, a number is added.
        what: What they are, such as ``stream``.

    Raises:
        StreamGraphError: Two have the same name.
    """
    found: dict[str, N] = {}
    kinds: Counter[str] = Counter()
    for kind_or_name, node in nodes:
        name = kind_or_name
        if not node.is_named:
            kinds[name] += 1
            if kinds[name] > 1:
                name = f"{name}-{kinds[name]}"
        if name in found:
            raise StreamGraphError(
                f"two {what}s have the name {name!r}: that of {found[name].made_by} and that of "
                f"{node.made_by}; name one of them otherwise, with stream.named(...)"
            )
        found[name] = node
    return found
