"""How a program reaches a store: settings, profiles, and credentials that change while it runs."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.errors import SettingError
from penstock.settings import settings_table
from penstock.wal import (
    STORAGE_VARIABLES,
    LogOptions,
    LogReader,
    LogWriter,
    MissingClientError,
    ObjectFileSystem,
    StorageAwayError,
    UnwritableFolderError,
    locate,
)
from penstock.wal._objects.aws_profile import ProfileCredentials
from penstock.wal._objects.client import ObjectsClient
from tests.bounds import HANG_S
from tests.services.aws_credentials import ROLE, CredentialsServer, credentials_server
from tests.services.http_faults import FaultyHttp
from tests.services.tls import certificate_of_host
from tests.services.versitygw import BUCKET, KEYS, VersityServer, make_server

ADDRESS = f"s3://{BUCKET}"
ROOT = (KEYS["aws_access_key_id"], KEYS["aws_secret_access_key"])
_SOON = r"in (\d{3}\.\d+ms|[1-5]\.\d+s) .*TimedOut"
"""Of 200 ms, also on a slow machine: by default it would be ten seconds, or sixty."""
SMALL = LogOptions(segment_size=1 << 14, alignment=64)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersityServer]:
    made = make_server(tmp_path_factory.mktemp("s3"))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def server(
    running: VersityServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> VersityServer:
    """Return a server that knows one user, of whom the environment says nothing."""
    for name in os.environ:
        if name.startswith(("AWS_", "PENSTOCK_STORAGE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("PENSTOCK_STORAGE_S3_ENDPOINT", running.url)
    return running


@pytest.fixture
def keys(server: VersityServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the user's keys into the environment."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ROOT[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ROOT[1])


def put() -> None:
    ObjectsClient.of_bucket(ADDRESS).replace("settings", b"bytes")


def files() -> ObjectFileSystem:
    """Return those of this test: a process keeps what it has opened of a bucket."""
    return ObjectFileSystem(ObjectsClient.of_bucket(ADDRESS), ADDRESS)


def write_profile(tmp_path: Path, secret: str = ROOT[1]) -> None:
    text = f"[lab]\naws_access_key_id={ROOT[0]}\naws_secret_access_key={secret}\n"
    (tmp_path / "credentials").write_text(text)


# -- settings --------------------------------------------------------------------------------------


def test_each_setting_of_object_storage_has_a_variable() -> None:
    keys = [line.key for line in settings_table() if line.key.startswith("spark.penstock.storage.")]
    assert sorted(STORAGE_VARIABLES.values()) == sorted(keys)


@pytest.mark.usefixtures("keys")
def test_a_store_is_found_by_its_endpoint_and_region(
    server: VersityServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    with pytest.raises(OSError, match="AuthorizationHeaderMalformed"):
        put()
    monkeypatch.setenv("PENSTOCK_STORAGE_S3_REGION", "us-east-1")
    put()


@pytest.mark.usefixtures("keys")
def test_a_bucket_is_named_in_the_host_where_a_store_wants_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that the names of bucket and domain make an address of this host.
    hosted = make_server(tmp_path)
    hosted.command.insert(1, "--virtual-domain=0.0.1")
    (hosted.data / "127").mkdir()
    hosted.start()
    try:
        monkeypatch.setenv("PENSTOCK_STORAGE_S3_ENDPOINT", f"http://0.0.1:{hosted.port}/")
        monkeypatch.setenv("PENSTOCK_STORAGE_S3_VIRTUAL_HOSTED", "true")
        ObjectsClient.of_bucket("s3://127").replace("hosted", b"bytes")
        assert (hosted.data / "127" / "hosted").read_bytes() == b"bytes"
    finally:
        hosted.stop()


@pytest.mark.usefixtures("keys")
def test_a_request_has_its_time_and_a_store_that_is_away_its_own(
    server: VersityServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PENSTOCK_STORAGE_REQUEST_TIMEOUT", "200ms")
    monkeypatch.setenv("PENSTOCK_STORAGE_PATIENCE", "1s")
    fs, _ = locate(f"{ADDRESS}/app")
    server.stall()
    try:
        with pytest.raises(StorageAwayError, match=_SOON):
            fs.list_folder("/app")
        assert "asked again for up to 1 s" in caplog.text
        with pytest.raises(StorageAwayError, match=_SOON):
            put()
        monkeypatch.delenv("PENSTOCK_STORAGE_PATIENCE")
        assert locate(f"{ADDRESS}/app")[0] is not fs
    finally:
        server.go_on()


@pytest.mark.usefixtures("keys")
def test_a_request_without_bytes_has_a_time_of_its_own(
    server: VersityServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.wal._objects.client._ANSWER_S", 0.2)
    client = ObjectsClient.of_bucket(ADDRESS)
    server.stall()
    try:
        for ask in (lambda: list(client.keys("")), lambda: client.delete(["one"])):
            with pytest.raises(StorageAwayError, match=_SOON):
                ask()
    finally:
        server.go_on()


@pytest.fixture
def faults(server: VersityServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyHttp]:
    made = FaultyHttp(server.port)
    monkeypatch.setenv("PENSTOCK_STORAGE_S3_ENDPOINT", made.url)
    yield made
    made.let_go()
    made.close()


@pytest.mark.usefixtures("keys")
def test_what_is_read_is_asked_for_once_more_where_the_answer_is_slow(faults: FaultyHttp) -> None:
    client = ObjectsClient.of_bucket(ADDRESS)
    client.replace("slow", b"0123456789")
    faults.hold("slow", "GET")
    assert client.get_range("slow", 2, 5) == b"234"
    # The first request has no answer yet.
    assert faults.holds.is_set()
    faults.let_go()
    faults.hold("slow", "GET")
    assert client.get("slow") == b"0123456789"
    assert faults.holds.wait(HANG_S)


@pytest.mark.usefixtures("keys")
def test_what_is_missing_is_asked_for_once(faults: FaultyHttp) -> None:
    client = ObjectsClient.of_bucket(ADDRESS)
    faults.faults = {"slow": 1.0}
    faults.slow_s = 0.0
    with pytest.raises(FileNotFoundError):
        client.get("missing")
    assert faults.done["slow"] == 1


@pytest.mark.usefixtures("keys")
def test_a_store_that_is_always_slow_is_not_asked_twice_for_all(
    faults: FaultyHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.wal._objects.client.SLOW_S", 0.5)
    client = ObjectsClient.of_bucket(ADDRESS)
    client.replace("slow", b"bytes")
    faults.faults = {"slow": 1.0}
    faults.least_slow_s = faults.slow_s = 1.0
    for asked in (2, 3, 4):
        assert client.get("slow") == b"bytes"
        assert faults.done["slow"] == asked


@pytest.mark.usefixtures("keys")
def test_a_read_that_may_not_take_that_long_is_asked_for_once(
    faults: FaultyHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_STORAGE_REQUEST_TIMEOUT", "1s")
    client = ObjectsClient.of_bucket(ADDRESS)
    faults.faults = {"slow": 1.0}
    faults.least_slow_s = faults.slow_s = 5.0
    with pytest.raises(StorageAwayError):
        client.get("slow")
    assert faults.done["slow"] == 1


@pytest.mark.usefixtures("keys")
def test_a_write_is_not_made_again_where_the_answer_is_slow(
    faults: FaultyHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.wal._objects.client.SLOW_S", 0.2)
    client = ObjectsClient.of_bucket(ADDRESS)
    faults.faults = {"slow": 1.0}
    faults.least_slow_s = faults.slow_s = 1.0
    client.create("written-slowly", b"bytes")
    assert faults.done["slow"] == 1


def test_a_setting_of_the_environment_that_is_nonsense_is_named(
    server: VersityServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_STORAGE_REQUEST_TIMEOUT", "99999999999999999s")
    with pytest.raises(SettingError, match=r"REQUEST_TIMEOUT.*100 ms and at most 1 h such"):
        put()
    monkeypatch.delenv("PENSTOCK_STORAGE_REQUEST_TIMEOUT")
    monkeypatch.setenv("PENSTOCK_STORAGE_PATIENCE", "long")
    with pytest.raises(
        SettingError, match=r"_STORAGE_PATIENCE=.*1500ms.*setting spark.penstock.storage.patience"
    ):
        put()


def test_a_variable_that_is_misspelled_is_named(
    server: VersityServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_STORAGE_S3_ENDPONT", "https://host:9000")
    with pytest.raises(SettingError, match=r"S3_ENDPONT.*there are .*PENSTOCK_STORAGE_S3_ENDPOINT"):
        put()


@pytest.mark.usefixtures("keys")
def test_a_variable_of_ours_that_is_empty_is_not_set(
    server: VersityServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_STORAGE_S3_ENDPOINT", "")
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    put()


@pytest.mark.usefixtures("keys")
def test_no_bucket_is_named_before_an_address_of_digits(
    server: VersityServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_STORAGE_S3_VIRTUAL_HOSTED", "true")
    with pytest.raises(OSError, match=r"before 127\.0\.0\.1: leave virtualHosted false"):
        put()


def test_an_endpoint_with_a_password_is_refused_without_showing_it(
    server: VersityServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_STORAGE_S3_ENDPOINT", "https://user:hush@host:9000")
    with pytest.raises(SettingError, match="PENSTOCK_STORAGE_S3_ENDPOINT") as raised:
        put()
    assert "hush" not in str(raised.value)


# -- profiles --------------------------------------------------------------------------------------


def test_a_profile_has_credentials_endpoint_and_region(
    server: VersityServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_profile(tmp_path)
    (tmp_path / "config").write_text(f"[profile lab]\nregion=eu-north-1\nendpoint_url={server.url}")
    monkeypatch.delenv("PENSTOCK_STORAGE_S3_ENDPOINT")
    monkeypatch.setenv("PENSTOCK_STORAGE_S3_PROFILE", "lab")
    with pytest.raises(OSError, match="AuthorizationHeaderMalformed"):
        put()
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    put()
    # What a program names wins over keys of the environment, and these over its profile.
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ROOT[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    put()
    monkeypatch.delenv("PENSTOCK_STORAGE_S3_PROFILE")
    monkeypatch.setenv("AWS_PROFILE", "lab")
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    with pytest.raises(PermissionError):
        put()
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    put()


@pytest.mark.parametrize("profile", ["lab", "none"])
def test_a_profile_without_credentials_is_told_with_its_name(
    server: VersityServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, profile: str
) -> None:
    (tmp_path / "config").write_text("[profile lab]\nregion=us-east-1\n")
    monkeypatch.setenv("AWS_PROFILE", profile)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(PermissionError, match=f"the profile '{profile}' gives no credentials"):
        put()


def program_of_a_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a program that gives the user's keys, and the profile of the environment asks."""
    gives = tmp_path / "gives"
    keys = f'"AccessKeyId": "{ROOT[0]}", "SecretAccessKey": "{ROOT[1]}"'
    gives.write_text(f"#!/bin/sh\necho '{{\"Version\": 1, {keys}}}'\n")
    gives.chmod(0o700)
    (tmp_path / "config").write_text(f"[profile lab]\ncredential_process={gives}\n")
    monkeypatch.setenv("AWS_PROFILE", "lab")
    return gives


