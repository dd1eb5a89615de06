"""What an object store answers besides "done": what is tried again, and what is said at once."""

from __future__ import annotations

import errno
import pickle
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from penstock.wal import (
    Answer,
    LogWriteError,
    LogWriter,
    ObjectFileSystem,
    StorageAwayError,
    UnwritableFolderError,
    answer_of,
)
from penstock.wal._objects.client import ObjectsClient
from tests.services.ports import free_ports
from tests.services.tls import certificate_of_host, tls_front


def error(code: str, message: str = "as it says") -> str:
    return f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"


class Answering:
    """A store that answers each request by the same status and body.

    Attributes:
        bodies: Bodies for targets in which a text is, before `body`.
        targets: What was asked for.
    """

    def __init__(self) -> None:
        self.status = 200
        self.body = ""
        self.bodies: dict[str, str] = {}
        self.headers: dict[str, str] = {}
        self.asked = 0
        self.targets: list[str] = []
        answering = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                answering.asked += 1
                answering.targets.append(self.path)
                bodies = (body for text, body in answering.bodies.items() if text in self.path)
                data = next(bodies, answering.body).encode()
                self.send_response_only(answering.status)
                for name, value in answering.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PUT = do_POST = do_DELETE = answer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.01])
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answering]:
    made = Answering()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", made.url)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", made.url)
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", made.url)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    yield made
    made.close()


S3, GOOGLE, AZURE = "s3://logs", "gs://logs", "abfss://logs@account.dfs.core.windows.net"


def raised(function: Callable[[], object]) -> OSError:
    try:
        function()
    except OSError as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    ("bucket", "status", "body", "answer"),
    [
        (S3, 503, error("SlowDown"), Answer.AWAY),
        (S3, 500, "", Answer.AWAY),
        (S3, 429, "", Answer.AWAY),
        # The connection was too slow for S3, which calls that a bad request.
        (S3, 400, error("RequestTimeout"), Answer.AWAY),
        # "409 Conflict" is no "412 Precondition Failed": another write is under way.
        (S3, 409, error("ConditionalRequestConflict"), Answer.AWAY),
        # Of a load balancer that has no store at the moment: that is not "there is no object".
        (S3, 404, "", Answer.AWAY),
        (S3, 404, error("NoSuchKey"), Answer.GONE),
        (S3, 404, error("NoSuchBucket"), Answer.OTHER),
        (S3, 403, error("SignatureDoesNotMatch"), Answer.REFUSED),
        (S3, 403, error("RequestTimeTooSkewed"), Answer.REFUSED),
        (S3, 400, error("ExpiredToken"), Answer.REFUSED),
        (S3, 400, error("AuthorizationHeaderMalformed"), Answer.OTHER),
        (S3, 501, error("NotImplemented"), Answer.OTHER),
        (S3, 301, error("PermanentRedirect"), Answer.OTHER),
        (GOOGLE, 429, error("SlowDown"), Answer.AWAY),
        (GOOGLE, 503, error("ServiceUnavailable"), Answer.AWAY),
        (GOOGLE, 404, "", Answer.AWAY),
        (GOOGLE, 404, error("NoSuchKey"), Answer.GONE),
        (GOOGLE, 404, error("NoSuchBucket"), Answer.OTHER),
        (GOOGLE, 401, error("AuthenticationRequired"), Answer.REFUSED),
        (GOOGLE, 403, error("AccessDenied"), Answer.REFUSED),
        (GOOGLE, 400, error("InvalidArgument"), Answer.OTHER),
        (AZURE, 503, error("ServerBusy"), Answer.AWAY),
        (AZURE, 500, error("OperationTimedOut"), Answer.AWAY),
        (AZURE, 409, error("ContainerBeingDeleted"), Answer.AWAY),
        (AZURE, 404, "", Answer.AWAY),
        (AZURE, 404, error("BlobNotFound"), Answer.GONE),
        (AZURE, 404, error("ContainerNotFound"), Answer.OTHER),
        # Also for a clock that is wrong.
        (AZURE, 403, error("AuthenticationFailed"), Answer.REFUSED),
        (AZURE, 403, error("AuthorizationPermissionMismatch"), Answer.REFUSED),
        (AZURE, 401, error("InvalidAuthenticationInfo"), Answer.REFUSED),
        (AZURE, 409, error("BlobImmutableDueToPolicy"), Answer.REFUSED),
        (AZURE, 400, error("InvalidHeaderValue"), Answer.OTHER),
    ],
)
def test_each_answer_is_taken_for_what_it_is(
    store: Answering, bucket: str, status: int, body: str, answer: Answer
) -> None:
    store.status, store.body = status, body
    client = ObjectsClient.of_bucket(bucket)
    for ask in (
        lambda: client.get("key"),
        lambda: client.get_range("key", 0, 1),
        lambda: client.create("key", b"data"),
        lambda: client.replace("key", b"data"),
    ):
        said = raised(ask)
        assert answer_of(said) is answer
        assert said.filename == f"{bucket}/key"
        # Not the client's screenfuls above it in a traceback.
        assert said.__suppress_context__
        code = re.search("<Code>(.*)</Code>", body)
        if code is not None and status != 301:
            assert f"{code[1]}: as it says (HTTP {status})" in str(said)


