"""Which key there is, and how a program is told that there is none."""

from __future__ import annotations

import base64
import shlex
from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.host.encryption import choose_encryption, recovery_encryption
from penstock.settings import Settings
from penstock.wal import KEY_COMMAND_VARIABLE, KEY_VARIABLE, EncryptionKey

KEY = EncryptionKey.generate()
TEXT = base64.b64encode(KEY.secret).decode()
ON = Settings.from_pairs([("spark.io.encryption.enabled", "true")])
OFF = Settings.from_pairs([])
LETTERS = ("spark.penstock.deadLetters.dir", "/letters")


def test_nothing_is_encrypted_unless_spark_encrypts() -> None:
    assert choose_encryption(OFF, "/folder", {KEY_VARIABLE: TEXT}) is None
    assert recovery_encryption(False, {KEY_VARIABLE: TEXT}) is None


@pytest.mark.parametrize(
    ("directory", "setting", "named"),
    [
        ("/folder", None, "the directory /folder"),
        (None, ("spark.penstock.wal.dir", "/logs"), "spark.penstock.wal.dir"),
        (None, LETTERS, "spark.penstock.deadLetters.dir"),
    ],
)
def test_what_is_kept_needs_a_key_that_is_there_again(
    directory: str | None, setting: tuple[str, str] | None, named: str
) -> None:
    pairs = [("spark.io.encryption.enabled", "true")]
    settings = Settings.from_pairs(pairs + ([] if setting is None else [setting]))
    assert choose_encryption(settings, directory, {KEY_VARIABLE: TEXT + "\n"}) == KEY
    with pytest.raises(PenstockError, match=KEY_VARIABLE) as error:
        choose_encryption(settings, directory, {KEY_VARIABLE: ""})
    assert KEY_COMMAND_VARIABLE in str(error.value)
    assert f"a program with {named} needs" in str(error.value)


def test_what_goes_with_the_program_has_a_key_of_its_own() -> None:
    unused = [LETTERS, ("spark.penstock.deadLetters.enabled", "false")]
    settings = Settings.from_pairs([("spark.io.encryption.enabled", "true"), *unused])
    environment = {KEY_VARIABLE: TEXT}
    first, second = (choose_encryption(found, None, environment) for found in (ON, settings))
    assert first is not None
    assert len({first, second, KEY}) == 3


def test_a_command_prints_the_key_and_is_run_once(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    text = tmp_path / "key"
    text.write_text(TEXT + "\n")
    command = f"echo again >> {shlex.quote(str(ran))}; cat {shlex.quote(str(text))}"
    environment = {KEY_COMMAND_VARIABLE: command}
    assert choose_encryption(ON, "/folder", environment) == KEY
    assert recovery_encryption(None, environment) == KEY
    assert recovery_encryption(True, environment) == KEY
    assert ran.read_text() == "again\n"


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({KEY_VARIABLE: "secret words"}, "not the base64 of 32 bytes"),
        ({KEY_VARIABLE: TEXT[:20]}, "not the base64 of 32 bytes"),
        ({KEY_COMMAND_VARIABLE: "exit 3"}, "exit code 3"),
        ({KEY_COMMAND_VARIABLE: "echo secret words"}, "not the base64 of 32 bytes"),
        ({KEY_VARIABLE: TEXT, KEY_COMMAND_VARIABLE: "echo"}, "set one of them"),
    ],
)
def test_what_is_no_key_is_named_and_not_shown(environment: dict[str, str], reason: str) -> None:
    with pytest.raises(PenstockError, match=reason) as error:
        recovery_encryption(None, environment)
    assert str(error.value).split(":")[0] in environment
    for text in ("secret words", TEXT[:20]):
        assert text not in str(error.value)
