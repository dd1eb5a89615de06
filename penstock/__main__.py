"""The ``penstock`` command: one door to the commands of the rooms."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence

from penstock import __version__

_USAGE = """\
usage: penstock COMMAND ...

running programs:
  apps         list those of this user on this host
  top          show how one goes, again and again
  receivers    list its receivers and what they wait for
  batches      list its batches
  errors       list what went wrong in it
  tap          show records of a stream as they pass
  rate         set the rate of a stream
  pause        let nothing of a stream pass
  resume       go on with a stream that is paused
  restart      have the receiver of a stream stop and start again
  seal         have a receiver seal its open block now
  stop         stop it, gracefully unless told otherwise

receiving for queries:
  host         run the receivers that a file describes, for other applications

before a program runs:
  doctor       check this machine, or a cluster, and say what to change

folders and settings:
  checkpoint   look into the checkpoints in a folder
  dead-letters look at records that were discarded, take them elsewhere, send them again
  replay       write what a stream received, as far as its logs have it, to a file
  consumers    look at who reads the streams of a ReceiverHost, and forget some
  completion   print a script with which a shell completes all of this
  settings     print what settings mean and accept
  wal          look into a segment log, and repair it

'penstock COMMAND --help' tells more about one.
"""
_OF_FOLDERS = ("checkpoint", "consumers", "dead-letters", "doctor", "replay", "wal")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the first argument names and return its exit code.

    Args:
        argv: The arguments without the program's name; None takes those of the process.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Where the output is not of Unicode, a name is shown with escapes and not in half a table.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _ended(arguments)
        if sys.stdout is not None:  # None: it was closed before.
            sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has seen enough.
        _write_no_more()
        return 0
    except OSError as error:
        print(f"penstock: {error}", file=sys.stderr)
        _write_no_more()
        return 2
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
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        # Before the command had begun: it was still being imported.
        return 130
    except SystemExit as ended:
        # So argparse ends, after help and after wrong usage.
        if not isinstance(ended.code, int):
            raise
        return ended.code


def _write_no_more() -> None:
    """Keep the interpreter from writing at its end what is left for the standard output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: list[str]) -> int:
    if not arguments:
        print(_USAGE, end="", file=sys.stderr)
        return 2
    if arguments[0] in ("-h", "--help"):
        print(_USAGE, end="")
        return 0
    if arguments[0] == "--version":
        print(f"penstock {__version__}")
        return 0
    if arguments[0] in _OF_FOLDERS and "" in arguments:
        # For some of them it would be the current one.
        print(f"penstock {arguments[0]}: an empty argument names nothing", file=sys.stderr)
        return 2
    if arguments[0] == "wal":
        from penstock.wal.cli import main as wal

        return wal(arguments[1:])
    if arguments[0] == "checkpoint":
        from penstock.streaming.checkpoint.cli import main as checkpoint

        return checkpoint(arguments[1:])
    if arguments[0] == "consumers":
        from penstock.sql.cli import main as consumers

        return consumers(arguments[1:])
    if arguments[0] == "host":
        from penstock.sql.host_cli import main as host

        return host(arguments[1:])
    if arguments[0] == "dead-letters":
        from penstock.dead_letters.cli import AsksProgram
        from penstock.dead_letters.cli import main as dead_letters
        from penstock.host.encryption import recovery_encryption

        def running(app: str | None) -> AsksProgram:
            from penstock.monitor.cli import client_of

            return client_of(app)

        return dead_letters(arguments[1:], lambda: recovery_encryption(None, os.environ), running)
    if arguments[0] == "replay":
        from penstock.host.encryption import recovery_encryption
        from penstock.replay.cli import main as replay

        return replay(arguments[1:], lambda: recovery_encryption(None, os.environ))
    if arguments[0] == "doctor":
        from penstock.monitor.doctor.cli import main as doctor

        return doctor(arguments[1:])
    if arguments[0] == "completion":
        from penstock._completion import main as completion

        return completion(arguments[1:])
    if arguments[0] == "settings":
        from penstock._settings_cli import main as settings

        return settings(arguments[1:])
    from penstock.monitor.cli import COMMANDS
    from penstock.monitor.cli import main as monitor

    if arguments[0] in COMMANDS:
        return monitor(arguments[0], arguments[1:])
    print(f"penstock: no command {arguments[0]!r}\n\n{_USAGE}", end="", file=sys.stderr)
    return 2


if __name__ == "__main__":
    run()
