"""A program in the cells of a notebook, run by a real kernel as Jupyter does."""

from __future__ import annotations

import os
import queue
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

from tests.bounds import HANG_S
from tests.system.leftovers import MARK, await_that, marked_processes

BOUND_S = HANG_S
WIDGET = "application/vnd.jupyter.widget-view+json"

SPARK = """
from pyspark import SparkConf, SparkContext
from penstock.streaming import StreamingContext

conf = SparkConf().setMaster("local[3]").setAppName("notebook").set("spark.ui.enabled", "false")
conf.set("spark.driver.host", "127.0.0.1").set("spark.penstock.memory.size", "64m")
conf.set("spark.penstock.block.maxSize", "8m")
sc = SparkContext(conf=conf)

def numbers(ctx):
    number = 0
    while not ctx.stopped.wait(0.05):
        number += 1
        yield number

def program():
    ssc = StreamingContext(sc, 1)
    ssc.receiverStream(numbers).count().pprint()
    return ssc
"""

Message = dict[str, Any]


class Notebook:
    """Sends cells to a kernel, and keeps what it says of each."""

    def __init__(self, folder: Path) -> None:
        self.mark = uuid.uuid4().hex
        self.messages: list[Message] = []
        environment = {
            **os.environ,
            MARK: self.mark,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "IPYTHONDIR": str(folder / "ipython"),
            "TMPDIR": str(folder),
        }
        # Is the environment's own Python without it.
        environment.pop("PYSPARK_PYTHON", None)
        # It keeps a kernel from looking at the file that programs write their errors to.
        environment.pop("PYTEST_CURRENT_TEST", None)
        self._kernel = KernelManager(connection_file=str(folder / "kernel.json"))
        self._kernel.start_kernel(env=environment, cwd=str(folder))
        self._client = self._kernel.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=BOUND_S)

    def send(self, code: str) -> str:
        """Begin to run a cell; return its id."""
        return str(self._client.execute(code))

    def run(self, code: str) -> str:
        """Run a cell to its end; return its id."""
        cell = self.send(code)
        self.wait_for_end(cell)
        return cell

    def wait_for_end(self, cell: str) -> None:
        self.wait_for(cell, "status", lambda content: content["execution_state"] == "idle")

    def wait_for(
        self,
        cell: str,
        kind: str,
        fits: Callable[[Message], bool] = lambda _: True,
        *,
        after: int = 0,
    ) -> Message:
        """Return the content of the first message about a cell that fits, of those `after`."""
        end_s = time.monotonic() + BOUND_S
        seen = after
        while True:
            for message in self.messages[seen:]:
                seen += 1
                content: Message = message["content"]
                is_of_cell = cell in ("", message["parent_header"].get("msg_id"))
                if is_of_cell and message["msg_type"] == kind and fits(content):
                    return content
            try:
                left_s = end_s - time.monotonic()
                self.messages.append(self._client.get_iopub_msg(timeout=max(0.0, left_s)))
            except queue.Empty:
                said = [(m["msg_type"], m["content"]) for m in self.messages[-20:]]
                raise AssertionError(f"no such {kind} within {BOUND_S:g} s: {said}") from None

    def wait_for_batch(self, cell: str) -> None:
        """Wait until one more batch is printed in a cell."""
        self.wait_for(cell, "stream", _is_batch, after=len(self.messages))

    def printed(self, cell: str) -> str:
        """Return what was written below a cell so far."""
        return "".join(
            message["content"]["text"]
            for message in self.messages
            if message["msg_type"] == "stream" and message["parent_header"].get("msg_id") == cell
        )

    def result(self, cell: str) -> Message:
        """Return what a cell shows of its last line, by type."""
        shown: Message = self.wait_for(cell, "execute_result")["data"]
        return shown

    def errors(self) -> list[str]:
        return [
            "\n".join(message["content"]["traceback"])
            for message in self.messages
            if message["msg_type"] == "error"
        ]

    def interrupt(self) -> None:
        """Press the square button."""
        self._kernel.interrupt_kernel()

    def close(self) -> None:
        self._client.stop_channels()
        self._kernel.shutdown_kernel()


def _is_batch(content: Message) -> bool:
    return "Time: " in content["text"]


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[Notebook]:
    notebook = Notebook(tmp_path)
    yield notebook
    notebook.close()
    await_that("no process is left", lambda: not marked_processes(notebook.mark))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(2700)
def test_a_program_runs_shows_itself_and_ends_in_cells(notebook: Notebook) -> None:
    notebook.run(SPARK)
    started = notebook.run("ssc = program()\nssc.start()")
    notebook.wait_for_batch(started)

    # Batches stay with the cell that started them, whatever is run later.
    shown = notebook.run("ssc")
    notebook.wait_for_batch(started)
    assert "Time: " not in notebook.printed(shown)

    # The widget follows; who has none sees the table.
    result = notebook.result(shown)
    assert "<td>numbers" in result["text/html"]
    model = result[WIDGET]["model_id"]
    opened = [m["content"] for m in notebook.messages if m["msg_type"] == "comm_open"]
    (first,) = [c["data"]["state"]["value"] for c in opened if c["comm_id"] == model]
    assert "<td>numbers" in first
    notebook.wait_for(
        "", "comm_msg", lambda content: "<td>numbers-0</td><td>running" in _table(content, model)
    )
    again = notebook.run("ssc")
    assert notebook.result(again)[WIDGET]["model_id"] == model

    # The end of a wait is not the end of the streams.
    waiting = notebook.send("print('waits', flush=True)\nssc.awaitTermination()")
    notebook.wait_for(waiting, "stream", lambda content: "waits" in content["text"])
    notebook.interrupt()
    assert notebook.wait_for(waiting, "error")["ename"] == "KeyboardInterrupt"
    notebook.wait_for_batch(started)

    stopped = notebook.run("ssc.stop(stopSparkContext=False, stopGraceFully=True)")
    assert "StopReport(graceful=True, given_up=()" in notebook.result(stopped)["text/plain"]
    notebook.wait_for("", "comm_msg", lambda content: ", stopped," in _table(content, model))
    assert WIDGET not in notebook.result(notebook.run("ssc"))

    # One cell that starts, waits and, at an interrupt, stops.
    running = notebook.send("ssc = program()\nssc.run(stopSparkContext=False)")
    notebook.wait_for_batch(running)
    notebook.interrupt()
    notebook.wait_for(running, "stream", lambda content: "Ctrl-C: stopping" in content["text"])
    notebook.wait_for_end(running)
    assert "StopReport(graceful=True, given_up=()" in notebook.result(running)["text/plain"]
    (error,) = notebook.errors()
    assert "KeyboardInterrupt" in error
    notebook.run("sc.stop()")


def _table(content: Message, model: str) -> str:
    """Return the table that a message gives a widget."""
    if content["comm_id"] != model or content["data"].get("method") != "update":
        return ""
    return str(content["data"]["state"].get("value", ""))
