"""Run programs with a mistake in one process, and show of each what its terminal would show.

This runs in the environment that a user has, and imports nothing else. A file of mistakes has
sections: a line ``== what the mistake is``, and below it the program. `sc` and `ssc` are there, and
`until(text)`, which waits for what is shown; a program may make its own. What is raised is shown as
Python shows it, and the next one begins.

    python shell.py MISTAKES FOLDER SECONDS-OF-A-BATCH
"""

from __future__ import annotations

import linecache
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any, TextIO

from pyspark import SparkConf, SparkContext

from penstock.streaming import StreamingContext

NAME = "program.py"
BOUND_S = 300.0


def sections(text: str) -> list[tuple[str, str]]:
    """Return title and program of each section."""
    parts = text.split("\n== ")
    found = [part.partition("\n") for part in parts[1:]]
    return [(title.strip(), code.strip("\n") + "\n") for title, _, code in found]


def make_spark() -> SparkContext:
    """Return the Spark context, or a new one when a program has stopped it."""
    conf = SparkConf().setMaster("local[3]").setAppName("mistakes")
    conf.set("spark.ui.enabled", "false").set("spark.ui.showConsoleProgress", "false")
    conf.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
    conf.set("spark.penstock.memory.size", "64m").set("spark.penstock.block.maxSize", "8m")
    return SparkContext.getOrCreate(conf)


def run(title: str, code: str, folder: Path, batch_s: float) -> None:
    """Show a mistake, and what comes of it."""
    terminal.written = ""
    sc = make_spark()
    ssc = StreamingContext(sc, batch_s)
    print(f"\n== {title}")
    for line in code.splitlines():
        print(f">>> {line}".rstrip())
    sys.stdout.flush()
    linecache.cache[NAME] = (len(code), None, code.splitlines(keepends=True), NAME)
    names: dict[str, Any] = {"__name__": "__main__", "sc": sc, "ssc": ssc, "until": until}
    names["folder"] = str(folder)
    try:
        exec(compile(code, NAME, "exec"), names)
    except Exception as error:  # noqa: BLE001  # it is shown as Python shows it
        trace = error.__traceback__
        print_exception(error.with_traceback(None if trace is None else trace.tb_next))
    finally:
        sys.stderr.flush()
        print("-- it has ended", flush=True)
        for context in (StreamingContext.getActive(), names["ssc"], ssc):
            if context is not None:
                context.stop(stopSparkContext=False)


class Terminal:
    """Standard error, and what was written there."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.written = ""

    def write(self, text: str) -> int:
        self.written += text
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def until(text: str) -> None:
    """Wait until a text stands on the terminal, and a moment longer."""
    end_s = time.monotonic() + BOUND_S
    while text not in terminal.written:
        if time.monotonic() > end_s:
            raise TimeoutError(f"{text!r} did not come within {BOUND_S:g} s")
        time.sleep(0.05)
    time.sleep(1)


def print_exception(error: BaseException) -> None:
    traceback.print_exception(type(error), error, error.__traceback__)


def main(file: str, folder: str, batch_s: str) -> None:
    os.chdir(folder)
    for title, code in sections("\n" + Path(file).read_text()):
        run(title, code, Path(folder), float(batch_s))
    SparkContext.getOrCreate().stop()


terminal = Terminal(sys.stderr)

if __name__ == "__main__":
    sys.stderr = terminal  # type: ignore[assignment]  # it does what one does
    main(*sys.argv[1:])