@pytest.mark.parametrize("program", ["/no/such/program", "/bin/echo no-json"])
def test_what_a_profile_raises_is_not_taken_for_an_answer_of_the_store(
    server: VersityServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str
) -> None:
    # That a program is not there says nothing of a block.
    (tmp_path / "config").write_text(f"[profile lab]\ncredential_process={program}\n")
    monkeypatch.setenv("AWS_PROFILE", "lab")
    with pytest.raises(PermissionError, match="the profile 'lab' gives no credentials"):
        put()


def test_a_program_of_a_profile_that_goes_away_leaves_what_it_gave(
    server: VersityServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("penstock.wal._objects.aws_profile._HOLDS", timedelta(0))
    gives = program_of_a_profile(monkeypatch, tmp_path)
    client = ObjectsClient.of_bucket(ADDRESS)
    client.replace("program", b"first")
    gives.unlink()
    time.sleep(0.2)
    client.replace("program", b"second")
    assert "the profile 'lab' gives no credentials" in caplog.text


def test_a_profile_is_not_read_for_each_request(
    server: VersityServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gives, asked = program_of_a_profile(monkeypatch, tmp_path), tmp_path / "asked"
    gives.write_text(gives.read_text() + f"echo >> {asked}\n")
    client = ObjectsClient.of_bucket(ADDRESS)
    client.replace("program", b"first")
    before = asked.read_text()
    for _ in range(2):
        time.sleep(0.2)
        client.replace("program", b"again")
    assert asked.read_text() == before


def test_a_program_of_a_profile_that_does_not_end_is_not_waited_for_for_ever(
    server: VersityServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("penstock.wal._objects.aws_profile._HOLDS", timedelta(0))
    gives, pids = program_of_a_profile(monkeypatch, tmp_path), tmp_path / "pids"
    client = ObjectsClient.of_bucket(ADDRESS)
    monkeypatch.setattr("penstock.wal._objects.aws_profile._LONGEST_S", 0.5)
    # As one that waits for somebody to sign on.
    gives.write_text(f"#!/bin/sh\necho $$ >> {pids}\nexec sleep {10 * HANG_S}\n")
    try:
        for number in range(3):
            time.sleep(0.2)
            client.replace("program", b"while it waits %d" % number)
        assert "Profile has not answered for 0.5 s" in caplog.text
        assert caplog.text.count("the profile 'lab' gives no credentials") == 1
        with pytest.raises(PermissionError, match="Profile has not answered for"):
            put()
    finally:
        for pid in pids.read_text().split():
            os.kill(int(pid), signal.SIGKILL)


def test_an_endpoint_of_a_profile_is_looked_at_and_may_be_that_of_its_services(
    server: VersityServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_profile(tmp_path)
    monkeypatch.delenv("PENSTOCK_STORAGE_S3_ENDPOINT")
    monkeypatch.setenv("AWS_PROFILE", "lab")
    config = tmp_path / "config"
    config.write_text(f"[profile lab]\nendpoint_url=127.0.0.1:{server.port}\n")
    with pytest.raises(OSError, match=r"endpoint_url of the profile 'lab' is '127.*not of"):
        put()
    config.write_text(
        "[profile lab]\nservices=mine\nendpoint_url=http://127.0.0.1:1\n"
        f"[services mine]\ns3 =\n  endpoint_url = {server.url}\n"
    )
    put()


def test_a_profile_needs_its_package(
    server: VersityServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(MissingClientError, match=r"penstock\[aws\]"):
        ProfileCredentials(ADDRESS, "lab")


def test_keys_of_a_file_are_read_again_and_those_before_hold_while_it_is_written(
    server: VersityServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("penstock.wal._objects.aws_profile._HOLDS", timedelta(0))
    write_profile(tmp_path)
    monkeypatch.setenv("AWS_PROFILE", "lab")
    fs, folder = files(), "/profile/log"
    with LogWriter.create(folder, fs=fs, options=SMALL) as log:
        log.append(1, b"before")
        time.sleep(0.2)  # The client asks ten times a second at most.
        write_profile(tmp_path, "another")
        with pytest.raises(UnwritableFolderError, match="SignatureDoesNotMatch"):
            log.append(1, b"refused")
        write_profile(tmp_path)
        time.sleep(0.2)
        log.append(1, b"after")
        (tmp_path / "credentials").write_text("[lab")
        time.sleep(0.2)
        log.append(1, b"while it is written")
    assert "the profile 'lab' gives no credentials" in caplog.text
    assert ROOT[1] not in caplog.text
    with LogReader.open(folder, fs=fs) as reader:
        found = [bytes(record.payload) for record in reader.records()]
    assert found == [b"before", b"after", b"while it is written"]


# -- roles -----------------------------------------------------------------------------------------


@pytest.fixture
def web_identity(
    server: VersityServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[CredentialsServer]:
    """Stand for a pod whose service account has a role (IRSA)."""
    certificate = certificate_of_host(tmp_path)
    (tmp_path / "token").write_text("first")
    with credentials_server(ROOT, "first", tmp_path / "server.pem") as sts:
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
        monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        yield sts


def test_a_running_log_goes_on_with_the_next_token_of_a_web_identity(
    web_identity: CredentialsServer, tmp_path: Path
) -> None:
    fs, folder = files(), "/web/log"
    with LogWriter.create(folder, fs=fs, options=SMALL) as log:
        log.append(1, b"first")
        # As a kubelet does, before the one before ends.
        (tmp_path / "token").write_text("second")
        web_identity.token = "second"
        time.sleep(0.2)
        log.append(1, b"second")
        web_identity.token = "third"
        time.sleep(0.2)
        with pytest.raises(UnwritableFolderError, match="ExpiredTokenException"):
            log.append(1, b"refused")
        (tmp_path / "token").write_text("third")
        log.append(1, b"third")
    assert list(dict.fromkeys(web_identity.asked)) == ["first", "second", "third"]
    with LogReader.open(folder, fs=fs) as reader:
        assert [bytes(record.payload) for record in reader.records()] == [
            b"first",
            b"second",
            b"third",
        ]


def test_a_role_of_a_profile_is_asked_for_once_as_long_as_its_keys_hold(
    web_identity: CredentialsServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("penstock.wal._objects.aws_profile._HOLDS", timedelta(0))
    web_identity.lifetime_s = 7200.0
    monkeypatch.delenv("AWS_WEB_IDENTITY_TOKEN_FILE")
    monkeypatch.delenv("AWS_ROLE_ARN")
    monkeypatch.setenv("AWS_PROFILE", "lab")
    monkeypatch.setenv("AWS_CA_BUNDLE", os.environ["SSL_CERT_FILE"])
    (tmp_path / "config").write_text(
        f"[profile lab]\nrole_arn={ROLE}\nweb_identity_token_file={tmp_path / 'token'}\n"
    )
    client = ObjectsClient.of_bucket(ADDRESS)
    for _ in range(3):
        client.replace("role", b"bytes")
        time.sleep(0.2)
    assert web_identity.asked == ["first"]


def test_a_certificate_that_is_not_trusted_is_told_at_once(
    web_identity: CredentialsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(
        OSError, match=r"certificate is not accepted: UnknownIssuer; .*SSL_CERT_FILE"
    ):
        files().list_folder("/web")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", web_identity.url.replace("https", "http"))
    with pytest.raises(OSError, match="gives these credentials is asked by https only"):
        files().list_folder("/web")


def test_the_role_of_an_instance_gives_keys_that_change(
    server: VersityServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with credentials_server(ROOT) as instance:
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", instance.url)
        client = ObjectsClient.of_bucket(ADDRESS)
        client.replace("role", b"first")
        instance.keys = (ROOT[0], "another")
        time.sleep(0.2)
        with pytest.raises(PermissionError):
            client.replace("role", b"refused")
        instance.keys = ROOT
        time.sleep(0.2)
        client.replace("role", b"second")
        assert client.get("role") == b"second"


def test_the_agent_of_a_pod_gives_keys_for_its_token(
    server: VersityServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("first")
    with credentials_server(ROOT, "first") as agent:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{agent.url}/v1/credentials")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
        client = ObjectsClient.of_bucket(ADDRESS)
        client.replace("pod", b"first")
        (tmp_path / "token").write_text("second")
        agent.token = "second"
        time.sleep(0.2)
        client.replace("pod", b"second")
        assert list(dict.fromkeys(agent.asked)) == ["first", "second"]