@pytest.mark.parametrize(
    ("bucket", "status", "code"),
    [
        (S3, 412, "PreconditionFailed"),
        (GOOGLE, 412, "PreconditionFailed"),
        (AZURE, 409, "BlobAlreadyExists"),
        (AZURE, 412, "ConditionNotMet"),
    ],
)
def test_that_there_is_an_object_is_told_from_a_request_under_way(
    store: Answering, bucket: str, status: int, code: str
) -> None:
    store.status, store.body = status, error(code)
    client = ObjectsClient.of_bucket(bucket)
    assert isinstance(raised(lambda: client.create("key", b"data")), FileExistsError)


def test_a_condition_that_is_refused_is_no_work_of_another_writer_where_none_was_set(
    store: Answering,
) -> None:
    store.status, store.body = 412, error("PreconditionFailed")
    client = ObjectsClient.of_bucket(S3)
    assert raised(lambda: client.replace("key", b"data")).errno == errno.EIO


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        ("InternalError", Answer.AWAY),
        ("SlowDown", Answer.AWAY),
        # Of a key that may write and not delete.
        ("AccessDenied", Answer.REFUSED),
        ("InvalidArgument", Answer.OTHER),
    ],
)
def test_a_deletion_of_which_a_part_failed_is_told_by_its_own_code(
    store: Answering, code: str, answer: Answer
) -> None:
    head = '<?xml version="1.0" encoding="UTF-8"?>'
    failed = f"<Error><Key>b</Key><Code>{code}</Code><Message>as it says</Message></Error>"
    store.body = f"{head}<DeleteResult>{failed}</DeleteResult>"
    client = ObjectsClient.of_bucket(S3)
    said = raised(lambda: client.delete(["a", "b"]))
    assert answer_of(said) is answer
    assert code in str(said)
    assert "as it says" in str(said)


@pytest.mark.parametrize(
    ("status", "answer"), [(503, Answer.AWAY), (429, Answer.AWAY), (403, Answer.REFUSED)]
)
def test_one_deletion_of_many_is_told_by_its_own_status(
    store: Answering, status: int, answer: Answer
) -> None:
    """Azure answers to each in a part of one answer; 404 is in `tests.wal.test_objects`."""
    store.status = 202
    store.headers = {"Content-Type": "multipart/mixed; boundary=b"}
    parts = [
        f"--b\r\nContent-Type: application/http\r\nContent-ID: {number}\r\n\r\n"
        f"HTTP/1.1 {code} As it says\r\n\r\n"
        for number, code in enumerate((202, status))
    ]
    store.body = "\r\n".join(parts) + "\r\n--b--\r\n"
    client = ObjectsClient.of_bucket(AZURE)
    said = raised(lambda: client.delete(["a", "b"]))
    assert answer_of(said) is answer
    assert f"As it says (code: {status})" in str(said)


@pytest.mark.parametrize(("bucket", "is_told"), [(S3, True), (GOOGLE, True), (AZURE, False)])
def test_where_a_list_begins_is_told_to_the_services_that_know_it(
    store: Answering, bucket: str, is_told: bool
) -> None:
    store.status = 400
    raised(lambda: list(ObjectsClient.of_bucket(bucket).keys("app", after="app/from-here")))
    assert ("from-here" in store.targets[0]) is is_told


