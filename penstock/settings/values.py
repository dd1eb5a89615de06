"""How the text of a setting is read: one class per kind of value.

Each kind reads what Spark reads for such a key, and says in words what it accepts. The syntax of
times and sizes is that of Spark's `JavaUtils` (`common/utils`, `timeStringAs` and
`byteStringAs`); that of rates is the `limits` library's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from penstock.files.addresses import is_shared, normal_form

_MICROSECONDS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_BYTES = {
    f"{prefix}{suffix}": 1 << shift
    for prefix, shift in {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}.items()
    for suffix in ("", "b")
    if prefix or suffix
}


class ValueKind(Protocol):
    """A kind of value."""

    @property
    def accepted(self) -> str:
        """What is accepted, in words, for errors and for the reference page."""
        ...

    def read(self, text: str) -> Any:
        """Return the value that `text` stands for.

        Raises:
            ValueError: The text is not accepted.
        """
        ...


def _microseconds(text: str, bare_unit: str) -> int:
    match = re.fullmatch(r"(-?[0-9]+)([a-z]+)?", text.strip().lower())
    if match is None:
        raise ValueError(text)
    unit = _MICROSECONDS.get(match[2] or bare_unit)
    if unit is None:
        raise ValueError(text)
    return int(match[1]) * unit


@dataclass(frozen=True)
class Time:
    """A time in Spark's syntax, as whole milliseconds (fractions are cut off, as Spark does)."""

    minimum_ms: int = 0

    @property
    def accepted(self) -> str:
        return (
            f"a time of at least {self.minimum_ms} ms such as 200ms, 5s, 1m or 2h "
            "(a bare number counts milliseconds)"
        )

    def read(self, text: str) -> int:
        milliseconds = _microseconds(text, "ms") // 1000
        if milliseconds < self.minimum_ms:
            raise ValueError(text)
        return milliseconds


@dataclass(frozen=True)
class Seconds:
    """A time in Spark's syntax, as seconds with their fraction."""

    minimum_ms: int = 1
    maximum_h: int | None = None

    @property
    def accepted(self) -> str:
        most = "" if self.maximum_h is None else f" and at most {self.maximum_h} h"
        return (
            f"a time of at least {self.minimum_ms} ms{most} such as 1500ms, 30s or 1m "
            "(a bare number counts seconds)"
        )

    def read(self, text: str) -> float:
        microseconds = _microseconds(text, "s")
        if microseconds < self.minimum_ms * 1000:
            raise ValueError(text)
        if self.maximum_h is not None and microseconds > self.maximum_h * 3_600_000_000:
            raise ValueError(text)
        return microseconds / 1_000_000


@dataclass(frozen=True)
class Size:
    """A size in Spark's syntax, as bytes. Units are powers of 1024."""

    minimum: int
    maximum: int

    @property
    def accepted(self) -> str:
        return (
            f"a size from {_show_bytes(self.minimum)} to {_show_bytes(self.maximum)} such as "
            "512k, 64m or 1g (a bare number counts bytes)"
        )

    def read(self, text: str) -> int:
        match = re.fullmatch(r"([0-9]+)([a-z]+)?", text.strip().lower())
        if match is None:
            raise ValueError(text)
        unit = _BYTES.get(match[2] or "b")
        if unit is None:
            raise ValueError(text)
        size = int(match[1]) * unit
        if not self.minimum <= size <= self.maximum:
            raise ValueError(text)
        return size


def _show_bytes(size: int) -> str:
    for suffix, shift in (("t", 40), ("g", 30), ("m", 20), ("k", 10)):
        if size and size % (1 << shift) == 0:
            return f"{size >> shift}{suffix}"
    return str(size)


@dataclass(frozen=True)
class Whole:
    """A whole number without a unit sign; `unit` is what it counts."""

    minimum: int
    maximum: int = 2**31 - 1
    unit: str = ""

    @property
    def accepted(self) -> str:
        counted = f" (of {self.unit}, without a unit sign)" if self.unit else ""
        return f"a whole number from {self.minimum} to {self.maximum}{counted}"

    def read(self, text: str) -> int:
        number = _whole(text)
        if not self.minimum <= number <= self.maximum:
            raise ValueError(text)
        return number


