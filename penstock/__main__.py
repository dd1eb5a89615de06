"""The ``penstock`` command: one door to the commands of the rooms."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class, shell_complete

from penstock import __version__
from penstock.commands import Command, Group
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.wal import EncryptionKey

_SECTIONS = {
    "running programs": {
        "apps": ("monitor.cli", "list those of this user on this host"),
        "top": ("monitor.cli", "show how one goes, again and again"),
        "receivers": ("monitor.cli", "list its receivers and what they wait for"),
        "batches": ("monitor.cli", "list its batches"),
        "errors": ("monitor.cli", "list what went wrong in it"),
        "tap": ("monitor.cli", "show records of a stream as they pass"),
        "rate": ("monitor.cli", "set the rate of a stream"),
        "pause": ("monitor.cli", "let nothing of a stream pass"),
        "resume": ("monitor.cli", "go on with a stream that is paused"),
        "restart": ("monitor.cli", "have the receiver of a stream stop and start again"),
        "seal": ("monitor.cli", "have a receiver seal its open block now"),
        "stop": ("monitor.cli", "stop it, gracefully unless --now is given"),
    },
    "receiving for queries": {
        "host": (
            "sql.host_cli",
            "run the receivers that a file describes, for other applications",
        ),
    },
    "before a program runs": {
        "new-source": (
            "testing.new_source",
            "write a package with a receiver of your own, and its tests",
        ),
        "doctor": (
            "monitor.doctor.cli",
            "check this machine, or a cluster, and say what to change",
        ),
    },
    "folders and settings": {
        "checkpoint": ("streaming.checkpoint.cli", "look into the checkpoints in a folder"),
        "dead-letters": (
            "dead_letters.cli",
            "look at records that were discarded, take them elsewhere, send them again",
        ),
        "replay": (
            "replay.cli",
            "write what a stream received, as far as its logs have it, to a file",
        ),
        "record": (
            "replay.cli",
            "copy what a stream receives, as it comes, to play it back in tests",
        ),
        "consumers": (
            "sql.cli",
            "look at who reads the streams of a ReceiverHost, and forget some",
        ),
        "completion": ("", "print a script with which a shell completes all of this"),
        "settings": ("settings._page", "print what settings mean and accept"),
        "wal": ("wal.cli", "look into a segment log, and repair it"),
    },
}
"""Where each command is, and what it does."""
_COMMANDS = {name: found for section in _SECTIONS.values() for name, found in section.items()}
_OF_FOLDERS = ("checkpoint", "consumers", "dead-letters", "doctor", "record", "replay", "wal")
_COMPLETE = "_PENSTOCK_COMPLETE"


class _Door(Group):
    """All commands; a room is imported when one of its own is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        place = _COMMANDS[cmd_name][0]
        if not place:
            return _completion
        module = importlib.import_module(f"penstock.{place}")
        found: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, commands in _SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, text) for name, (_, text) in commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        return [
            CompletionItem(name, help=text)
            for name, (_, text) in _COMMANDS.items()
            if name.startswith(incomplete)
        ] or super().shell_complete(ctx, incomplete)


def _show_version(context: click.Context, option: click.Parameter, is_wanted: bool) -> None:
    if is_wanted:
        print(f"penstock {__version__}")
        context.exit()


_penstock = _Door(
    "penstock",
    epilog="'penstock COMMAND --help' has more about one.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_version,
            help="Show the version.",
        )
    ],
)


@click.command(
    cls=Command,
    epilog="""\
bash:  source <(penstock completion bash)      # in ~/.bashrc
zsh:   source <(penstock completion zsh)       # in ~/.zshrc
fish:  penstock completion fish > ~/.config/fish/completions/penstock.fish
""",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def _completion(shell: str) -> None:
    """Print a script with which a shell completes commands and their options."""
    complete = get_completion_class(shell)
    assert complete is not None
    print(complete(_penstock, {}, "penstock", _COMPLETE).source())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the first argument names and return its exit code.

    Args:
        argv: The arguments without the program's name; None takes the process's own.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = f"penstock {arguments[0]}" if arguments and arguments[0] in _COMMANDS else "penstock"
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Where the output is not of Unicode, a name is shown with escapes and not in half a table.
        sys.stdout.reconfigure(errors="backslashreplace")
    failed = ""
    try:
        code = _ended(arguments)
    except BrokenPipeError:
        # Its reader has seen enough.
        code = 0
    except OSError as error:
        code, failed = 2, f"{error.strerror}: {error.filename}" if error.filename else str(error)
    except (PenstockError, ValueError) as error:
        code, failed = 2, str(error)
    except KeyboardInterrupt:
        code, failed = 130, "interrupted"
    try:
        if sys.stdout is not None:  # None: it was closed before.
            sys.stdout.flush()
    except BrokenPipeError:
        _write_no_more()
    except OSError as error:
        code, failed = 2, failed or str(error)
        _write_no_more()
    if failed:
        print(f"{name}: {failed}", file=sys.stderr)
    return code


def run() -> None:
    """Run the command of this process, and end it with its exit code."""
    code = main()
    wal = sys.modules.get("penstock.wal")
    if wal is not None and wal.calls_left_behind():
        # A storage that hangs would otherwise be waited for.
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, AttributeError):
                stream.flush()
        os._exit(code)
    sys.exit(code)


def _ended(arguments: list[str]) -> int:
    if instruction := os.environ.get(_COMPLETE):
        return shell_complete(_penstock, {}, "penstock", _COMPLETE, instruction)
    if arguments and arguments[0] in _OF_FOLDERS and "" in arguments:
        # For some of them it would be the current one.
        raise ValueError("an empty argument names nothing")
    ways = None
    if arguments[:1] == ["dead-letters"]:
        ways = _ways_of_letters()
    try:
        with _penstock.make_context("penstock", arguments, obj=ways) as context:
            return _penstock.invoke(context) or 0
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code


def _ways_of_letters() -> object:
    """Return what the commands of dead letters need of rooms above theirs."""
    from penstock.dead_letters.cli import AsksProgram, KnownSent, Ways
    from penstock.host.encryption import recovery_encryption

    def key() -> EncryptionKey | None:
        return recovery_encryption(None, os.environ)

    def client(app: str | None) -> AsksProgram:
        from penstock.monitor.cli import client_of

        return client_of(app)

    def sent(folder: str) -> KnownSent | None:
        from penstock.host.durability import LEDGER
        from penstock.host.preparation import kept_name
        from penstock.tracker import ReceivedBlockTracker
        from penstock.wal import locate

        fs, path = locate(os.path.join(folder, LEDGER))
        if not fs.is_folder(path):
            return None
        ledger = ReceivedBlockTracker.read(path, fs=fs, encryption=key())
        keys = {
            number: ledger.sent_letters(number)[1] for number in ledger.stream_numbers().values()
        }
        return KnownSent(keys, kept_name(fs, os.path.dirname(path)) or "")

    return Ways(key=key, sent=sent, client=client)


def _write_no_more() -> None:
    """Keep the interpreter from writing at its end what is left for the standard output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    run()
