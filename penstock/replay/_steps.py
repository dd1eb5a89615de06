"""`ReplaySteps`: lets the blocks of a recording through one by one."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from types import TracebackType
from typing import Any

from penstock._arguments import as_folder, refused

_LOOK_S = 0.1


class ReplaySteps:
    """How far a `ReplayReceiver` plays back: a block with each `step`.

    ::

        with ReplaySteps("/tmp/steps") as steps:
            with run_receiver(ReplayReceiver("clicks-recorded", "clicks", steps=steps)) as running:
                steps.step()

    It is a named pipe, so that it reaches a receiver in another process of this host. Steps that
    no receiver has taken yet wait for the next one; one that was taken by a receiver that is killed
    is made again.

    Args:
        path: The pipe, which is made; it is removed at the end of the `with`.

    Raises:
        OSError: It is there, or cannot be made.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = as_folder(path, "path")
        os.mkfifo(self._path, 0o600)
        # For both: what is written stays while no receiver reads.
        self._pipe = os.open(self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def __enter__(self) -> ReplaySteps:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"_path": self._path}

    def step(self, blocks: int = 1) -> None:
        """Let blocks through; returns at once.

        Raises:
            ValueError: It is no number above 0.
            BlockingIOError: Some thousands wait already.
        """
        if type(blocks) is not int or blocks < 1:
            raise ValueError(refused("blocks", blocks, "a whole number above 0"))
        os.write(self._pipe, b"." * blocks)

    def close(self) -> None:
        """Remove the pipe; the receiver lets nothing more through. May be called again."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)


class StepsTaken:
    """The receiver's side of steps.

    Args:
        steps: The other side.
        stopped: Ends a wait.
    """

    def __init__(self, steps: ReplaySteps, stopped: threading.Event) -> None:
        self._path = steps._path
        self._stopped = stopped

    def wait_for(self, sealed_ms: int) -> bool:
        """Wait until a block is let through; False: the receiver stops."""
        with contextlib.ExitStack() as opened:
            pipe = -1
            while not self._stopped.is_set():
                if pipe < 0:
                    with contextlib.suppress(FileNotFoundError):
                        pipe = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                        opened.callback(os.close, pipe)
                readable = pipe >= 0 and select.select([pipe], [], [], _LOOK_S)[0]
                if readable and os.read(pipe, 1):
                    return True
                if readable or pipe < 0:  # Closed, or not there.
                    self._stopped.wait(_LOOK_S)
        return False
