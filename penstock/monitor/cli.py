"""The commands that look at a running program and change it: ``penstock apps``, ``top``, …."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.monitor.client import AppClient, AppRefusedError, AppUnreachableError
from penstock.monitor.registry import (
    RegisteredApp,
    RegistryError,
    registered,
    runtime_folder,
)
from penstock.monitor.tables import (
    batches_table,
    clean,
    cut,
    events_lines,
    receivers_table,
    table,
    time_text,
    top_lines,
)

if TYPE_CHECKING:
    import pyarrow as pa

COMMANDS = {
    "apps": "list the running programs of this user on this host",
    "top": "show how a running program goes, again and again",
    "receivers": "list its receivers and what they wait for",
    "batches": "list its batches",
    "errors": "list what went wrong in it",
    "tap": "show records of a stream as they pass: some of its newest block, again and again",
    "rate": "set the rate of a stream",
    "pause": "let nothing of a stream pass; its source waits",
    "resume": "go on with a stream that is paused",
    "restart": "have the receiver of a stream stop and start again",
    "seal": "have a receiver seal its open block now",
    "stop": "stop it, gracefully unless told otherwise",
}

EXIT_CODES = """\
exit codes: 0 done, 1 the program said no or does not answer, 2 wrong usage, or it is not clear
            which program is meant
