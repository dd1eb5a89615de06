"""Credentials of a profile of ``~/.aws``, which the client of object stores does not read.

botocore does: keys of a file, a role that another profile assumes, a sign-on (SSO), a program that
gives them. So whatever a profile says holds here as it does for AWS's own command.
"""

from __future__ import annotations

import errno
import importlib
import logging
import threading
from datetime import datetime, timedelta, timezone
from typing import Any

from penstock.errors import text_of
from penstock.wal._answers import BoundedCalls
from penstock.wal._errors import MissingClientError

_logger = logging.getLogger("penstock.wal")

_HOLDS = timedelta(minutes=6)
"""The client asks again five minutes before what it was given ends, so once a minute."""
_LONGEST_S = 60.0
"""How long they are waited for: a program of a profile may wait for a person to sign on."""


class ProfileCredentials:
    """Gives the credentials of a profile to `obstore`, again each time that it asks.

    `_reading` is held by the one that reads them; the others have those that were read last.

    Args:
        address: The bucket, for errors.
        profile: Its name.

    Raises:
        MissingClientError: botocore is not installed.
        OSError: There is no such profile, or it has no credentials.
    """

    def __init__(self, address: str, profile: str) -> None:
        try:
            self._sessions: Any = importlib.import_module("botocore.session")
        except ImportError:
            raise MissingClientError(address, "botocore", "penstock[aws]") from None
        self._profile = profile
        self._credentials: Any = None
        self._last: dict[str, Any] = {}
        self._reading = threading.Lock()
        try:
            self._read_in_time()
        except Exception as error:  # noqa: BLE001  # also that its program is missing
            text = f"the profile {profile!r} gives no credentials: {text_of(error)}"
            raise PermissionError(errno.EACCES, text, address) from None

    def options(self) -> dict[str, Any]:
        """Return with what a store is opened: these, and what the profile says of it."""
        said = self._session.get_scoped_config()
        services = self._session.full_config.get("services", {}).get(said.get("services"), {})
        own = services.get("s3") or {}
        given = {
            "region": said.get("region"),
            "endpoint": own.get("endpoint_url") or said.get("endpoint_url"),
        }
        return {
            "credential_provider": self,
            **{name: text for name, text in given.items() if text},
        }

    def __call__(self) -> dict[str, Any]:
        try:
            self._read_in_time()
        except Exception as error:  # noqa: BLE001  # also that its program is missing
            # Perhaps a file is being written. What was given may hold still.
            _logger.warning(
                "the profile %r gives no credentials: %s", self._profile, text_of(error)
            )
        return self._last | {"expires_at": datetime.now(timezone.utc) + _HOLDS}

    def _read_in_time(self) -> None:
        calls = BoundedCalls("Profile")
        try:
            calls.call(self._read, _LONGEST_S, self._profile)
        finally:
            calls.abandon()

    def _read(self) -> None:
        # Else it is asked already, and perhaps does not answer: what was given holds.
        if self._reading.acquire(blocking=False):
            try:
                self._last = self._keys()
            finally:
                self._reading.release()

    def _keys(self) -> dict[str, Any]:
        # What botocore renews it renews itself; of what is in a file it reads each session again.
        if not hasattr(self._credentials, "refresh_needed"):
            self._session = self._sessions.Session(profile=self._profile)
            self._credentials = self._session.get_credentials()
        if self._credentials is None:
            raise LookupError("it names none")
        keys = self._credentials.get_frozen_credentials()
        return {
            "access_key_id": keys.access_key,
            "secret_access_key": keys.secret_key,
            "token": keys.token,
        }
