"""The requests that are made of an object store, each once, and what it answers.

`obstore` is the client. Its own retries are switched off: anyone who tries again must know that it
did, for what it meets then may be its own work (`penstock.wal._objects`).
"""

from __future__ import annotations

import contextlib
import errno
import html
import importlib
import logging
import os
import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from penstock.wal._answers import StorageAwayError
from penstock.wal._errors import MissingClientError

_logger = logging.getLogger("penstock.wal")

SCHEME = "s3://"
_REQUEST_S = 60
"""How long one request may take that carries bytes: as long as a block may need on a slow line,"""
_ANSWER_S = 10
"""and one that does not."""
_CONNECT_S = 5
_PAGE = 1000
_STATUS = re.compile(r"non-2xx status code: (\d{3})")
_SAID = re.compile(r"<Code>([^<]*)</Code>\s*<Message>([^<]*)</Message>")
_CAUSE = re.compile(r'\b(?:message|error): "([^"]+)"|\bsource: (TimedOut)|\b(Invalid\w+)\(\s*(\w+)')
_NO_KEYS = re.compile(r"latest/api/token|/latest/meta-data/|Missing (AccessKeyId|SecretAccessKey)")
_BUSY = frozenset({408, 409, 429})
_BUSY_CODES = frozenset({"InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown"})
"""What is said with another status, or within the answer to a deletion of many."""
_REFUSED_CODES = frozenset({"ExpiredToken", "InvalidToken"})
_REFUSED_KINDS = frozenset({"PermissionDeniedError", "UnauthenticatedError"})
_NOT_TO_PASS = frozenset({501, 505})


class ObjectsClient:
    """One bucket, by its keys. Safe to use from any thread of the process that made it.

    Every call raises `OSError`: `StorageAwayError` says that the request may be made again, and
    that it is not known whether it was done.

    Args:
        store: The bucket, of `obstore.store`.
        name: Its address, for errors.
        asked: The same bucket for requests that carry no bytes; None: that one.
    """

    def __init__(self, store: Any, name: str, asked: Any = None) -> None:
        self._obstore: Any = _obstore(name)
        self._store = store
        self._asked = store if asked is None else asked
        self._name = name

    @classmethod
    def of_bucket(cls, bucket: str) -> ObjectsClient:
        """Return the client of a bucket, with endpoint and credentials of the environment.

        Raises:
            MissingClientError: The package of the client is not installed.
        """
        name = SCHEME + bucket
        _obstore(name)
        stores: Any = importlib.import_module("obstore.store")
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
        if endpoint and not re.match("https?://[^/]", endpoint):
            text = f"AWS_ENDPOINT_URL is {endpoint!r}, and not of the form https://host:port"
            raise OSError(errno.EINVAL, text, name)
        options: dict[str, Any] = {"connect_timeout": timedelta(seconds=_CONNECT_S)}
        if endpoint.startswith("http://"):
            options["allow_http"] = True
        more = {"endpoint": endpoint} if endpoint else {}
        with _told(name, name):
            store, asked = (
                stores.S3Store(
                    bucket,
                    client_options={**options, "timeout": timedelta(seconds=seconds)},
                    retry_config={"max_retries": 0},
                    **more,
                )
                for seconds in (_REQUEST_S, _ANSWER_S)
            )
        return cls(store, name, asked)

    def create(self, key: str, data: bytes) -> None:
        """Make an object of which there must be none.

        Raises:
            FileExistsError: There is one; perhaps it is the one that this call made.
        """
        with _told(self._name, key):
            self._obstore.put(self._store, key, data, mode="create", use_multipart=False)

    def replace(self, key: str, data: bytes) -> None:
        """Make an object, whether there is one or not."""
        with _told(self._name, key):
            self._obstore.put(self._store, key, data, use_multipart=False)

    def get(self, key: str) -> bytes:
        """Return an object."""
        with _told(self._name, key):
            return bytes(self._obstore.get(self._store, key).bytes())

    def get_range(self, key: str, begin: int, end: int) -> bytes:
        """Return a part of an object, which must be that long."""
        with _told(self._name, key):
            return bytes(self._obstore.get_range(self._store, key, start=begin, end=end))

    def keys(self, folder: str, after: str | None = None) -> Iterator[tuple[str, int]]:
        """Yield keys and sizes of all below a folder, in order; a request gives a thousand.

        Args:
            folder: The folder, empty for the bucket.
            after: Only keys after this one.
        """
        with _told(self._name, folder):
            found = self._obstore.list(
                self._asked, prefix=folder or None, offset=after, chunk_size=_PAGE
            )
            for page in found:
                yield from ((entry["path"], entry["size"]) for entry in page)

    def level(self, folder: str) -> tuple[list[str], list[str]]:
        """Return the keys right in a folder, and its folders."""
        with _told(self._name, folder):
            found = self._obstore.list_with_delimiter(self._asked, folder or None)
        return [entry["path"] for entry in found["objects"]], list(found["common_prefixes"])

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, in no order; those that are gone are fine."""
        if not keys:
            return
        with contextlib.suppress(FileNotFoundError), _told(self._name, keys[0]):
            self._obstore.delete(self._asked, list(keys))


def _obstore(address: str) -> Any:
    try:
        return importlib.import_module("obstore")
    except ImportError:
        raise MissingClientError(address, "obstore", "penstock[s3]") from None


@contextlib.contextmanager
def _told(name: str, key: str) -> Iterator[None]:
    """Turn what the client raises into an `OSError` with a number and the address."""
    try:
        yield
    except BaseException as error:
        # A panic of the client is no `Exception`; Ctrl-C and the like go on.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        # What it says besides is screenfuls, and would hide what is said here.
        _logger.debug("%s", error)
        raise _of_kind(error, name if key == name else f"{name}/{key}") from None


def _of_kind(error: BaseException, address: str) -> OSError:
    kind = type(error).__name__
    # Behind an empty line it says the same once more, for who made the client, and why.
    text, _, details = str(error).partition("\n\n")
    text = text.strip().replace("\n", " ")
    found = _STATUS.search(text)
    status = 0 if found is None else int(found[1])
    said = _SAID.search(text)
    code = "" if said is None else said[1]
    is_cut_off = not status and ("HTTP error" in text or "timed out" in text)
    if _NO_KEYS.search(text):
        text = (
            "there are no credentials in the environment (AWS_ACCESS_KEY_ID and "
            f"AWS_SECRET_ACCESS_KEY), and this host gives none for a role: {text}"
        )
    elif said is not None:
        text = f"{code}: {html.unescape(said[2])}" + (f" (HTTP {status})" if status else "")
    elif is_cut_off:
        causes = [" ".join(filter(None, cause)) for cause in _CAUSE.findall(details)]
        text = ": ".join([text, *causes[-1:]])
    if status in (401, 403) or code in _REFUSED_CODES or kind in _REFUSED_KINDS:
        return PermissionError(errno.EACCES, text, address)
    if status in _NOT_TO_PASS:
        return OSError(errno.EOPNOTSUPP, text, address)
    if is_cut_off or status >= 500 or status in _BUSY or code in _BUSY_CODES:
        return StorageAwayError(text, address)
    if kind == "AlreadyExistsError":
        return FileExistsError(errno.EEXIST, text, address)
    if isinstance(error, FileNotFoundError) and code != "NoSuchBucket":
        if status and code != "NoSuchKey":
            # Of something on the way: a store says what there is not.
            return StorageAwayError(text, address)
        return FileNotFoundError(errno.ENOENT, text, address)
    return OSError(errno.EIO, text, address)