"""

_CLEAR = "\x1b[H\x1b[J"
_LINES_WIDTH = 200
_LONGEST_S = 86_400
_SHOWN = 60


class UsageError(PenstockError):
    """It is not clear what is wanted; its text says what to do."""


def main(command: str, argv: Sequence[str]) -> int:
    """Run a command with these arguments and return its exit code."""
    options = make_parser(command).parse_args(argv)
    try:
        _RUN[command](options)
    except BrokenPipeError:
        # Whoever read the output has seen enough: keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        # Behind the ^C of a terminal; a program that reads the output gets nothing of it.
        if sys.stdout.isatty():
            print()
    except (AppRefusedError, AppUnreachableError) as error:
        print(f"penstock {command}: {error}", file=sys.stderr)
        return 1
    except (UsageError, PenstockError, ValueError, OSError) as error:
        print(f"penstock {command}: {error}", file=sys.stderr)
        return 2
    return 0


def make_parser(command: str) -> argparse.ArgumentParser:
    """Return what takes the arguments of a command."""
    parser = argparse.ArgumentParser(
        prog=f"penstock {command}",
        description=f"{COMMANDS[command][0].upper()}{COMMANDS[command][1:]}.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if command in ("tap", "rate", "pause", "resume", "restart", "seal"):
        parser.add_argument("stream", metavar="STREAM", help="its number or its name")
    if command == "rate":
        parser.add_argument(
            "rate", metavar="RATE", help="such as 5000/second; none for no rate of its own"
        )
    if command == "stop":
        parser.add_argument("--now", action="store_true", help="give up what was not processed yet")
    if command == "tap":
        parser.add_argument(
            "--sample",
            type=_number(1, 1000),
            default=10,
            metavar="N",
            help="how many records of a block (10)",
        )
        parser.add_argument(
            "--count",
            type=_number(0),
            metavar="N",
            help="end after so many records; for ever without it",
        )
        parser.add_argument(
            "--filter", type=_pattern, metavar="REGEX", help="only records in which this is found"
        )
        parser.add_argument(
            "--format",
            choices=["text", "json", "arrow"],
            default="text",
            help="text (the default), json: a value a line, or arrow: an IPC stream, of the "
            "columns that the first records have",
        )
    if command in ("tap", "top"):
        parser.add_argument(
            "--interval", type=float, default=1.0, metavar="SECONDS", help="how often (1)"
        )
    if command == "top":
        parser.add_argument("--once", action="store_true", help="show it once and end")
    if command == "batches":
        parser.add_argument(
            "--count", type=_number(0, 1000), default=20, metavar="N", help="how many (20)"
        )
        parser.add_argument("--status", choices=["queued", "processing", "completed"])
    if command != "apps":
        parser.add_argument(
            "--app",
            metavar="APP",
            help="its id, its name or its URL, if there are several; for a URL elsewhere the token "
            "is that of the environment variable PENSTOCK_TOKEN",
        )
    if command == "tap":
        parser.add_argument(
            "--json",
            action="store_const",
            const="json",
            dest="format",
            help="the same as --format json",
        )
    elif command not in ("rate", "pause", "resume", "restart", "seal", "stop"):
        parser.add_argument("--json", action="store_true", help="print JSON, for scripts")
    return parser


def _apps(options: argparse.Namespace) -> None:
    found = registered(runtime_folder(os.environ))
    if options.json:
        told = [
            {"id": app.application_id, "name": app.name, "url": app.url, "pid": app.pid}
            for app in found
        ]
        print(json.dumps(told, indent=2))
        return
    if not found:
        print("no program of this user runs on this host, or none can be looked at")
        return
    rows = []
    for app in found:
        link = app.url
        try:
            link += AppClient(app.url, app.token, app.certificate).act("login")
        except PenstockError as error:
            link += f" ({error})"
        rows.append((app.application_id, app.name, time_text(app.started_ms), app.pid, link))
    heads = ("ID", "NAME", "SINCE", ">PID", "PAGE (the link lets in once)")
    print(*table(heads, rows, _LINES_WIDTH), sep="\n")


def _top(options: argparse.Namespace) -> None:
    client = _client(options)
    # A dumb terminal cannot be cleared: it gets what a pipe gets.
    is_terminal = sys.stdout.isatty() and not options.once and os.environ.get("TERM") != "dumb"
    _check_interval(options)
    while True:
        status = client.get("/api/penstock/status")
        if options.json:
            print(json.dumps(status), flush=True)
        elif is_terminal:
            width, height = shutil.get_terminal_size()
            lines = top_lines(status, width)[: height - 1]
            # In one piece, so that a slow line shows no half of it.
            sys.stdout.write(_CLEAR + "\n".join(lines) + "\n")
            sys.stdout.flush()
        else:
            print(*top_lines(status, _LINES_WIDTH), "", sep="\n", flush=True)
        if options.once:
            return
        time.sleep(options.interval)


def _receivers(options: argparse.Namespace) -> None:
    status = _client(options).get("/api/penstock/status")
    _print(options, status["receivers"], lambda width: receivers_table(status, width))


def _batches(options: argparse.Namespace) -> None:
    query = {"count": options.count}
    if options.status is not None:
        query["status"] = options.status
    found = _client(options).get("/api/penstock/batches", **query)
    _print(options, found, lambda width: batches_table(found, width))


def _errors(options: argparse.Namespace) -> None:
    found = _client(options).get("/api/penstock/errors")
    _print(options, found, lambda width: events_lines(found, width) or ["nothing went wrong"])


def _tap(options: argparse.Namespace) -> None:
    client = _client(options)
    _check_interval(options)
    write = {"text": _write_text, "json": _write_json, "arrow": _ArrowOutput().write}[
        options.format
    ]
    left = options.count
    last = None
    while left is None or left > 0:
        found = client.act("tap", stream=options.stream, count=options.sample)
        if found["block"] != last:
            last = found["block"]
            records = [
                record
                for record in found["records"]
                if options.filter is None or options.filter.search(_as_text(record))
            ][:left]
            write(records)
            if left is not None:
                left -= len(records)
                if not left:
                    return
        time.sleep(options.interval)


def _as_text(record: Any) -> str:
    return record if isinstance(record, str) else json.dumps(record)


def _write_text(records: list[Any]) -> None:
    for record in records:
        print(clean(_as_text(record)), flush=True)


def _write_json(records: list[Any]) -> None:
    for record in records:
        print(json.dumps(record), flush=True)


class _ArrowOutput:
    """Writes records to the standard output as an Arrow stream; what is no object is a `value`."""

    def __init__(self) -> None:
        self._schema: pa.Schema | None = None
        self._stream: pa.ipc.RecordBatchStreamWriter | None = None

    def write(self, records: list[Any]) -> None:
        """Write some.

        Raises:
            UsageError: The output is a terminal, or they do not fit the columns of the first.
        """
        import pyarrow as pa

        if sys.stdout.isatty():
            raise UsageError("--format arrow is not for a terminal: give its output to a program")
        if not records:
            return
        rows = [record if isinstance(record, dict) else {"value": record} for record in records]
        if self._schema is None:
            # PyArrow takes the columns of the first row only.
            rows[0] = {**dict.fromkeys(name for row in rows for name in row), **rows[0]}
        try:
            table = pa.Table.from_pylist(rows, schema=self._schema)
            if not table.column_names:
                raise ValueError("empty objects")
        except (pa.ArrowException, OverflowError, ValueError) as error:
            text = clean(str(error))
            raise UsageError(f"{text}: such records make no columns; see --format json") from error
        # PyArrow leaves out, or cuts, what does not fit the columns of the records before.
        for row, written in zip(rows, table.to_pylist(), strict=True):
            for name, value in row.items():
                if name not in written:
                    raise UsageError(
                        f"the first records had no column {clean(name)}; see --format json"
                    )
                if not _is_same(value, written[name]):
                    raise UsageError(
                        f"column {clean(name)} of the first records has no room for "
                        f"{cut(clean(json.dumps(value)), _SHOWN)}; see --format json"
                    )
        if self._stream is None:
            self._schema = table.schema
            self._stream = pa.ipc.new_stream(sys.stdout.buffer, table.schema)
        self._stream.write_table(table)
        sys.stdout.buffer.flush()


def _is_same(value: Any, written: Any) -> bool:
    """Whether a value is in a column as it was; what an object does not have is null there."""
    if isinstance(value, dict):
        return all(_is_same(each, written.get(name)) for name, each in value.items())
    if isinstance(value, list):
        return all(map(_is_same, value, written))
    return bool(value == written)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from error


def _number(least: int, most: int | None = None) -> Callable[[str], int]:
    accepted = f"{least} or more" if most is None else f"from {least} to {most}"

    def number(text: str) -> int:
        found = int(text) if text.isdecimal() else least - 1
        if found < least or (most is not None and found > most):
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number {accepted}")
        return found

    return number


def _check_interval(options: argparse.Namespace) -> None:
    if not 0 < options.interval <= _LONGEST_S:
        raise UsageError(f"--interval is above 0, and {_LONGEST_S} at most")


def _rate(options: argparse.Namespace) -> None:
    rate: str | None = None if options.rate.lower() == "none" else options.rate
    print(clean(_client(options).act("rate", stream=options.stream, rate=rate)))


def _pause(options: argparse.Namespace) -> None:
    print(clean(_client(options).act("pause", stream=options.stream)))


def _resume(options: argparse.Namespace) -> None:
    print(clean(_client(options).act("resume", stream=options.stream)))


def _restart(options: argparse.Namespace) -> None:
    print(clean(_client(options).act("restart", stream=options.stream)))


def _seal(options: argparse.Namespace) -> None:
    print(clean(_client(options).act("seal", stream=options.stream)))


def _stop(options: argparse.Namespace) -> None:
    print(clean(_client(options).act("stop", graceful=not options.now)))


def _print(options: argparse.Namespace, found: object, lines: Callable[[int], list[str]]) -> None:
    if options.json:
        print(json.dumps(found, indent=2))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _LINES_WIDTH
        print(*lines(width), sep="\n")


def _client(options: argparse.Namespace) -> AppClient:
    return client_of(options.app)


def client_of(wanted: str | None) -> AppClient:
    """Return what asks a running program.

    Args:
        wanted: Its id, its name or its URL; None: the only one there is.

    Raises:
        UsageError: There is no such program, there are several, or what should be its token is
            none.
        ValueError: It is no URL of HTTP.
    """
    if wanted is not None and "://" in wanted:
        return _client_at(wanted)
    app = _chosen(wanted, registered(runtime_folder(os.environ)))
    return AppClient(app.url, app.token, app.certificate)


def _client_at(url: str) -> AppClient:
    """Return what asks the program at a URL; one of this user's on this host needs no token."""
    token = _token()
    with contextlib.suppress(RegistryError):
        for app in registered(runtime_folder(os.environ)):
            if app.url.rstrip("/") == url.rstrip("/"):
                return AppClient(url, token or app.token, app.certificate)
    return AppClient(url, token)


