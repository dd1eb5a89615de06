"""The commands that look at a running program and change it: ``penstock apps``, ``top``, …."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import ssl
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

import click

from penstock.commands import Command, Seconds
from penstock.errors import PenstockError
from penstock.monitor.registry import (
    RegisteredApp,
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
from penstock.monitor.web.exchange import OURS

if TYPE_CHECKING:
    import pyarrow as pa

_EXIT_CODES = """\
exit codes: 0 done, 1 the program said no or does not answer, 2 wrong usage, or it is not clear
            which program is meant
"""

_CLEAR = "\x1b[H\x1b[J"
_LINES_WIDTH = 200
_SHOWN = 60


class _OfProgram(Command):
    """Asks a running program: it may refuse, and Ctrl-C ends what goes on for ever."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            # Behind the ^C of a terminal; a program that reads the output gets nothing of it.
            if sys.stdout.isatty():
                print()
        except AppError as error:
            print(f"penstock {ctx.info_name}: {error}", file=sys.stderr)
            return 1
        return 0


def _command(*parameters: Callable[[Any], Any]) -> Callable[[Callable[..., None]], click.Command]:
    # What begins with a sign and is no option may be a stream or a rate.
    settings = {"ignore_unknown_options": True}

    def made(function: Callable[..., None]) -> click.Command:
        for parameter in reversed(parameters):
            function = parameter(function)
        return click.command(cls=_OfProgram, epilog=_EXIT_CODES, context_settings=settings)(
            function
        )

    return made


