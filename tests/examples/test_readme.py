"""What the README shows is there, and runs; every page's links lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.bounds import HANG_S
from tests.examples.running import ROOT, Run

BOUND_S = HANG_S
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]

CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")


def headings(page: Path) -> set[str]:
    """Return the anchors of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for path, anchor in LINK.findall(page.read_text()):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {path}"
        if anchor:
            assert anchor in headings(target), f"{page.name} links to {path}#{anchor}"


def test_the_readme_shows_its_parts_in_order() -> None:
    titles = re.findall(r"^## (.+)$", README.read_text(), re.MULTILINE)
    assert titles == [
        "A receiver in three lines, a batch in five",
        "Three figures",
        "The house in one picture",
        "Install",
        "What is promised",
        "When not to use it",
        "Two commands",
        "Links",
    ]


def test_the_readme_is_read_in_a_few_minutes() -> None:
    assert len(README.read_text().split()) <= 900


def test_the_readme_keeps_the_lengths_that_it_promises() -> None:
    receiver, batch = CODE.findall(README.read_text())
    assert [len(receiver.split("\n")) - 1, sum(map(bool, batch.split("\n")))] == [3, 5]


def test_the_readme_names_no_figure_that_was_not_measured() -> None:
    figures = README.read_text().split("![")[0]
    measured = (ROOT / "docs" / "benchmarks.md").read_text()
    shown = re.findall(r"\d[\d,]*,\d{3}|\d+(?= ms)", figures)
    assert len(shown) >= 9
    for figure in shown:
        assert re.search(rf"(?<![\d,.]){re.escape(figure)}(?![\d,])", measured), figure


def test_the_settings_that_come_first_are_named_as_they_are() -> None:
    _, _, first = (ROOT / "docs" / "operation.md").read_text().partition("\n## Settings that come")
    keys = re.findall(r"`(spark\.[\w.]+)`", first)
    assert len(keys) > 5
    page = (ROOT / "docs" / "settings.md").read_text()
    for key in keys:
        assert re.search(rf"^\| `{re.escape(key)}` \|", page, re.MULTILINE), key


def test_the_page_of_dependencies_names_those_that_are_declared() -> None:
    declared = (ROOT / "setup.cfg").read_text()
    required = re.search(r"^install_requires =\n((?:    .+\n)+)", declared, re.MULTILINE)
    assert required is not None
    names = re.findall(r"^    ([\w-]+)", required[1], re.MULTILINE)
    page = (ROOT / "docs" / "dependencies.md").read_text()
    assert re.findall(r"^\| `([\w-]+)`", page, re.MULTILINE) == names
    extras = re.search(r"^\[options.extras_require\]\n(.*?)\n\n", declared, re.M | re.DOTALL)
    assert extras is not None
    for extra in re.findall(r"^(\w+) =$", extras[1], re.MULTILINE):
        assert f"`penstock[{extra}]`" in page, extra


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_code_of_the_readme_runs(run: Callable[..., Run], tmp_path: Path) -> None:
    script = tmp_path / "readme.py"
    script.write_text("\n\n".join(CODE.findall(README.read_text())))
    program = run(str(script))
    program.wait_for_line(lambda line: re.fullmatch(r"[1-9]\d* records", line) is not None, BOUND_S)
    program.interrupt()
    assert program.wait_until_ended(BOUND_S) == 0, program.output
    assert "Traceback" not in program.output
    program.wait_until_nothing_is_left()
