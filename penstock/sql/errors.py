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


class ShareFileError(SourceError):
    """The share file of a host cannot be written, or is that of another host that lives.

    Attributes:
        path: The file.
        reason: Why, and what to do.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"the share file {path} cannot be used: {reason}")
        self.path = path
        self.reason = reason

    @classmethod
    def unwritable(cls, path: str, error: OSError) -> ShareFileError:
        """Return the error of a file that the system does not let be written."""
        why = error.strerror or str(error)
        return cls(path, f"{why}. Name a file in a folder that exists and that this user may write")


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
    """The receiver host does not answer.

    Attributes:
        address: Where it was, as ``host:port``.
        reason: What the last try ended with.
    """

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(
            f"the receiver host at {address} does not answer: it was stopped or killed, or the "
            f"network is cut ({reason}). Start the program with its ReceiverHost again, on the "
            "same directory, and then the query, with the same checkpoint: it goes on where it "
            "was. A DataFrame that was loaded before knows the earlier start only: load() it again"
        )
        self.address = address
        self.reason = reason


class AnotherHostError(SourceError):
    """What answers at the address of the receiver host does not know its secret.

    Attributes:
        address: Where it is, as ``host:port``.
        reason: What did not fit.
    """

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(
            f"what answers at {address} is not the receiver host that this session knows: "
            f"{reason}. A host has a new secret with each start. Load the stream again, after the "
            "host was started, and start the query; in another application after connect(spark, "
            "share) with the file that the host writes at its start"
        )
        self.address = address
        self.reason = reason


class AnotherLedgerError(SourceError):
    """The checkpoint of a query has places of another ledger than the host's.

    Attributes:
        stream: The stream's name.
        found: The ledger's name of it.
        wanted: The checkpoint's.
    """

    def __init__(self, stream: str, found: str, wanted: str) -> None:
        super().__init__(
            f"the checkpoint has places of another ledger, or of another stream ({wanted}), than "
            f"stream {stream!r} of this host ({found}): name the stream that the query has read, "
            "give the ReceiverHost the directory that it had, or give the query another "
            "checkpointLocation, with which it starts over"
        )
        self.stream = stream
        self.found = found
        self.wanted = wanted


class LedgerPutBackError(SourceError):
    """A query has read places that the ledger does not have, or not with these records.

    Attributes:
        stream: The stream's name.
        place: The place up to which the query has read.
        records: The records of the stream before that, as the checkpoint has it.
        next: The place after the last one that the ledger has.
        next_records: The records before that.
    """

    def __init__(
        self, stream: str, place: int, records: int, next_: int, next_records: int
    ) -> None:
        super().__init__(
            f"the query has read stream {stream!r} up to place {place}, with {records} records "
            f"before it, and the ledger, which ends at place {next_} with {next_records} records, "
            "has others: the host's directory was put back, or has lost its end with a power loss "
            "(spark.penstock.wal.sync), or the checkpoint was edited. Put both back to the same "
            "time, or give the query another checkpointLocation, with which it starts over"
        )
        self.stream = stream
        self.place = place
        self.records = records
        self.next = next_
        self.next_records = next_records


class PlacesReleasedError(SourceError):
    """A query, or a batch read, needs places of a stream that are not there any more.

    Attributes:
        stream: The stream's name.
        start: The first place that it needs.
        end: The place after the last one.
        first: The first place that is there.
        next: The place after the last one that is there.
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
