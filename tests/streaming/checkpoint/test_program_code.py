"""A program that goes on from a checkpoint hears what of it has changed since, and what has not."""

from __future__ import annotations

import linecache
import logging
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.streaming import StreamingContext
from penstock.streaming.checkpoint.program_code import changes, parts_of
from tests.streaming.checkpoint.recovering import Listed

PROGRAM = '''
from argparse import Namespace
from pyspark import SparkConf

PORT = 9999
options = Namespace(rate=5, names={"a", "b", "c"})
conf = SparkConf(loadDefaults=False).set("spark.mine", "1")

class Numbers:
    """A receiver."""
    limit = 3

    def run(self, ctx):
        return clean(self.limit)

def clean(text):
    """What it does."""
    return text.strip()

def unused(text):
    return text

def setup(name="orders"):
    streams = (conf, PORT, options, Numbers())
    password = "abc"
    stream = name + "lines"
    return lambda text: clean(text) if text in {"x", "y", "z"} else stream
'''


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    """Return a program's module, as if it were the one that runs."""
    main = sys.modules["__main__"]

    def load(text: str) -> Any:
        path = tmp_path / "program.py"
        path.write_text(text)
        linecache.checkcache()
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        exec(compile(text, str(path), "exec"), module.__dict__)
        return module

    yield load
    sys.modules["__main__"] = main


@pytest.fixture
def changed(load: Callable[[str], Any]) -> Callable[..., list[str]]:
    """Return what is said of the program when parts of its text are replaced."""

    def changed(*pairs: tuple[str, str], add: str = "") -> list[str]:
        before = parts_of(load(PROGRAM).setup)
        text = PROGRAM
        for old, new in pairs:
            assert old in text
            text = text.replace(old, new)
        return changes(before, parts_of(load(add + text).setup))

    return changed


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param((PROGRAM, PROGRAM), id="nothing"),
        pytest.param(("def clean", "\n# A comment.\n\ndef clean"), id="comment"),
        pytest.param(("What it does.", "What it does for whom."), id="docstring"),
        pytest.param(("return text\n", "return None\n"), id="what the streams do not use"),
        pytest.param(("text.strip()", "(  text . strip ( ) )"), id="spaces"),
    ],
)
def test_the_same_program_is_not_said_to_have_changed(
    changed: Callable[..., list[str]], pair: tuple[str, str]
) -> None:
    assert changed(pair) == []


def test_functions_are_named_with_file_and_line_and_what_they_were(
    changed: Callable[..., list[str]],
) -> None:
    found = changed(('+ "lines"', '+ "events"'), ("text.strip()", "text.lower()"), add="\n\n")
    assert found == [
        "setup (program.py:25) has changed",
        '    line 28 is stream = name + "events"',
        '           was stream = name + "lines"',
        "clean (program.py:18) has changed",
        "    line 20 is return text.lower()",
        "           was return text.strip()",
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("PORT = 9999", "PORT = 9998", "PORT has another value"),
        ("rate=5", "rate=6", "options: rate has another value"),
        ('"b", "c"', '"b", "d"', "options: names has another value"),
        ('"spark.mine", "1"', '"spark.mine", "2"', "conf: spark.mine has another value"),
        ("limit = 3", "limit = 4", "Numbers.limit has another value"),
        ("self.limit)", "self.limit + 1)", "Numbers.run (program.py:13) has changed"),
        ('name="orders"', 'name="clicks"', "setup (program.py:23) has changed"),
        ('"y", "z"', '"y"', "setup (program.py:23) has changed"),
        ('"spark.mine", "1")', '"spark.yours", "1")', "conf: spark.yours is new"),
        ('"spark.mine", "1")', '"spark.yours", "1")', "conf: spark.mine is gone"),
    ],
)
def test_whatever_the_streams_are_made_with_is_compared(
    changed: Callable[..., list[str]], old: str, new: str, said: str
) -> None:
    assert said in changed((old, new))


def test_a_line_that_may_have_a_secret_is_not_shown(changed: Callable[..., list[str]]) -> None:
    found = changed(('"abc"', '"abd"'))
    assert found[0] == "setup (program.py:23) has changed"
    assert "password" not in "".join(found)


def test_a_function_of_another_module_is_said_to_run_as_it_is_now(
    load: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def parts(body: str) -> Any:
        file = tmp_path / "cleaning.py"
        file.write_text(f"def clean(text):\n    return {body}\n")
        module = types.ModuleType("cleaning")
        module.__file__ = str(file)
        monkeypatch.setitem(sys.modules, "cleaning", module)
        exec(compile(file.read_text(), str(file), "exec"), module.__dict__)
        return parts_of(load("import cleaning\ndef setup():\n    return cleaning.clean").setup)

    before = parts("text")
    assert changes(before, parts("text.strip()"))[0] == (
        "clean (cleaning.py:1) has changed, which runs as it is now, for it is imported"
    )


def test_what_cannot_be_looked_at_keeps_no_program_from_its_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Angry(types.SimpleNamespace):
        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError("do not look at me")

    angry = Angry()
    with caplog.at_level(logging.INFO):
        parts = parts_of(lambda: angry)
    assert len(parts) == 1
    assert "cannot be compared with later ones: do not look at me" in caplog.text


@pytest.mark.long
def test_a_restart_says_what_has_changed_and_the_way_to_go_on_with_it(
    sc: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "checkpoint")

    def setup_of(factor: int) -> Callable[[], StreamingContext]:
        def setup() -> StreamingContext:
            ssc = StreamingContext(sc, 60)
            Listed(ssc._graph, [[1]])
            ssc._stream(ssc._graph.inputs[0]).map(lambda n: factor * n).foreachRDD(lambda _: None)
            return ssc

        return setup

    def start(factor: int, version: str | None = None) -> str:
        caplog.clear()
        ssc = StreamingContext.getOrCreate(path, setup_of(factor), version)
        ssc.start()
        ssc.stop(stopSparkContext=False)
        return caplog.text

    start(2)
    assert "changed" not in start(2)
    # What runs is what is compared, also after a restart that went on with what there was.
    for _ in range(2):
        said = start(3)
        assert "The program has changed, and what the checkpoint in" in said
        assert "factor of" in said
        assert "getOrCreate(..., version='2')" in said
    assert "changed" not in start(3, "2")
    said = start(4, "2")
    assert "has of it of version '2' goes on" in said
    assert "version='3'" in said
