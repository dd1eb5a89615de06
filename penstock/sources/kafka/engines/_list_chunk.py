"""`ListChunk`: what the chunks of both clients have in common."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.sources.kafka.engines.interface import Chunk
from penstock.sources.kafka.records import KafkaRecord

if TYPE_CHECKING:
    import pyarrow as pa


class ListChunk(Chunk):
    """A list of a client's records, without errors, of one partition, in their order.

    Args:
        found: The records, at least one.
    """

    def __init__(self, found: list[Any]) -> None:
        self._found = found

    @staticmethod
    @abstractmethod
    def _offset(record: Any) -> int:
        """Return the offset of a record of the client."""

    def __len__(self) -> int:
        return len(self._found)

    @property
    def start(self) -> int:
        return self._offset(self._found[0])

    @property
    def end(self) -> int:
        return self._offset(self._found[-1]) + 1

    def before(self, offset: int) -> Chunk:
        if self.end <= offset:
            return self
        return type(self)(self._found[: bisect_left(self._found, offset, key=self._offset)])

    def parts(self, count: int) -> tuple[Chunk, Chunk]:
        return type(self)(self._found[:count]), type(self)(self._found[count:])

    @abstractmethod
    def values(self) -> list[bytes | None]: ...

    @abstractmethod
    def records(self) -> list[KafkaRecord]: ...

    @abstractmethod
    def columns(self) -> Mapping[str, pa.Array]: ...
