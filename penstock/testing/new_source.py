"""``penstock new-source``: a package with a receiver, and tests that it passes."""

from __future__ import annotations

import importlib.util
import keyword
import re
import sys
from importlib import resources
from pathlib import Path

import click

from penstock.commands import Command
from penstock.files.whole import whole_folder

_FILES = resources.files("penstock.testing") / "new_source_files"
"""What a new package has, with words in braces for what differs."""
_NAME = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")


def _is_taken(package: str) -> bool:
    if keyword.iskeyword(package) or package == "tests" or package in sys.stdlib_module_names:
        return True
    found = importlib.util.find_spec(package)
    # A mere folder here is no module.
    return found is not None and found.origin is not None


@click.command(
    cls=Command,
    epilog="""\
penstock new-source acme-feed
cd acme-feed && python -m pytest

exit codes: 0 written, 2 wrong usage, or it is there already
""",
)
@click.argument("name")
def new_source(name: str) -> None:
    """Write a package with a receiver of your own, and tests that it passes at once.

    NAME is that of the package and of a new folder here: a receiver, its schema, tests that run it
    and kill it (penstock.testing), and pyproject.toml. Put the client of your source in the place
    of its connection.
    """
    package = name.replace("-", "_")
    if not _NAME.fullmatch(name) or _is_taken(package):
        raise click.BadParameter(
            f"{name!r}: small letters and digits, with - or _ between words, such as acme-feed, "
            "and not the name of a module that there is",
            param_hint="NAME",
        )
    words = {
        "name": name,
        "distribution": name.replace("_", "-"),
        "package": package,
        "title": "".join(word.capitalize() for word in package.split("_")),
    }
    with whole_folder(name) as folder:
        for path, text in {
            "pyproject.toml": "pyproject.toml.txt",
            f"{package}/__init__.py": "__init__.py.txt",
            f"{package}/receiver.py": "receiver.py.txt",
            f"tests/test_{package}.py": "test.py.txt",
        }.items():
            file = Path(folder, path)
            file.parent.mkdir(exist_ok=True)
            file.write_text((_FILES / text).read_text().format(**words))
    click.echo(f"{name} is written; try it: cd {name} && python -m pytest")
