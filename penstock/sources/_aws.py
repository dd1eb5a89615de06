"""What the sources of AWS share: how a client is made, and what its errors mean.

botocore's own retries are off: they would wait where a stop cannot end it, and say nothing. What a
message of AWS's says is cut before it may show a token: a refused signature comes with all that was
signed.
"""

from __future__ import annotations

import enum
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NoReturn

from penstock._arguments import refused
from penstock.errors import PenstockError, text_of
from penstock.sources._common import Reconnecting, SourceReceiver

_REFUSED_TIMES = 10.0
_LONGEST_S = 30.0
_CONNECT_S = 10.0
_SHOWN = 300
_ERRORS = 300
"""The statuses from this one on are errors."""

_ALWAYS = {
    "AssumeRole": "Credentials",
    "DescribeStreamSummary": "StreamDescriptionSummary",
    "GetQueueUrl": "QueueUrl",
    "GetRecords": "Records",
    "GetShardIterator": "ShardIterator",
    "ListShards": "Shards",
}
"""Of a question: what every answer to it has."""


class AwsReceiver(SourceReceiver):
    """A receiver of AWS, which has as long for its last calls as the stop has."""

    requires = ("boto3",)
    extra = "aws"
    STOP_BOUND_S = None


def checked_text(value: Any, name: str, accepted: str, *begins: str) -> str:
    """Return an argument that is a text, not empty, and begins with one of some texts.

    Raises:
        ValueError: It is not.
    """
    if not isinstance(value, str) or not value or not value.startswith(begins or ""):
        begin = f" that begins with {begins[0]}" if begins else ""
        raise ValueError(refused(name, value, f"{accepted}{begin}"))
    return value


class Trouble(enum.Enum):
    """What is to be done about an error."""

    THROTTLED = "ask less often"
    REFUSED = "someone has to mend it"
    AWAY = "ask again"


_MEANINGS = tuple(
    (re.compile(codes), meaning, trouble)
    for codes, meaning, trouble in (
        (
            "Throttl|LimitExceeded|OverLimit|ProvisionedThroughput|TooManyRequests",
            "AWS slows down {what}",
            Trouble.THROTTLED,
        ),
        (
            "AccessDenied|NotAuthorized|UnauthorizedOperation|OptInRequired|KMS|Kms",
            "the credentials do not allow {call} of {what}",
            Trouble.REFUSED,
        ),
        (
            "NonExistentQueue|QueueDoesNotExist|ResourceNotFound",
            "there is no {what} in this region and account",
            Trouble.REFUSED,
        ),
        (
            "ExpiredToken|TokenId|AccessKeyId|AuthenticationToken|Signature|UnrecognizedClient",
            "AWS does not accept the credentials for {what}",
            Trouble.REFUSED,
        ),
    )
)
"""What errors mean by their codes, which services name differently; the first that fits holds."""


class AwsError(PenstockError):
    """AWS refused a call, or could not be asked.

    Attributes:
        code: AWS's or botocore's name of the error, such as ``AccessDeniedException``.
        trouble: What is to be done about it.
    """

    def __init__(self, text: str, code: str, trouble: Trouble) -> None:
        super().__init__(text)
        self.code = code
        self.trouble = trouble


class Outage:
    """Calls that fail, of one or several threads: reported once, and a pause for all of them.

    Args:
        report: `Receiver.reportError`.
        server: Names what is asked, for people.
    """

    def __init__(self, report: Callable[[str, BaseException], None], server: str) -> None:
        self._reconnecting = Reconnecting(report, server)
        self._lock = threading.Lock()
        self._is_on = True
        self._until_s = 0.0

    @property
    def left_s(self) -> float:
        """How long nothing is to be asked."""
        return max(0.0, self._until_s - time.monotonic())

    def failed(self, error: AwsError) -> None:
        """Take note of an error; the others of the same pause are not counted."""
        with self._lock:
            if self.left_s:
                return
            self._is_on = True
            pause_s = self._reconnecting.failed(error)
            if error.trouble is Trouble.REFUSED:
                pause_s = min(_LONGEST_S, _REFUSED_TIMES * pause_s)
            self._until_s = time.monotonic() + pause_s

    def passed(self) -> None:
        """Take note of a call that was answered."""
        if self._is_on and not self.left_s:
            with self._lock:
                self._is_on = False
                self._reconnecting.connected()


def meaning_of(error: BaseException, what: str) -> AwsError:
    """Return an error of botocore's as ours, without what must not be shown.

    Args:
        error: What a call raised.
        what: What was asked, for people: ``stream 'orders'``.

    Raises:
        Exception: `error` itself, where it is none of botocore's.
    """
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        CredentialRetrievalError,
        HTTPClientError,
        NoCredentialsError,
        NoRegionError,
        PartialCredentialsError,
        TokenRetrievalError,
        UnauthorizedSSOTokenError,
    )
    from botocore.parsers import ResponseParserError

    if isinstance(error, AwsError):
        return error
    if isinstance(error, ClientError):
        found = error.response.get("Error", {})
        code = str(found.get("Code") or "Unknown")
        # The rest of a refused signature's message repeats the request, with its token.
        said = str(found.get("Message") or "").split("\n", 1)[0][:_SHOWN].strip()
        text = f"{code} at {error.operation_name}" + (f": {said}" if said else "")
        for codes, meaning, trouble in _MEANINGS:
            if codes.search(code):
                told = meaning.format(what=what, call=error.operation_name)
                return AwsError(f"{told} ({text})", code, trouble)
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        trouble = Trouble.AWAY if status >= 500 or status == 429 else Trouble.REFUSED
        return AwsError(f"AWS answered for {what}: {text}", code, trouble)
    if not isinstance(error, (BotoCoreError, ResponseParserError)):
        raise error
    code = type(error).__name__
    no_credentials = (
        CredentialRetrievalError,
        NoCredentialsError,
        PartialCredentialsError,
        TokenRetrievalError,
        UnauthorizedSSOTokenError,
    )
    said = text_of(error).split("\n", 1)[0][:_SHOWN]
    if isinstance(error, no_credentials):
        text = f"there are no credentials for {what} in the executor ({code}: {said})"
        return AwsError(text, code, Trouble.REFUSED)
    if isinstance(error, NoRegionError):
        text = f"no region is given for {what}: region='eu-west-1', or AWS_DEFAULT_REGION"
        return AwsError(text, code, Trouble.REFUSED)
    trouble = Trouble.AWAY if isinstance(error, HTTPClientError) else Trouble.REFUSED
    if code in ("ResponseParserError", "IncompleteReadError", "ResponseStreamingError"):
        trouble = Trouble.AWAY
    return AwsError(f"{what} could not be asked ({code}: {said})", code, trouble)


