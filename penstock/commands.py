"""What the commands of the rooms share.

Each room defines its commands with click, in its `cli`; `penstock.__main__` finds them by name, and
says what failed. A command returns its exit code, or None for 0, and raises a `PenstockError`, an
`OSError` or a `ValueError` for what its user can mend: it is shown in one line, and the code is 2.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any

import click


class _AsWritten(click.Command):
    """Shows its description and its epilog as they are written, without reflowing them."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.help:
            formatter.write(f"\n{inspect.cleandoc(self.help)}\n")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.epilog:
            formatter.write(f"\n{self.epilog.rstrip()}\n")


class Command(_AsWritten):
    """A command of the ``penstock`` command."""


class Group(_AsWritten, click.Group):
    """Commands that have a name in common."""

    command_class = Command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List them, each with the first paragraph of its description."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, inspect.cleandoc(command.help or "").partition("\n\n")[0])
                    for name, command in sorted(self.commands.items())
                ]
            )


class Seconds(click.FloatRange):
    """A time above 0."""

    def __init__(self, most: float | None = None) -> None:
        super().__init__(0, most, min_open=True)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        found = float(super().convert(value, param, ctx))
        if math.isnan(found):
            self.fail(f"{value!r} is no time", param, ctx)
        return found


def _pairs(context: click.Context, option: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    conf = {}
    for pair in given:
        key, sign, value = pair.partition("=")
        if not sign or not key.strip():
            raise click.BadParameter(f"{pair}: KEY=VALUE is wanted", context, option)
        conf[key.strip()] = value.strip()
    return conf


def conf_option(command: Any) -> Any:
    """Give a command the option ``--conf``: a `conf` of keys and values."""
    return click.option(
        "--conf",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_pairs,
        help="A setting of Spark or Penstock; may be repeated.",
    )(command)
