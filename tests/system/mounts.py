"""File systems that only one program and its children see, so that nothing is left mounted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


def in_own_mounts(script: str) -> Sequence[str]:
    """Return a command that runs Python after `script`, which mounts something.

    Without the rights of root a user namespace gives them.
    """
    shell = ["sh", "-c", f'{script} && exec "$@"', "sh", sys.executable]
    return ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"]), *shell]


def on_another_host() -> Sequence[str]:
    """Return a command that runs another one where it sees no process of this host.

    For Penstock these are two hosts: neither knows whether a process of the other one lives.
    """
    users = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *users, "--pid", "--fork", "--kill-child", "--mount-proc"]


@contextmanager
def own_mounts(script: str) -> Iterator[tuple[list[str], int]]:
    """Mount something for several programs, one after the other.

    Yields a command that runs Python where `script` was run, and a process whose root shows it.
    """
    shell = ["sh", "-c", f"{script} && echo there && exec sleep 86400"]
    users = [] if os.getuid() == 0 else ["--user", "--preserve-credentials"]
    mapped = ["--map-root-user"] if users else []
    with subprocess.Popen(
        ["unshare", "--mount", *mapped, *shell], stdout=subprocess.PIPE, text=True
    ) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "there\n"
            inside = ["nsenter", f"--target={holder.pid}", "--mount", *users]
            yield [*inside, f"--wd={os.getcwd()}", sys.executable], holder.pid
        finally:
            holder.kill()
