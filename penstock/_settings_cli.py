"""``penstock settings``: what a setting means, and what it accepts."""

from __future__ import annotations

import re
import sys
import textwrap

import click

from penstock._settings_texts import find_setting_without_effect
from penstock.commands import Command
from penstock.settings import Setting, closest_setting, settings_table

_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


@click.command(
    cls=Command,
)
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