def test_what_carries_no_bytes_is_asked_with_less_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """But a deletion of many, which takes a store as long as bytes do."""
    asked: list[object] = []

    def answer(store: object, *_: object, **__: object) -> dict[str, list[object]]:
        asked.append(store)
        return {"common_prefixes": [], "objects": []}

    def page(store: object, *_: object, **__: object) -> list[object]:
        asked.append(store)
        return []

    for name, function in (
        ("put", answer),
        ("delete", answer),
        ("list_with_delimiter", answer),
        ("list", page),
    ):
        monkeypatch.setattr(f"obstore.{name}", function)
    client = ObjectsClient("patient", S3, "quick")
    client.create("key", b"data")
    client.replace("key", b"data")
    client.delete(["a", "b"])
    assert asked == ["patient"] * 3
    asked.clear()
    client.delete(["a"])
    client.level("folder")
    next(client.keys("folder"), None)
    assert asked == ["quick"] * 3


def test_folders_in_which_nothing_is_left_are_not_told(store: Answering) -> None:
    """As of Azure with a hierarchical namespace."""

    def blobs(text: str) -> str:
        head = "<EnumerationResults><Prefix></Prefix><MaxResults>5000</MaxResults>"
        return f"{head}<Blobs>{text}</Blobs><NextMarker /></EnumerationResults>"

    def blob(name: str, kind: str) -> str:
        return (
            f"<Blob><Name>{name}</Name><Properties><Last-Modified>Mon, 30 Nov 2026 00:00:00 GMT"
            "</Last-Modified><Content-Length>1</Content-Length><Content-Type>a/b</Content-Type>"
            f"<Etag>1</Etag><ResourceType>{kind}</ResourceType></Properties></Blob>"
        )

    folders = ("app/empty/", "app/full/")
    store.bodies = {
        "delimiter": blobs("".join(f"<BlobPrefix><Name>{f}</Name></BlobPrefix>" for f in folders)),
        "empty": blobs(blob("app/empty/folder", "directory")),
        "full": blobs(blob("app/full/folder", "directory") + blob("app/full/a@0", "file")),
    }
    client = ObjectsClient.of_bucket(AZURE)
    assert client.level("app") == ([], ["app/full"])
    fs = ObjectFileSystem(client, AZURE)
    assert not fs.is_folder("/app/empty")
    assert fs.is_folder("/app/full")


@pytest.mark.parametrize(
    ("bucket", "condition"),
    [
        (S3, "If-None-Match: *"),
        (GOOGLE, "x-goog-if-generation-match: 0"),
        (AZURE, "If-None-Match: *"),
    ],
)
def test_a_store_without_conditions_is_refused_at_once(
    store: Answering, bucket: str, condition: str
) -> None:
    store.status = 501
    store.body = error("NotImplemented", "A header you provided is not implemented")
    fs = ObjectFileSystem(ObjectsClient.of_bucket(bucket), bucket)
    said = raised(lambda: fs.check_conditions("/app"))
    assert f"has no conditions ({condition}), and says 'NotImplemented: A header" in str(said)
    assert "no log is kept there" in str(said)
    assert store.asked == 1
    assert str(pickle.loads(pickle.dumps(said))) == str(said)


def test_a_refusal_names_the_address_and_the_credentials(store: Answering) -> None:
    store.status, store.body = 403, error("AccessDenied")
    fs = ObjectFileSystem(ObjectsClient.of_bucket(S3), "s3://logs")
    text = (
        "^folder s3://logs/app cannot be written: .*AccessDenied.*; give this program credentials"
    )
    with pytest.raises(UnwritableFolderError, match=text):
        LogWriter.create("/app", fs=fs)
    store.status, store.body = 400, error("InvalidBucketName")
    with pytest.raises(LogWriteError, match=r"^the log in s3://logs/app could not be written: "):
        LogWriter.create("/app", fs=fs)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_why_a_connection_fails_is_said(
    store: Answering, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    (port,) = free_ports(1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"{scheme}://127.0.0.1:{port}")
    said = raised(lambda: ObjectsClient.of_bucket(S3).get("key"))
    assert str(said).endswith("Connection refused: 's3://logs/key'")
    assert answer_of(said) is Answer.AWAY


def test_an_endpoint_without_tls_is_said_at_once(
    store: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.url.replace("http", "https"))
    said = raised(lambda: ObjectsClient.of_bucket(S3).get("key"))
    assert "speaks no TLS; is its endpoint to begin with http://?" in str(said)
    assert answer_of(said) is Answer.OTHER


@pytest.mark.parametrize("has_name", [True, False])
def test_a_host_without_certificates_of_authorities_is_told_what_to_install(
    store: Answering, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_name: bool
) -> None:
    (tmp_path / "none.pem").write_text("no certificate")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / ("none.pem" if has_name else "missing")))
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    said = raised(lambda: ObjectsClient.of_bucket(S3))
    assert "no certificates of authorities are found on this host: install them" in str(said)
    assert "SSL_CERT_FILE" in str(said)


