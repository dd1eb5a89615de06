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

_log = logging.getLogger("penstock.host")


def tail_of_run(run: Run) -> Callable[[], LetterTail] | None:
    """Return what opens the dead letters of a run to be looked at; None: not from here."""
    place = run.letters_place()
    if not run.settings.dead_letters_enabled or not (run.is_local or is_shared(place.folder)):
        return None
    limited = RateLimitedLog(_log)
    return lambda: LetterTail(place.folder, run.encryption, but=-1, tell=limited.log)
