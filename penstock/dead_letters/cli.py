"""``penstock dead-letters``: look at the records that were discarded, and take them elsewhere."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import sys
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, Protocol

import click

from penstock.commands import Group
from penstock.dead_letters._letter import Form, origin_digest
from penstock.dead_letters._logs import FOLDER
from penstock.dead_letters._reader import StoredLetter, letters
from penstock.dead_letters._sent import SENT_BEFORE, letter_key
from penstock.errors import PenstockError
from penstock.files.whole import private, whole_file, whole_folder
from penstock.wal import CorruptRecordError, EncryptionKey

_EPILOG = """\
exit codes: 0 done, 1 there is no such letter or stream, or some cannot be read or sent (they are
            named), 2 wrong usage, no such folder, it is not one of Penstock, it cannot be read or
            written, or the program says no, or does not answer, 130 interrupted; what export
            writes is there when it is whole
"""
_COLUMN = 60
_HEAD = f"{'ID':<18}  {'DISCARDED':<23}  {'STREAM':<16}  REASON  RECORD"
_ALIKE = 10
"""Letters that are left for the same reason, up to which each has a line of its own."""
_SENT_AT_A_TIME = 150
"""Letters in one request; their names and digests fit into what the program's server accepts."""
_SHOWN_BYTES = 4096


class AsksProgram(Protocol):
    """Has a running program do something; raises a `PenstockError` if it does not."""

    def act(self, action: str, **what: object) -> Any: ...


@dataclass(frozen=True)
class KnownSent:
    """What a program's ledger knows of letters that were sent.

    Attributes:
        keys: Their keys, by stream.
        program: What the program's letters are known by where programs share a folder; empty: it
            keeps no such name.
    """

    keys: Mapping[int, Container[bytes]]
    program: str = ""

    def has(self, stored: StoredLetter) -> bool | None:
        """Return whether a letter was sent; None: it is another program's."""
        if _key(stored) in self.keys.get(stored.letter.stream, ()):
            return True
        return False if stored.program in ("", self.program) else None


@dataclass(frozen=True)
class Ways:
    """What the commands need of rooms above this one.

    Attributes:
        key: Returns the key that encrypted logs are read with.
        client: Returns what asks a running program, whose id, name or URL it is given.
        sent: Returns what the ledger of a checkpoint directory or log folder knows; None: it has
            no ledger.
    """

    key: Callable[[], EncryptionKey | None] = lambda: None
    sent: Callable[[str], KnownSent | None] = lambda _: None
    client: Callable[[str | None], AsksProgram] | None = None


class _Folder:
    """The letters of a folder, as one command reads them."""

    def __init__(self, folder: str, ways: Ways) -> None:
        self.folder = folder
        self.ways = ways
        self.encryption = ways.key()
        self.damages: list[CorruptRecordError] = []
        self.no_ledger = ""
        self._streams: set[str] = set()

    def letters(self, stream: str | None) -> Iterator[StoredLetter]:
        """Yield the letters of a stream, or all, and note of which streams there are any."""
        found = letters(self.folder, encryption=self.encryption, on_damage=self.damages.append)
        for stored in found:
            letter = stored.letter
            self._streams.add(letter.stream_text)
            if stream in (None, str(letter.stream), letter.stream_name, letter.stream_text):
                yield stored

    def sent(self, ledger: str | None) -> KnownSent | None:
        """Return what is known of the letters that were sent; None: nothing is here.

        Raises:
            OSError, PenstockError: A folder that was named has no ledger, or cannot be read.
        """
        if ledger is not None:
            found = self.ways.sent(ledger)
            if found is None:
                raise PenstockError(f"{ledger} is no checkpoint directory or log folder")
            return found
        try:
            found = self.ways.sent(self.folder)
            above, own = os.path.split(self.folder.rstrip("/"))
            return self.ways.sent(above) if found is None and own == FOLDER else found
        except (OSError, PenstockError) as error:
            # On HDFS also one that a running program writes. The letters can be read all the same.
            self.no_ledger = f" ({error})"
            return None

    def code(self, code: int, stream: str | None) -> int:
        """Say what could not be read, or has no letters, and return the exit code."""
        for damage in self.damages:
            print(f"penstock dead-letters: {damage}", file=sys.stderr)
        if stream is not None and not any(
            stream in (known, *known.rpartition("-")[::2]) for known in self._streams
        ):
            there = _one_line(", ".join(sorted(self._streams)))
            print(
                f"penstock dead-letters: no dead letters of a stream {stream!r}"
                + (f"; there are some of {there}" if there else ", or of any other"),
                file=sys.stderr,
            )
            code = code or 1
        return 1 if self.damages else code


