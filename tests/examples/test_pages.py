"""Each Python block on the pages of docs/ runs as it stands there.

A block may use the names of the blocks before it on its page. Changed are only places: ports,
folders and files of the reader's machine (`PLACES`).
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.receiver import as_receiver
from penstock.sources.kafka import KafkaDStream
from penstock.streaming import StreamingContext
from tests.bounds import HANG_S
from tests.examples.running import ROOT, Run

BOUND_S = HANG_S
DOCS = ROOT / "docs"
CODE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)

NEED_A_SERVICE = {
    ("dead-letters", 2): "a program that has discarded records",
    ("kafka", 0): "a Kafka broker",
    ("kafka", 1): "a Kafka broker",
    ("kafka", 2): "a Kafka broker",
    ("recovery", 1): "a program that has received something",
    ("recovery", 2): "a program that has received something",
    ("recovery", 3): "an HDFS",
    ("recovery", 4): "an object store",
}
"""Blocks by page and place on it that are not run: what they import and call is looked at."""
RUN_ELSEWHERE = {
    ("low-latency", 0): "test_the_programs_of_the_page_write_what_their_functions_return",
    ("low-latency", 1): "test_the_programs_of_the_page_write_what_their_functions_return",
    ("low-latency", 2): "test_the_programs_of_the_page_write_what_their_functions_return",
    ("low-latency", 3): "test_the_programs_of_the_page_write_what_their_functions_return",
    ("structured-streaming", 0): "test_the_program_of_the_guide_runs",
    ("tutorial", 0): "test_the_first_program_shows_batches",
    ("tutorial", 1): "test_the_durable_program_is_killed_and_saves_each_line_once",
    ("tutorial", 2): "test_the_durable_program_is_killed_and_saves_each_line_once",
}
"""Blocks that have a test of their own, which sees more of them."""

LINES_OF_THE_LOG = 700


def blocks_of(page: str) -> list[str]:
    return CODE.findall((DOCS / f"{page}.md").read_text())


PAGES = [path.stem for path in sorted(DOCS.glob("*.md")) if blocks_of(path.stem)]
SOME = ["rates", "writing-receivers"]
"""Whose programs run in CI."""


def some_in_ci(some: list[str], pages: list[str]) -> pytest.MarkDecorator:
    """Parametrise a test by `names`: with some that CI runs, and with the others."""
    others = [page for page in pages if page not in some]
    return pytest.mark.parametrize(
        "names",
        [
            pytest.param(some, marks=pytest.mark.long, id="some"),
            pytest.param(others, marks=pytest.mark.exhaustive, id="others"),
        ],
    )


def replaced(block: str, places: dict[str, str]) -> str:
    for shown, real in places.items():
        block = block.replace(shown, real)
    return block


@pytest.fixture
def text_server() -> Iterator[int]:
    """Serve lines of words to whoever connects; the port."""
    over = threading.Event()
    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)

        def feed(connection: socket.socket) -> None:
            with connection:
                while not over.wait(0.02):
                    try:
                        connection.sendall(b"to be or not to be\n" * 5)
                    except OSError:
                        return

        def accept() -> None:
            while not over.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                connection.settimeout(5)
                threads.append(threading.Thread(target=feed, args=(connection,), name="feed"))
                threads[-1].start()

        threads.append(threading.Thread(target=accept, name="accept"))
        threads[0].start()
        yield server.getsockname()[1]
        over.set()
        for thread in list(threads):
            thread.join(HANG_S)


@pytest.fixture
def datagrams() -> Iterator[int]:
    """Send datagrams to a port; the port."""
    over = threading.Event()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]

    def send() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            while not over.wait(0.1):
                sender.sendto(b"datagram", ("127.0.0.1", port))

    thread = threading.Thread(target=send, name="datagrams")
    thread.start()
    yield port
    over.set()
    thread.join(HANG_S)


def test_the_blocks_that_are_not_run_are_there() -> None:
    for page, place in (*NEED_A_SERVICE, *RUN_ELSEWHERE):
        assert place < len(blocks_of(page))


# -- blocks that need a service --------------------------------------------------------------------


VARIABLES: dict[str, type] = {"ssc": StreamingContext, "stream": KafkaDStream}
"""What variables of those blocks are."""


def imported(tree: ast.Module) -> dict[str, Any]:
    """Return what a block imports, by name."""
    names: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            module = importlib.import_module(node.module)
            for alias in node.names:
                names[alias.asname or alias.name] = getattr(module, alias.name)
    return names


def resolved(expression: ast.expr, names: dict[str, Any]) -> Any:
    """Return what an expression of dots names, or None where only a run would tell."""
    if isinstance(expression, ast.Name):
        return names.get(expression.id, VARIABLES.get(expression.id))
    if isinstance(expression, ast.Attribute):
        owner = resolved(expression.value, names)
        return None if owner is None else getattr(owner, expression.attr)
    return None


def bind(call: ast.Call, names: dict[str, Any]) -> bool:
    """See that a call's arguments fit the signature; whether it is known what is called."""
    called = resolved(call.func, names)
    if called is None:
        return False
    places: list[object] = [object()] * len(call.args)
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    is_method = isinstance(owner, ast.Name) and owner.id not in names and inspect.isfunction(called)
    if is_method:
        places.insert(0, object())
    inspect.signature(called).bind(
        *places, **{word.arg: object() for word in call.keywords if word.arg is not None}
    )
    return True


