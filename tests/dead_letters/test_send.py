"""``penstock dead-letters send``: discarded records are stored again by the program that runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.__main__ import main
from penstock.receiver import receiver
from tests.system.running import run_on

pytestmark = pytest.mark.slow


def test_after_a_mend_the_letters_of_a_stream_are_sent_through_again(
    sc: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    folder, mended = tmp_path / "checkpoint", str(tmp_path / "mended")

    @receiver(validate=lambda number: number % 3 != 0 or Path(mended).exists())
    def numbers(ctx: Any) -> Iterator[int]:
        yield from range(1, 10)
        ctx.stopped.wait()

    def command(*arguments: str) -> tuple[int, str, str]:
        code = main(["dead-letters", str(folder), *arguments])
        told = capsys.readouterr()
        return code, told.out, told.err

    def listed() -> list[Any]:
        return [json.loads(line)["sent"] for line in command("list", "--json")[1].splitlines()]

    settings = {"spark.penstock.ui.enabled": "true", "spark.penstock.ui.port": "0"}
    with run_on(sc, settings, checkpoint=str(folder)) as run:
        run.process(numbers, int)
        run.start()
        stream = str(run.streams[0].stream_id)
        run.await_processed(6)
        assert listed() == [False] * 3
        for _ in range(2):
            # What still does not fit is told, and stays the letter that it is.
            code, out, error = command("send", "--stream", stream)
            assert (code, out) == (1, "0 sent, 3 left\n")
            assert error.count(" is left: it still does not fit: InvalidRecordError: ") == 3
        assert listed() == [False] * 3
        Path(mended).touch()
        ids = [line.split()[0] for line in command("list")[1].splitlines()[1:]]
        code, out, error = command("send", ids[1], "1-00000000-1")
        assert (code, out) == (1, "1 sent, 1 left\n")
        assert error == "penstock dead-letters: 1-00000000-1 is left: there is no such letter\n"
        assert listed() == [False, True, False]
        assert command("send", "--stream", stream) == (0, "2 sent\n", "")
        run.await_processed(9)
        assert command("send", "--stream", stream) == (0, "0 sent\n", "")
        code, out, error = command("send", ids[0])
        assert (code, out) == (1, "0 sent, 1 left\n")
        assert "it was sent already; --again sends it once more" in error
        code, out, error = command("send")
        assert (code, out) == (2, "")
        assert "send needs ids, or --stream STREAM" in error
        run.ssc._rates.set_paused(int(stream), True)
        code, _, error = command("send", "--again", "--stream", stream)
        assert (code, "is paused: resume it" in error) == (2, True)
        run.stop()
    assert run.processed == [1, 2, 4, 5, 7, 8, 6, 3, 9]
    code, _, error = command("send", "--again", "--stream", stream)
    assert code == 2
    assert "no program of this user runs on this host" in error
