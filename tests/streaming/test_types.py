"""What a type checker says of a program's streams."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from mypy import api as mypy

ROOT = Path(__file__).parents[2]

PROGRAM = """
from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator

from penstock.receiver import Receiver, ReceiverContext, receiver
from penstock.streaming import StreamingContext


class Mine(Receiver): ...


class Runs:
    def run(self, ctx: ReceiverContext) -> None: ...


def words() -> Iterator[str]:
    yield ""


def lists(ctx: ReceiverContext) -> Iterator[list[int]]:
    yield [1]


async def later(ctx: ReceiverContext) -> AsyncIterator[bytes]:
    yield b""


@receiver(schema="a int")
def rows() -> Iterator[dict[str, int]]:
    yield {}


@receiver(positions=True)
def pairs() -> Iterator[tuple[str, int]]:
    yield "", 1


def of(ctx: ReceiverContext, url: str) -> Iterator[float]:
    yield 1.0


def program(ssc: StreamingContext) -> None:
    reveal_type(ssc.receiverStream(Mine()))
    reveal_type(ssc.receiverStream(Runs))
    reveal_type(ssc.receiverStream(Runs()))
    reveal_type(ssc.receiverStream(words, name="words"))
    reveal_type(ssc.receiverStream(lists))
    reveal_type(ssc.receiverStream(later))
    reveal_type(ssc.receiverStream(rows))
    reveal_type(ssc.receiverStream(pairs))
    reveal_type(ssc.receiverStream(lambda ctx: of(ctx, "")))
    reveal_type(ssc.receiverStream(functools.partial(of, url="")))
    ssc.receiverStream(5)
    ssc.receiverStream("words")
    ssc.receiverStream(words())
    ssc.receiverStream(Mine)
    ssc.receiverStream(print)
"""


@pytest.mark.long
@pytest.mark.slow
def test_streams_have_the_type_of_their_records_and_what_is_no_receiver_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    monkeypatch.chdir(ROOT)
    said, _, _ = mypy.run(
        ["--strict", "--hide-error-context", "--python-executable", sys.executable, str(program)]
    )
    records = re.findall(r'Revealed type is ".*ReceiverDStream\[(.*)\]"', said)
    assert records == [
        "Any",
        "Any",
        "Any",
        "str",
        "int",
        "bytes",
        "dict[str, int]",
        "Any",
        "float",
        "float",
    ]
    first = PROGRAM.splitlines().index("    ssc.receiverStream(5)") + 1
    errors = [int(line.split(":")[1]) for line in said.splitlines() if ": error: " in line]
    assert errors == list(range(first, first + 5))
