"""URLs of servers that a receiver connects to: checked, shown without secrets, trusted."""

from __future__ import annotations

import ssl
import urllib.parse


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


def shown_url(url: str) -> str:
    """Return a URL without what may be secret in it: user, query and fragment."""
    found = urllib.parse.urlsplit(url)
    port = "" if found.port is None else f":{found.port}"
    return f"{found.scheme}://{found.hostname}{port}{found.path}"


def trusting(authorities: str | None) -> ssl.SSLContext:
    """Return a client's context that trusts those whose certificates are in a file.

    Raises:
        OSError: The file cannot be used; it is named.
    """
    try:
        return ssl.create_default_context(cafile=authorities)
    except OSError as error:
        raise OSError(error.errno, f"TLS with {authorities}: {error.strerror}") from error