def test_a_list_that_is_taken_for_an_object_is_said(store: Answering) -> None:
    # As by AWS, where the endpoint has the bucket's name, too.
    store.status, store.body = 404, error("NoSuchKey")
    said = raised(lambda: list(ObjectsClient.of_bucket(S3).keys("app")))
    assert "is the bucket's name in the endpoint, too?" in str(said)
    assert "in the endpoint" not in str(raised(lambda: ObjectsClient.of_bucket(S3).get("key")))


def test_a_certificate_that_is_not_accepted_is_said_at_once(
    store: Answering, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    certificate_of_host(tmp_path)
    with tls_front(int(store.url.rpartition(":")[2]), tmp_path / "server.pem") as port:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"https://127.0.0.1:{port}")
        said = raised(lambda: ObjectsClient.of_bucket(S3).get("key"))
        assert "certificate is not accepted: UnknownIssuer; " in str(said)
        assert "SSL_CERT_FILE" in str(said)
        assert answer_of(said) is Answer.OTHER
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"https://localhost:{port}")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        said = raised(lambda: ObjectsClient.of_bucket(S3).get("key"))
        assert "NotValidForNameContext; ask by a name that it has" in str(said)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        said = raised(lambda: ObjectsClient.of_bucket(S3).get("key"))
        assert "error sending request: IncompleteMessage" in str(said)
        assert answer_of(said) is Answer.AWAY


def test_an_emulator_of_google_is_given_as_its_own_clients_take_it(
    store: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "localhost:1")
    said = raised(lambda: ObjectsClient.of_bucket(GOOGLE))
    assert "STORAGE_EMULATOR_HOST is 'localhost:1', and not of the form https" in str(said)


