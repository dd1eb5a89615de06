"""Which key the logs and checkpoints of a program are encrypted with.

On when Spark's own ``spark.io.encryption.enabled`` is true. A program whose files outlive it (a
checkpoint directory, a log folder, or one for dead letters) needs a key of the user's, from the
driver's environment: ``PENSTOCK_ENCRYPTION_KEY`` is the key, the base64 of 32 bytes; or
``PENSTOCK_ENCRYPTION_KEY_COMMAND`` is a command of the shell that prints it, so that it is in no
environment. Without such files a new key is made for each run, which no one needs to know. (Not
Spark's own key of the run, which has 128 bits by default.)

The key goes to receivers and batch tasks as the application's secret does, in Spark's closures. It
is in no setting, argument, log, `repr`, file or checkpoint.
"""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Mapping

from penstock.errors import PenstockError
from penstock.settings import Settings
from penstock.wal import KEY_COMMAND_VARIABLE, KEY_VARIABLE, EncryptionKey

_COMMAND_TIMEOUT_S = 60.0


def choose_encryption(
    settings: Settings, directory: str | None, environment: Mapping[str, str]
) -> EncryptionKey | None:
    """Return the key of a program that starts; None when nothing is to be encrypted.

    Args:
        settings: The settings.
        directory: The folder for what survives the driver, or None.
        environment: The driver's.

    Raises:
        PenstockError: A key of the user's is needed and there is none, or it is none.
        MissingPackageError: The package ``cryptography`` is missing.
    """
    if not settings.io_encryption_enabled:
        return None
    kept = _kept_folder(settings, directory)
    if kept is not None:
        key = _key_of(environment)
        if key is None:
            raise PenstockError(
                f"{KEY_VARIABLE}: with spark.io.encryption.enabled, a program with {kept} needs a "
                "key that is there again after its end: set it to the base64 of 32 random bytes, "
                f"or set {KEY_COMMAND_VARIABLE} to a command that prints that",
            )
    else:
        key = EncryptionKey.generate()
    key.cipher("")  # The package is missing now, or never.
    return key


def _kept_folder(settings: Settings, directory: str | None) -> str | None:
    """Return how the user has set a folder that outlives the run, or None."""
    if directory is not None:
        return f"the directory {directory}"
    if settings.wal_dir is not None:
        return "spark.penstock.wal.dir"
    if settings.dead_letters_enabled and settings.dead_letters_dir is not None:
        return "spark.penstock.deadLetters.dir"
    return None


def recovery_encryption(
    is_enabled: bool | None, environment: Mapping[str, str]
) -> EncryptionKey | None:
    """Return the key that checkpoints are read with; None when they must be in clear.

    Args:
        is_enabled: What the settings say; None when there are no settings yet. Then it is the
            environment that says it: with a key, nothing is read that is not encrypted.
        environment: The driver's.

    Raises:
        PenstockError: It is none.
    """
    return None if is_enabled is False else _key_of(environment)


def _key_of(environment: Mapping[str, str]) -> EncryptionKey | None:
    text = environment.get(KEY_VARIABLE)
    command = environment.get(KEY_COMMAND_VARIABLE)
    if text and command:
        raise PenstockError(f"{KEY_VARIABLE}: {KEY_COMMAND_VARIABLE} is set, too; set one of them")
    if text:
        return _parsed(KEY_VARIABLE, text)
    if command:
        return _printed(command)
    return None


def _parsed(variable: str, text: str) -> EncryptionKey:
    try:
        return EncryptionKey.from_text(text)
    except ValueError as error:
        raise PenstockError(
            f"{variable}: not the base64 of 32 bytes ({error}); its value is not shown"
        ) from None


@functools.lru_cache(maxsize=1)
def _printed(command: str) -> EncryptionKey:
    """Return the key that a command prints; it is run once in a process.

    What it writes to its standard error goes to the driver's.
    """
    try:
        done = subprocess.run(
            command,
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PenstockError(
            f"{KEY_COMMAND_VARIABLE}: the command did not end within {_COMMAND_TIMEOUT_S:g} s"
        ) from None
    if done.returncode:
        raise PenstockError(
            f"{KEY_COMMAND_VARIABLE}: the command ended with exit code {done.returncode}"
        )
    return _parsed(KEY_COMMAND_VARIABLE, done.stdout.decode("latin-1"))
