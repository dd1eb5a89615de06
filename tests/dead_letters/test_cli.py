"""``penstock dead-letters``: what a person sees of discarded records, and takes elsewhere."""

from __future__ import annotations

import base64
import contextlib
import json
import resource
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.__main__ import main
from penstock.dead_letters import (
    SENT_BEFORE,
    DeadLetterPlace,
    DeadLetterWriter,
    cli,
    is_program_name,
    letter_key,
    letters,
    program_name,
    read,
)
from penstock.errors import PenstockError
from penstock.host.durability import LEDGER
from penstock.runtime.clock import ManualClock
from penstock.tracker import ReceivedBlockTracker
from penstock.wal import (
    KEY_VARIABLE,
    CorruptRecordError,
    EncryptionKey,
    EncryptionMismatchError,
    LogWriter,
)
from penstock.wire.messages import Ok
from tests.bounds import HANG_S
from tests.tracker.ledger_cases import add, block

ATTEMPT = "0123456789abcdef0123456789abcdef"
DAY_MS = 86_400_000


def place(folder: Path, **changes: Any) -> DeadLetterPlace:
    """Return a place in a folder that is a program's own, or in that of one among several."""
    known: dict[str, Any] = {"stream": 2, "attempt": ATTEMPT, "receiver": "Gauge", "host": "here"}
    known["stream_name"] = "meters"
    known["folder"] = str(folder if is_program_name(folder.name) else folder / "deadLetters")
    return DeadLetterPlace(**{**known, **changes})


def write(folder: Path, *records: Any, **changes: Any) -> None:
    writer = DeadLetterWriter(place(folder, **changes), tell=lambda message, error: None)
    for number, record in enumerate(records):
        position = msgspec.msgpack.encode({"offset": number})
        writer.add(record, ValueError(f"no number: {number}"), repr(record), position=position)
    assert writer.write()
    writer.close()


