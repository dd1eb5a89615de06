"""No room reaches into another one: see also the layers in setup.cfg, which `make lint` checks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).parents[1]


def foreign_private(room: tuple[str, ...], text: str) -> Iterator[str]:
    """Yield what a file in a room imports although it is private to another room."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
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
    text = "from penstock.wal._names import x\nfrom penstock.wal import _names\nimport os._x"
    assert list(foreign_private(("penstock", "wal"), text)) == []
    assert list(foreign_private(("penstock", "wire"), text)) == [
        "penstock.wal._names",
        "penstock.wal._names.x",
        "penstock.wal._names",
    ]
