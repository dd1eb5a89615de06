"""What an object store answers besides "done": what is tried again, and what is said at once."""

from __future__ import annotations

import errno
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from penstock.wal import (
    Answer,
    LogWriteError,
    LogWriter,
    ObjectFileSystem,
    UnwritableFolderError,
    answer_of,
)
from penstock.wal._objects_client import ObjectsClient
from tests.services.ports import free_ports


def error(code: str, message: str = "as it says") -> str:
    return f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"


class Answering:
    """A store that answers each request by the same status and body."""

    def __init__(self) -> None:
        self.status = 200
        self.body = ""
        self.asked = 0
        answering = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                answering.asked += 1
                data = answering.body.encode()
                self.send_response_only(answering.status)
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
    yield made
    made.close()


def raised(function: Callable[[], object]) -> OSError:
    try:
        function()
    except OSError as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    ("status", "body", "answer"),
    [
        (503, error("SlowDown"), Answer.AWAY),
        (500, "", Answer.AWAY),
        (429, "", Answer.AWAY),
        # The connection was too slow for S3, which calls that a bad request.
        (400, error("RequestTimeout"), Answer.AWAY),
        # "409 Conflict" is no "412 Precondition Failed": another write is under way.
        (409, error("ConditionalRequestConflict"), Answer.AWAY),
        # Of a load balancer that has no store at the moment: that is not "there is no object".
        (404, "", Answer.AWAY),
        (404, error("NoSuchKey"), Answer.GONE),
        (404, error("NoSuchBucket"), Answer.OTHER),
        (403, error("SignatureDoesNotMatch"), Answer.REFUSED),
        (403, error("RequestTimeTooSkewed"), Answer.REFUSED),
        (400, error("ExpiredToken"), Answer.REFUSED),
        (400, error("AuthorizationHeaderMalformed"), Answer.OTHER),
        (501, error("NotImplemented"), Answer.OTHER),
        (301, error("PermanentRedirect"), Answer.OTHER),
    ],
)
def test_each_answer_is_taken_for_what_it_is(
    store: Answering, status: int, body: str, answer: Answer
) -> None:
    store.status, store.body = status, body
    client = ObjectsClient.of_bucket("logs")
    for ask in (
        lambda: client.get("key"),
        lambda: client.get_range("key", 0, 1),
        lambda: client.create("key", b"data"),
        lambda: client.replace("key", b"data"),
    ):
        said = raised(ask)
        assert answer_of(said) is answer
        assert said.filename == "s3://logs/key"
        # Not the client's screenfuls above it in a traceback.
        assert said.__suppress_context__
        code = re.search("<Code>(.*)</Code>", body)
        if code is not None and status != 301:
            assert f"{code[1]}: as it says (HTTP {status})" in str(said)


def test_a_condition_that_is_refused_is_no_work_of_another_writer_where_none_was_set(
    store: Answering,
) -> None:
    store.status, store.body = 412, error("PreconditionFailed")
    client = ObjectsClient.of_bucket("logs")
    assert isinstance(raised(lambda: client.create("key", b"data")), FileExistsError)
    assert raised(lambda: client.replace("key", b"data")).errno == errno.EIO


def test_a_deletion_of_which_a_part_failed_is_made_again(store: Answering) -> None:
    head = '<?xml version="1.0" encoding="UTF-8"?>'
    failed = "<Error><Key>b</Key><Code>InternalError</Code><Message>again</Message></Error>"
    store.body = f"{head}<DeleteResult>{failed}</DeleteResult>"
    client = ObjectsClient.of_bucket("logs")
    said = raised(lambda: client.delete(["a", "b"]))
    assert answer_of(said) is Answer.AWAY
    assert "InternalError: again:" in str(said)


def test_a_store_without_conditions_is_refused_at_once(store: Answering) -> None:
    store.status = 501
    store.body = error("NotImplemented", "A header you provided is not implemented")
    fs = ObjectFileSystem(ObjectsClient.of_bucket("logs"), "s3://logs")
    said = raised(lambda: fs.check_conditions("/app"))
    assert re.search(
        r"has no conditions .* says 'NotImplemented: A header .* no log is kept there", str(said)
    )
    assert store.asked == 1


def test_a_refusal_names_the_address_and_the_credentials(store: Answering) -> None:
    store.status, store.body = 403, error("AccessDenied")
    fs = ObjectFileSystem(ObjectsClient.of_bucket("logs"), "s3://logs")
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
    said = raised(lambda: ObjectsClient.of_bucket("logs").get("key"))
    assert str(said).endswith("Connection refused: 's3://logs/key'")
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.url.replace("http", "https"))
    said = raised(lambda: ObjectsClient.of_bucket("logs").get("key"))
    assert "InvalidMessage InvalidContentType" in str(said)
    assert answer_of(said) is Answer.AWAY


@pytest.mark.parametrize("endpoint", ["127.0.0.1:9000", "http://", "s3.example.com"])
def test_an_endpoint_is_an_address_with_its_scheme(
    store: Answering, monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    assert f"AWS_ENDPOINT_URL is {endpoint!r}" in str(raised(lambda: ObjectsClient.of_bucket("x")))


def test_missing_credentials_are_said(store: Answering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    said = raised(lambda: ObjectsClient.of_bucket("logs").get("key"))
    assert "there are no credentials in the environment (AWS_ACCESS_KEY_ID and" in str(said)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", store.url)
    store.status = 403
    said = raised(lambda: ObjectsClient.of_bucket("logs").get("key"))
    assert "there are no credentials in the environment (AWS_ACCESS_KEY_ID and" in str(said)