@dataclass(frozen=True)
class Account:
    """Where AWS is, and credentials; what is None is found as boto3 finds it, in the executor.

    Attributes:
        region: For example ``eu-west-1``.
        endpoint_url: Another address than the region's own.
        access_key_id: Together with `secret_key`.
        session_token: Of temporary keys.
        role_arn: A role that is assumed with these credentials, and again before it expires.
        role_session: Names its sessions.
        external_id: What the role's trust policy may ask for.
    """

    region: str | None = None
    endpoint_url: str | None = None
    access_key_id: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    role_arn: str | None = None
    role_session: str = "penstock"
    external_id: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Check what belongs together.

        Raises:
            ValueError: A key is given without the other, or something is not of its form.
        """
        if self.endpoint_url is not None:
            checked_text(self.endpoint_url, "endpointUrl", "a URL", "https://", "http://")
        if self.role_arn is not None:
            checked_text(self.role_arn, "roleArn", "the ARN of a role", "arn:")
        if (self.access_key_id is None) != (self.secret_key is None):
            given, missing = ("accessKeyId", "secretKey")
            if self.access_key_id is None:
                given, missing = missing, given
            raise ValueError(f"{given} is given without {missing}: AWS needs both, or neither")
        if self.session_token is not None and self.access_key_id is None:
            raise ValueError("sessionToken is given without accessKeyId and secretKey")

    def client(self, service: str, connections: int, read_s: float) -> Any:
        """Return a client, which any thread may use.

        Args:
            service: ``sqs`` or ``kinesis``.
            connections: How many calls there may be at a time.
            read_s: How long an answer may take, in seconds.
        """
        from botocore.config import Config
        from botocore.credentials import (
            AssumeRoleCredentialFetcher,
            CredentialResolver,
            DeferredRefreshableCredentials,
        )

        config = Config(
            retries={"mode": "standard", "total_max_attempts": 1},
            connect_timeout=_CONNECT_S,
            read_timeout=read_s,
            max_pool_connections=connections,
            tcp_keepalive=True,
        )
        session = _session(config)
        if self.region is not None:
            session.set_config_variable("region", self.region)
        if self.access_key_id is not None:
            session.set_credentials(self.access_key_id, self.secret_key, self.session_token)
        if self.role_arn is not None:
            extra = {"RoleSessionName": self.role_session}
            if self.external_id is not None:
                extra["ExternalId"] = self.external_id
            fetcher = AssumeRoleCredentialFetcher(
                session.create_client, session.get_credentials(), self.role_arn, extra_args=extra
            )
            assumed = DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")
            session = _session(config)
            provider = SimpleNamespace(METHOD="assume-role", load=lambda: assumed)
            session.register_component("credential_provider", CredentialResolver([provider]))
        return session.create_client(
            service, region_name=self.region, endpoint_url=self.endpoint_url
        )


def _session(config: Any) -> Any:
    """Return a session whose clients, also a role's, refuse answers that are not whole."""
    import botocore.session

    session = botocore.session.get_session()
    session.set_default_client_config(config)
    session.register("before-parse", _check_whole)
    session.register("after-call", _check_members)
    return session


def _check_whole(operation_model: Any, response_dict: Any, **_: Any) -> None:
    """Refuse an answer that was cut, or is not AWS's: botocore takes it for one without members.

    So a queue would be empty, and a shard at its end. What ends within its head has none of the
    headers that say how long it is; what a proxy says in AWS's place is a page.
    """
    headers, content = response_dict["headers"], response_dict["body"]
    is_error = response_dict["status_code"] >= _ERRORS
    length = headers.get("content-length")
    is_chunked = "chunked" in headers.get("transfer-encoding", "").lower()
    if length is not None and length != str(len(content)):
        _refuse(operation_model, f"was cut: {len(content)} of {length or '?'} bytes")
    if not content and not (is_error and (length or is_chunked)):
        _refuse(operation_model, "was cut: nothing came behind its head")
    service = operation_model.service_model
    protocol = getattr(service, "resolved_protocol", None) or service.metadata.get("protocol")
    is_named = f"<{operation_model.name}Response".encode() in content
    is_one = {"json": content.startswith(b"{"), "query": is_named}.get(protocol, True)
    if not is_one and not is_error:
        _refuse(operation_model, "is none of AWS's")


def _check_members(http_response: Any, parsed: Mapping[str, Any], model: Any, **_: Any) -> None:
    """Refuse an answer that lacks what every answer to the question has."""
    always = _ALWAYS.get(model.name)
    if always is not None and http_response.status_code < _ERRORS and always not in parsed:
        _refuse(model, f"has no {always}")


def _refuse(model: Any, why: str) -> NoReturn:
    raise AwsError(f"the answer to {model.name} {why}", "IncompleteRead", Trouble.AWAY)
