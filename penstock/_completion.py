"""``penstock completion``: prints what a shell needs to complete commands and options."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import shtab

from penstock._settings_cli import make_parser as settings
from penstock.dead_letters.cli import make_parser as dead_letters
from penstock.monitor.cli import COMMANDS
from penstock.monitor.cli import make_parser as monitor
from penstock.monitor.doctor.cli import make_parser as doctor
from penstock.replay.cli import make_parser as replay
from penstock.sql.cli import make_parser as consumers
from penstock.sql.host_cli import make_parser as host
from penstock.streaming.checkpoint.cli import make_parser as checkpoint
from penstock.wal.cli import make_parser as wal

_USE = """\
bash:  source <(penstock completion bash)      # in ~/.bashrc
zsh:   penstock completion zsh > "${fpath[1]}/_penstock"
tcsh:  penstock completion tcsh | source /dev/stdin
"""


def main(argv: Sequence[str]) -> int:
    """Run ``penstock completion`` with these arguments and return its exit code."""
    options = make_parser().parse_args(argv)
    print(shtab.complete(_all(), options.shell))
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Return what takes the arguments of ``penstock completion``."""
    parser = argparse.ArgumentParser(
        prog="penstock completion",
        description="Print a script with which a shell completes commands and their options.",
        epilog=_USE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=shtab.SUPPORTED_SHELLS)
    return parser


def _all() -> argparse.ArgumentParser:
    """Return one parser of all commands; a shell needs their options and not what they do."""
    parsers = {
        **{command: monitor(command) for command in COMMANDS},
        "host": host(),
        "doctor": doctor(),
        "checkpoint": checkpoint(),
        "dead-letters": dead_letters(),
        "replay": replay(),
        "consumers": consumers(),
        "settings": settings(),
        "wal": wal(),
        "completion": make_parser(),
    }
    whole = argparse.ArgumentParser(prog="penstock")
    commands = whole.add_subparsers()
    for command, parser in parsers.items():
        commands.add_parser(
            command, parents=[parser], add_help=False, help=COMMANDS.get(command, "")
        )
    return whole
