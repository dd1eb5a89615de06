"""Bodies of requests: unpacked within a limit, and cut into records.

A body is taken whole or not at all: one that ends early, unpacks beyond its limit, or is no JSON
where it should be, is refused. Records stay the bytes that came. JSON is looked through once, at
the parser's speed, and no object is made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from penstock.errors import text_of
from penstock.sources._common import as_records
from penstock.sources.http._signatures import Refusal

_LF = 10
_CODECS = {"gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd"}
_LINES = ("ndjson", "jsonl", "json-lines", "jsonlines")

Body: TypeAlias = "str | Callable[[bytes], Sequence[bytes]]"
PROTOBUF = "application/x-protobuf"
KINDS = ("auto", "bytes", "lines", "json", "otlp-logs")

ENVELOPE = pa.schema(
    [
        ("path", pa.string()),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("time", pa.timestamp("us", "UTC")),
        ("key", pa.string()),
        ("remote", pa.string()),
    ]
)
"""What a request has beside its body."""


class Content(NamedTuple):
    """The records of a body.

    Attributes:
        lines: All of them, each with its LF; None if they are in `records`.
        records: They.
        size: Their bytes.
    """

    lines: bytes | None
    records: Sequence[bytes]
    size: int


def codec_of(encoding: str) -> str | None:
    """Return the codec of a ``Content-Encoding``; None for none.

    Raises:
        Refusal: It is not known.
    """
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return None
    if name not in _CODECS:
        raise Refusal(415, "Content-Encoding is not accepted: gzip or zstd")
    return _CODECS[name]


def unpack(data: bytes, codec: str, limit: int) -> bytes:
    """Return what was compressed; several members or frames are one body.

    Raises:
        Refusal: It is larger than `limit`, ends early, or is not of this codec.
    """
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
            # To the end, where it shows whether it is whole.
            found: bytes = stream.read(limit + 1)
    except (OSError, pa.ArrowException) as error:
        raise Refusal(400, f"the body is no whole {codec}: {text_of(error)}") from None
    if len(found) > limit:
        raise too_large(limit)
    if not data:
        raise Refusal(400, f"the body is no whole {codec}: it is empty")
    return found


def too_large(limit: int) -> Refusal:
    """Return the error of a body that is too large; what is left of it is not read."""
    return Refusal(413, f"the body is larger than {limit} bytes", ends=True)


def content_of(body: bytes, kind: Body, content_type: str) -> Content:
    """Cut a body into records.

    Args:
        body: The whole body.
        kind: What it holds: one of `KINDS`, or a function.
        content_type: The media type that the request names, in small letters.

    Raises:
        Refusal: It does not hold that.
    """
    if callable(kind):
        try:
            return _of(as_records(kind(body)))
        except Exception as error:  # of the user's function
            raise Refusal(400, f"the body cannot be read: {text_of(error)}") from error
    if kind == "auto":
        kind = _kind_of(content_type)
    if kind == "lines":
        return _lines(body)
    if kind == "bytes":
        return Content(None, [body], len(body))
    if kind == "otlp-logs" and content_type == PROTOBUF:
        return _of(_otlp_protobuf(body))
    if kind == "otlp-logs" and content_type != "application/json":
        raise Refusal(415, f"Content-Type is not accepted: application/json or {PROTOBUF}")
    try:
        body.decode()  # What is passed over is not looked at by the parser.
        return _of(_json(body) if kind == "json" else _otlp_logs(body))
    except RecursionError:
        reason = "it is nested too deep"
    except UnicodeDecodeError as error:
        reason = f"it is not UTF-8: {error.reason} at byte {error.start}"
    except msgspec.MsgspecError as error:
        reason = text_of(error)
    raise Refusal(400, f"the body is not accepted as JSON: {reason}")


def _kind_of(content_type: str) -> str:
    kind = content_type.rpartition("/")[2].removeprefix("x-")
    if kind in _LINES:
        return "lines"
    return "json" if kind == "json" or kind.endswith("+json") else "bytes"


def _of(records: Sequence[bytes]) -> Content:
    return Content(None, records, sum(map(len, records)))


def _lines(body: bytes) -> Content:
    if body and not body.endswith(b"\n"):
        body += b"\n"
    # One byte is found far sooner than two.
    if b"\r" in body:
        body = body.replace(b"\r\n", b"\n")
    is_end = np.frombuffer(body, np.uint8) == _LF
    if body.startswith(b"\n") or (is_end[1:] & is_end[:-1]).any():
        body = b"".join(b"%b\n" % line for line in body.split(b"\n") if line)
    return Content(body, (), len(body))


_MANY = msgspec.json.Decoder(list[msgspec.Raw])
_ONE = msgspec.json.Decoder(msgspec.Raw)


def _json(body: bytes) -> list[bytes]:
    if body.lstrip(b" \t\r\n").startswith(b"["):
        return list(map(bytes, _MANY.decode(body)))
    return [bytes(_ONE.decode(body))]


_NOTHING = msgspec.Raw(b"{}")


class _ScopeLogs(msgspec.Struct, rename="camel"):
    scope: msgspec.Raw = _NOTHING
    log_records: list[msgspec.Raw] | None = None


class _ResourceLogs(msgspec.Struct, rename="camel"):
    resource: msgspec.Raw = _NOTHING
    scope_logs: list[_ScopeLogs] | None = None


class _Export(msgspec.Struct, rename="camel"):
    resource_logs: list[_ResourceLogs] | None = None


_EXPORT = msgspec.json.Decoder(_Export)


def _otlp_logs(body: bytes) -> list[bytes]:
    """Return each log record with its resource and scope, as OTLP's JSON has them."""
    found: list[bytes] = []
    for resource in _EXPORT.decode(body).resource_logs or ():
        for scope in resource.scope_logs or ():
            start = b'{"resource":%b,"scope":%b,"log":' % (resource.resource, scope.scope)
            found.extend(b"%b%b}" % (start, record) for record in scope.log_records or ())
    return found


def _otlp_protobuf(body: bytes) -> list[bytes]:
    """Return the same of OTLP's protobuf, as the JSON that its sender would have sent."""
    try:
        from google.protobuf.json_format import MessageToDict
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    except ImportError as error:
        reason = f"{PROTOBUF} needs the package opentelemetry-proto: {text_of(error)}"
        raise Refusal(415, reason) from error
    as_json = partial(MessageToDict, use_integers_for_enums=True)
    try:
        export = ExportLogsServiceRequest.FromString(body)
    except DecodeError as error:
        reason = f"the body is not accepted as protobuf: {text_of(error)}"
        raise Refusal(400, reason) from None
    found: list[bytes] = []
    for resource in export.resource_logs:
        for scope in resource.scope_logs:
            above = {"resource": as_json(resource.resource), "scope": as_json(scope.scope)}
            for record in scope.log_records:
                log = as_json(record)
                # In these OTLP's JSON differs from that of protobuf.
                ids = {"traceId": record.trace_id.hex(), "spanId": record.span_id.hex()}
                log.update({name: text for name, text in ids.items() if text})
                found.append(msgspec.json.encode({**above, "log": log}))
    return found