_app = click.option(
    "--app",
    metavar="APP",
    help="Its id, its name or its URL, if there are several; for a URL elsewhere the token is that "
    "of the environment variable PENSTOCK_TOKEN.",
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
_stream = click.argument("stream", metavar="STREAM")
_interval = click.option(
    "--interval",
    type=Seconds(86_400),
    default=1.0,
    metavar="SECONDS",
    help="How often (1).",
)


@_command(_json)
def apps(as_json: bool) -> None:
    """List the running programs of this user on this host."""
    found = registered(runtime_folder(os.environ))
    if as_json:
        shown = [
            {"id": app.application_id, "name": app.name, "url": app.url, "pid": app.pid}
            for app in found
        ]
        print(json.dumps(shown, indent=2))
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


@_command(
    _interval, click.option("--once", is_flag=True, help="Show it once and end."), _app, _json
)
def top(interval: float, once: bool, app: str | None, as_json: bool) -> None:
    """Show how a running program goes, again and again."""
    client = client_of(app)
    # A dumb terminal cannot be cleared: it gets what a pipe gets.
    is_terminal = sys.stdout.isatty() and not once and os.environ.get("TERM") != "dumb"
    while True:
        status = client.get("/api/penstock/status")
        if as_json:
            print(json.dumps(status), flush=True)
        elif is_terminal:
            width, height = shutil.get_terminal_size()
            lines = top_lines(status, width)[: height - 1]
            # In one piece, so that a slow line shows no half of it.
            sys.stdout.write(_CLEAR + "\n".join(lines) + "\n")
            sys.stdout.flush()
        else:
            print(*top_lines(status, _LINES_WIDTH), "", sep="\n", flush=True)
        if once:
            return
        time.sleep(interval)


@_command(_app, _json)
def receivers(app: str | None, as_json: bool) -> None:
    """List its receivers and what they wait for."""
    found = client_of(app).get("/api/penstock/status")
    _print(as_json, found["receivers"], lambda width: receivers_table(found, width))


@_command(
    click.option(
        "--count", type=click.IntRange(0, 1000), default=20, metavar="N", help="How many (20)."
    ),
    click.option("--status", type=click.Choice(["queued", "processing", "completed"])),
    _app,
    _json,
)
def batches(count: int, status: str | None, app: str | None, as_json: bool) -> None:
    """List its batches."""
    query = {"count": count, **({} if status is None else {"status": status})}
    found = client_of(app).get("/api/penstock/batches", **query)
    _print(as_json, found, lambda width: batches_table(found, width))


@_command(_app, _json)
def errors(app: str | None, as_json: bool) -> None:
    """List what went wrong in it."""
    found = client_of(app).get("/api/penstock/errors")
    _print(as_json, found, lambda width: events_lines(found, width) or ["nothing went wrong"])


class _Pattern(click.ParamType[re.Pattern[str]]):
    name = "regex"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> re.Pattern[str]:
        try:
            return re.compile(value)
        except re.error as error:
            self.fail(f"{value!r} is no regular expression: {error}", param, ctx)


@_command(
    _stream,
    click.option(
        "--sample",
        type=click.IntRange(1, 1000),
        default=10,
        metavar="N",
        help="How many records of a block (10).",
    ),
    click.option(
        "--count",
        type=click.IntRange(0),
        metavar="N",
        help="End after that many records; for ever without it.",
    ),
    click.option(
        "--filter",
        "pattern",
        type=_Pattern(),
        metavar="REGEX",
        help="Only records in which this is found.",
    ),
    click.option(
        "--format",
        "form",
        type=click.Choice(["text", "json", "arrow"]),
        default="text",
        help="text (the default), json: a value a line, or arrow: an IPC stream, of the columns "
        "that the first records have.",
    ),
    click.option("--json", "form", flag_value="json", help="The same as --format json."),
    _interval,
    _app,
)
def tap(
    stream: str,
    sample: int,
    count: int | None,
    pattern: re.Pattern[str] | None,
    form: str,
    interval: float,
    app: str | None,
) -> None:
    """Show records of a stream, some of its newest block, again and again.

    STREAM is its number or its name.
    """
    client = client_of(app)
    write = {"text": _write_text, "json": _write_json, "arrow": _ArrowOutput().write}[form]
    left = count
    last = None
    while left is None or left > 0:
        found = client.act("tap", stream=stream, count=sample)
        if found["block"] != last:
            last = found["block"]
            records = [
                record
                for record in found["records"]
                if pattern is None or pattern.search(_as_text(record))
            ][:left]
            write(records)
            if left is not None:
                left -= len(records)
                if not left:
                    return
        time.sleep(interval)


def _as_text(record: Any) -> str:
    return record if isinstance(record, str) else json.dumps(record)


def _write_text(records: list[Any]) -> None:
    for record in records:
        print(clean(_as_text(record)), flush=True)


def _write_json(records: list[Any]) -> None:
    for record in records:
        print(json.dumps(record), flush=True)


class _ArrowOutput:
    """Writes records to the standard output as an Arrow stream; a non-object is a `value`."""

    def __init__(self) -> None:
        self._schema: pa.Schema | None = None
        self._stream: pa.ipc.RecordBatchStreamWriter | None = None

    def write(self, records: list[Any]) -> None:
        """Write some.

        Raises:
            PenstockError: The output is a terminal, or they do not fit the columns of the first.
        """
        import pyarrow as pa

        if sys.stdout.isatty():
            raise PenstockError(
                "--format arrow is not for a terminal: give its output to a program"
            )
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
            raise PenstockError(
                f"{text}: such records make no columns; see --format json"
            ) from error
        # PyArrow leaves out, or cuts, what does not fit the columns of the records before.
        for row, written in zip(rows, table.to_pylist(), strict=True):
            for name, value in row.items():
                if name not in written:
                    raise PenstockError(
                        f"the first records had no column {clean(name)}; see --format json"
                    )
                if not _is_same(value, written[name]):
                    raise PenstockError(
                        f"column {clean(name)} of the first records has no room for "
                        f"{cut(clean(json.dumps(value)), _SHOWN)}; see --format json"
                    )
        if self._stream is None:
            self._schema = table.schema
            self._stream = pa.ipc.new_stream(sys.stdout.buffer, table.schema)
        self._stream.write_table(table)
        sys.stdout.buffer.flush()


def _is_same(value: Any, written: Any) -> bool:
    """Whether a value is in a column as it was; what an object does not have is null in it."""
    if isinstance(value, dict):
        return all(_is_same(each, written.get(name)) for name, each in value.items())
    if isinstance(value, list):
        return all(map(_is_same, value, written))
    return bool(value == written)


@_command(_stream, click.argument("rate", metavar="RATE"), _app)
def rate(stream: str, rate: str, app: str | None) -> None:
    """Set the rate of STREAM, its number or its name.

    RATE is such as 5000/second; none for no rate of its own.
    """
    wanted = None if rate.lower() == "none" else rate
    print(clean(client_of(app).act("rate", stream=stream, rate=wanted)))


@_command(_stream, _app)
def pause(stream: str, app: str | None) -> None:
    """Let nothing of STREAM (its number or its name) pass; its source waits."""
    print(clean(client_of(app).act("pause", stream=stream)))


@_command(_stream, _app)
def resume(stream: str, app: str | None) -> None:
    """Go on with STREAM (its number or its name), which is paused."""
    print(clean(client_of(app).act("resume", stream=stream)))


@_command(_stream, _app)
def restart(stream: str, app: str | None) -> None:
    """Have the receiver of STREAM (its number or its name) stop and start again."""
    print(clean(client_of(app).act("restart", stream=stream)))


@_command(_stream, _app)
def seal(stream: str, app: str | None) -> None:
    """Have the receiver of STREAM (its number or its name) seal its open block now."""
    print(clean(client_of(app).act("seal", stream=stream)))


@_command(
    click.option("--now", is_flag=True, help="Give up what was not processed yet."),
    _app,
)
def stop(now: bool, app: str | None) -> None:
    """Stop it, gracefully unless --now is given."""
    print(clean(client_of(app).act("stop", graceful=not now)))


def _print(as_json: bool, found: object, lines: Callable[[int], list[str]]) -> None:
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _LINES_WIDTH
        print(*lines(width), sep="\n")


def client_of(wanted: str | None) -> AppClient:
    """Return a client of a running program.

    Args:
        wanted: Its id, its name or its URL; None: the only one there is.

    Raises:
        PenstockError: There is no such program, there are several, or what should be its token is
            none.
        ValueError: It is no URL of HTTP.
    """
    if wanted is not None and "://" in wanted:
        return _client_at(wanted)
    app = _chosen(wanted, registered(runtime_folder(os.environ)))
    return AppClient(app.url, app.token, app.certificate)


def _client_at(url: str) -> AppClient:
    """Return a client of the program at a URL; one of this user's on this host needs no token."""
    token = _token()
    with contextlib.suppress(PenstockError):
        for app in registered(runtime_folder(os.environ)):
            if app.url.rstrip("/") == url.rstrip("/"):
                return AppClient(url, token or app.token, app.certificate)
    return AppClient(url, token)


def _token() -> str | None:
    """Return the token that the environment has; a file that it came from may end its line."""
    token = os.environ.get("PENSTOCK_TOKEN", "").strip()
    if not (token.isascii() and token.isprintable()):
        raise PenstockError("PENSTOCK_TOKEN has characters that no token has")
    return token or None


def _chosen(wanted: str | None, found: list[RegisteredApp]) -> RegisteredApp:
    if wanted is not None:
        found = [app for app in found if wanted in (app.application_id, app.name)]
    if len(found) == 1:
        return found[0]
    if not found:
        what = "" if wanted is None else f" that is called {wanted!r}"
        raise PenstockError(
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
    raise PenstockError(f"there are several: {names}; name one with --app")


_TIMEOUT_S = 10.0
_MOST_BYTES = 64 << 20


class AppError(PenstockError):
    """A program does not answer, or says no: exit code 1, where a misuse of the command is 2."""


class AppClient:
    """Asks one program; a connection for each question.

    Args:
        url: Where it can be looked at, such as ``http://127.0.0.1:4140/``.
        token: What proves the right to act; None without.
        certificate: The only one that it may show, PEM; empty: one that this host trusts.

    Raises:
        ValueError: It is no URL of HTTP.
    """

    def __init__(self, url: str, token: str | None = None, certificate: str = "") -> None:
        refused = f"{url!r} is not a URL such as http://host:4140/"
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise ValueError(refused) from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(refused)
        self.url = url
        self._is_tls = parts.scheme == "https"
        self._certificate = certificate
        self._host, self._port = parts.hostname, port
        self._root = parts.path.rstrip("/")
        self._token = token

    def get(self, path: str, **query: object) -> Any:
        """Return the JSON at a path.

        Raises:
            AppError: It does not answer, or says no.
        """
        return self._ask("GET", f"{path}?{urlencode(query)}" if query else path, None)

    def act(self, action: str, **what: object) -> Any:
        """Have something done; return what was done, mostly a text.

        Raises:
            AppError: It does not answer, or says no.
        """
        return self._ask("POST", f"/api/penstock/actions/{action}", what)["done"]

    def _ask(self, method: str, path: str, what: object) -> Any:
        headers = {"Accept": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        body = None
        if what is not None:
            body = json.dumps(what).encode()
            headers["Content-Type"] = "application/json"
        connection = self._connection()
        try:
            connection.request(method, self._root + path, body, headers)
            answer = connection.getresponse()
            data = answer.read(_MOST_BYTES)
            if answer.length and len(data) < _MOST_BYTES:
                raise http.client.IncompleteRead(data, answer.length)
            text = data.decode(errors="replace")
        except http.client.IncompleteRead as error:
            raise self._unreachable("it ended in the middle of an answer") from error
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(str(error) or type(error).__name__) from error
        finally:
            connection.close()
        is_ours = answer.getheader(OURS) is not None
        if answer.status != 200:
            # In one line, and without what a terminal would take for a command.
            said = clean(text[:1000])
            if not is_ours:  # A proxy, or anything else; or a port of ours that speaks TLS.
                if "html" in (answer.getheader("Content-Type") or ""):
                    said = f"{clean(answer.reason)}, with a page that is not Penstock's"
                said = f"{self.url} answered {answer.status}: {said}"
            raise AppError(said or f"it answered {answer.status}")
        if not is_ours:
            raise self._unreachable("what answers there is no program of Penstock")
        try:
            return json.loads(text)
        except ValueError as error:
            raise self._unreachable("its answer is not whole") from error

    def _unreachable(self, reason: str) -> AppError:
        return AppError(f"{self.url} does not answer: {reason}")

    def _connection(self) -> http.client.HTTPConnection:
        if not self._is_tls:
            return http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
        context = ssl.create_default_context(cadata=self._certificate or None)
        if self._certificate:
            # The certificate itself is pinned, whatever names and signature it has.
            context.check_hostname = False
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", ssl.VerifyFlags(0))
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=_TIMEOUT_S, context=context
        )
