"""What opens the dead letters of a run, so that they can be looked at while it goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.dead_letters import LetterTail
from penstock.rate_limited_log import RateLimitedLog
from penstock.wal import is_shared

if TYPE_CHECKING:
    from penstock.host.preparation import Run
    from penstock.settings import Settings
    from penstock.wal import EncryptionKey

_log = logging.getLogger("penstock.host")


def tail_of_run(
    settings: Settings, run: Run, encryption: EncryptionKey | None, *, is_local: bool
) -> Callable[[], LetterTail] | None:
    """Return what opens the dead letters of the program to be looked at; None: not from here.

    Args:
        settings: The settings.
        run: The run.
        encryption: The key of logs; None: in clear.
        is_local: Whether receivers and tasks run on this host.
    """
    place = run.logs(settings, encryption).letters_place(settings)
    if not settings.dead_letters_enabled or not (is_local or is_shared(place.folder)):
        return None
    limited = RateLimitedLog(_log)
    return lambda: LetterTail(place.folder, encryption, but=-1, tell=limited.log)
