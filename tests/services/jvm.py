"""What Spark starts for tests starts in half the time.

Python workers come from `python_daemon`, JVMs have few compilers, and classes from an archive.

A test's JVM lives for seconds, and most of its time goes into loading and compiling Spark. The
archive (Java's class data sharing) is written once into the environment, by ``make services``;
where there is none, or Java does not take it, JVMs start as always.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

import pyspark

from tests.bounds import HANG_S

__all__ = ["hasten", "make_archive"]

_ROOT = str(Path(__file__).resolve().parents[2])
_START_S = HANG_S
_FEW_COMPILERS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
# It does a little of all that tests do: jobs, SQL, files, a streaming query, Spark's page.
_PROGRAM = """
import sys
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession, functions
conf = SparkConf().setMaster("local[2]").set("spark.ui.port", "0")
conf.set("spark.driver.extraJavaOptions", "-XX:ArchiveClassesAtExit=" + sys.argv[1])
conf.set("spark.sql.shuffle.partitions", "2")
sc = SparkContext(conf=conf)
sc.parallelize(range(8), 2).map(lambda n: (n % 2, n)).reduceByKey(lambda a, b: a + b).collect()
spark = SparkSession(sc)
frame = spark.createDataFrame([(1, "a"), (2, "b")], ["id", "word"])
frame.write.parquet(sys.argv[2] + "/in")
files = spark.readStream.schema(frame.schema).parquet(sys.argv[2] + "/in")
files = files.withColumn("at", functions.current_timestamp()).withWatermark("at", "1 second")
counts = files.groupBy(functions.window("at", "1 second"), "word").count()
query = counts.writeStream.outputMode("complete").format("console").trigger(availableNow=True)
query.start().awaitTermination()
query = files.writeStream.format("parquet").trigger(availableNow=True)
query = query.option("checkpointLocation", sys.argv[2] + "/checkpoint")
query.start(sys.argv[2] + "/out").awaitTermination()
query = files.writeStream.foreachBatch(lambda batch, number: batch.count())
query.trigger(availableNow=True).start().awaitTermination()
spark.read.parquet(sys.argv[2] + "/out").join(frame, "id").show()
jvm = sc._gateway.proc
sc.stop()
sc._gateway.shutdown()
jvm.stdin.close()
jvm.wait(120)
"""


def hasten(environ: MutableMapping[str, str]) -> None:
    """Let what Spark starts with this environment start sooner; what is set stays."""
    options = _FEW_COMPILERS
    archive = _archive()
    if archive is not None and archive.exists():
        # A JVM that cannot use it does without, and says nothing in the terminal of a test.
        options += f" -XX:SharedArchiveFile={archive} -Xlog:disable -Xlog:all=off"
    environ.setdefault("SPARK_LAUNCHER_OPTS", _FEW_COMPILERS)
    environ.setdefault("SPARK_DAEMON_JAVA_OPTS", options)
    environ.setdefault(
        "SPARK_SUBMIT_OPTS",
        f'{options} "-Dspark.executor.defaultJavaOptions={options}" '
        "-Dspark.python.daemon.module=tests.services.python_daemon "
        # Of the 200 by default nearly all would be empty; what a program sets stays.
        "-Dspark.sql.shuffle.partitions=2",
    )
    paths = environ.get("PYTHONPATH", "").split(os.pathsep)
    if _ROOT not in paths:
        environ["PYTHONPATH"] = os.pathsep.join(path for path in [_ROOT, *paths] if path)


def make_archive() -> None:
    """Write the archive if it is not there.

    Raises:
        subprocess.SubprocessError: Spark does not start.
    """
    archive = _archive()
    if archive is None or archive.exists():
        return
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        part = Path(folder, archive.name)
        subprocess.run(
            [sys.executable, "-c", _PROGRAM, str(part), folder],
            env={
                **os.environ,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_SUBMIT_OPTS": _FEW_COMPILERS,
                "PYSPARK_PYTHON": sys.executable,
            },
            capture_output=True,
            check=True,
            timeout=_START_S,
        )
        if part.exists():
            part.rename(archive)


def _archive() -> Path | None:
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java is None or not os.path.exists(java):
        return None
    # It holds for the Java that wrote it, and has the classes of this program.
    what = f"{os.path.realpath(java)} {os.stat(java).st_mtime_ns} {pyspark.__version__} {_PROGRAM}"
    return Path(sys.prefix, f"spark-{hashlib.sha256(what.encode()).hexdigest()[:12]}.jsa")


if __name__ == "__main__":
    try:
        make_archive()
    except subprocess.SubprocessError as error:
        print(f"Spark's classes could not be archived: {error}", file=sys.stderr)