def test_list_shows_one_line_for_each_and_nothing_that_moves_a_cursor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, b"\x1b[2Jone", "two\nlines", {"three": 3})
    assert main(["dead-letters", str(tmp_path), "list"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["ID", "DISCARDED", "STREAM", "REASON", "RECORD"]
    assert [line.split()[0] for line in lines] == [f"2-01234567-{n}" for n in (1, 2, 3)]
    assert lines[0].endswith("ValueError: no number: 0  b'\\x1b[2Jone'")
    at = head.index("STREAM")
    assert [line[at : at + 8] for line in lines] == ["meters-2"] * 3
    assert main(["dead-letters", str(tmp_path), "list", "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [letter["position"] for letter in found] == [{"offset": n} for n in range(3)]
    assert [letter["form"] for letter in found] == ["bytes", "text", "json"]


def test_a_stream_is_named_by_name_or_number_and_one_that_has_no_letters_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "one", "two")
    write(tmp_path, "of another", stream=3, stream_name="gauges")
    write(tmp_path, "of an earlier version", stream=4, stream_name="")
    note_sent(tmp_path)

    def shown(stream: str) -> tuple[int, list[str], str]:
        code = main(["dead-letters", str(tmp_path), "list", "--stream", stream])
        told = capsys.readouterr()
        return code, [line.split()[0] for line in told.out.splitlines()[1:]], told.err

    for stream in ("2", "meters", "meters-2"):
        assert shown(stream) == (0, ["2-01234567-1", "2-01234567-2"], "")
    assert shown("gauges") == (0, ["3-01234567-1"], "")
    assert shown("4") == (0, ["4-01234567-1"], "")
    for stream in ("1", "gauges-2", "mete"):
        code, found, told = shown(stream)
        assert (code, found) == (1, [])
        assert told == (
            f"penstock dead-letters: no dead letters of a stream {stream!r}; there are some of 4, "
            "gauges-3, meters-2\n"
        )


def note_sent(folder: Path, *names: tuple[str, int]) -> None:
    """Have a ledger in a folder in which letters of stream 2 were sent."""
    with contextlib.closing(ReceivedBlockTracker.recover((), str(folder / LEDGER))) as ledger:
        ledger.register_streams({"other": 0, "another": 1, "meters": 2})
        registered = ledger.register_attempt(2, ATTEMPT, "here")
        sent = msgspec.structs.replace(
            block(2, ATTEMPT, registered.first_block_number),
            letters=tuple(letter_key(name, None) for name in names),
        )
        assert isinstance(add(ledger, 2, ATTEMPT, [sent]), Ok)


def test_list_shows_what_was_sent_as_the_ledger_knows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "own", b"one", b"two")
    names = [(stored.log, stored.number) for stored in letters(str(tmp_path / "own"))]
    note_sent(tmp_path / "own", names[0])
    # The program's letters may be anywhere else.
    write(tmp_path / "shared", b"one", b"two")
    of_own = (["own"], ["own/deadLetters"], ["own/deadLetters/"], ["shared", "--ledger", "own"])
    for folder, *ledger in of_own:
        named = [f"{tmp_path}/{path}" if path == "own" else path for path in ledger]
        command = ["dead-letters", f"{tmp_path}/{folder}", "list", *named]
        assert main([*command, "--json"]) == 0
        shown = capsys.readouterr()
        assert ([json.loads(line)["sent"] for line in shown.out.splitlines()], shown.err) == (
            [True, False],
            "",
        )
        assert main(command) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.endswith("  (sent)") for line in lines] == [False, True, False]


def test_a_ledger_says_nothing_of_letters_of_other_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = tmp_path / "shared"
    for each, digit in (("one", "a"), ("two", "b")):
        name = program_name(each, digit * 32)
        write(shared / name, each, attempt=digit * 32)
        (tmp_path / each).mkdir()
        (tmp_path / each / "program").write_text(name)
    note_sent(tmp_path / "one", ("2-" + "a" * 32, 1))
    note_sent(tmp_path / "two")
    for ledger, sent in (("one", [True, None]), ("two", [None, False])):
        command = ["dead-letters", str(shared), "list", "--ledger", str(tmp_path / ledger)]
        assert main([*command, "--json"]) == 0
        shown = capsys.readouterr()
        assert [json.loads(line)["sent"] for line in shown.out.splitlines()] == sent
        assert "1 letters of other programs" in shown.err
    # A program that has a name wrote letters beside its ledger too.
    write(tmp_path / "one", "beside")
    assert main(["dead-letters", str(tmp_path / "one"), "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sent"] is False


def test_list_says_where_it_is_not_known_what_was_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, b"one", b"two")
    assert main(["dead-letters", str(tmp_path), "list", "--json"]) == 0
    shown = capsys.readouterr()
    assert [json.loads(line)["sent"] for line in shown.out.splitlines()] == [None, None]
    assert shown.err == NOT_KNOWN
    assert main(["dead-letters", str(tmp_path), "list", "--ledger", str(tmp_path)]) == 2
    assert f"{tmp_path} is no checkpoint directory" in capsys.readouterr().err


def test_letters_are_shown_where_the_ledger_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, b"one")
    note_sent(tmp_path, (place(tmp_path).name, 1))
    (log,) = (tmp_path / LEDGER).glob("segment-*.log")
    data = bytearray(log.read_bytes())
    data[data.index(b"meters")] ^= 1
    log.write_bytes(data)
    assert main(["dead-letters", str(tmp_path), "list", "--json"]) == 0
    shown = capsys.readouterr()
    assert [json.loads(line)["sent"] for line in shown.out.splitlines()] == [None]
    assert f"`penstock wal check {tmp_path / LEDGER}`" in shown.err
    assert main(["dead-letters", str(tmp_path), "list", "--ledger", str(tmp_path)]) == 2


NOT_KNOWN = (
    "penstock dead-letters: which of them were sent is not known here; the program's checkpoint "
    "directory or log folder says it, if --ledger names it\n"
)