def _token() -> str | None:
    """Return the token that the environment has; a file that it came from may end its line."""
    token = os.environ.get("PENSTOCK_TOKEN", "").strip()
    if not (token.isascii() and token.isprintable()):
        raise UsageError("PENSTOCK_TOKEN has characters that no token has")
    return token or None


def _chosen(wanted: str | None, found: list[RegisteredApp]) -> RegisteredApp:
    if wanted is not None:
        found = [app for app in found if wanted in (app.application_id, app.name)]
    if len(found) == 1:
        return found[0]
    if not found:
        what = "" if wanted is None else f" that is called {wanted!r}"
        raise UsageError(
            f"no program{what} of this user runs on this host; for one elsewhere, give --app its "
            "URL, such as http://host:4140/"
        )
    # A StreamingContext and a ReceiverHost of one program have the same id and name.
    ids = [app.application_id for app in found]
    names = ", ".join(
        f"{app.application_id if ids.count(app.application_id) == 1 else app.url} "
        f"({clean(app.name)})"
        for app in found
    )
    raise UsageError(f"there are several: {names}; name one with --app")


_RUN: dict[str, Callable[[argparse.Namespace], None]] = {
    "apps": _apps,
    "top": _top,
    "tap": _tap,
    "receivers": _receivers,
    "batches": _batches,
    "errors": _errors,
    "rate": _rate,
    "pause": _pause,
    "resume": _resume,
    "restart": _restart,
    "seal": _seal,
    "stop": _stop,
}
