"""What keeps receivers from running, as errors that name the way out."""

from __future__ import annotations

from penstock.errors import PenstockError


class NotEnoughCoresError(PenstockError):
    """The receivers would hold every core, and no batch could ever run, or not all of them start.

    Attributes:
        master: The master as the user set it.
        slots: How many tasks it runs at a time.
        receivers: How many receivers the program has, or tasks that receivers share; with the
            tasks of continuous streams.
    """

    def __init__(
        self,
        master: str,
        slots: int,
        receivers: int,
        way_out: str,
        *,
        shared: bool = False,
        functions: int = 0,
        lacks: str = "no batch could run",
    ) -> None:
        what = "task(s) that receivers share" if shared else "receiver(s)"
        if functions:
            what = f"{what} and tasks of continuous streams ({functions} of them)"
        super().__init__(
            f"master {master!r} runs {slots} task(s) at a time and the program has {receivers} "
            f"{what}, each of which holds one for good: {lacks}; {way_out}"
        )
        self.master = master
        self.slots = slots
        self.receivers = receivers


class PermanentReceiverError(PenstockError):
    """A receiver failed in a way that another start cannot solve.

    Attributes:
        stream_id: Its stream.
        error: The receiver's traceback as text, or empty.
    """

    def __init__(self, stream_id: int, message: str, error: str) -> None:
        super().__init__(f"the receiver of stream {stream_id} failed for good: {message}\n{error}")
        self.stream_id = stream_id
        self.error = error


class ContinuousStreamError(PenstockError):
    """The function or sink of a continuous stream failed so often that it is called no more.

    What was received, and is in no committed epoch, stays in the log: a program that is started
    again goes on with it.

    Attributes:
        stream_id: The stream.
        error: The last traceback as text, or empty.
    """

    def __init__(self, stream_id: int, message: str, error: str) -> None:
        super().__init__(f"continuous stream {stream_id} is given up: {message}\n{error}".rstrip())
        self.stream_id = stream_id
        self.error = error
