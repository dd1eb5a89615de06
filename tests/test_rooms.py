"""No room reaches into another one: see also the layers in setup.cfg, which `make lint` checks."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]


def foreign_private(room: tuple[str, ...], text: str) -> Iterator[str]:
    """Yield what a file in a room imports although it is private to another room."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            # The rules below read whole names.
            yield "." * node.level + (node.module or "")
            continue
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for module in modules:
            parts = tuple(module.split("."))
            for at, part in enumerate(parts):
                is_private = part.startswith("_") and not part.startswith("__")
                if parts[0] == "penstock" and is_private and room[:at] != parts[:at]:
                    yield module


def test_no_room_imports_what_is_private_to_another_one() -> None:
    found = {}
    files = sorted((_ROOT / "penstock").rglob("*.py"))
    for path in files:
        room = path.relative_to(_ROOT).parts[:-1]
        modules = list(foreign_private(room, path.read_text(encoding="utf-8")))
        if modules:
            found[str(path.relative_to(_ROOT))] = modules
    assert len(files) > 100
    assert found == {}


def test_the_rule_sees_private_modules_and_names() -> None:
    assert list(foreign_private(("penstock", "wal"), "from ..wire import x")) == ["..wire"]
    text = "from penstock.wal._names import x\nfrom penstock.wal import _names\nimport os._x"
    assert list(foreign_private(("penstock", "wal"), text)) == []
    assert list(foreign_private(("penstock", "wire"), text)) == [
        "penstock.wal._names",
        "penstock.wal._names.x",
        "penstock.wal._names",
    ]


def imported_at_once(tree: ast.AST) -> Iterator[str]:
    """Yield what an import of a file imports: nothing of functions, nor what is for types only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.If):
            if ast.unparse(node.test) not in ("TYPE_CHECKING", "__name__ == '__main__'"):
                yield from imported_at_once(node)
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from imported_at_once(node)


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield what a file imports at any time, or for types only."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from imported_at_once(ast.Module([node], []))


def arrows(
    texts: dict[str, str], imports: Callable[[ast.AST], Iterator[str]]
) -> dict[str, set[str]]:
    """Return which others of these modules each imports."""
    found: dict[str, set[str]] = {}
    for module, text in texts.items():
        names = imports(ast.parse(text))
        modules = {name if name in texts else name.rpartition(".")[0] for name in names}
        found[module] = (modules & texts.keys()) - {module}
    return found


def in_order(texts: dict[str, str]) -> list[str]:
    """Return modules in an order in which each finds what it imports; raises `CycleError`."""
    return list(TopologicalSorter(arrows(texts, imported_at_once)).static_order())


def texts_of_modules() -> dict[str, str]:
    """Return the text of each module by its name."""
    return {
        ".".join(path.relative_to(_ROOT).with_suffix("").parts).removesuffix(".__init__"): (
            path.read_text(encoding="utf-8")
        )
        for path in sorted((_ROOT / "penstock").rglob("*.py"))
    }


def test_no_files_import_each_other_in_a_circle() -> None:
    texts = texts_of_modules()
    assert len(in_order(texts)) == len(texts) > 100


# Two things that hold each other, of which each names the other's type: a program's streams and its
# context, a graph and its nodes, a receiver and what it runs in one start.
_KNOW_EACH_OTHER = [
    "penstock.sources.amqp, penstock.sources.amqp._session",
    "penstock.sources.http, penstock.sources.http._server",
    "penstock.sources.kinesis._reading, penstock.sources.kinesis.receiver",
    "penstock.sources.mqtt, penstock.sources.mqtt._session",
    (
        "penstock.streaming.context, penstock.streaming.dstream.arrow_stream, "
        "penstock.streaming.dstream.dstream, penstock.streaming.dstream.inputs.input_operations, "
        "penstock.streaming.dstream.inputs.receiver_dstream, "
        "penstock.streaming.dstream.pair_operations, "
        "penstock.streaming.dstream.states.map_with_state, penstock.streaming.dstream.stream_handle"
    ),
    (
        "penstock.streaming.dstream.graph, penstock.streaming.dstream.inputs.input_streams, "
        "penstock.streaming.dstream.node, penstock.streaming.dstream.output"
    ),
]


def circles(texts: dict[str, str]) -> list[str]:
    """Return the modules that import each other by any of their imports, circle by circle."""
    ahead_of = arrows(texts, imported)

    def reached(module: str) -> set[str]:
        seen: set[str] = set()
        ahead = [module]
        while ahead:
            more = ahead_of[ahead.pop()] - seen
            seen |= more
            ahead += more
        return seen

    all_reached = {module: reached(module) for module in texts}
    return sorted(
        {
            ", ".join(sorted(other for other in there if module in all_reached[other]))
            for module, there in all_reached.items()
            if module in there
        }
    )


def test_also_for_types_no_others_import_each_other_in_a_circle() -> None:
    texts = texts_of_modules()
    assert len(texts) > 100
    assert circles(texts) == _KNOW_EACH_OTHER


def test_circles_for_types_and_of_functions_are_seen() -> None:
    lazy = "if TYPE_CHECKING:\n    import a\ndef f():\n    import a"
    assert circles({"a": "import b", "b": lazy, "c": "from a import x"}) == ["a, b"]
    assert circles({"a": "from b import x", "b": "import c", "c": ""}) == []


def test_the_rule_sees_circles_and_lets_later_imports_pass() -> None:
    lazy = "if TYPE_CHECKING:\n    import a\ndef f():\n    import a"
    assert in_order({"a": "import b", "b": lazy}) == ["b", "a"]
    with pytest.raises(CycleError):
        in_order({"a": "import b", "b": "class C:\n    from a import x"})


def test_each_door_has_a_map_of_its_files() -> None:
    missing = []
    for door in sorted((_ROOT / "penstock").rglob("__init__.py")):
        words = set(re.findall(r"\w+", ast.get_docstring(ast.parse(door.read_text("utf-8"))) or ""))
        names = {path.stem for path in door.parent.glob("*.py")} - {"__init__"}
        missing += [f"{door.parent.name}: {name}" for name in sorted(names - words)]
    assert missing == []


def test_a_room_is_about_a_dozen_files() -> None:
    sizes: Counter[str] = Counter()
    for path in (_ROOT / "penstock").rglob("*.py"):
        sizes[str(path.parent.relative_to(_ROOT))] += 1
    assert {room: size for room, size in sizes.items() if size > 15} == {}


def map_of(door: str) -> Iterator[str]:
    """Yield what the first columns of the tables in a docstring name."""
    width = 0
    for line in door.splitlines():
        rule = re.fullmatch("(=+)  =+", line)
        if rule:
            width = 0 if width else len(rule[1])
        else:
            yield from re.findall(r"`(\w+)/?`", line[:width])


def test_no_door_has_a_map_of_what_is_not_there() -> None:
    gone = []
    for door in sorted((_ROOT / "penstock").rglob("__init__.py")):
        text = ast.get_docstring(ast.parse(door.read_text("utf-8"))) or ""
        there = {path.stem for path in door.parent.iterdir()}
        gone += [f"{door.parent.name}: {name}" for name in map_of(text) if name not in there]
    assert gone == []
    assert list(map_of("`a`\n=====  ===\n`b/`   `c`\n=====  ===\n`d`")) == ["b"]
