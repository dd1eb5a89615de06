"""What is said of settings in words: `texts.ini`, which is read when it is asked for.

A program that comes from `pyspark.streaming` may set keys of Spark Streaming that have no effect
here; it is warned once, and runs. Setting such a key to Spark's default asks for nothing, and is
not worth a warning.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources


@cache
def settings_texts() -> dict[str, dict[str, str]]:
    """Return, of each key, its texts by their names."""
    # Most programs never ask.
    from configparser import ConfigParser

    parser = ConfigParser(delimiters=("=",), interpolation=None)
    file = resources.files("penstock.settings").joinpath("texts.ini")
    parser.read_string(file.read_text(encoding="utf-8"))
    return {
        key: {name: text.replace("\n", " ") for name, text in parser.items(key)}
        for key in parser.sections()
    }


@dataclass(frozen=True)
class SettingWithoutEffect:
    """A key of Spark Streaming, or all keys that begin alike.

    Attributes:
        key: The configuration key; with ``*`` at its end it stands for all that begin so.
        reason: Why it has no effect, and what takes its place.
        default: Spark's default, as text in small letters; None when it has none.
    """

    key: str
    reason: str
    default: str | None

    def is_for(self, key: str) -> bool:
        """Return whether this line is about `key`."""
        if self.key.endswith("*"):
            return key.startswith(self.key[:-1])
        return key == self.key


def settings_without_effect() -> tuple[SettingWithoutEffect, ...]:
    """Return the keys of Spark Streaming that have no effect here."""
    return tuple(
        SettingWithoutEffect(key, texts["no effect"], texts.get("default"))
        for key, texts in settings_texts().items()
        if "no effect" in texts
    )


def find_setting_without_effect(key: str) -> SettingWithoutEffect | None:
    """Return the line about `key`, or None when Spark Streaming has no such key."""
    return next((line for line in settings_without_effect() if line.is_for(key)), None)