@dataclass(frozen=True)
class Factor:
    """A decimal number from 0 on, or above it; at most, or below, `maximum`."""

    maximum: float | None = None
    is_open: bool = False

    @property
    def accepted(self) -> str:
        if self.maximum is not None:
            limits = f"between 0 and {self.maximum:g}, without these"
            return f"a decimal number {limits if self.is_open else limits.split(',')[0]}"
        return f"a decimal number {'above' if self.is_open else 'of at least'} 0"

    def read(self, text: str) -> float:
        # As for whole numbers, float() alone takes more than Java does.
        digits = r"[0-9]+(\.[0-9]*)?|\.[0-9]+"
        if re.fullmatch(rf"[+-]?({digits})([eE][+-]?[0-9]+)?", text.strip()) is None:
            raise ValueError(text)
        number = float(text)
        if number < 0 or number == float("inf"):
            raise ValueError(text)
        if self.maximum is not None and number > self.maximum:
            raise ValueError(text)
        if self.is_open and number in (0, self.maximum):
            raise ValueError(text)
        return number


@dataclass(frozen=True)
class LimitAbove0:
    """A number of records per second; 0 or less stands for no limit, and reads as None."""

    @property
    def accepted(self) -> str:
        return "a whole number of records per second; 0 or less means no limit"

    def read(self, text: str) -> int | None:
        number = _whole(text)
        return number if number > 0 else None


def _whole(text: str) -> int:
    # As Java's parseInt: int() alone would also take "1_000" and other scripts' digits.
    if re.fullmatch(r"[+-]?[0-9]+", text.strip()) is None:
        raise ValueError(text)
    return int(text)


@dataclass(frozen=True)
class Flag:
    """True or false."""

    @property
    def accepted(self) -> str:
        return "true or false"

    def read(self, text: str) -> bool:
        return {"true": True, "false": False}[_known(text.strip().lower(), ("true", "false"))]