class Sends:
    """Stands for a program that sends its letters but number 4, and may have sent number 1."""

    def __init__(self, program: str = "") -> None:
        self.program = program
        self.asked: list[tuple[int, list[int], bool]] = []
        self.has_sent_first = False

    def act(self, action: str, **what: Any) -> Any:
        assert action == "send"
        if what["program"] != self.program:
            return {"sent": 0, "left": [], "isOther": True}
        numbers = [number for _, number, _ in what["letters"]]
        self.asked.append((what["stream"], numbers, what["again"]))
        left = [(log, number, "no") for log, number, _ in what["letters"] if number == 4]
        if self.has_sent_first and not what["again"]:
            left += [
                (log, number, SENT_BEFORE) for log, number, _ in what["letters"] if number == 1
            ]
        return {"sent": len(numbers) - len(left), "left": left, "isOther": False}


def command(program: Sends, *arguments: str) -> Any:
    """Run ``penstock dead-letters`` where this is the running program."""
    ways = cli.Ways(client=lambda app: program)
    return cli.dead_letters.main(list(arguments), obj=ways, standalone_mode=False)


def test_send_asks_once_for_each_that_was_not_sent_and_says_which_are_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.dead_letters.cli._SENT_AT_A_TIME", 2)
    write(tmp_path, *(f"{number}" for number in range(1, 8)))
    write(tmp_path, "of another stream", stream=3)
    writer = DeadLetterWriter(place(tmp_path, attempt="f" * 32), lambda message, error: None)
    writer.add("of a function", ValueError(), "", batch_ms=1, origin="parse:1:0:0")
    writer.write()
    writer.close()
    (function,) = [each.id for each in letters(str(tmp_path)) if each.letter.origin is not None]

    def send(*arguments: str) -> tuple[list[tuple[int, list[int], bool]], set[str], str]:
        program = Sends()
        program.has_sent_first = True
        command(program, str(tmp_path), "send", *arguments)
        told = capsys.readouterr()
        left = {line.split()[2] for line in told.err.splitlines() if " is left: " in line}
        return program.asked, left, told.out

    assert send("--stream", "2") == (
        [(2, [1, 2], False), (2, [3, 4], False), (2, [5, 6], False), (2, [7], False)],
        {"2-01234567-4", function},
        "5 sent, 2 left\n",
    )
    asked, left, out = send("--stream", "2", "--again", "--functions")
    assert sorted(number for _, numbers, _ in asked for number in numbers) == [1, *range(1, 8)]
    assert all(again for _, _, again in asked)
    assert (left, out) == ({"2-01234567-4"}, "7 sent, 1 left\n")
    # Who asks for one by its id is told by the program that it was sent.
    asked, left, out = send("2-01234567-1", "3-01234567-1", function, "3-00000000-1")
    assert asked == [(2, [1], False), (3, [1], False)]
    assert left == {"2-01234567-1", "3-01234567-1", function, "3-00000000-1"}
    assert out == "0 sent, 4 left\n"


def test_what_was_sent_and_left_is_told_when_the_program_answers_no_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.dead_letters.cli._SENT_AT_A_TIME", 4)
    write(tmp_path, *(f"{number}" for number in range(1, 8)))

    class Ends(Sends):
        def act(self, action: str, **what: Any) -> Any:
            if self.asked:
                raise PenstockError("it has ended")
            return super().act(action, **what)

    with pytest.raises(PenstockError, match="it has ended"):
        command(Ends(), str(tmp_path), "send", "--stream", "2")
    told = capsys.readouterr()
    assert told.out == "3 sent before that\n"
    assert told.err == "penstock dead-letters: 2-01234567-4 is left: no\n"


def test_show_tells_all_of_one_and_which_are_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, "text \x1b[31m", {1, 2}, threading.Lock())
    names = ["2-01234567-1", "2-01234567-3", "2-01234567-9"]
    assert main(["dead-letters", str(tmp_path), "show", *names]) == 1
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out
    assert "text \\x1b[31m" in shown.out
    assert 'position:  {"offset":0}' in shown.out
    assert f"receiver:  Gauge, attempt {ATTEMPT}" in shown.out
    assert "record:    repr" in shown.out
    assert shown.err == "penstock dead-letters: there is no letter 2-01234567-9\n"


