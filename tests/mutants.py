"""Changes the code in small ways and looks whether the fast tests notice: ``make mutants``.

Each *mutant* is one change of one place: a comparison turned round, a condition that is always
true, a call or a ``raise`` left out, a constant one higher. It is made in a copy of the project,
where the fast tests of its room run until the first one fails. One that no test notices has
*survived*: a test is missing, or the change makes no difference. Survivors of the second kind stand
in ``known_mutants.txt`` beside this file, each with its reason. One with which the tests are not
done in three times their time *took too long*: most hang, but on a busy machine one may be slow.

A room has thousands of mutants, so a sample is taken, the same for the same seed::

    make mutants ARGS="--room wal --sample 30 --seed 1"
    make mutants ARGS="--file penstock/wal/_folder.py"
    make mutants ARGS="--room wire --list"
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.system.leftovers import MARK, marked_processes

__all__ = ["Mutant", "main", "mutants_of"]

_ROOT = Path(__file__).parents[1]
_KNOWN = Path(__file__).with_name("known_mutants.txt")
_LEAST_BOUND_S = 60.0
_NOT_DONE = "not done"

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "//",
    ast.FloorDiv: "*",
    ast.BitAnd: "|",
    ast.BitOr: "&",
    ast.And: "or",
    ast.Or: "and",
}
_QUIET = ("debug", "info", "warning", "error", "exception", "log")


@dataclass(frozen=True)
class Mutant:
    """One change.

    Attributes:
        path: The file, from the project's root.
        line: The number of the line where it begins.
        begin: Offset of what is replaced, in bytes.
        end: Where that ends.
        new: What stands there instead.
        before: What was there, in one line.
    """

    path: str
    line: int
    begin: int
    end: int
    new: str
    before: str

    @property
    def change(self) -> str:
        """The change, in one line; by this a known one is recognised."""
        return f"{self.before} -> {self.new.strip()}"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.change}"


def mutants_of(path: str, source: str) -> list[Mutant]:
    """Return all mutants of a module.

    Args:
        path: Its path, from the project's root.
        source: Its text.
    """
    return list(_Finder(path, source).find())


class _Finder:
    """Walks through a module; knows where each node lies in its bytes."""

    def __init__(self, path: str, source: str) -> None:
        self._path = path
        self._text = source.encode()
        self._tree = ast.parse(source)
        self._starts = [0]
        for line in self._text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def find(self) -> Iterator[Mutant]:
        yield from self._of_body(self._tree.body)

    def _of_body(self, body: Sequence[ast.stmt]) -> Iterator[Mutant]:
        for statement in body:
            if not _is_left_alone(statement):
                yield from self._of_statement(statement)

    def _of_statement(self, statement: ast.stmt) -> Iterator[Mutant]:
        if isinstance(statement, (ast.Expr, ast.Raise, ast.AugAssign)) or _sets(statement):
            yield self._mutant(statement, "pass")
        elif isinstance(statement, ast.Return) and statement.value is not None:
            yield self._mutant(statement.value, "None")
        elif isinstance(statement, ast.Break):
            yield self._mutant(statement, "continue")
        elif isinstance(statement, ast.Continue):
            yield self._mutant(statement, "break")
        elif isinstance(statement, (ast.If, ast.While)):
            for value in ("True", "False"):
                # A loop for ever is noticed, but only by the bound.
                if isinstance(statement, ast.If) or value == "False":
                    yield self._mutant(statement.test, value)
        for name, value in ast.iter_fields(statement):
            if name in ("annotation", "returns", "args", "decorator_list", "bases", "type_params"):
                continue
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, ast.stmt):
                    yield from self._of_body([part])
                elif isinstance(part, (ast.ExceptHandler, ast.match_case)):
                    yield from self._of_body(part.body)
                elif isinstance(part, ast.AST):
                    yield from self._of_expression(part)

    def _of_expression(self, root: ast.AST) -> Iterator[Mutant]:
        for node in ast.walk(root):
            if isinstance(node, ast.Compare) and len(node.ops) == 1:
                yield from self._operator(node.left, node.comparators[0], node.ops[0])
            elif isinstance(node, ast.BinOp):
                yield from self._operator(node.left, node.right, node.op)
            elif isinstance(node, ast.BoolOp):
                yield from self._operator(node.values[0], node.values[1], node.op)
            elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
                yield self._mutant(node, f"bool({self._source(node.operand)})")
            elif isinstance(node, ast.IfExp):
                yield self._mutant(node.test, f"not ({self._source(node.test)})")
            elif isinstance(node, ast.Constant):
                if isinstance(node.value, bool):
                    yield self._mutant(node, str(not node.value))
                elif isinstance(node.value, int):
                    yield self._mutant(node, str(node.value + 1))

    def _operator(self, left: ast.AST, right: ast.AST, operator: ast.AST) -> Iterator[Mutant]:
        new = _OPERATORS.get(type(operator))
        if new is None:
            return
        begin, end = self._span(left)[1], self._span(right)[0]
        between = self._text[begin:end].decode()
        # Brackets and comments may stand between them, too: then it is passed over.
        if between.strip().replace("  ", " ") == _text_of(operator):
            padding = between.partition(between.strip())
            line = self._line(begin)
            before = self._in_its_line(line, between.strip())
            yield Mutant(self._path, line, begin, end, f"{padding[0]}{new}{padding[2]}", before)

    def _mutant(self, node: ast.AST, new: str) -> Mutant:
        begin, end = self._span(node)
        line = self._line(begin)
        before = self._in_its_line(line, " ".join(self._source(node).split()))
        return Mutant(self._path, line, begin, end, new, before)

    def _in_its_line(self, number: int, part: str) -> str:
        line = self._text[self._starts[number - 1] : self._starts[number]].decode().strip()
        return part if part.startswith(line) else f"{line} [{part}]"

    def _source(self, node: ast.AST) -> str:
        begin, end = self._span(node)
        return self._text[begin:end].decode()

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, (ast.expr, ast.stmt))
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _line(self, offset: int) -> int:
        return self._text.count(b"\n", 0, offset) + 1


def _is_left_alone(statement: ast.stmt) -> bool:
    """Whether nobody would want a test for a change of it: texts, types, imports, logging."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return True
    if isinstance(statement, ast.Expr):
        value = statement.value
        if isinstance(value, ast.Constant):
            return True
        function = value.func if isinstance(value, ast.Call) else None
        return isinstance(function, ast.Attribute) and function.attr in _QUIET
    if isinstance(statement, ast.Assign):
        names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
        return "__all__" in names
    if isinstance(statement, ast.If) and isinstance(statement.test, ast.Name):
        return statement.test.id == "TYPE_CHECKING"
    if isinstance(statement, ast.ClassDef):
        names = [base.id for base in statement.bases if isinstance(base, ast.Name)]
        return "Protocol" in names
    return isinstance(statement, ast.FunctionDef) and statement.name in ("__repr__", "__reduce__")


