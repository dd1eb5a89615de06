"""Which folders logs and checkpoints may be in, by the form of their addresses alone.

An address is of a disk (or a mounted share) of this host, of HDFS, or of an object store. Nothing
is reached, and no client needs to be installed, to read one.
"""

from __future__ import annotations

import os
import re

OBJECT_FORMS = {
    "s3": "s3://bucket/path",
    "gs": "gs://bucket/path",
    "abfss": "abfss://container@account.dfs.core.windows.net/path",
}
OBJECT_ADDRESSES = ", ".join(OBJECT_FORMS.values())
"""The addresses of object stores, for errors and help."""

_SHARED = {
    "hdfs": re.compile(r"hdfs://[^/]*(?=(?:/.*)?\Z)"),
    "s3": re.compile(r"s3://(?P<bucket>[^/\s]+)"),
    "gs": re.compile(r"gs://(?P<bucket>[^/\s]+)"),
    "abfss": re.compile(
        r"abfss://(?P<bucket>[^/@\s]+)@(?P<account>[^/@.\s]+)\.(?:dfs|blob)\.(?P<domain>[^/@\s]+)"
    ),
}
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def scheme_of(address: str) -> str:
    """Return what stands before an address's first colon; empty: it has none."""
    return address.partition(":")[0] if ":" in address else ""


def is_on_hdfs(address: str) -> bool:
    """Return whether an address is one of HDFS."""
    return scheme_of(address) == "hdfs"


def is_on_objects(address: str) -> bool:
    """Return whether an address is one of an object store."""
    return scheme_of(address) in OBJECT_FORMS


def is_shared(address: str) -> bool:
    """Return whether an address is one that all hosts share: of HDFS or of an object store."""
    return scheme_of(address) in _SHARED


def authority_in(address: str) -> re.Match[str] | None:
    """Return what stands before the path of a shared address; None if the address is malformed."""
    found = _SHARED[scheme_of(address)].match(address)
    return found if found and address[found.end() :][:1] in ("", "/") else None


def split_shared(address: str) -> tuple[str, str] | None:
    """Return a shared address's authority and its path, with a slash or empty; None: malformed."""
    found = authority_in(address)
    return None if found is None else (found[0], address[found.end() :])


def normal_form(address: str) -> str | None:
    """Return an address in the form in which they are compared and joined.

    Returns:
        An absolute path, or ``hdfs://…`` or ``s3://…`` without a slash at its end, other than that
        of a whole bucket; None for an address of another file system.
    """
    if is_shared(address):
        parts = split_shared(address)
        return parts and parts[0] + os.path.normpath("/" + parts[1].lstrip("/"))
    if _SCHEME.match(address) and not address.startswith("file:"):
        return None
    rest = address.removeprefix("file:")
    # file:///a and file:/a are the same; a host is not accepted by Hadoop either.
    return os.path.abspath("/" + rest.lstrip("/") if rest != address else rest)