@dataclass(frozen=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    @property
    def accepted(self) -> str:
        return "one of " + ", ".join(self.words)

    def read(self, text: str) -> str:
        words = {word.lower(): word for word in self.words}
        return words[_known(text.strip().lower(), tuple(words))]


@dataclass(frozen=True)
class LostBlocks:
    """``fail``, ``skip``, or ``wait:`` and a time; it stays text."""

    @property
    def accepted(self) -> str:
        return "fail, skip, or wait:TIME, such as wait:5m; a bare number counts seconds"

    def read(self, text: str) -> str:
        policy = text.strip().lower()
        return policy if wait_for_lost_blocks_s(policy) else _known(policy, ("fail", "skip"))


def wait_for_lost_blocks_s(policy: str) -> float:
    """Return how long a lost block is waited for, seconds; 0: it is not.

    Raises:
        ValueError: What is after ``wait:`` is no time.
    """
    word, _, time = policy.partition(":")
    return Seconds().read(time) if word == "wait" else 0.0


def _known(word: str, words: tuple[str, ...]) -> str:
    if word not in words:
        raise ValueError(word)
    return word


@dataclass(frozen=True)
class Text:
    """Any text that is not empty; `what` says what it means."""

    what: str

    @property
    def accepted(self) -> str:
        return self.what

    def read(self, text: str) -> str:
        if not text.strip():
            raise ValueError(text)
        return text.strip()


@dataclass(frozen=True)
class Names:
    """Names with commas between them."""

    @property
    def accepted(self) -> str:
        return "names, with commas between them"

    def read(self, text: str) -> tuple[str, ...]:
        return tuple(name.strip() for name in text.split(",") if name.strip())


@dataclass(frozen=True)
class RecordBudget:
    """How many records, or what part of them, within a time.

    Attributes:
        text: As it was written.
        limit: The most records, or per cent of them.
        is_percent: Which of the two.
        window_s: Within how many seconds.
    """

    text: str
    limit: float
    is_percent: bool
    window_s: float


@dataclass(frozen=True)
class Budget:
    """A number or a percentage of records within a time; it stays text."""

    @property
    def accepted(self) -> str:
        return (
            "a number of records within a time, such as 100/m or 0/d, or a percentage below 100 "
            "such as 1%/5m; the time is at least a second"
        )

    def read(self, text: str) -> str:
        return record_budget(text).text


def record_budget(text: str) -> RecordBudget:
    """Return what a budget such as ``"1%/5m"`` allows.

    Raises:
        ValueError: It is none.
    """
    match = re.fullmatch(
        r"([0-9]+(?:\.[0-9]+)?)\s*(%?)\s*/\s*([0-9]*)([a-z]+)", text.strip().lower()
    )
    if match is None or (not match[2] and "." in match[1]):
        raise ValueError(text)
    limit = float(match[1])
    window_s = _microseconds(f"{match[3] or '1'}{match[4]}", "s") / 1_000_000
    if window_s < 1 or (match[2] and limit >= 100):
        raise ValueError(text)
    return RecordBudget(text.strip(), limit, bool(match[2]), window_s)


@dataclass(frozen=True)
class StorageAddress:
    """A server's address as the `limits` library has it, without a password."""

    schemes: tuple[str, ...]

    @property
    def accepted(self) -> str:
        return (
            "an address such as redis://host:6379/0 that begins with one of "
            f"{', '.join(self.schemes)}, without a query and without a password, which goes into "
            "the file that spark.penstock.sharedRate.passwordFile names"
        )

    def read(self, text: str) -> str:
        # The error does not say what was read: there may be a password in it.
        try:
            found = urlsplit(text.strip())
            if found.scheme.endswith("+unix"):
                has_place = bool(found.path)
            else:
                # The client takes what is no number of a database for 0. To ask for the port
                # checks it.
                is_database = re.fullmatch("(/[0-9]*)?", found.path, re.ASCII) is not None
                has_place = bool(found.hostname) and found.port != 0 and is_database
        except ValueError:
            raise ValueError("not an address") from None
        if found.scheme not in self.schemes or not has_place:
            raise ValueError("not an address")
        if found.password is not None or found.query or found.fragment:
            raise ValueError("more than an address")
        return text.strip()


@dataclass(frozen=True)
class Endpoint:
    """Where a service is asked over HTTP, without credentials."""

    @property
    def accepted(self) -> str:
        return "an address such as https://host:9000, without a user, a path and a query"

    def read(self, text: str) -> str:
        # The error does not say what was read: there may be a password in it.
        found = re.fullmatch(r"(https?://[^/?#@\s]+)/?", text.strip())
        if found is None:
            raise ValueError("not an address")
        return found[1]


@dataclass(frozen=True)
class LocalPath:
    """A path on the local disk of each host; it is absolute, as hosts share it."""

    example: str = "/var/lib/penstock"

    @property
    def accepted(self) -> str:
        return f"an absolute path on the local file system, such as {self.example}"

    def read(self, text: str) -> str:
        match = re.fullmatch(r"(?:file:(?://)?)?(/(?!/).*)", text.strip())
        if match is None:
            raise ValueError(text)
        return match[1]


@dataclass(frozen=True)
class LogFolder(LocalPath):
    """The folder of logs: on the local disk of each host, or on storage that all hosts share."""

    @property
    def accepted(self) -> str:
        return (
            "an absolute path on the local file system, such as /var/lib/penstock, or a folder on "
            "HDFS or an object store, such as hdfs://namenode:8020/penstock, s3://bucket/penstock, "
            "gs://bucket/penstock or abfss://container@account.dfs.core.windows.net/penstock"
        )

    def read(self, text: str) -> str:
        text = text.strip()
        if not is_shared(text):
            return super().read(text)
        if (normal_form(text) or "/").endswith("/"):
            raise ValueError(text)  # A whole bucket is no folder.
        return text


@dataclass(frozen=True)
class Rate:
    """A rate in the syntax of the `limits` library; it stays text."""

    unit: str

    @property
    def accepted(self) -> str:
        return f"one rate above 0 such as 10000/second or 600000 per minute (of {self.unit})"

    def read(self, text: str) -> str:
        rate_per_second(text)
        return text.strip()


def rate_per_second(text: str) -> float:
    """Return what a rate such as ``"600000/minute"`` allows per second.

    Raises:
        ValueError: The text is not one rate, or it is not above 0.
    """
    # Here, because the library takes a tenth of a second to import and few programs set a rate.
    from limits import parse_many

    items = parse_many(text.strip())
    if len(items) != 1 or items[0].amount <= 0:
        raise ValueError(f"not one rate above 0: {text!r}")
    try:
        return items[0].amount / items[0].get_expiry()
    except OverflowError as error:
        raise ValueError(f"more than a float has: {text:.50}…") from error
