"""``penstock settings``: what a setting means, and what it accepts."""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Sequence

from penstock._settings_without_effect import find_setting_without_effect
from penstock.settings import Setting, closest_setting, settings_table

_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def main(argv: Sequence[str]) -> int:
    """Run ``penstock settings`` with these arguments and return its exit code."""
    options = make_parser().parse_args(argv)
    if options.key is None:
        print("\n\n".join(_described(line) for line in settings_table()))
        return 0
    found = [line for line in settings_table() if line.key == options.key]
    if not found:
        part = options.key.lower()
        found = [line for line in settings_table() if part in line.key.lower()]
    if found:
        print("\n\n".join(_described(line) for line in found))
        return 0
    ignored = find_setting_without_effect(options.key)
    if ignored is not None:
        print(f"{options.key} has no effect: {ignored.reason}")
        return 0
    print(
        f"penstock settings: there is no key {options.key!r}; the closest is "
        f"{closest_setting(options.key)}",
        file=sys.stderr,
    )
    return 1


def make_parser() -> argparse.ArgumentParser:
    """Return what takes the arguments of ``penstock settings``."""
    parser = argparse.ArgumentParser(
        prog="penstock settings",
        description="Print what settings mean, their defaults, and what they accept.",
    )
    parser.add_argument(
        "key", nargs="?", metavar="KEY", help="a key, or a part of some; without it, all"
    )
    return parser


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
