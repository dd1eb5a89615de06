"""`BlockAccess`: what a task is given to reach blocks, on whichever host they are."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.wal import EncryptionKey
from penstock.wire.link import ApplicationLink


@dataclass(frozen=True)
class BlockAccess:
    """What a batch task needs besides the block's metadata; travels in the task's closure.

    Attributes:
        servers: Addresses of block servers by host, as they were when the batch was made.
        link: What opens connections to them, and to the tracker: it knows where a block server is
            by now.
        fetch_timeout_s: Bound of one fetch from another host, all its tries together.
        encryption: The key that the blocks' logs are encrypted with; None: they are in clear.
        skip_after: After that many tries of its task a block that is nowhere is left out of the
            batch; None: never, the batch fails.
        wait_s: How long each try of a task waits for a host that has a block and is away.
    """

    servers: dict[str, tuple[str, int]] = field(default_factory=dict)
    link: ApplicationLink = field(default_factory=ApplicationLink)
    fetch_timeout_s: float = 30.0
    encryption: EncryptionKey | None = None
    skip_after: int | None = None
    wait_s: float = 0.0