def test_export_writes_the_bytes_as_they_were_for_this_user_only_and_overwrites_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, b"\x00\xff", "two")
    lines, raw = tmp_path / "letters.jsonl", tmp_path / "raw"
    command = ["dead-letters", str(tmp_path), "export", "--to", str(lines), "--raw", str(raw)]
    assert main(command) == 0
    found = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [base64.b64decode(letter["data"]) for letter in found] == [b"\x00\xff", b"two"]
    assert {path.name: path.read_bytes() for path in raw.iterdir()} == {
        "2-01234567-1.bytes": b"\x00\xff",
        "2-01234567-2.text": b"two",
    }
    assert {stat.S_IMODE(path.stat().st_mode) for path in (lines, *raw.iterdir())} == {0o600}
    assert main(command) == 2
    assert main(["dead-letters", str(tmp_path), "export", "--to", str(lines)]) == 2
    told = [
        f"penstock dead-letters: it is there already, and nothing is overwritten: {path}"
        for path in (raw, lines)
    ]
    assert capsys.readouterr().err.splitlines() == told
    assert main(["dead-letters", str(tmp_path), "export", "2-01234567-2"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == "2-01234567-2"


def test_an_export_from_a_wrong_folder_or_of_a_wrong_id_leaves_nothing_in_the_way_of_the_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, b"one")
    lines, raw = tmp_path / "letters.jsonl", tmp_path / "raw"
    where = ["export", "--to", str(lines), "--raw", str(raw)]
    assert main(["dead-letters", str(tmp_path / "none"), *where]) == 2
    assert main(["dead-letters", str(tmp_path), *where, "2-01234567-9"]) == 1
    assert main(["dead-letters", str(tmp_path), "export", "--to", str(raw / "letters")]) == 2
    assert capsys.readouterr().err.endswith(f"there is no such folder: {raw}\n")
    assert not lines.exists()
    assert not raw.exists()
    assert main(["dead-letters", str(tmp_path), *where]) == 0
    assert len(lines.read_text().splitlines()) == 1


def test_an_export_that_is_interrupted_or_has_no_room_leaves_nothing(tmp_path: Path) -> None:
    write(tmp_path, *(b"x" * 50_000 for _ in range(8)))
    exports = tmp_path / "exports"
    exports.mkdir()

    def a_little_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (32 << 10, 32 << 10))

    for option in ("--to", "--raw"):
        where = exports / "letters"
        command = ["dead-letters", str(tmp_path), "export", option, str(where)]
        with spawn(*command, preexec_fn=a_little_room) as full:
            error = full.communicate(timeout=HANG_S)[1]
        assert (full.returncode, error.count("\n")) == (2, 1), error
        assert "File too large: " in error
        assert str(where) in error
        assert list(exports.iterdir()) == []
    # It waits for who reads what it prints.
    with spawn("dead-letters", str(tmp_path), "export", stdout=subprocess.PIPE) as stuck:
        assert stuck.stdout is not None
        stuck.stdout.read(1)
        stuck.send_signal(signal.SIGINT)
        error = stuck.communicate(timeout=HANG_S)[1]
    assert (stuck.returncode, error) == (130, "penstock dead-letters: interrupted\n")


def spawn(*arguments: str, **more: Any) -> subprocess.Popen[str]:
    # With -B: a compiled module that is cut short, as with little room, would stay.
    command = [sys.executable, "-B", "-m", "penstock", *arguments]
    return subprocess.Popen(command, text=True, stderr=subprocess.PIPE, **more)


def test_other_logs_are_told_as_what_they_are_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with LogWriter.create(str(tmp_path / f"0-{ATTEMPT}")) as log:
        log.append(1, b"a block, say")
    assert main(["dead-letters", str(tmp_path), "list"]) == 2
    assert "is no log of dead letters" in capsys.readouterr().err


