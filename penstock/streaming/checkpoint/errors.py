"""What goes wrong with checkpoints, as errors that name the way out."""

from __future__ import annotations

from penstock.errors import PenstockError
from penstock.tracker.errors import LedgerLostError

FORMAT = "checkpoint format"
"""What of a `CheckpointVersionError` that no other version of the program can read."""


class CheckpointReadError(PenstockError):
    """The checkpoint of a folder cannot be used.

    Attributes:
        folder: The folder.
        reason: Why.
    """

    def __init__(self, folder: str, reason: str) -> None:
        super().__init__(f"Failed to read checkpoint from directory {folder}: {reason}")
        self.folder = folder
        self.reason = reason


class CheckpointVersionError(CheckpointReadError):
    """A checkpoint was written by another version of Python, PySpark or Penstock.

    Functions are kept as that version's code, which another one may run wrongly or not at all.

    Attributes:
        what: Whose version differs.
        written: The version that wrote it.
        running: The version that runs.
    """

    def __init__(self, folder: str, what: str, written: str, running: str) -> None:
        way = (
            'give the program another version, getOrCreate(path, setup, version="2"), to upgrade it'
        )
        if what == FORMAT:
            way = "run it with the Penstock that wrote it, or a later one"
        super().__init__(
            folder,
            f"it was written with {what} {written}, and this is {what} {running}; run the program "
            f"with {what} {written}, or {way}, or start over with an empty checkpoint directory",
        )
        self.what = what
        self.written = written
        self.running = running


class UpgradeError(PenstockError):
    """A version of a program cannot go on where another one stood.

    Attributes:
        folder: The checkpoint directory.
        before: The version whose checkpoints the folder has; empty when it had none.
        version: The version that was to go on.
        reason: Why it cannot, and what to do.
    """

    def __init__(self, folder: str, before: str, version: str, reason: str) -> None:
        super().__init__(
            f"version {version!r} of the program cannot go on in {folder} where version "
            f"{before!r} stood: {reason}"
        )
        self.folder = folder
        self.before = before
        self.version = version
        self.reason = reason


class CheckpointWriteError(PenstockError):
    """Checkpoints could not be written for longer than `patience_s`, or cannot be any more.

    Attributes:
        folder: Where they should be.
        reason: Why not.
    """

    def __init__(
        self, folder: str, patience_s: float, reason: str, lost: LedgerLostError | None = None
    ) -> None:
        when = f"could be written to {folder} for {patience_s:g} s"
        if lost is not None or not patience_s:
            when = f"can be written to {folder} any more"
        then = "batches go on, and a restart would do those since then again"
        if lost is not None and lost.is_taken_over:
            then = "another driver goes on from the last one"
        elif lost is not None:
            then = "those that were there are gone, and a restart would not go on from any"
        super().__init__(f"no checkpoint {when}; {then}: {reason}")
        self.folder = folder
        self.reason = reason


class UnpicklableFunctionError(PenstockError, TypeError):
    """Something that a program gave to a stream cannot be written to a checkpoint.

    Attributes:
        operation: The operation of the stream, with its place in the program.
        function: The function's qualified name and place, or what else was given; None when it
            is the stream itself.
        variable: The way from the function to what cannot be pickled, for example
            ``closure variable 'lock'``; empty when it is the function itself.
        reason: What pickling said.
    """

    def __init__(self, operation: str, function: str | None, variable: str, reason: str) -> None:
        found = " -> ".join(part for part in (function, variable) if part)
        super().__init__(
            "DStream checkpointing has been enabled but the DStreams with their functions are not "
            f"serializable: {operation}: {found or 'the stream'}: {reason}"
        )
        self.operation = operation
        self.function = function
        self.variable = variable
        self.reason = reason
