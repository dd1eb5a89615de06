"""What a query, or a batch read, may say of its source: the options of ``format("penstock")``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TypeVar

from penstock.sql.errors import SourceOptionError

T = TypeVar("T")

METADATA_COLUMNS = ("_stream", "_place", "_received_at", "_position", "_watermark")
"""The columns that `metadataColumns` adds, in this order."""

_NAMES = (
    "stream",
    "streams",
    "path",
    "startingOffsets",
    "startingTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "maxRecordsPerTrigger",
    "maxBytesPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "metadataColumns",
    "consumer",
)
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True)
class SourceOptions:
    """The options of one query, or of one batch read.

    Attributes:
        stream: The stream's name; empty: there are several.
        streams: Their names, where there are several.
        path: The directory of a host that has ended, for a batch read; empty: a running host.
        start: Where a new query begins: ``earliest``, ``latest``, or a place.
        start_ms: It begins with what was received at this time or later, ms since the epoch.
        end: Before which place a batch read ends: ``latest``, or a place.
        end_ms: It ends before what was received at this time, ms since the epoch.
        max_records: At most that many records in a batch, or one block.
        max_bytes: At most that many bytes in a batch, or one block.
        min_partitions: At least that many partitions, if there are as many blocks.
        fails_on_loss: Whether released places are an error.
        metadata: Those of `METADATA_COLUMNS` that are wanted.
        consumer: What the query's consumer is called where people look.
    """

    stream: str
    streams: tuple[str, ...] = ()
    path: str = ""
    start: str | int = "earliest"
    start_ms: int | None = None
    end: str | int = "latest"
    end_ms: int | None = None
    max_records: int | None = None
    max_bytes: int | None = None
    min_partitions: int = 1
    fails_on_loss: bool = True
    metadata: tuple[str, ...] = ()
    consumer: str = ""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceOptions:
        """Read the options; Spark passes over the case of their names.

        Raises:
            SourceOptionError: One is missing, unknown, or has a value that is not accepted.
        """
        known = {name.lower(): name for name in _NAMES}
        given: dict[str, str] = {}
        for key, text in options.items():
            name = known.get(key.lower())
            if name is None:
                raise SourceOptionError(key, f"it is not known; there are {', '.join(_NAMES)}")
            given[name] = text
        if not (given.get("stream") or given.get("streams")):
            raise SourceOptionError(
                "stream", "it is missing: name a stream that ReceiverHost.stream was given"
            )
        if "stream" in given and "streams" in given:
            raise SourceOptionError("streams", "stream is set, too; set one")
        for offsets, timestamp in (
            ("startingOffsets", "startingTimestamp"),
            ("endingOffsets", "endingTimestamp"),
        ):
            if offsets in given and timestamp in given:
                raise SourceOptionError(timestamp, f"{offsets} is set, too; set one")

        def read(name: str, parse: Callable[[str], T], default: T, accepted: str) -> T:
            text = given.get(name)
            if text is None:
                return default
            try:
                return parse(text.strip())
            except ValueError:
                raise SourceOptionError(name, f"{text!r} is not accepted: {accepted}") from None

        earliest: str | int = "earliest"
        latest: str | int = "latest"
        a_time = (
            "milliseconds since the epoch, or a time with its zone such as "
            "2026-01-31T12:00:00+00:00"
        )
        return cls(
            stream=given.get("stream", ""),
            streams=read("streams", _stream_names, (), "names with commas between, each once"),
            path=given.get("path", ""),
            start=read("startingOffsets", _start, earliest, "earliest, latest, or a place"),
            start_ms=read("startingTimestamp", _time_ms, None, a_time),
            end=read("endingOffsets", _end, latest, "latest, or a place"),
            end_ms=read("endingTimestamp", _time_ms, None, a_time),
            max_records=read("maxRecordsPerTrigger", _above_0, None, "a whole number above 0"),
            max_bytes=read("maxBytesPerTrigger", _size, None, "a size above 0, such as 64m"),
            min_partitions=read("minPartitions", _above_0, 1, "a whole number above 0"),
            fails_on_loss=read("failOnDataLoss", _flag, True, "true or false"),
            metadata=read(
                "metadataColumns",
                _columns,
                (),
                f"true, false, or some of {', '.join(METADATA_COLUMNS)}",
            ),
            consumer=read("consumer", _label, "", "letters, digits, '.', '_' and '-'"),
        )

    def check_query(self) -> None:
        """Check that there is nothing among them that only a batch read has.

        Raises:
            SourceOptionError: There is.
        """
        for name, is_set in (
            ("path", bool(self.path)),
            ("endingOffsets", self.end != "latest"),
            ("endingTimestamp", self.end_ms is not None),
        ):
            if is_set:
                raise SourceOptionError(
                    name,
                    "it is for spark.read; a query goes on, or with trigger(availableNow=True) "
                    "reads what the stream has at its start",
                )
        if self.streams and isinstance(self.start, int):
            raise SourceOptionError(
                "startingOffsets",
                "each stream has places of its own; startingTimestamp holds for all",
            )

    def check_batch(self) -> None:
        """Check that there is nothing among them that a batch read does not have.

        Raises:
            SourceOptionError: There is, or it would end before it begins.
        """
        for name, is_set in (
            ("streams", bool(self.streams)),
            ("maxRecordsPerTrigger", self.max_records is not None),
            ("maxBytesPerTrigger", self.max_bytes is not None),
            ("consumer", bool(self.consumer)),
        ):
            if is_set:
                raise SourceOptionError(name, "it is for spark.readStream")
        if self.start == "latest":
            raise SourceOptionError("startingOffsets", "a batch read begins at earliest or a place")
        if isinstance(self.start, int) and isinstance(self.end, int) and self.start > self.end:
            raise SourceOptionError(
                "endingOffsets", f"place {self.end} is before startingOffsets, {self.start}"
            )
        if self.start_ms is not None and self.end_ms is not None and self.start_ms > self.end_ms:
            raise SourceOptionError("endingTimestamp", "it is before startingTimestamp")


def _stream_names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise ValueError
    return names


def _start(text: str) -> str | int:
    word = text.lower()
    return word if word in ("earliest", "latest") else _from_0(text)


def _end(text: str) -> str | int:
    return "latest" if text.lower() == "latest" else _from_0(text)


def _from_0(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError
    return int(text)


def _above_0(text: str) -> int:
    number = _from_0(text)
    if not number:
        raise ValueError
    return number


def _size(text: str) -> int:
    number = text.lower().rstrip("bkmgt")
    unit = text.lower()[len(number) :]
    factor = _UNITS.get(unit if len(unit) < 2 else unit.removesuffix("b"))
    if factor is None:
        raise ValueError
    return _above_0(number) * factor


def _time_ms(text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError
    return round(found.astimezone(timezone.utc).timestamp() * 1000)


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def _columns(text: str) -> tuple[str, ...]:
    if text.lower() in ("true", "false"):
        return METADATA_COLUMNS if text.lower() == "true" else ()
    wanted = {name.strip().lower() for name in text.split(",")}
    if not wanted <= set(METADATA_COLUMNS):
        raise ValueError
    return tuple(name for name in METADATA_COLUMNS if name in wanted)


def _label(text: str) -> str:
    if not text or not all(char.isalnum() or char in "._-" for char in text):
        raise ValueError
    return text