def test_any_position_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = DeadLetterWriter(place(tmp_path), tell=lambda message, error: None)
    position = msgspec.msgpack.encode({("orders", 0): 7})
    writer.add(b"bad", ValueError(), "bad", position=position)
    writer.write()
    writer.close()
    assert main(["dead-letters", str(tmp_path), "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["position"] == {'["orders",0]': 7}


def test_what_is_removed_while_it_is_read_is_left_out(tmp_path: Path) -> None:
    writer = DeadLetterWriter(place(tmp_path, max_bytes=1 << 20), lambda message, error: None)

    def add(count: int) -> None:
        for _ in range(count):
            writer.add(bytes(10_000), ValueError(), "")
            writer.write()

    add(90)
    found = letters(str(tmp_path))
    before = [next(found)]
    add(50)
    before += found
    numbers = [int(stored.id.rsplit("-", 1)[1]) for stored in before]
    assert numbers == sorted(numbers)
    assert numbers[0] == 1
    assert numbers[-1] >= 90
    assert 20 < len(numbers) < 90
    writer.close()


def test_no_folder_and_no_letters_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dead-letters", str(tmp_path / "none"), "list"]) == 2
    told = capsys.readouterr().err
    assert told == f"penstock dead-letters: there is no such folder: {tmp_path / 'none'}\n"
    for folder in (tmp_path, tmp_path / "deadLetters"):
        folder.mkdir(exist_ok=True)
        assert main(["dead-letters", str(folder), "list"]) == 0
        assert capsys.readouterr().out == "no dead letters\n"


@pytest.mark.parametrize("name", ["receivedData", "receivedBlockMetadata", "checkpoint-1000"])
def test_a_folder_that_is_not_of_penstock_is_told_from_one_that_has_no_letters(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.txt").write_text("all is well")
    for command in (["list"], ["show", "0-01234567-1"], ["export"], ["send", "--stream", "0"]):
        assert main(["dead-letters", str(tmp_path), *command]) == 2
        assert capsys.readouterr().err.startswith(
            f"penstock dead-letters: {tmp_path} has nothing that a program of Penstock keeps: name "
        )
    (tmp_path / name).mkdir()
    assert main(["dead-letters", str(tmp_path), "list"]) == 0


def test_below_a_folder_of_several_programs_a_program_sends_what_is_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = (program_name("meters", digit * 32) for digit in "12")
    for program, attempt in ((own, "a" * 32), (other, "b" * 32)):
        write(tmp_path / program, "one", "two", attempt=attempt)
    assert main(["dead-letters", str(tmp_path), "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines if line.startswith("program")] == [
        ["program", own],
        ["program", other],
    ]
    assert main(["dead-letters", str(tmp_path / other), "list"]) == 0
    assert [line[:11] for line in capsys.readouterr().out.splitlines()[2:]] == ["2-bbbbbbbb-"] * 2

    def send(*arguments: str, to: str = own) -> tuple[int, list[Any], str, str]:
        program = Sends(to)
        code = command(program, str(tmp_path), "send", *arguments)
        told = capsys.readouterr()
        return code, program.asked, told.out, told.err

    whose = f"is left: it is one of another program, {other}\n"
    code, asked, out, told = send("--stream", "meters")
    assert (code, asked, out) == (0, [(2, [1, 2], False)], "2 sent\n")
    assert told.count(whose) == 2
    code, asked, out, told = send("2-aaaaaaaa-1", "2-bbbbbbbb-1")
    assert (code, asked, out) == (1, [(2, [1], False)], "1 sent, 1 left\n")
    assert told == f"penstock dead-letters: 2-bbbbbbbb-1 {whose}"
    # Each of another's is told once, however many requests they would have made.
    monkeypatch.setattr("penstock.dead_letters.cli._SENT_AT_A_TIME", 1)
    assert send("--stream", "meters")[3].count(whose) == 2
    # A program of which there are none here has sent nothing.
    assert send("--stream", "2", to=program_name("", "3" * 32))[:3] == (1, [], "0 sent, 4 left\n")


def test_damage_is_told_and_everything_else_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, b"first", b"second" * 20, b"third")
    (segment,) = tmp_path.rglob("segment-*.log")
    data = segment.read_bytes()
    segment.write_bytes(data.replace(b"secondsecond", b"secondSECOND", 1))
    assert main(["dead-letters", str(tmp_path), "list"]) == 1
    shown = capsys.readouterr()
    assert [line.split()[0][-1] for line in shown.out.splitlines()[1:]] == ["1", "3"]
    assert "corrupt record in segment 1" in shown.err


def test_damage_is_raised_behind_all_that_is_readable_where_nobody_asked_to_be_told(
    tmp_path: Path,
) -> None:
    write(tmp_path, b"first", b"second" * 20, b"third")
    (segment,) = tmp_path.rglob("segment-*.log")
    data = segment.read_bytes()
    segment.write_bytes(data.replace(b"secondsecond", b"secondSECOND", 1))
    found = letters(str(tmp_path))
    assert [next(found).letter.data for _ in range(2)] == [b"first", b"third"]
    with pytest.raises(CorruptRecordError):
        next(found)


def test_encrypted_letters_are_read_with_their_key_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = EncryptionKey.generate()
    write(tmp_path, b"a secret of the customer", encryption=key)
    assert all(
        b"customer" not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    )
    with pytest.raises(EncryptionMismatchError):
        list(letters(str(tmp_path)))
    assert main(["dead-letters", str(tmp_path), "list"]) == 2
    monkeypatch.setenv(KEY_VARIABLE, base64.b64encode(key.secret).decode())
    assert main(["dead-letters", str(tmp_path), "list"]) == 0
    assert "a secret of the customer" in capsys.readouterr().out


def test_letters_above_the_size_or_age_go_with_the_oldest_first_and_are_told(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    told: list[BaseException] = []

    def writer(attempt: str, **changes: Any) -> DeadLetterWriter:
        where = place(tmp_path, attempt=attempt * 32, **changes)
        return DeadLetterWriter(where, lambda message, error: told.append(error), clock)

    def left() -> list[str]:
        return [stored.letter.shown for stored in letters(str(tmp_path))]

    old = writer("a")
    old.add(b"old", ValueError(), "old")
    old.write()
    old.close()
    clock.advance(4 * DAY_MS)
    other = writer("b", stream=3)
    other.add(b"other", ValueError(), "of another stream")
    other.write()
    clock.advance(5 * DAY_MS)
    young = writer("c")
    young.add(b"young", ValueError(), "young")
    young.write()
    assert left() == ["young", "of another stream"]
    assert [type(error) for error in told] == [PenstockError]
    assert "older than spark.penstock.deadLetters.maxAge" in str(told[0])
    young.close()
    clock.advance(DAY_MS)
    many = writer("d", max_bytes=1 << 20)
    for number in range(30):
        many.add(bytes(100_000), ValueError(), str(number))
        many.write()
    found = left()
    assert found[-1] == "of another stream"
    assert 4 <= len(found) - 1 <= 11
    assert found[:-1] == [str(number) for number in range(31 - len(found), 30)]
    for open_one in (other, many):
        open_one.close()


def test_a_log_that_cannot_be_looked_at_is_told_and_keeps_no_other_from_going(
    tmp_path: Path,
) -> None:
    told: list[str] = []
    write(tmp_path, b"young", attempt="b" * 32)
    (damaged,) = tmp_path.rglob("segment-*.log")
    damaged.write_bytes(bytes(4096))
    (tmp_path / "deadLetters" / f"2-{'c' * 32}" / "segment-000000000001.log").mkdir(parents=True)
    writer = DeadLetterWriter(
        place(tmp_path, max_bytes=1 << 20), lambda message, error: told.append(message)
    )
    for number in range(300):
        writer.add(bytes(10_000), ValueError(), "")
        writer.write()
        # How old it is is not known; it goes when there is too much.
        assert damaged.exists() or number
    assert told == ["Old dead letters could not be removed"]
    (own,) = tmp_path.rglob(f"2-{ATTEMPT}")
    assert sum(path.stat().st_size for path in own.iterdir()) <= 1 << 20
    # What went since is told at the end at the latest, and so is the other one again.
    writer.close()
    assert len(told) == 3
    assert "were removed: spark.penstock.deadLetters.maxSize" in told[1]


def test_a_letter_gets_its_age_also_if_older_ones_lie_beside_it(tmp_path: Path) -> None:
    clock = ManualClock()
    hour_ms = DAY_MS // 24
    writer = DeadLetterWriter(place(tmp_path), lambda message, error: None, clock)

    def add(shown: str) -> list[str]:
        writer.add(b"bad", ValueError(), shown)
        writer.write()
        return [stored.letter.shown for stored in letters(str(tmp_path))]

    add("oldest")
    clock.advance(20 * hour_ms)
    add("older")
    assert len(list(tmp_path.rglob("segment-*.log"))) == 1
    clock.advance(7 * DAY_MS - 19 * hour_ms)
    assert add("young") == ["oldest", "older", "young"]
    clock.advance(DAY_MS)
    assert add("youngest") == ["young", "youngest"]
    writer.close()


def test_a_log_of_an_earlier_attempt_is_as_old_as_its_last_segment(tmp_path: Path) -> None:
    clock = ManualClock()

    def writer(attempt: str) -> DeadLetterWriter:
        where = place(tmp_path, attempt=attempt * 32)
        return DeadLetterWriter(where, lambda message, error: None, clock)

    def add(to: DeadLetterWriter, shown: str) -> list[str]:
        to.add(b"bad", ValueError(), shown)
        to.write()
        return [stored.letter.shown for stored in letters(str(tmp_path))]

    long = writer("a")
    add(long, "old")
    clock.advance(6 * DAY_MS)
    add(long, "young")
    long.close()
    clock.advance(3 * DAY_MS)
    then = writer("b")
    assert add(then, "youngest")[1:] == ["young", "youngest"]
    clock.advance(5 * DAY_MS)
    assert add(then, "last") == ["youngest", "last"]
    then.close()


def test_of_the_logs_of_earlier_attempts_the_oldest_goes_first(tmp_path: Path) -> None:
    clock = ManualClock()
    found = []
    for attempt, count in (("f", 5), ("a", 5), ("b", 1)):
        where = place(tmp_path, attempt=attempt * 32, max_bytes=1 << 20)
        writer = DeadLetterWriter(where, lambda message, error: None, clock)
        for _ in range(count):
            writer.add(bytes(100_000), ValueError(), attempt)
            writer.write()
        writer.close()
        clock.advance(1000)
        found.append("".join(stored.letter.shown for stored in letters(str(tmp_path))))
    assert found == ["fffff", "fffffaaaaa", "aaaaab"]


_LOGS_OF_KILLED_WORKERS = """
import os, sys, uuid
from penstock.dead_letters import DeadLetterPlace, DeadLetterWriter

for _ in range(40):
    place = DeadLetterPlace(sys.argv[1], 2, uuid.uuid4().hex, "map", "here", max_bytes=8 << 20)
    writer = DeadLetterWriter(place, lambda message, error: None)
    writer.add(b"bad", ValueError(), "bad")
    writer.write()
os._exit(0)
"""


def test_what_killed_workers_leave_counts_as_much_as_they_wrote(tmp_path: Path) -> None:
    folder = tmp_path / "deadLetters"
    subprocess.run([sys.executable, "-c", _LOGS_OF_KILLED_WORKERS, str(folder)], check=True)
    told: list[str] = []
    writer = DeadLetterWriter(
        place(tmp_path, max_bytes=8 << 20), lambda message, error: told.append(message)
    )
    writer.add(b"worse", ValueError(), "worse")
    writer.write()
    writer.close()
    assert (len(list(letters(str(tmp_path)))), told) == (41, [])


@pytest.mark.parametrize("folder", [None, object(), b"/checkpoints", ""])
def test_what_is_no_folder_is_refused_before_a_session_is_asked(folder: Any) -> None:
    with pytest.raises(
        (TypeError, ValueError), match=r"folder=.* is not accepted: a folder's path"
    ):
        read(None, folder)  # type: ignore[arg-type]
