"""The requests that are made of an object store, each once, and what it answers.

`obstore` is the client. Its own retries are switched off: anyone who tries again must know that it
did, for what it meets then may be its own work (`penstock.wal._objects`).
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import ipaddress
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, TypeVar
from urllib.parse import urlsplit

from penstock.files.addresses import OBJECT_FORMS, authority_in, scheme_of
from penstock.wal._answers import StorageAwayError
from penstock.wal._errors import MissingClientError
from penstock.wal._objects.aws_profile import ProfileCredentials
from penstock.wal._objects.clouds import (
    BUSY_CODES,
    EXISTS_CODES,
    GONE_CODES,
    NO_BUCKET_CODES,
    REFUSED_CODES,
    Cloud,
    cloud_of,
)
from penstock.wal._objects.settings import STORAGE_VARIABLES, storage_settings

_logger = logging.getLogger("penstock.wal")

_ANSWER_S = 10
"""How long one request may take that carries no bytes, at most."""
SLOW_S = 2.0
"""Most answers take much less than this: after it a read is asked for once more."""
_IS_SLOW = 0.9
_SLOW_FOR_S = 60.0
"""How long nothing is asked for twice after that was of no use."""
_PAGE = 1000
_STATUS = re.compile(r"(?:non-2xx status code: |\(code: (?!404))(\d{3})")
"""Also of one deletion of many; where there is nothing of its name, that is no error."""
_OF_MANY = re.compile(r"\(code: ([A-Z]\w+)\)")
"""What S3 says of one deletion of many."""
_SAID = re.compile(r"<Code>([^<]*)</Code>\s*<Message>([^<]*)</Message>")
_CAUSE = re.compile(
    r'\b(?:message|error): "([^"]+)"|\bsource: (TimedOut)|\b(Invalid\w+)\(\s*(\w+)'
    r"|hyper::Error\(\s*(\w+)"
)
_CERTIFICATE = re.compile(r"\bInvalidCertificate\((?:\s*Other\(\s*OtherError\()?\s*(\w+)")
_NO_TLS = "InvalidContentType"
_NO_AUTHORITIES = "No CA certificates were loaded"
_HALF = re.compile("Missing (AccessKeyId|SecretAccessKey)")
_NO_TOKEN = re.compile(r'token request.*?(?:"error_description": *"([^"]*)"|$)')
_BUSY = frozenset({408, 409, 429})
_REFUSED_KINDS = frozenset({"PermissionDeniedError", "UnauthenticatedError"})
_NOT_TO_PASS = frozenset({501, 505})

_T = TypeVar("_T")


class ObjectsClient:
    """One bucket, by its keys. Safe to use from any thread of the process that made it.

    Every call raises `OSError`: `StorageAwayError` says that the request may be made again, and
    that it is not known whether it was done.

    A read whose answer is slow is given up and made once more, for most of those are slow by
    chance. A write is not: the first one, done late, would make again what was removed since.

    Args:
        store: The bucket, of `obstore.store`.
        name: Its address.
        asked: The same bucket for requests that carry no bytes; None: that one.
        quick: The same bucket for reads that take no longer than `SLOW_S`; None: there are none.
    """

    def __init__(self, store: Any, name: str, asked: Any = None, quick: Any = None) -> None:
        self.cloud = _cloud(name)
        self._obstore: Any = _obstore(name)
        self._store = store
        self._asked = store if asked is None else asked
        self._quick = quick
        self._slow_until_s = 0.0
        self._name = name

    @classmethod
    def of_bucket(cls, name: str) -> ObjectsClient:
        """Return the client of a bucket, as the environment says that it is reached.

        Args:
            name: Its address, without a path.

        Raises:
            MissingClientError: The package of the client is not installed.
            SettingError: The environment has a setting that is not accepted.
        """
        cloud = _cloud(name)
        found = authority_in(name)
        if found is None or found[0] != name:
            raise OSError(
                errno.EINVAL, f"it is not of the form {OBJECT_FORMS[scheme_of(name)]}", name
            )
        _obstore(name)
        for variable, value in os.environ.items():
            # As a secret of Kubernetes has it that was made with `echo`.
            if variable.startswith(cloud.prefix) and value != value.strip():
                text = f"{variable} begins or ends with a blank or a line break"
                raise OSError(errno.EINVAL, text, name)
        more = cloud.options(found, os.environ)
        named = "AZURE_STORAGE_CONNECTION_STRING"
        if profile := more.pop("profile", None):
            named = f"the endpoint_url of the profile {profile!r}"
            more = ProfileCredentials(name, profile).options() | more
        for variable in cloud.endpoint_variables:
            endpoint = os.environ.get(variable)
            if endpoint or (endpoint is not None and variable not in STORAGE_VARIABLES):
                named, more[cloud.endpoint_option] = variable, endpoint
                break
        if (endpoint := more.get(cloud.endpoint_option)) is not None:
            if not _is_endpoint(endpoint.strip()):
                # There may be a password in it.
                shown = "" if set("@?") & set(endpoint) else f"{endpoint!r}, and "
                text = f"{named} is {shown}not of the form https://host:port"
                raise OSError(errno.EINVAL, text, name)
            more[cloud.endpoint_option] = endpoint.strip().rstrip("/")
        if more.get("virtual_hosted_style_request") and (endpoint := more.get("endpoint")):
            host = urlsplit(endpoint).hostname or ""
            with contextlib.suppress(ValueError):
                ipaddress.ip_address(host)
                text = f"no bucket can be named before {host}: leave virtualHosted false"
                raise OSError(errno.EINVAL, text, name)
            more["endpoint"] = endpoint.replace("://", f"://{found['bucket']}.", 1)
        longest_s = storage_settings(os.environ).storage_request_timeout_s
        is_plain = more.get(cloud.endpoint_option, "").startswith("http://")
        options = {"allow_http": True} if is_plain else {}
        with _told(name, name):
            make: Any = getattr(importlib.import_module("obstore.store"), cloud.store)
            store, asked, quick = (
                make(
                    found["bucket"],
                    client_options={**options, "timeout": timedelta(seconds=seconds)},
                    retry_config={"max_retries": 0},
                    **more,
                )
                for seconds in (longest_s, min(longest_s, _ANSWER_S), SLOW_S)
            )
        return cls(store, name, asked, quick if longest_s > SLOW_S else None)

    def create(self, key: str, data: bytes | memoryview) -> None:
        """Make an object that must not exist yet.

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
        return self._read(key, lambda store: bytes(self._obstore.get(store, key).bytes()))

    def get_range(self, key: str, begin: int, end: int) -> memoryview:
        """Return a part of an object, which must be that long."""
        # Without a copy, which would take as long as the answer does from a near store.
        ranged = self._obstore.get_range
        return self._read(key, lambda store: memoryview(ranged(store, key, start=begin, end=end)))

    def _read(self, key: str, read: Callable[[Any], _T]) -> _T:
        with _told(self._name, key):
            begun_s = time.monotonic()
            if self._quick is not None and begun_s >= self._slow_until_s:
                try:
                    return read(self._quick)
                except Exception:
                    if time.monotonic() - begun_s < _IS_SLOW * SLOW_S:
                        raise
                return self._read_again(read)
            return read(self._store)

    def _read_again(self, read: Callable[[Any], _T]) -> _T:
        begun_s = time.monotonic()
        try:
            return read(self._store)
        finally:
            ended_s = time.monotonic()
            if ended_s - begun_s >= _IS_SLOW * SLOW_S:
                self._slow_until_s = ended_s + _SLOW_FOR_S

    def keys(self, folder: str, after: str | None = None) -> Iterator[tuple[str, int]]:
        """Yield keys and sizes of all below a folder, in order; a request gives a thousand.

        Args:
            folder: The folder, empty for the bucket.
            after: A hint: keys up to this one are not asked for, but may come.
        """
        with _told(self._name, folder):
            found = self._obstore.list(
                self._asked,
                prefix=folder or None,
                offset=after if self.cloud.lists_after else None,
                chunk_size=_PAGE,
            )
            for page in found:
                yield from ((entry["path"], entry["size"]) for entry in page)

    def level(self, folder: str) -> tuple[list[str], list[str]]:
        """Return the keys right in a folder, and its folders, in which there is something."""
        with _told(self._name, folder):
            found = self._obstore.list_with_delimiter(self._asked, folder or None)
        folders = list(found["common_prefixes"])
        if self.cloud.keeps_folders:
            folders = [below for below in folders if next(self.keys(below), None)]
        return [entry["path"] for entry in found["objects"]], folders

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, in no order; those that are gone are fine."""
        left = list(keys)
        while left:
            try:
                with _told(self._name, left[0]):
                    # Many take the store as long as bytes do.
                    self._obstore.delete(self._store if left[1:] else self._asked, left)
            except FileNotFoundError as error:
                # One was gone; others may be left, or were refused, which is not reported then.
                there = {key for key, _ in self.keys(_common_folder(left))} if left[1:] else set()
                if there.issuperset(left):
                    text = "a removal met nothing where there is something"
                    raise StorageAwayError(text, f"{self._name}/{left[0]}") from error
                left = [key for key in left if key in there]
            else:
                return


def _is_endpoint(text: str) -> bool:
    try:
        parts = urlsplit(text)
        # The client panics at what is none.
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return is_one and not ("@" in parts.netloc or parts.query or parts.fragment)


def _common_folder(keys: Sequence[str]) -> str:
    return os.path.commonpath([os.path.dirname(key) for key in keys])


def _cloud(address: str) -> Cloud:
    cloud = cloud_of(address)
    assert cloud is not None, address
    return cloud


def _obstore(address: str) -> Any:
    try:
        return importlib.import_module("obstore")
    except ImportError:
        raise MissingClientError(address, "obstore", _cloud(address).extra) from None


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
    cloud = _cloud(address)
    kind = type(error).__name__
    # Behind an empty line it says the same once more, for the client's makers, and why.
    text, _, details = str(error).partition("\n\n")
    text = text.strip().replace("\n", " ")
    found = _STATUS.search(text)
    status = 0 if found is None else int(found[1])
    said = _SAID.search(text)
    of_many = _OF_MANY.search(text)
    code = said[1] if said is not None else of_many[1] if of_many is not None else ""
    is_cut_off = not status and ("HTTP error" in text or "timed out" in text)
    certificate = _CERTIFICATE.search(details) if is_cut_off else None
    is_half = _HALF.search(text) is not None
    token = _NO_TOKEN.search(text)
    is_no_token = token is not None and 400 <= status < 500 and status not in _BUSY
    is_refused = is_half or status in (401, 403) or code in REFUSED_CODES or kind in _REFUSED_KINDS
    if is_half:
        text = f"a half of the key is not in the environment ({cloud.credentials}): {text}"
    elif cloud.role.search(text):
        text = (
            f"there are no credentials in the environment ({cloud.credentials}), and this host "
            f"gives none for a role: {text}"
        )
    elif token is not None and is_no_token:
        text = f"these credentials are not taken: {token[1] or text}"
    elif said is not None:
        import html

        is_list = "list request" in text
        text = f"{code}: {html.unescape(said[2])}" + (f" (HTTP {status})" if status else "")
        if is_list and code in GONE_CODES:
            text += "; a list was asked for: is the bucket's name in the endpoint, too?"
    elif certificate is not None:
        way_out = "a file of authorities can be named in the environment (SSL_CERT_FILE)"
        if certificate[1].startswith("NotValidForName"):
            way_out = "ask by a name that it has"
        text = f"the store's certificate is not accepted: {certificate[1]}; {way_out}: {text}"
        is_cut_off = False
    elif is_cut_off:
        causes = [" ".join(filter(None, cause)) for cause in _CAUSE.findall(details)]
        text = ": ".join([text, *causes[-1:]])
        if "builder error" in text:
            text = f"what gives these credentials is asked by https only: {text}"
            is_cut_off = False
        elif _NO_TLS in text:
            text = f"who answers speaks no TLS; is its endpoint to begin with http://? {text}"
            is_cut_off = False
    elif _NO_AUTHORITIES in details:
        text = (
            "no certificates of authorities are found on this host: install them (the package "
            f"ca-certificates), or name a file of them in the environment (SSL_CERT_FILE): {text}"
        )
    if is_refused or is_no_token:
        return PermissionError(errno.EACCES, text, address)
    if status in _NOT_TO_PASS:
        return OSError(errno.EOPNOTSUPP, text, address)
    if kind == "AlreadyExistsError" and (status != 409 or code in EXISTS_CODES):
        return FileExistsError(errno.EEXIST, text, address)
    if is_cut_off or status >= 500 or status in _BUSY or code in BUSY_CODES:
        return StorageAwayError(text, address)
    if isinstance(error, FileNotFoundError) and code not in NO_BUCKET_CODES:
        if status and code not in GONE_CODES:
            # Of something on the way: a store says what there is not.
            return StorageAwayError(text, address)
        return FileNotFoundError(errno.ENOENT, text, address)
    return OSError(errno.EIO, text, address)
