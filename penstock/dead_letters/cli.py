"""``penstock dead-letters``: look at the records that were discarded, and take them elsewhere."""

from __future__ import annotations

import argparse
import base64
import contextlib
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any, Protocol

from penstock.dead_letters._letter import DeadLetter, Form
from penstock.dead_letters._reader import StoredLetter, letters
from penstock.dead_letters._sent import SentKey, SentState, sent_key, sent_state, sent_states
from penstock.errors import PenstockError
from penstock.wal import CorruptRecordError, EncryptionKey
from penstock.whole_files import private, whole_file, whole_folder

_DESCRIPTION = """\
Look at the records that receivers discarded, and take them elsewhere. FOLDER is the checkpoint
directory or the log folder of the program, the folder deadLetters in it, that of
spark.penstock.deadLetters.dir, which may have those of several programs, or the folder of one of
them in that; or an address hdfs://...

  list    one line per record: its id, when, from which stream, why, how it begins
  show    all that is known of some, with their bytes
  export  write them as JSON lines, or the bytes of each into a file of its own
  send    have the running program store them again, as records of their stream

Nothing is removed. Encrypted logs are read with the key of PENSTOCK_ENCRYPTION_KEY.
"""
_EPILOG = """\
exit codes: 0 done, 1 there is no such letter or stream, or some cannot be read or sent (they are
            told), 2 wrong usage, no such folder, it is not one of Penstock, it cannot be read or
            written, or the program says no, or does not answer, 130 interrupted; what export
            writes is there when it is whole
"""
_SEND = """\
Have the running program store letters again, as records of the stream that they were discarded
from: those that are named, or all of --stream that were not sent before. Mend first what made them
unfit: a record that still does not fit stays the dead letter that it is, which is told. They come
at the end of the stream, without a position.

A letter is sent once, whatever is killed meanwhile. One of which nobody knows whether it was stored
is shown by list as 'perhaps sent'; --again sends it, as it does with one that was sent.

Records that a function of the program failed for are what that function was given, which is the
stream's record only if the function is the first one: they are sent with --functions only.
"""
_COLUMN = 60
_HEAD = f"{'ID':<18}  {'DISCARDED':<23}  {'STREAM':<16}  REASON  RECORD"
_ALIKE = 10
"""Letters that are left for the same reason, up to which each has a line of its own."""
_SENT_AT_A_TIME = 150
"""Letters in one request; their names fit into what the program's server accepts."""
_SENT_TEXT = {None: "", SentState.SENT: "  (sent)", SentState.UNKNOWN: "  (perhaps sent)"}
_SENT_JSON = {None: False, SentState.SENT: True, SentState.UNKNOWN: None}
_SHOWN_BYTES = 4096


class AsksProgram(Protocol):
    """Has a running program do something; raises a `PenstockError` if it does not."""

    def act(self, action: str, **what: object) -> Any: ...