class _OfFolder(Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if len(args) == 2 and args[0] in self.commands and args[1] in ctx.help_option_names:
            # Help on a command, whatever the folder.
            args = ["FOLDER", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_OfFolder, epilog=_EPILOG)
@click.argument("folder", metavar="FOLDER")
@click.pass_context
def dead_letters(context: click.Context, folder: str) -> None:
    """Look at the records that receivers discarded, and take them elsewhere.

    FOLDER is the checkpoint directory or the log folder of the program, the folder deadLetters in
    it, that of spark.penstock.deadLetters.dir, which may have those of several programs, or the
    folder of one of them in that; or an address hdfs://..., s3://..., gs://... or abfss://...

    Nothing is removed. Encrypted logs are read with the key of PENSTOCK_ENCRYPTION_KEY.
    """
    context.obj = _Folder(folder, context.obj or Ways())


_stream = click.option(
    "--stream", metavar="STREAM", help="Only those of this stream: its name or number."
)


@dead_letters.command("list", epilog=_EPILOG)
@_stream
@click.option("--json", "as_json", is_flag=True, help="As JSON lines, without bytes.")
@click.option(
    "--ledger",
    metavar="LEDGER",
    help="The program's checkpoint directory or log folder, which knows what was sent, where "
    "FOLDER is another one.",
)
@click.pass_obj
def _list(folder: _Folder, stream: str | None, as_json: bool, ledger: str | None) -> int:
    """One line per record: its id, when, from which stream, why, how it begins."""
    sent = folder.sent(ledger)
    count = unknown = 0
    program = ""
    for stored in folder.letters(stream):
        count += 1
        letter = stored.letter
        is_sent = None if sent is None else sent.has(stored)
        unknown += is_sent is None
        if as_json:
            print(json.dumps({**_facts(stored), "sent": is_sent}))
            continue
        if count == 1 or stored.program != program:
            program = stored.program
            if program:
                print(f"{'' if count == 1 else chr(10)}program {program}")
            print(_HEAD)
        reason = letter.reason if len(letter.reason) <= _COLUMN else letter.reason[:_COLUMN] + "…"
        print(
            f"{stored.id:<18}  {_time(letter.time_ms)}  {_one_line(letter.stream_text):<16}  "
            f"{_one_line(f'{letter.error}: {reason}')}  {_one_line(letter.shown)}"
            f"{'  (sent)' if is_sent else ''}"
        )
    if not count and not as_json and stream is None:
        print("no dead letters")
    if unknown:
        which = (
            "which of them" if unknown == count else f"which of {unknown} letters of other programs"
        )
        print(
            f"penstock dead-letters: {which} were sent is not known here{folder.no_ledger}; "
            "the program's checkpoint directory or log folder says it, if --ledger names it",
            file=sys.stderr,
        )
    return folder.code(0, stream)


@dead_letters.command("show", epilog=_EPILOG)
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@_stream
@click.pass_obj
def _show(folder: _Folder, ids: Sequence[str], stream: str | None) -> int:
    """All that is known of some, whose ids are as list shows them."""
    left = set(ids)
    for stored in folder.letters(stream):
        if stored.id not in left:
            continue
        left.discard(stored.id)
        letter = stored.letter
        cut = f", of which {len(letter.data)} are kept" if letter.is_cut else ""
        print(f"{stored.id}")
        for name, value in (
            ("discarded", _time(letter.time_ms)),
            *(() if letter.batch_ms is None else (("batch", _time(letter.batch_ms)),)),
            *((("program", stored.program),) if stored.program else ()),
            ("stream", letter.stream_text),
            ("receiver", f"{letter.receiver}, attempt {letter.attempt}"),
            ("host", letter.host),
            ("reason", f"{letter.error}: {letter.reason}"),
            ("position", letter.position_text or "none"),
            ("record", f"{letter.form}, {letter.size} bytes{cut}"),
        ):
            print(f"  {name + ':':<11}{_one_line(str(value))}")
        print(f"  {_content(letter.form, letter.data)}")
    return folder.code(_missing(left), stream)


@dead_letters.command("export", epilog=_EPILOG)
@click.argument("ids", metavar="[ID...]", nargs=-1)
@_stream
@click.option(
    "--to", metavar="PATH", help="A file for JSON lines that is not there yet; else the terminal."
)
@click.option("--raw", metavar="NEW_FOLDER", help="Write the bytes of each into a file here.")
@click.pass_obj
def _export(
    folder: _Folder, ids: Sequence[str], stream: str | None, to: str | None, raw: str | None
) -> int:
    """Write them as JSON lines, or the bytes of each into a file of its own."""
    left = set(ids)
    found = (stored for stored in folder.letters(stream) if not ids or stored.id in ids)
    _write(found, left, to, raw)
    return folder.code(_missing(left), stream)


def _write(found: Iterator[StoredLetter], left: set[str], to: str | None, raw: str | None) -> None:
    # It is looked for first: a wrong folder or id leaves nothing that a second try finds.
    first = next(found, None)
    if first is None and left:
        return
    found = found if first is None else itertools.chain([first], found)
    with contextlib.ExitStack() as opened:
        folder = None if raw is None else opened.enter_context(whole_folder(raw))
        file = None if to is None else opened.enter_context(whole_file(to))
        for stored in found:
            left.discard(stored.id)
            if folder is not None:
                path = os.path.join(folder, f"{stored.id}.{stored.letter.form}")
                with open(path, "xb", opener=private) as bare:
                    bare.write(stored.letter.data)
            if folder is None or file is not None:
                data = base64.b64encode(stored.letter.data).decode()
                line = json.dumps({**_facts(stored), "data": data})
                if file is None:
                    print(line)
                else:
                    file.write(f"{line}\n".encode())


def _missing(left: set[str]) -> int:
    for name in sorted(left):
        print(f"penstock dead-letters: there is no letter {name}", file=sys.stderr)
    return 1 if left else 0


@dead_letters.command("send", epilog=_EPILOG)
@click.argument("ids", metavar="[ID...]", nargs=-1)
@_stream
@click.option("--app", metavar="APP", help="The program's id, name or URL, if there are several.")
@click.option("--again", is_flag=True, help="Also those that were sent.")
@click.option("--functions", is_flag=True, help="Also those of functions of the program.")
@click.pass_obj
def _send(
    folder: _Folder,
    ids: Sequence[str],
    stream: str | None,
    app: str | None,
    again: bool,
    functions: bool,
) -> int:
    """Have the running program store letters again, as records of their stream.

    They are those that are named, or all of --stream that were not sent before. Mend first what
    made them unfit: a record that still does not fit stays the dead letter that it is, and is named
    with its reason. They come at the end of the stream, without a position.

    A letter is sent once, whatever is killed meanwhile: ask again, and what was not stored is.

    Records that a function of the program failed for are what that function was given, which is the
    stream's record only if the function is the first one: they are sent with --functions only.
    """
    wanted = set(ids)
    if not wanted and stream is None:
        raise click.UsageError("send needs ids, or --stream STREAM")
    missing = set(wanted)
    by_stream: dict[tuple[str, int], list[tuple[StoredLetter, str]]] = {}
    left: list[tuple[str, str]] = []
    for stored in folder.letters(stream):
        if wanted and stored.id not in wanted:
            continue
        missing.discard(stored.id)
        if stored.letter.origin is not None and not functions:
            left.append((stored.id, "a function of the program failed for it; see --functions"))
        else:
            # Only what names them is kept of those that are to be sent.
            bare = replace(stored, letter=replace(stored.letter, data=b"", position=None))
            digest = (origin_digest(stored.letter) or b"").hex()
            owned = by_stream.setdefault((stored.program, stored.letter.stream), [])
            owned.append((bare, digest))
    left += [(name, "there is no such letter") for name in sorted(missing)]
    sent = 0
    others: list[tuple[str, str]] = []
    if by_stream:
        assert folder.ways.client is not None
        program = folder.ways.client(app)
        for (owner, number), chosen in sorted(by_stream.items()):
            for at in range(0, len(chosen), _SENT_AT_A_TIME):
                some = chosen[at : at + _SENT_AT_A_TIME]
                part = {(each.log, each.number): each.id for each, _ in some}
                try:
                    done = program.act(
                        "send",
                        stream=number,
                        letters=[[each.log, each.number, digest] for each, digest in some],
                        again=again,
                        program=owner,
                    )
                except BaseException:
                    _tell_left(left + others)
                    if sent:
                        print(f"{sent} sent before that")
                    raise
                if done.get("isOther", False):
                    whose = f"it is one of another program, {owner}" if owner else _UNKNOWN
                    others += [(each.id, whose) for each, _ in chosen]
                    break
                sent += done["sent"]
                left += [
                    (part[log, number_in_log], reason)
                    for log, number_in_log, reason in done["left"]
                    # Anyone who asks for a stream asks for what is left of it.
                    if wanted or reason != SENT_BEFORE
                ]
    _tell_left(left + others)
    # Asking for a stream of the program asks for nothing of others.
    count = len(left) + (len(others) if wanted or not sent + len(left) else 0)
    print(f"{sent} sent, {count} left" if count else f"{sent} sent")
    return folder.code(1 if count else 0, stream)


_UNKNOWN = "no one knows whose it is: it was written where programs share a folder"


def _tell_left(left: list[tuple[str, str]]) -> None:
    by_reason: dict[str, list[str]] = {}
    for name, why in left:
        by_reason.setdefault(_one_line(why), []).append(name)
    for why, names in by_reason.items():
        if len(names) <= _ALIKE:
            for name in names:
                print(f"penstock dead-letters: {name} is left: {why}", file=sys.stderr)
        else:
            some = ", ".join(names[:3])
            print(
                f"penstock dead-letters: {len(names)} are left ({some}, …): {why}", file=sys.stderr
            )


def _key(stored: StoredLetter) -> bytes:
    return letter_key((stored.log, stored.number), origin_digest(stored.letter))


def _facts(stored: StoredLetter) -> dict[str, Any]:
    letter = stored.letter
    position = letter.position_text
    return {
        "id": stored.id,
        "program": stored.program,
        "time": _iso(letter.time_ms),
        "batch": None if letter.batch_ms is None else _iso(letter.batch_ms),
        "stream": letter.stream,
        "name": letter.stream_name,
        "receiver": letter.receiver,
        "attempt": letter.attempt,
        "host": letter.host,
        "error": letter.error,
        "reason": letter.reason,
        "position": None if position is None else json.loads(position),
        "form": letter.form,
        "size": letter.size,
        "shown": letter.shown,
    }


def _iso(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, timezone.utc).isoformat()


def _time(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def _one_line(text: str) -> str:
    """Return text that moves no cursor and colours nothing: it came from outside."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _content(form: str, data: bytes) -> str:
    more = "" if len(data) <= _SHOWN_BYTES else f" … (export has all {len(data)} bytes)"
    start = data[:_SHOWN_BYTES]
    if form in (Form.TEXT.value, Form.JSON.value, Form.REPR.value):
        return _one_line(start.decode(errors="replace")) + more
    return repr(start) + more
