"""`HttpSink`: the output of a continuous stream into another Penstock stream, exactly once.

What must hold:

- *Once.* A part of an epoch is one request, whose key is `Epoch.name`; a large one several, whose
  keys are numbered. An `HttpReceiver` has the keys of its last requests in its stream's position,
  which is durable with their records or not at all: a part that is sent again is answered, and not
  stored again. Only parts of the last epoch are, so that the 10,000 keys that are remembered are
  more than enough.
- *Durable.* It answers when the records are in the driver log of its program (I1), and no sooner
  does `commit` return.
- *The first one counts.* To a key that came with another body it answers with 422, once what came
  first is durable: an attempt that was killed had sent it, and the function returns something else
  each time. That is the part's output. (Of several requests some may be of either attempt.)
- *Order.* Parts with the same number come in order, as each waits for the answer to the one before.
  All records of a request are in one block.
- *Held back.* While the server says that it takes nothing now, as that of a stream that is held or
  paused does, the part waits (`SinkError.is_held`). While it says nothing, as one whose receiver
  starts again, the part is sent again for a while; then that is one of the `attempts`. What no
  attempt would get past is another `SinkError`.

Any other server that takes such keys is as good a target as it keeps them.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock._arguments import refused
from penstock.continuous.sinks import Epoch, Sink, SinkError, json_rows
from penstock.errors import PenstockError

if TYPE_CHECKING:
    import pyarrow as pa

_WAIT_S = 30.0
"""How long a part is sent again; less than the time that a call has by default."""
_ANSWER_S = 20.0
"""How long its answer is waited for. The one to the next request says whether a stream is held."""
_AGAIN_S = 0.5
_THERE = (200, 201, 202, 204, 422)
_HELD = (429, 503)
_PASSING = (*_HELD, 408, 425, 500, 502, 504)
_SHOWN = 500
_MOST_BYTES = 4 << 20
"""Of a request: a receiver takes 16 MiB, in one block. An epoch of what has waited is larger."""


class HttpSink(Sink):
    """Sends each part that has rows as a POST of JSON lines; see `FileSink`.

    Args:
        url: Of the server, such as an `HttpReceiver`'s, on whichever host that is.
        token: What it wants as ``Authorization: Bearer``.

    Raises:
        TypeError, ValueError: An argument is not accepted.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        given: object = url
        place = urlsplit(given) if isinstance(given, str) else None
        if place is None or place.scheme not in ("http", "https") or not place.hostname:
            raise ValueError(refused("url", url, 'an address such as "http://host:8080/scores"'))
        self._url = url
        self._token = token
        self._connection: http.client.HTTPConnection | None = None
        self._is_held = False

    def open(self, source: str, task: int) -> None:
        """Take the address; the first request connects."""
        place = urlsplit(self._url)
        kind = (
            http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
        )
        # A server that has answered nothing by then may have stored it.
        self._connection = kind(place.hostname or "", place.port, timeout=_ANSWER_S)
        self._path = f"{place.path or '/'}{'?' if place.query else ''}{place.query}"

    def commit(self, epoch: Epoch, batches: Sequence[pa.RecordBatch]) -> None:
        """Send the part until it is stored."""
        end_s = time.monotonic() + _WAIT_S
        for number, body in enumerate(_bodies(batches)):
            key = f"{epoch.name}-{number}" if number else epoch.name
            while (why := self._send(key, body)) is not None:
                if time.monotonic() > end_s - _AGAIN_S:
                    if self._is_held:
                        raise SinkError(f"{self._url} answers {why}", is_held=True)
                    told = f"{self._url} did not take {key} within {_WAIT_S:g} s: {why}"
                    raise PenstockError(told)
                time.sleep(_AGAIN_S)

    def _send(self, key: str, body: bytes) -> str | None:
        """Send it once; return why it may not have arrived, and may soon.

        Raises:
            SinkError: It will not be.
        """
        connection = self._connection
        assert connection is not None
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": key}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        self._is_held = False
        try:
            connection.request("POST", self._path, body, headers)
            answer = connection.getresponse()
            text = answer.read(_SHOWN).decode(errors="replace")
            if not answer.isclosed():
                connection.close()  # There is more, which is not that of the next request.
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return f"{type(error).__name__}: {error}"
        if answer.status in _THERE:
            return None
        why = f"{answer.status}: {text}"
        self._is_held = answer.status in _HELD
        if answer.status in _PASSING:
            return why
        raise SinkError(
            f"{self._url} refuses {key}, of {len(body)} bytes, for good: {why}. Give the sink an "
            "address and token that its server takes; that must take requests of "
            f"{_MOST_BYTES >> 20} MiB, or of one row (maxBody, spark.penstock.block.maxSize)"
        )

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()


def _bodies(batches: Sequence[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield rows as JSON lines, of the same rows always the same."""
    rows: list[bytes] = []
    size = 0
    for batch in batches:
        for row in json_rows(batch):
            if rows and size + len(row) >= _MOST_BYTES:
                yield b"".join(rows)
                rows, size = [], 0
            rows.append(row + b"\n")
            size += len(rows[-1])
    if rows:
        yield b"".join(rows)