def main(
    argv: Sequence[str],
    key: Callable[[], EncryptionKey | None] = lambda: None,
    client: Callable[[str | None], AsksProgram] | None = None,
) -> int:
    """Run ``penstock dead-letters`` with these arguments and return its exit code.

    Args:
        argv: The arguments.
        key: Returns the key that encrypted logs are read with.
        client: Returns what asks a running program, whose id, name or URL it is given.
    """
    options = make_parser().parse_args(argv)
    options.client = client
    damages: list[CorruptRecordError] = []
    try:
        encryption = key()
        found = letters(options.folder, encryption=encryption, on_damage=damages.append)
        options.streams = set()
        found = _told(found, options.streams)
        if options.stream is not None:
            found = (each for each in found if _is_of(each.letter, options.stream))
        # What was noted where it is damaged may be that a letter was sent: list says that nobody
        # knows, and send ends here.
        if options.run is _list:
            options.states = sent_states(options.folder, encryption, on_damage=damages.append)
            options.unnoted = SentState.UNKNOWN if damages else None
        elif options.run is _send:
            options.states = sent_states(options.folder, encryption)
        code: int = options.run(found, options)
        if options.stream is not None:
            code = code or _without_stream(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has seen enough: keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("penstock dead-letters: interrupted", file=sys.stderr)
        return 130
    except FileExistsError as error:
        print(
            f"penstock dead-letters: {error.filename} is there already; nothing is overwritten",
            file=sys.stderr,
        )
        return 2
    except FileNotFoundError as error:
        print(f"penstock dead-letters: {error.strerror}: {error.filename}", file=sys.stderr)
        return 2
    except (OSError, ValueError, PenstockError) as error:
        print(f"penstock dead-letters: {error}", file=sys.stderr)
        return 2
    for damage in damages:
        print(f"penstock dead-letters: {damage}", file=sys.stderr)
    return 1 if damages else code


def make_parser() -> argparse.ArgumentParser:
    """Return what takes the arguments of ``penstock dead-letters``."""
    parser = argparse.ArgumentParser(
        prog="penstock dead-letters",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", metavar="FOLDER", help="of the program, or hdfs://…")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, run, text in (
        ("list", _list, "one line per record"),
        ("show", _show, "all that is known of some"),
        ("export", _export, "write them as JSON lines, or into files"),
        ("send", _send, "have the program store them again"),
    ):
        command = commands.add_parser(
            name,
            help=text,
            description=_SEND if name == "send" else text + ".",
            epilog=_EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(run=run)
        command.add_argument(
            "--stream", metavar="STREAM", help="only those of this stream: its name or number"
        )
        if name == "list":
            command.add_argument("--json", action="store_true", help="as JSON lines, without bytes")
        else:
            command.add_argument(
                "ids", nargs="+" if name == "show" else "*", metavar="ID", help="as list shows it"
            )
        if name == "send":
            command.add_argument(
                "--app", metavar="APP", help="the program's id, name or URL, if there are several"
            )
            command.add_argument(
                "--again", action="store_true", help="also those that were sent, or perhaps"
            )
            command.add_argument(
                "--functions", action="store_true", help="also those of functions of the program"
            )
        if name == "export":
            command.add_argument(
                "--to",
                metavar="PATH",
                help="a file for JSON lines that is not there yet; the terminal without it",
            )
            command.add_argument(
                "--raw", metavar="NEW_FOLDER", help="write the bytes of each into a file here"
            )
    return parser


def _list(found: Iterator[StoredLetter], options: argparse.Namespace) -> int:
    count = 0
    program = ""
    for stored in found:
        count += 1
        letter = stored.letter
        state = _state(stored, options.states) or options.unnoted
        if options.json:
            print(json.dumps({**_facts(stored), "sent": _SENT_JSON[state]}))
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
            f"{_SENT_TEXT[state]}"
        )
    if not count and not options.json and options.stream is None:
        print("no dead letters")
    return 0


def _show(found: Iterator[StoredLetter], options: argparse.Namespace) -> int:
    left = set(options.ids)
    for stored in found:
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
    return _missing(left)


def _export(found: Iterator[StoredLetter], options: argparse.Namespace) -> int:
    wanted = set(options.ids)
    left = set(wanted)
    found = (stored for stored in found if not wanted or stored.id in wanted)
    # It is looked for first: a wrong folder or id leaves nothing that a second try finds.
    first = next(found, None)
    if first is None and wanted:
        return _missing(left)
    found = found if first is None else itertools.chain([first], found)
    with contextlib.ExitStack() as opened:
        folder = file = None
        if options.raw is not None:
            folder = opened.enter_context(whole_folder(options.raw))
        if options.to is not None:
            file = opened.enter_context(whole_file(options.to))
        for stored in found:
            left.discard(stored.id)
            if folder is not None:
                path = os.path.join(folder, f"{stored.id}.{stored.letter.form}")
                with open(path, "xb", opener=private) as raw:
                    raw.write(stored.letter.data)
            if folder is None or file is not None:
                data = base64.b64encode(stored.letter.data).decode()
                line = json.dumps({**_facts(stored), "data": data})
                if file is None:
                    print(line)
                else:
                    file.write(f"{line}\n".encode())
    return _missing(left)


def _missing(left: set[str]) -> int:
    for name in sorted(left):
        print(f"penstock dead-letters: there is no letter {name}", file=sys.stderr)
    return 1 if left else 0


def _send(found: Iterator[StoredLetter], options: argparse.Namespace) -> int:
    wanted = set(options.ids)
    if not wanted and options.stream is None:
        print("penstock dead-letters: send needs ids, or --stream STREAM", file=sys.stderr)
        return 2
    missing = set(wanted)
    by_stream: dict[tuple[str, int], list[StoredLetter]] = {}
    left: list[tuple[str, str]] = []
    for stored in found:
        if wanted and stored.id not in wanted:
            continue
        missing.discard(stored.id)
        state = _state(stored, options.states)
        if stored.letter.origin is not None and not options.functions:
            left.append((stored.id, "a function of the program failed for it; see --functions"))
        elif wanted or options.again or state is None:
            # Only what names them is kept of those that are to be sent.
            bare = replace(stored, letter=replace(stored.letter, data=b"", position=None))
            by_stream.setdefault((stored.program, stored.letter.stream), []).append(bare)
        elif state is SentState.UNKNOWN:
            left.append((stored.id, "it was perhaps sent; see --again"))
    left += [(name, "there is no such letter") for name in sorted(missing)]
    sent = 0
    others: list[tuple[str, str]] = []
    if by_stream:
        assert options.client is not None
        program = options.client(options.app)
        for (owner, stream), chosen in sorted(by_stream.items()):
            for at in range(0, len(chosen), _SENT_AT_A_TIME):
                part = {(each.log, each.number): each.id for each in chosen[at:][:_SENT_AT_A_TIME]}
                done = program.act(
                    "send",
                    stream=stream,
                    letters=list(map(list, part)),
                    again=options.again,
                    program=owner,
                )
                if done.get("isOther", False):
                    whose = f"it is one of another program, {owner}" if owner else _UNKNOWN
                    others += [(each.id, whose) for each in chosen]
                    break
                sent += done["sent"]
                left += [(part[log, number], why) for log, number, why in done["left"]]
    _tell_left(left + others)
    # Who asks for a stream of the program asks for nothing of others.
    count = len(left) + (len(others) if wanted or not sent + len(left) else 0)
    print(f"{sent} sent, {count} left" if count else f"{sent} sent")
    return 1 if count else 0


_UNKNOWN = "whose it is cannot be told: it was written where programs share a folder"


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


def _told(found: Iterator[StoredLetter], streams: set[str]) -> Iterator[StoredLetter]:
    """Yield letters, and note of which streams there are any."""
    for stored in found:
        streams.add(stored.letter.stream_text)
        yield stored


def _is_of(letter: DeadLetter, stream: str) -> bool:
    return stream in (str(letter.stream), letter.stream_name, letter.stream_text)


def _without_stream(options: argparse.Namespace) -> int:
    """Say so if a stream that was named has no letters; return the exit code."""
    if any(options.stream in (known, *known.rpartition("-")[::2]) for known in options.streams):
        return 0
    there = ", ".join(sorted(options.streams))
    print(
        f"penstock dead-letters: no dead letters of a stream {options.stream!r}"
        + (f"; there are some of {_one_line(there)}" if there else ", or of any other"),
        file=sys.stderr,
    )
    return 1


def _state(stored: StoredLetter, states: Mapping[SentKey, SentState]) -> SentState | None:
    name = (stored.log, stored.number)
    return sent_state(states, name, sent_key(name, stored.letter, stored.program))


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
