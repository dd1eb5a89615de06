"""What differs between the services of object storage, named here and nowhere else.

=====================  ===================  ==========================  ===========================
..                     S3, and what speaks  Google Cloud Storage        Azure Blob Storage
                       its protocol
=====================  ===================  ==========================  ===========================
"create if absent"     If-None-Match: *     x-goog-if-generation-match  If-None-Match: *
refused with           412                  412                         409 BlobAlreadyExists
another one is under   409                  (none)                      (none)
way
a list begins after    by the store         by the store                by the reader: one service
a key                                                                   of Azure answers "none"
                                                                        where it is asked to
a list's request has   1,000                1,000                       5,000
order of a list        of the whole key     of the whole key            with a hierarchical
                                                                        namespace folder by folder
folders                none                 none                        with a hierarchical
                                                                        namespace they stay when
                                                                        they are empty
deletion of many       one for 1,000        one for each, ten at once   one for 256
of what is gone        is fine              404, and others are left    404, others are done
=====================  ===================  ==========================  ===========================

The names of their errors are all different, so one table for all of them is enough.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.files.addresses import OBJECT_FORMS, scheme_of
from penstock.wal._objects.settings import storage_settings

Environment = Mapping[str, str]

GONE_CODES = frozenset({"NoSuchKey", "BlobNotFound"})
"""A 404 that says nothing of these is of something on the way, or of the bucket."""
NO_BUCKET_CODES = frozenset({"NoSuchBucket", "ContainerNotFound"})
EXISTS_CODES = frozenset({"BlobAlreadyExists"})
"""A 409 that says none of these is of another request under way."""
BUSY_CODES = frozenset({"InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown"})
"""What is said with another status, or within the answer to a deletion of many."""
REFUSED_CODES = frozenset(
    {
        "AccessDenied",
        "BlobImmutableDueToPolicy",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidIdentityToken",
        "InvalidToken",
    }
)
"""What is said with another status than 401 and 403: within the answer to a deletion of many, or by
what gives credentials."""


@dataclass(frozen=True)
class Cloud:
    """A service.

    Attributes:
        store: Its class in `obstore.store`.
        extra: The extra of this package that installs the client.
        condition: How a request says "create if absent".
        endpoint_option: What a store's endpoint is called in the client.
        endpoint_variables: The variables that name one; the first that is set holds.
        prefix: How the names of its variables begin.
        credentials: The variables that give credentials, for errors.
        role: What an address is asked for on a host of the service that gives credentials.
        options: Gives what its store is opened with, and the profile that has credentials.
        lists_after: A list can be asked to begin after a key.
        keeps_folders: An empty folder can be listed.
    """

    store: str
    extra: str
    condition: str
    endpoint_option: str
    endpoint_variables: tuple[str, ...]
    prefix: str
    credentials: str
    role: re.Pattern[str]
    options: Callable[[re.Match[str], Environment], dict[str, Any]]
    lists_after: bool = True
    keeps_folders: bool = False


_S3_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
)


def _s3(found: re.Match[str], environment: Environment) -> dict[str, Any]:
    settings = storage_settings(environment)
    profile = settings.storage_profile
    if profile is None and not environment.get("AWS_ACCESS_KEY_ID"):
        profile = environment.get("AWS_PROFILE")
    is_role_barred = environment.get("AWS_EC2_METADATA_DISABLED", "").strip().lower() == "true"
    if is_role_barred and not profile and not any(map(environment.get, _S3_CREDENTIALS)):
        # The client does not know the variable, and would ask this host for a role's.
        text = (
            f"there are no credentials in the environment ({_CLOUDS['s3'].credentials}), and "
            "AWS_EC2_METADATA_DISABLED=true bars those of this host's role"
        )
        raise PermissionError(errno.EACCES, text, found[0])
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    options = {
        "profile": profile,
        "region": settings.storage_region or region,
        "virtual_hosted_style_request": settings.storage_virtual_hosted,
    }
    return {name: value for name, value in options.items() if value}


def _google(found: re.Match[str], environment: Environment) -> dict[str, Any]:
    # As Google's own clients, which ask an emulator without credentials. The client wants a token.
    if environment.get("STORAGE_EMULATOR_HOST") and not environment.get("GOOGLE_BASE_URL"):
        return {"bearer_token": "emulator"}
    return {}


def _azure(found: re.Match[str], environment: Environment) -> dict[str, Any]:
    account = found["account"]
    text = environment.get("AZURE_STORAGE_CONNECTION_STRING", "")
    given = dict(part.strip().split("=", 1) for part in text.split(";") if "=" in part)
    options: dict[str, Any] = {
        "account_name": account,
        "endpoint": f"https://{account}.blob.{found['domain']}",
        "account_key": environment.get("AZURE_STORAGE_KEY"),
    }
    # The string of another account is for something else.
    if given.get("AccountName", account) == account:
        options["endpoint"] = given.get("BlobEndpoint", options["endpoint"]).rstrip("/")
        options["account_key"] = given.get("AccountKey", options["account_key"])
        options["sas_key"] = given.get("SharedAccessSignature")
    return {name: value for name, value in options.items() if value}


_CLOUDS = {
    "s3": Cloud(
        store="S3Store",
        extra="penstock[s3]",
        condition="If-None-Match: *",
        endpoint_option="endpoint",
        endpoint_variables=(
            "PENSTOCK_STORAGE_S3_ENDPOINT",
            "AWS_ENDPOINT_URL_S3",
            "AWS_ENDPOINT_URL",
        ),
        prefix="AWS_",
        credentials="AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or "
        "AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN",
        role=re.compile("latest/api/token|/latest/meta-data/"),
        options=_s3,
    ),
    "gs": Cloud(
        store="GCSStore",
        extra="penstock[gcs]",
        condition="x-goog-if-generation-match: 0",
        endpoint_option="base_url",
        endpoint_variables=("GOOGLE_BASE_URL", "STORAGE_EMULATOR_HOST"),
        prefix="GOOGLE_",
        credentials="GOOGLE_APPLICATION_CREDENTIALS",
        role=re.compile("/computeMetadata/"),
        options=_google,
    ),
    "abfss": Cloud(
        store="AzureStore",
        extra="penstock[azure]",
        condition="If-None-Match: *",
        endpoint_option="endpoint",
        endpoint_variables=("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
        prefix="AZURE_",
        credentials="AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_CONNECTION_STRING of this account, "
        "or AZURE_CLIENT_ID with AZURE_TENANT_ID and AZURE_CLIENT_SECRET",
        role=re.compile("/metadata/identity/"),
        options=_azure,
        lists_after=False,
        keeps_folders=True,
    ),
}


def cloud_of(address: str) -> Cloud | None:
    """Return the service of an address by its scheme, None where it is of none."""
    return _CLOUDS.get(scheme_of(address))


def object_store_help(address: str) -> str:
    """Return what a person may mend where a store is not reached, in words."""
    cloud = cloud_of(address)
    assert cloud is not None, address
    form = OBJECT_FORMS[scheme_of(address)]
    return (
        f"mend the address ({form}), or endpoint, region and credentials in the environment "
        f"({cloud.endpoint_variables[-1]}, {cloud.credentials})"
    )