def _sets(statement: ast.stmt) -> bool:
    """Whether it assigns to an attribute or an item: without it nothing fails at once."""
    return isinstance(statement, ast.Assign) and all(
        isinstance(target, (ast.Attribute, ast.Subscript)) for target in statement.targets
    )


def _text_of(operator: ast.AST) -> str:
    texts = {
        ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
        ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in", ast.Add: "+",
        ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.BitAnd: "&", ast.BitOr: "|",
        ast.And: "and", ast.Or: "or",
    }  # fmt: skip
    return texts[type(operator)]


class _Copy:
    """A copy of the project in which mutants run, one at a time."""

    def __init__(self, folder: Path, tests: Sequence[str]) -> None:
        self._folder = folder
        self._tests = [str(file) for place in tests for file in _test_files(Path(place))]
        self.bound_s = 3600.0
        ignored = shutil.ignore_patterns("__pycache__")
        for name in ("penstock", "tests", "examples", "docs", "benchmarks", "deploy"):
            shutil.copytree(_ROOT / name, folder / name, ignore=ignored)
        for name in ("setup.cfg", "pyproject.toml", "README.md", "CHANGELOG.md"):
            shutil.copy(_ROOT / name, folder / name)

    def measure(self) -> None:
        """Run the tests on the code as it is; a mutant has three times as long.

        Raises:
            SystemExit: They fail.
        """
        begin_s = time.monotonic()
        outcome = self._run()
        if outcome is not None:
            sys.exit(f"the tests fail on the code as it is:\n{outcome}")
        self.bound_s = max(_LEAST_BOUND_S, 3 * (time.monotonic() - begin_s))

    def try_out(self, mutant: Mutant) -> str:
        """Run the tests on a mutant and return what became of it, in a word or two.

        One that hangs is noticed, too, but on a busy machine it may only be slow: it is told apart.
        """
        path = self._folder / mutant.path
        text = path.read_bytes()
        module = mutant.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        # First those that name the module: they notice most.
        self._tests.sort(key=lambda file: module not in (self._folder / file).read_text())
        path.write_bytes(text[: mutant.begin] + mutant.new.encode() + text[mutant.end :])
        try:
            outcome = self._run()
        finally:
            path.write_bytes(text)
        if outcome is None:
            return "SURVIVED"
        return "too long" if outcome.startswith(_NOT_DONE) else "noticed"

    def _run(self) -> str | None:
        """Return None when all tests pass, else the end of what they say."""
        mark = uuid.uuid4().hex
        command = [
            sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider",
            "--basetemp", str(self._folder / "tmp"), *self._tests,
        ]  # fmt: skip
        environment = {
            **os.environ,
            MARK: mark,
            "PYTHONPATH": str(self._folder),
            # A change of the same length within a second would not be seen.
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        process = subprocess.Popen(
            command,
            cwd=self._folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=self.bound_s)
            return None if process.returncode == 0 else output[-3000:]
        except subprocess.TimeoutExpired:
            return f"{_NOT_DONE} after {self.bound_s:.0f} s"
        finally:
            # What the tests started, too, whose ends may be what the mutant broke.
            for pid in [process.pid, *marked_processes(mark)]:
                with suppress(ProcessLookupError):
                    if pid != process.pid or process.poll() is None:
                        os.kill(pid, signal.SIGKILL)
            process.communicate()


def _test_files(place: Path) -> list[Path]:
    """Return the files of tests in a folder of the project, or the one file."""
    found = [file.relative_to(_ROOT) for file in sorted((_ROOT / place).rglob("test_*.py"))]
    return found or [place]


def _known() -> dict[tuple[str, str], str]:
    """Return the reason for each known survivor, by path and change."""
    found = {}
    for line in _KNOWN.read_text().splitlines():
        if line and not line.startswith("#"):
            # There may be a bar in the change, too.
            path, rest = line.split(" | ", 1)
            change, reason = rest.rsplit(" | ", 1)
            found[path, change] = reason
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make mutants ARGS=…", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--room", help="a folder of penstock/, as wal or rates")
    what.add_argument("--file", help="one file of penstock/")
    parser.add_argument("--sample", type=int, help="so many of them; all without it")
    parser.add_argument("--seed", type=int, default=0, help="chooses the sample")
    parser.add_argument("--tests", nargs="+", help="which tests; those of the room without it")
    parser.add_argument("--list", action="store_true", help="name them and run nothing")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a sample and print the survivors.

    Returns:
        1 when one survived that is not known, else 0.
    """
    options = _parser().parse_args(arguments)
    if options.file:
        files = [_ROOT / options.file]
        place = Path(options.file).parent.relative_to("penstock")
        room = next(str(at) for at in (place, *place.parents) if (_ROOT / "tests" / at).is_dir())
    else:
        room = options.room.strip("/")
        files = sorted((_ROOT / "penstock" / room).rglob("*.py"))
    mutants = []
    for file in files:
        mutants += mutants_of(str(file.relative_to(_ROOT)), file.read_text())
    if options.sample is not None and options.sample < len(mutants):
        chance = random.Random(options.seed)
        mutants = sorted(chance.sample(mutants, options.sample), key=lambda m: (m.path, m.begin))
    if options.list:
        print(*mutants, sep="\n")
        return 0
    known = _known()
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="penstock-mutants-") as folder:
        copy = _Copy(Path(folder), options.tests or [f"tests/{room}"])
        copy.measure()
        print(f"{len(mutants)} mutants, each for at most {copy.bound_s:.0f} s", flush=True)
        for mutant in mutants:
            reason = known.get((mutant.path, mutant.change))
            if reason is not None:
                print(f"known     {mutant}: {reason}", flush=True)
                continue
            outcome = copy.try_out(mutant)
            print(f"{outcome:<8}  {mutant}", flush=True)
            outcomes.append(outcome)
    survivors, slow = outcomes.count("SURVIVED"), outcomes.count("too long")
    print(f"{survivors} of {len(mutants)} survived and are not known; {slow} took too long")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
