"""What the README and the pages of docs/ show is there, and runs."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.receiver import as_receiver
from tests.examples.running import ROOT, Run

BOUND_S = 120.0
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]

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
        "Two commands",
        "A receiver",
        "What is promised after a crash",
        "Settings",
        "Dependencies",
        "Limits",
    ]


def test_the_readme_names_the_settings_as_they_are() -> None:
    rows = dict(re.findall(r"^\| `(spark\.[\w.]+)`[^|]*\| ([^|]+) \|", README.read_text(), re.M))
    page = (ROOT / "docs" / "settings.md").read_text()
    for key, default in rows.items():
        found = re.search(rf"^\| `{re.escape(key)}` \| ([^|]+) \|", page, re.MULTILINE)
        assert found is not None, f"there is no setting {key}"
        if default.startswith("`") and default.endswith("`") and found[1].startswith("`"):
            assert default == found[1], key


def test_the_readme_names_the_dependencies_that_are_declared() -> None:
    declared = (ROOT / "setup.cfg").read_text()
    required = re.search(r"^install_requires =\n((?:    .+\n)+)", declared, re.MULTILINE)
    assert required is not None
    names = re.findall(r"^    ([\w-]+)", required[1], re.MULTILINE)
    section = README.read_text().split("## Dependencies")[1].split("## ")[0]
    assert re.findall(r"^\| `([\w-]+)`", section, re.MULTILINE) == names


def test_the_receivers_in_the_page_on_writing_them_are_receivers() -> None:
    page = (ROOT / "docs" / "writing-receivers.md").read_text()
    shown: dict[str, Any] = {}
    for block in CODE.findall(page):
        exec(block, shown)
    for name in ("load_average", "ticks", "webhook", "first", "second", "file_lines", "sensors"):
        as_receiver(shown[name])
    as_receiver(shown["Lines"]("localhost", 9999))


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_code_of_the_readme_runs(run: Callable[..., Run], tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path / "app.log"
    log.write_text("".join(f"line {number}\n" for number in range(700)))
    places = {
        '"/var/log/app.log"': repr(str(log)),
        '"/var/lib/app"': repr(str(tmp_path / "checkpoint")),
        "5140": str(port),
        "awaitTerminationOrTimeout(60)": "awaitTerminationOrTimeout(25)",
    }
    code = "\n\n".join(CODE.findall(README.read_text()))
    for shown, real in places.items():
        assert shown in code
        code = code.replace(shown, real)
    script = tmp_path / "readme.py"
    script.write_text(code)

    program = run(str(script))
    over = threading.Event()

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            while not over.wait(0.1):
                sender.sendto(b"datagram", ("127.0.0.1", port))

    sending = threading.Thread(target=send, name="datagrams")
    sending.start()
    try:
        program.wait_for_line(lambda line: re.fullmatch(r"[1-9]\d*", line) is not None, BOUND_S)
        program.wait_for_line(lambda line: line.endswith(" 700 lines"), BOUND_S)
        assert program.wait(BOUND_S) == 0, program.output
    finally:
        over.set()
        sending.join()
    assert "Traceback" not in program.output
    program.wait_until_nothing_is_left()
