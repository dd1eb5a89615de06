"""File systems that only one program and its children see, so that nothing is left mounted."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def in_own_mounts(script: str) -> Sequence[str]:
    """Return a command that runs Python after `script`, which mounts something.

    Without the rights of root a user namespace gives them.
    """
    shell = ["sh", "-c", f'{script} && exec "$@"', "sh", sys.executable]
    return ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"]), *shell]
