"""What is said of all settings: the reference page, and ``penstock settings``."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable

import click

from penstock.commands import Command
from penstock.settings._texts import find_setting_without_effect
from penstock.settings.table import (
    OWN_PREFIX,
    SPARK_PREFIX,
    Setting,
    closest_setting,
    settings_table,
)

_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_OPENING = """\
# Settings

<!-- Made by `make docs` from table.py and texts.ini in penstock/settings/; change it there. -->

All settings are Spark configuration: `SparkConf`, `spark-submit --conf`, `spark-defaults.conf`.
`start()` of a `StreamingContext` or a `ReceiverHost` reads them (those that an input needs, when it
is made). An unknown `spark.penstock.*` key, or a value that is not accepted, is then a
`SettingError`. Keys of Spark Streaming that have no effect here are named in one warning.
`penstock settings [KEY]` prints this table, or a part of it.

Times and sizes are written as in Spark: `200ms`, `5s`, `1m` (a minute), `2h`; `512k`, `64m`, `1g`
(powers of 1024). A bare number is a time in the unit in brackets, or a size in bytes.
Rates are written as the `limits` library has them: `10000/second`, `600000 per minute`.
"""

_SPARKS = """\
Names and units are Spark's, and so are the defaults, except those of `gracefulStopTimeout`
(Spark's is ten batch intervals) and of `receiver.writeAheadLog.enable` (false).
"""

_SHORTER = (
    (r"^a time of at least 1 ms such as .*? \(a bare number counts (\w+)\)$", r"\1"),
    (r"^a time (.*?) such as .*? \(a bare number counts (\w+)\)$", r"\2, \1"),
    (r"^a size (.*?) such as .*? \(a bare number counts bytes\)$", r"\1"),
    (r"^a whole number from \d+ to 2147483647 \(of (\w*seconds), .*\)$", r"\1"),
    (r"^a whole number (.*) to 2147483647 \(of .*\)$", ""),
    (r"^a whole number from 0 to 65535$", ""),
    (r"^a whole number (from \d+ to \d+) \(of .*\)$", r"\1"),
    (r"^an absolute path on the local file system, such as .*$", ""),
    (r"^(the path of a|an address of this host|an IP address|a name|names)\b.*$", ""),
    (r"^(an address such as .*), without a query and .*$", r"\1, without a password"),
    (r"^a decimal number (above|of at least) 0$", ""),
    (r"^a decimal number between 0 and 1, without these$", "between 0 and 1"),
    (r"^one of (.*)$", r"\1"),
    (r"^true or false$", ""),
    (r"^a whole number of records per second; 0 or less means (no limit)$", r"0: \1"),
    (r"^one rate above 0 such as .* \(of \w+\)$", "a rate"),
)
"""What errors say of accepted values, and what is left of it where key and meaning say the rest."""


def _accepted(line: Setting) -> str:
    text = line.kind.accepted
    for said, shorter in _SHORTER:
        text = re.sub(said, shorter, text)
    return text


def _table(lines: Iterable[Setting]) -> str:
    rows = ["| key | default (accepted) | meaning |", "| --- | --- | --- |"]
    for line in lines:
        default = line.unset or (f"`{line.default}`" if line.default is not None else "not set")
        accepted = _accepted(line)
        if accepted:
            default += f" ({accepted})"
        rows.append(f"| `{line.key}` | {default} | {line.meaning} |")
    return "\n".join(rows) + "\n"


def reference_page() -> str:
    """Return the page as Markdown."""
    table = settings_table()
    return "\n".join(
        [
            _OPENING,
            "## Spark Streaming's settings\n",
            _SPARKS,
            _table(line for line in table if line.key.startswith(SPARK_PREFIX)),
            "## Penstock's settings\n",
            _table(line for line in table if line.key.startswith(OWN_PREFIX)),
            "## Spark's settings that hold here too\n",
            _table(line for line in table if not line.key.startswith((SPARK_PREFIX, OWN_PREFIX))),
        ]
    )


@click.command(cls=Command)
@click.argument("key", metavar="[KEY]", required=False)
def settings(key: str | None) -> int:
    """Print what settings mean, their defaults, and what they accept.

    KEY is a key, or a part of some; without it, all are shown.
    """
    table = settings_table()
    found = [line for line in table if line.key == key] or [
        line for line in table if key is None or key.lower() in line.key.lower()
    ]
    if found:
        print("\n\n".join(_described(line) for line in found))
        return 0
    assert key is not None
    ignored = find_setting_without_effect(key)
    if ignored is not None:
        print(f"{key} has no effect: {ignored.reason}")
        return 0
    print(
        f"penstock settings: there is no key {key!r}; the closest is {closest_setting(key)}",
        file=sys.stderr,
    )
    return 1


def _described(line: Setting) -> str:
    default = line.unset or line.default or "not set"
    return "\n".join(
        [
            line.key,
            *_wrapped(_LINK.sub(r"\1", line.meaning)),
            *_wrapped(f"Default: {default}"),
            *_wrapped(f"Accepted: {line.kind.accepted}"),
        ]
    )


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text, 92, initial_indent="    ", subsequent_indent="    ", break_long_words=False
    )


if __name__ == "__main__":
    print(reference_page(), end="")
