"""What goes wrong between a query and its stream, as errors that name the way out."""

from __future__ import annotations

from penstock.errors import PenstockError


class SourceError(PenstockError):
    """Base class of what a query of received records can fail of."""


class SourceOptionError(SourceError, ValueError):
    """An option of the source is missing, unknown, or has a value that is not accepted.

    Attributes:
        option: The option.
        accepted: What would be.
    """

    def __init__(self, option: str, accepted: str) -> None:
        super().__init__(f"option {option!r} of the source penstock: {accepted}")
        self.option = option
        self.accepted = accepted


class FolderError(SourceError):
    """What a batch read was given is not the directory of a `ReceiverHost`, or cannot be read.

    Attributes:
        folder: The folder.
        reason: What is wrong with it.
    """

    def __init__(self, folder: str, reason: str) -> None:
        super().__init__(
            f"{folder} cannot be read as the directory of a ReceiverHost that has ended: {reason}"
        )
        self.folder = folder
        self.reason = reason


class HostNotReachableError(SourceError):
    """The receiver host does not answer, or another one answers at its address.

    Attributes:
        address: Where it was, as ``host:port``.
    """

    def __init__(self, address: str, reason: str, *, is_another: bool = False) -> None:
        super().__init__(
            f"what answers at {address} is not the receiver host that this session knows: "
            f"{reason}. A host has a new secret with each start. Load the stream again, after the "
            "host was started, and start the query; in another application after connect(spark, "
            "share) with the file that the host writes at its start"
            if is_another
            else f"the receiver host at {address} does not answer: it was stopped or killed, or "
            f"the network is cut ({reason}). Start the program with its ReceiverHost again, on the "
            "same directory, and then the query, with the same checkpoint: it goes on where it "
            "was. A DataFrame that was loaded before knows the earlier start only: load() it again"
        )
        self.address = address


class PlacesReleasedError(SourceError):
    """A query, or a batch read, needs places of a stream that were released.

    Attributes:
        stream: The stream's name.
        start: The first place that it needs.
        end: The place after the last one.
        first: The first place that is kept.
        next: The place after the last one that is kept.
    """

    def __init__(
        self,
        stream: str,
        start: int,
        end: int,
        first: int,
        next_: int,
        *,
        is_batch_read: bool = False,
        is_new_query: bool = False,
    ) -> None:
        reader = "batch read" if is_batch_read else "query"
        if is_batch_read or is_new_query:
            keeper = "batch read" if is_batch_read else "query that has not begun"
            why = f"all queries have passed it, and its retention is over: a {keeper} keeps nothing"
            way_out = "it reads what is left; a longer retention of the stream keeps more"
        else:
            why = (
                "the query's consumer was forgotten or dropped, or its checkpoint was put back or "
                "edited"
            )
            way_out = "it goes on with what is left; another checkpointLocation starts over"
        super().__init__(
            f"the {reader} needs the places {start} to {end} of stream {stream!r}, and those from "
            f"{first} to {next_} are there: what is missing was released, because {why}. With "
            f'option("failOnDataLoss", "false") {way_out}'
        )
        self.stream = stream
        self.start = start
        self.end = end
        self.first = first
        self.next = next_
