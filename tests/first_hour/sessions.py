"""Sessions at a terminal: programs with mistakes and commands, in the environment of a user."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

from tests.bounds import HANG_S
from tests.first_hour.terminal import as_read
from tests.system.leftovers import MARK, marked_processes

__all__ = ["INSTALLED", "MISTAKES", "ROOT", "SESSION_S", "Session", "expected", "played"]

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
MISTAKES = ("before_start", "running", "commands")
"""The files below ``mistakes``, and below ``expected``."""
INSTALLED = "installed"
"""A further one, which needs an environment that has the wheel and nothing else."""
SESSION_S = 900.0
ENDS_S = HANG_S
MEMORY = Path("/dev/shm")
_END = "-- it has ended\n"

WORD_COUNT = """\
import os

from pyspark import SparkContext

from penstock.streaming import StreamingContext

sc = SparkContext(os.environ.get("MASTER", "local[2]"), "word count")
ssc = StreamingContext(sc, 1)
ssc.queueStream([["to be or not to be"]]).flatMap(str.split).countByValue().pprint()
ssc.start()
ssc.awaitTerminationOrTimeout(5)
ssc.stop()
"""

FROM_KAFKA = """\
from pyspark import SparkContext

from penstock.sources.kafka import ConsumerStrategies, KafkaUtils, LocationStrategies
from penstock.streaming import StreamingContext

sc = SparkContext("local[2]", "from Kafka")
ssc = StreamingContext(sc, 1)
lines = KafkaUtils.createDirectStream(
    ssc,
    LocationStrategies.PreferConsistent,
    ConsumerStrategies.Subscribe(["lines"], {"bootstrap.servers": "localhost:9092"}),
)
lines.pprint()
ssc.start()
"""


@dataclass
class Session:
    """A shell of a user, with an environment's Python and a folder of its own.

    Attributes:
        python: The environment's Python.
        folder: The working folder; temporary files lie beside it.
        path: What Python finds modules in beside the environment; for one without the wheel.
        mark: In the environment of all that is started here.
    """

    python: Path
    folder: Path
    path: str = ""
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.temporary.mkdir()
        # Its memory files lie apart from those of whatever else runs on this host.
        self.memory.mkdir()
        self.conf.mkdir()
        (self.conf / "spark-defaults.conf").write_text(f"spark.penstock.memory.dir {self.memory}\n")

    @property
    def memory(self) -> Path:
        return MEMORY / f"first-hour-{self.mark}"

    @property
    def conf(self) -> Path:
        return self.folder.parent / f"{self.folder.name}-conf"

    @property
    def temporary(self) -> Path:
        return self.folder.parent / f"{self.folder.name}-temporary"

    def environment(self, **others: str) -> dict[str, str]:
        """Return what a shell has that knows nothing of Spark."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV", "PYTEST"))
        }
        paths = [str(self.python.parent), kept.get("PATH", os.defpath)]
        kept.update(
            PATH=os.pathsep.join(paths),
            TMPDIR=str(self.temporary),
            SPARK_CONF_DIR=str(self.conf),
            # Where local-cluster would otherwise write into the environment.
            SPARK_WORKER_DIR=str(self.folder / "work"),
            PYTHONUNBUFFERED="1",
            COLUMNS="100",
            **{MARK: self.mark},
        )
        if self.path:
            kept["PYTHONPATH"] = self.path
        return {**kept, **others}

    def start(self, *command: str, **others: str) -> subprocess.Popen[str]:
        """Start a command; standard error goes where standard output goes, as on a terminal."""
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=self.folder,
            env=self.environment(**others),
            start_new_session=True,
        )

    def shown(self, *command: str, **others: str) -> str:
        """Run a command to its end, and return what it showed."""
        process = self.start(*command, **others)
        try:
            return process.communicate(timeout=SESSION_S)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            shown = process.communicate()[0]
            raise AssertionError(f"{command} does not end:\n{shown[-4000:]}") from None

    def left(self) -> list[str]:
        """Wait a while for what has to end by itself, and return what is still there."""
        end_s = time.monotonic() + ENDS_S
        while processes := marked_processes(self.mark):
            if time.monotonic() > end_s:
                break
            threading.Event().wait(0.1)
        files = [
            *self.memory.iterdir(),
            *(path for path in self.temporary.iterdir() if _is_kept(path)),
        ]
        return [f"{pid} {name[:200]}" for pid, name in processes.items()] + [*map(str, files)]

    def close(self) -> None:
        """End what is still there."""
        for pid in marked_processes(self.mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        shutil.rmtree(self.memory)


def _is_kept(path: Path) -> bool:
    # What the JVM keeps of itself while other users' tools may look at it.
    return not path.name.startswith("hsperfdata_")


def played(name: str, session: Session) -> str:
    """Play one file of mistakes; return what the terminal showed, as a person reads it."""
    text = (FOLDER / "mistakes" / f"{name}.txt").read_text()
    places = {
        str(session.folder): "<folder>",
        str(session.temporary): "<temporary>",
        str(session.python): "<environment>/bin/python",
        str(session.python.parent.parent): "<environment>",
    }
    if "\n$ " in text:
        return as_read(_commands(text, session), places)
    shown = session.shown(
        str(session.python),
        str(FOLDER / "shell.py"),
        str(FOLDER / "mistakes" / f"{name}.txt"),
        str(session.folder),
        # Of what is refused before the start no batch shall run.
        "60" if name == "before_start" else "1",
    )
    return as_read(_sections(shown), places)


def _sections(shown: str) -> str:
    """Return the mistakes with what was shown of each, without what stands between."""
    found = []
    for section in re.split(r"^(?=== )", shown, flags=re.MULTILINE)[1:]:
        text, end, rest = section.partition(_END)
        if not end:
            raise AssertionError(f"it ended in the middle:\n{section[-4000:]}")
        found.append(text.rstrip() + "\n")
        if "Traceback" in rest:
            raise AssertionError(f"it failed between two mistakes:\n{rest[-4000:]}")
    return "\n".join(found)


def _commands(text: str, session: Session) -> str:
    (session.folder / "word_count.py").write_text(WORD_COUNT)
    (session.folder / "from_kafka.py").write_text(FROM_KAFKA)
    bare = session.folder / "bare-python"
    # A Python that has nothing installed.
    bare.write_text(f'#!/bin/sh\nexec {session.python} -S -I "$@"\n')
    bare.chmod(0o755)
    found = []
    for line in text.splitlines():
        if line.startswith("$ "):
            command = line.removeprefix("$ ")
            if session.path:
                command = re.sub(r"\bpenstock\b(?= |$)", "python -m penstock", command, count=1)
            shown = session.shown("/bin/sh", "-c", command)
            found.append(f"{line}\n{shown.rstrip()}\n")
    return "\n".join(found)


def expected(name: str) -> Path:
    """Return the file with what a person has read."""
    return FOLDER / "expected" / f"{name}.txt"
