"""Addresses of folders: which file system a log or a checkpoint lies on, and at which path."""

from __future__ import annotations

import os
import re

from penstock.wal._errors import UnsupportedAddressError
from penstock.wal._filesystem import FileSystem
from penstock.wal._hdfs import hdfs_file_system
from penstock.wal._local_filesystem import LocalFileSystem

__all__ = ["is_on_hdfs", "locate", "normal_address"]

_HDFS = re.compile(r"(hdfs://[^/]*)(/.*)?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_LOCAL = LocalFileSystem()


def is_on_hdfs(address: str) -> bool:
    """Tell whether an address is one of HDFS."""
    return address.startswith("hdfs:")


def normal_address(address: str) -> str:
    """Return an address in the form in which they are compared and joined.

    Args:
        address: A path of this host, with or without ``file:``, or ``hdfs://host:port/path``.

    Returns:
        An absolute path, or ``hdfs://…`` without a slash at its end.

    Raises:
        UnsupportedAddressError: It is on another file system.
    """
    if is_on_hdfs(address):
        match = _HDFS.fullmatch(address)
        if match is None:
            raise UnsupportedAddressError(address)
        return match[1] + os.path.normpath("/" + (match[2] or "").lstrip("/"))
    if _SCHEME.match(address) and not address.startswith("file:"):
        raise UnsupportedAddressError(address)
    rest = address.removeprefix("file:")
    # file:///a and file:/a are the same; a host is not accepted by Hadoop either.
    return os.path.abspath("/" + rest.lstrip("/") if rest != address else rest)


def locate(address: str) -> tuple[FileSystem, str]:
    """Return the file system of an address, and the path there.

    Args:
        address: See `normal_address`.

    Raises:
        UnsupportedAddressError: It is on another file system.
        MissingClientError: It is on HDFS, and the client's package is not installed.
    """
    address = normal_address(address)
    if not is_on_hdfs(address):
        return _LOCAL, address
    match = _HDFS.fullmatch(address)
    assert match is not None
    authority = "" if match[1] == "hdfs://" else match[1]
    return hdfs_file_system(authority), match[2]