@pytest.mark.parametrize("page", sorted({page for page, _ in NEED_A_SERVICE}))
def test_what_a_block_that_needs_a_service_calls_is_there(page: str) -> None:
    names: dict[str, Any] = {}
    for place, block in enumerate(blocks_of(page)):
        tree = ast.parse(block)
        names.update(imported(tree))
        if (page, place) in NEED_A_SERVICE:
            calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
            known = [call for call in calls if bind(call, names)]
            assert known, f"{page}.md, block {place + 1}"


def test_a_call_that_does_not_fit_is_found() -> None:
    names = imported(ast.parse("from penstock.sources.kafka import KafkaReceiver"))
    for wrong in ("KafkaReceiver()", "stream.commitAsync()", "KafkaReceiver(topic='a')"):
        (call,) = (node for node in ast.walk(ast.parse(wrong)) if isinstance(node, ast.Call))
        with pytest.raises(TypeError):
            bind(call, names)
    (gone,) = (node for node in ast.walk(ast.parse("ssc.noSuch()")) if isinstance(node, ast.Call))
    with pytest.raises(AttributeError):
        bind(gone, names)


# -- all others ------------------------------------------------------------------------------------


def test_the_receivers_in_the_page_on_writing_them_are_receivers() -> None:
    shown: dict[str, Any] = {}
    for block in blocks_of("writing-receivers"):
        if "StreamingContext(" not in block:
            exec(block, shown)
    for name in ("load_average", "ticks", "webhook", "first", "second", "file_lines", "sensors"):
        as_receiver(shown[name])
    as_receiver(shown["Lines"]("localhost", 9999))
    as_receiver(shown["Datagrams"](5140))


@pytest.mark.slow
@pytest.mark.timeout(2700)
@some_in_ci(SOME, PAGES)
def test_the_programs_of_the_pages_run(
    run: Callable[..., Run],
    tmp_path: Path,
    text_server: int,
    datagrams: int,
    monkeypatch: pytest.MonkeyPatch,
    names: list[str],
) -> None:
    # What an `app.py` gets from spark-submit.
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master local[2] pyspark-shell")
    log = tmp_path / "app.log"
    log.write_text("".join(f"line {number}\n" for number in range(LINES_OF_THE_LOG)))
    files = []
    for page in names:
        blocks = [
            block
            for place, block in enumerate(blocks_of(page))
            if (page, place) not in NEED_A_SERVICE and (page, place) not in RUN_ELSEWHERE
        ]
        if not blocks:
            continue
        places = {
            "9999": str(text_server),
            "5140": str(datagrams),
            '"/var/log/app.log"': repr(str(log)),
            '"/var/lib/app"': repr(str(tmp_path / f"{page}-checkpoint")),
            '"/var/lib/orders"': repr(str(tmp_path / f"{page}-orders")),
        }
        files.append(tmp_path / f"{page}.json")
        plan = {
            "name": page,
            "argv": ["app.py", "localhost", str(text_server)],
            "blocks": [replaced(block, places) for block in blocks],
        }
        files[-1].write_text(json.dumps(plan))
    program = run(str(ROOT / "tests" / "examples" / "pages_process.py"), *map(str, files))
    for file in files:
        program.wait_for_line(lambda line: line == f"{file.stem} has run", BOUND_S)  # noqa: B023
    assert program.wait_until_ended(BOUND_S) == 0, program.output
    if "rates" in names:
        assert "10000.0 RateSource.USER" in program.output
    if "writing-receivers" in names:
        # In one batch or, where a block ended between two lines, in two.
        lines = re.findall(r"^(\d+) lines$", program.output, re.MULTILINE)
        assert sum(map(int, lines)) == LINES_OF_THE_LOG
    assert "Traceback" not in program.output
    program.wait_until_nothing_is_left()
