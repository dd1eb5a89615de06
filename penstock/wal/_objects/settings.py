"""How the settings of object storage reach a process: as variables of its environment.

A log is opened in drivers, executors, block servers and commands, and a checkpoint before there is
a Spark context. So the driver puts what its Spark context has of ``spark.penstock.storage.*`` into
its environment and that of its tasks (`penstock.host.spark.contexts`), and all read it from that.
None of these settings holds a secret: credentials are where the clouds' own programs look for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from penstock.errors import SettingError

if TYPE_CHECKING:
    from penstock.settings import Settings

_PREFIX = "spark.penstock.storage."


def _variable(key: str) -> str:
    words = re.sub("([a-z])([A-Z])", r"\1_\2", key.removeprefix(_PREFIX))
    return f"PENSTOCK_STORAGE_{words.replace('.', '_').upper()}"


STORAGE_VARIABLES = {
    _variable(key): key
    for key in (
        f"{_PREFIX}s3.endpoint",
        f"{_PREFIX}s3.region",
        f"{_PREFIX}s3.profile",
        f"{_PREFIX}s3.virtualHosted",
        f"{_PREFIX}requestTimeout",
        f"{_PREFIX}patience",
    )
}
"""The settings by the variables that stand for them."""


def is_storage_setting(key: str) -> bool:
    """Return whether a key is one of these settings, or one that is misspelled."""
    return key.startswith(_PREFIX)


def storage_environment(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the variables of what a configuration has of these settings."""
    return {_variable(key): text for key, text in pairs if is_storage_setting(key)}


def given_storage(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what an environment has of these variables."""
    return {name: environment[name] for name in STORAGE_VARIABLES if environment.get(name)}


def storage_settings(environment: Mapping[str, str]) -> Settings:
    """Return the settings that an environment gives; of others the defaults.

    Raises:
        SettingError: One is not accepted; it names the variable, and the setting.
    """
    # Only reaching a store needs what reads settings.
    from penstock.settings import Settings

    for name in environment.keys() - STORAGE_VARIABLES:
        if name.startswith("PENSTOCK_STORAGE_"):
            known = f"there is no such variable; there are {', '.join(STORAGE_VARIABLES)}"
            raise SettingError(name, "(not shown)", known)
    given = given_storage(environment)
    try:
        return Settings.from_pairs((STORAGE_VARIABLES[name], given[name]) for name in given)
    except SettingError as error:
        # What Spark was given is also put there.
        accepted = f"{error.accepted}. It is the setting {error.key}"
        raise SettingError(_variable(error.key), error.value, accepted) from None
