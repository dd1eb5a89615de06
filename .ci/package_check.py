"""Build the wheel, install it into an empty environment, and run a receiver from there.

Without arguments this builds, installs, and starts itself again with the Python of that
environment, in an empty folder, with `--receive`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECORDS = 20_000
RECEIVE_TIMEOUT_S = 120


def check() -> None:
    """Build, install, run; any failing step ends it."""
    from installer import installer  # It is not beside the copy of this file that receives.

    with tempfile.TemporaryDirectory(prefix="penstock-package-check-") as name:
        folder = Path(name)
        wheels, empty, work = folder / "wheels", folder / "environment", folder / "work"
        work.mkdir()
        # From a copy, so that nothing that an earlier build left gets into the wheel.
        source = folder / "source"
        shutil.copytree(ROOT / "penstock", source / "penstock", ignore=_not_source)
        for file in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
            if (ROOT / file).exists():
                shutil.copy(ROOT / file, source / file)
        print("building the wheel", flush=True)
        pip = ["-m", "pip", "--quiet", "--disable-pip-version-check"]
        run(sys.executable, *pip, "wheel", "--no-deps", "--wheel-dir", str(wheels), str(source))
        (wheel,) = wheels.glob("penstock-*.whl")
        print(f"installing {wheel.name} into an empty environment", flush=True)
        run(sys.executable, "-m", "venv", str(empty))
        python = empty / "bin" / "python"
        run(*installer(python), str(wheel))
        run(str(python), *pip, "check")

        script = work / "receive.py"
        shutil.copy(__file__, script)
        environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV"))
        }
        environment["PYSPARK_PYTHON"] = str(python)
        # It lives for seconds, which are not to go into compiling.
        environment["SPARK_SUBMIT_OPTS"] = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
        print("running a receiver from it", flush=True)
        for command in (
            [str(empty / "bin" / "penstock"), "--help"],
            [str(empty / "bin" / "penstock"), "wal", "--help"],
            [str(python), "-m", "penstock.settings._page"],
            [str(python), str(script), "--receive"],
        ):
            is_last = command[-1] == "--receive"
            run(*command, cwd=work, env=environment, shows_output=is_last)
        left = sorted(path.name for path in work.iterdir() if path != script)
        if left:
            sys.exit(f"The run left files in its working folder: {left}")


def _not_source(_folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "__pycache__" or name.endswith(".pyc")]


def run(
    *command: str,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    shows_output: bool = True,
) -> None:
    """Run a command; end with its exit code when it fails."""
    output = None if shows_output else subprocess.DEVNULL
    try:
        subprocess.run(command, check=True, cwd=cwd, env=env, stdout=output, timeout=900)
    except subprocess.CalledProcessError as error:
        sys.exit(f"Failed with exit code {error.returncode}: {' '.join(command)}")


def receive() -> None:
    """Receive numbers in a local Spark, as RDDs and DataFrames, and see that each arrives once."""
    import penstock

    home = Path(penstock.__file__).resolve()
    if not home.is_relative_to(Path(sys.prefix).resolve()):
        sys.exit(f"penstock was imported from {home}, not from the environment {sys.prefix}")

    import pyarrow as pa
    from pyspark import SparkConf, SparkContext, StorageLevel

    from penstock.receiver import Receiver, receiver
    from penstock.sources.kafka import JsonFormat
    from penstock.streaming import StreamingContext

    class Numbers(Receiver):
        """Stores the numbers from 0."""

        def onStart(self) -> None:
            threading.Thread(target=self.run, name="numbers").start()

        def onStop(self) -> None:
            pass

        def run(self) -> None:
            for number in range(RECORDS):
                self.store(str(number))

    @receiver(schema=pa.schema([("number", pa.int64()), ("text", pa.string())]))
    def rows(ctx):  # type: ignore[no-untyped-def]  # as a user writes it
        for number in range(RECORDS):
            yield {"number": number, "text": str(number)}
        ctx.stopped.wait()

    conf = SparkConf().setMaster("local[4]").setAppName("penstock package check")
    conf.set("spark.ui.enabled", "false").set("spark.driver.host", "127.0.0.1")
    conf.set("spark.penstock.memory.size", "64m").set("spark.penstock.block.maxSize", "8m")
    spark = SparkContext(conf=conf)
    spark.setLogLevel("ERROR")
    stream = StreamingContext(spark, 1)
    # In bytes, as they come from Kafka; reading them is all that needs no broker.
    read = JsonFormat("number bigint").read(pa.array([b'{"number": 7}', b"no JSON"], pa.binary()))
    if read.values.to_pylist() != [{"number": 7}, None] or read.corrupt[1].as_py() != b"no JSON":
        sys.exit(f"values in JSON were read as {read}")
    seen: list[int] = []
    in_frames: list[int] = []
    complete = threading.Event()

    def collect(rdd: object) -> None:
        seen.extend(rdd.map(int).collect())  # type: ignore[attr-defined]  # an RDD of str
        end_if_complete()

    def collect_frame(frame: Any, time: object) -> None:
        in_frames.extend(row.number for row in frame.where("text = number").collect())
        end_if_complete()

    def end_if_complete() -> None:
        if len(seen) >= RECORDS and len(in_frames) >= RECORDS:
            complete.set()

    stream.receiverStream(Numbers(StorageLevel.MEMORY_AND_DISK)).foreachRDD(collect)
    stream.receiverStream(rows).foreachBatch(collect_frame)
    stream.start()
    in_time = complete.wait(RECEIVE_TIMEOUT_S)
    stream.stop(stopSparkContext=True, stopGraceFully=True)
    for form, found in (("RDDs", seen), ("DataFrames", in_frames)):
        if found != list(range(RECORDS)):
            sys.exit(
                f"{len(found)} records arrived in {form}, {len(set(found))} of them different, of "
                f"{RECORDS}" + ("" if in_time else f" in {RECEIVE_TIMEOUT_S} s")
            )
    print(f"{RECORDS} records arrived twice, each once and in order, from {home.parent}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--receive"]:
        receive()
    else:
        check()
