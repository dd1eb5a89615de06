"""URLs of servers that a receiver connects to: checked, shown without secrets, trusted."""

from __future__ import annotations

import ssl
import urllib.parse

from penstock._arguments import refused
from penstock.errors import text_of


def check_url(url: str, *schemes: str) -> None:
    """Check that a URL is one.

    Raises:
        ValueError: It is not; its text is not shown, as it may have a secret in it.
    """
    try:
        found = urllib.parse.urlsplit(url)
        is_one = found.scheme in schemes and bool(found.hostname)
    except (ValueError, AttributeError):
        is_one = False
    if not is_one:
        raise ValueError(f"url is not accepted: one that begins with {'://, '.join(schemes)}://")


def check_tls_files(is_tls: bool, scheme: str, **files: str | None) -> None:
    """Check that files of certificates are given only where they are used.

    Raises:
        ValueError: One is given though the connection is plain.
    """
    for name, file in files.items():
        if file is not None and not is_tls:
            raise ValueError(refused(name, file, f"it is for a url that begins with {scheme}://"))


def shown_url(url: str) -> str:
    """Return a URL without what may be secret in it: user, query and fragment."""
    found = urllib.parse.urlsplit(url)
    port = "" if found.port is None else f":{found.port}"
    return f"{found.scheme}://{found.hostname}{port}{found.path}"


def trusting(
    authorities: str | None,
    certificate: str | None = None,
    key: str | None = None,
    of: ssl.Purpose = ssl.Purpose.SERVER_AUTH,
) -> ssl.SSLContext:
    """Return a client's context, or a server's.

    Args:
        authorities: A file with the certificates that it trusts; None: the host's, and a server
            asks for none.
        certificate: A file with its own certificate; None for none.
        key: A file with its key; None: that is in the same one.
        of: Whom it trusts: servers or clients.

    Raises:
        OSError: A file cannot be used; they are named.
    """
    try:
        context = ssl.create_default_context(of, cafile=authorities)
        if authorities is not None:
            context.verify_mode = ssl.CERT_REQUIRED
        if certificate is not None:
            context.load_cert_chain(certificate, key)
    except OSError as error:  # It names no file.
        files = ", ".join(each for each in (authorities, certificate, key) if each is not None)
        raise OSError(
            error.errno, f"TLS with {files}: {error.strerror or text_of(error)}"
        ) from error
    return context