@pytest.mark.parametrize(
    "endpoint",
    [
        "127.0.0.1:9000",
        "http://",
        "s3.example.com",
        "",
        "ftp://host",
        "http://host:x",
        "http://:90",
    ],
)
def test_an_endpoint_is_an_address_with_its_scheme(
    store: Answering, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    assert f"AWS_ENDPOINT_URL is {endpoint!r}" in str(raised(lambda: ObjectsClient.of_bucket(S3)))


@pytest.mark.parametrize(
    "endpoint",
    ["http://user:hush@host", "https://host/?sig=hush", "user:hush@host", "https://host?hush"],
)
def test_an_endpoint_with_a_secret_is_refused_without_showing_it(
    store: Answering, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    said = str(raised(lambda: ObjectsClient.of_bucket(S3)))
    assert "AWS_ENDPOINT_URL is not of the form https://host:port" in said
    assert "hush" not in said
    monkeypatch.delenv("AZURE_STORAGE_ENDPOINT")
    text = f"AccountName=account;BlobEndpoint={endpoint}"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    said = str(raised(lambda: ObjectsClient.of_bucket(AZURE)))
    assert "AZURE_STORAGE_CONNECTION_STRING is not of the form" in said
    assert "hush" not in said


@pytest.mark.parametrize(
    ("bucket", "variable"),
    [
        # Where the client would panic, and where the store would say that a signature is wrong.
        (S3, "AWS_ACCESS_KEY_ID"),
        (S3, "AWS_SECRET_ACCESS_KEY"),
        (GOOGLE, "GOOGLE_BEARER_TOKEN"),
        (AZURE, "AZURE_STORAGE_ACCOUNT_KEY"),
    ],
)
def test_a_blank_or_line_break_around_a_credential_is_named(
    store: Answering, monkeypatch: pytest.MonkeyPatch, bucket: str, variable: str
) -> None:
    for value in ("value\n", " value"):
        monkeypatch.setenv(variable, value)
        said = raised(lambda: ObjectsClient.of_bucket(bucket))
        assert f"{variable} begins or ends with a blank or a line break: '{bucket}'" in str(said)
    assert store.asked == 0


def test_missing_credentials_are_said(store: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    said = raised(lambda: ObjectsClient.of_bucket(S3).get("key"))
    assert "a half of the key is not in the environment (AWS_ACCESS_KEY_ID and" in str(said)
    assert str(said).endswith("Missing SecretAccessKey: 's3://logs'")
    assert answer_of(said) is Answer.REFUSED
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", store.url)
    store.status = 403
    said = raised(lambda: ObjectsClient.of_bucket(S3).get("key"))
    assert "there are no credentials in the environment (AWS_ACCESS_KEY_ID and" in str(said)


def test_this_host_is_not_asked_for_credentials_where_that_is_disabled(
    store: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", store.url)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    # It says nothing against those of the environment.
    ObjectsClient.of_bucket(S3).get("key")
    asked = store.asked
    assert asked
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    said = raised(lambda: ObjectsClient.of_bucket(S3))
    assert "AWS_EC2_METADATA_DISABLED=true bars those of this host's role: 's3://logs'" in str(said)
    assert answer_of(said) is Answer.REFUSED
    assert store.asked == asked
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
    store.status = 403
    said = raised(lambda: ObjectsClient.of_bucket(S3).get("key"))
    assert "this host gives none for a role" in str(said)


def test_missing_credentials_of_google_and_azure_are_said(
    store: Answering, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # For an emulator there is none to be had; this is none.
    monkeypatch.setenv("GOOGLE_BASE_URL", store.url)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GCE_METADATA_HOST", store.url.removeprefix("http://"))
    monkeypatch.setenv("GCE_METADATA_IP", store.url.removeprefix("http://"))
    store.status = 404
    said = raised(lambda: ObjectsClient.of_bucket(GOOGLE).get("key"))
    assert "there are no credentials in the environment (GOOGLE_APPLICATION_CRED" in str(said)
    assert answer_of(said) is Answer.REFUSED
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
    monkeypatch.setenv("AZURE_MSI_ENDPOINT", f"{store.url}/metadata/identity/oauth2/token")
    store.status = 400
    said = raised(lambda: ObjectsClient.of_bucket(AZURE).get("key"))
    assert "there are no credentials in the environment (AZURE_STORAGE_ACCOUNT_K" in str(said)
    assert answer_of(said) is Answer.REFUSED


@pytest.mark.parametrize("status", [400, 401, 429, 503])
def test_credentials_that_give_no_token_are_said(
    store: Answering, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
    monkeypatch.setenv("AZURE_CLIENT_ID", "client")
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "secret")
    monkeypatch.setenv("AZURE_TENANT_ID", "tenant")
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", store.url)
    store.status = status
    store.body = '{"error": "invalid_client", "error_description": "AADSTS7000215: the secret."}'
    said = raised(lambda: ObjectsClient.of_bucket(AZURE).get("key"))
    assert answer_of(said) is (Answer.AWAY if status > 401 else Answer.REFUSED)
    assert status > 401 or "credentials are not taken: AADSTS7000215: the secret." in str(said)


def test_a_slash_behind_an_endpoint_is_none_before_a_container(
    store: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", f"{store.url}/account/")
    store.status = 404
    raised(lambda: ObjectsClient.of_bucket(AZURE).get("key"))
    assert store.targets == ["/account/logs/key"]


def test_a_store_that_answers_that_there_is_none_is_not_away(store: Answering) -> None:
    fs = ObjectFileSystem(ObjectsClient.of_bucket(S3), S3)
    answers = iter([StorageAwayError("away", "key"), FileNotFoundError(errno.ENOENT, "none")])

    def ask() -> None:
        raise next(answers)

    with pytest.raises(FileNotFoundError):
        fs.call(ask)
    # So the next one that finds it away has all of the patience.
    assert fs._outage.age_s == 0


def test_a_connection_string_of_azure_holds_for_its_account(
    store: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
    monkeypatch.delenv("AZURE_STORAGE_ENDPOINT")
    text = f"AccountName=account;AccountKey=a2V5;BlobEndpoint={store.url}/"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    store.status, store.body = 404, error("BlobNotFound")
    assert isinstance(raised(lambda: ObjectsClient.of_bucket(AZURE).get("key")), FileNotFoundError)
    text = f"BlobEndpoint={store.url};SharedAccessSignature=sv=2023&sig=a%3D"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    assert isinstance(raised(lambda: ObjectsClient.of_bucket(AZURE).get("key")), FileNotFoundError)
    store.asked = 0
    other = "abfss://logs@another.dfs.core.windows.net"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountName=account;AccountKey=a2V5")
    monkeypatch.setenv("AZURE_MSI_ENDPOINT", f"{store.url}/metadata/identity/oauth2/token")
    said = raised(lambda: ObjectsClient.of_bucket(other).get("key"))
    assert "there are no credentials in the environment" in str(said)
