"""The file by which commands find a running program, and prove the right to act on it.

It is in a folder of the user's own (``$XDG_RUNTIME_DIR/penstock``, or ``/tmp/penstock-<uid>``),
which no one else may enter, and has mode 0600: anyone who can read it may act. It exists while the
program runs; that of a killed program, or one that it had not finished, is removed by anyone who
looks or starts next. The last one to end removes the folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from urllib.parse import urlsplit

from penstock.errors import PenstockError
from penstock.runtime.processes import ProcessIdentity

_SUFFIX = ".json"
_UNFINISHED = ".new"
_UNFINISHED_S = 60.0
"""A younger file may be in the middle of being written."""
_MOST_BYTES = 64 << 10


@dataclass(frozen=True)
class RegisteredApp:
    """A running program.

    Attributes:
        application_id: Spark's id of it.
        name: What it is called.
        url: Where it can be looked at.
        token: What proves the right to act.
        certificate: The server's, PEM; empty where it speaks plain HTTP.
        started_ms: When it was started, ms since the epoch.
        pid: The driver's process.
        host: See `ProcessIdentity.host`.
        process_started: See `ProcessIdentity.started`.
    """

    application_id: str
    name: str
    url: str
    token: str
    certificate: str
    started_ms: int
    pid: int
    host: str
    process_started: str

    @property
    def is_known_dead(self) -> bool:
        """Whether its process is gone."""
        return ProcessIdentity(self.host, self.pid, self.process_started).is_known_dead


def runtime_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of this user's running programs; it need not exist."""
    parent = environ.get("XDG_RUNTIME_DIR", "")
    if parent and os.path.isdir(parent):
        return Path(parent, "penstock")
    return Path(tempfile.gettempdir(), f"penstock-{os.getuid()}")


def register(
    folder: Path,
    *,
    application_id: str,
    name: str,
    url: str,
    token: str,
    certificate: str = "",
    started_ms: int,
) -> Path:
    """Write the file of this program; return its path, for `unregister`.

    Raises:
        PenstockError: The folder belongs to another user, or others may enter it.
        OSError: It cannot be written.
    """
    process = ProcessIdentity.this_process()
    app = RegisteredApp(
        application_id=application_id,
        name=name,
        url=url,
        token=token,
        certificate=certificate,
        started_ms=started_ms,
        pid=process.pid,
        host=process.host,
        process_started=process.started,
    )
    # A process may have two: a StreamingContext and a ReceiverHost, on a port each.
    port = urlsplit(url).port or 0
    path = folder / f"{_file_name(application_id)}-{process.pid}-{port}{_SUFFIX}"
    try:
        _write(path, app)
    except FileNotFoundError:
        _write(path, app)  # Another program ended in between, and removed the folder.
    return path


def unregister(path: Path) -> None:
    """Remove the file of this program, and the folder with the last one."""
    path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        path.parent.rmdir()


def registered(folder: Path) -> list[RegisteredApp]:
    """Return the programs that run, the oldest first; removes the files of those that do not.

    Raises:
        PenstockError: The folder belongs to another user, or others may enter it.
    """
    if not folder.exists():
        return []
    _check_own(folder)
    for path in folder.glob(f"*{_UNFINISHED}"):
        with contextlib.suppress(OSError):
            if time.time() - path.lstat().st_mtime >= _UNFINISHED_S:
                path.unlink()
    found = []
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        app = _read(path)
        if app is None:
            continue
        if app.is_known_dead:
            path.unlink(missing_ok=True)
        else:
            found.append(app)
    return sorted(found, key=lambda app: app.started_ms)


def _write(path: Path, app: RegisteredApp) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    registered(path.parent)
    # Never a moment with other rights, and never half of it.
    written = path.with_suffix(_UNFINISHED)
    written.unlink(missing_ok=True)
    number = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(number, "w", encoding="utf-8") as file:
        json.dump(asdict(app), file)
    written.replace(path)


def _read(path: Path) -> RegisteredApp | None:
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        with open(number, encoding="utf-8") as file:
            told = json.loads(file.read(_MOST_BYTES))
        app = RegisteredApp(**told)
    except (OSError, ValueError, TypeError, RecursionError):
        return None  # It was just removed, or is of another version.
    fits = all(type(getattr(app, known.name)).__name__ == known.type for known in fields(app))
    return app if fits else None


def _check_own(folder: Path) -> None:
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise PenstockError(f"{folder}: this is not a folder; remove it")
    if found.st_uid != os.getuid():
        raise PenstockError(f"{folder}: this folder belongs to another user")
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise PenstockError(f"{folder}: others may enter this folder; set its mode to 0700")


def _file_name(application_id: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", application_id)
