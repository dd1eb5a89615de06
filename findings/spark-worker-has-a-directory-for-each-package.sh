#!/bin/sh
# PySpark 4.3.0 with CPython 3.11 or 3.12: in a Python worker each package of `pyspark.zip` that was imported has a
# directory of the whole archive for itself, 1,500 entries each, which its parent process shares between them.
#
# Python's importer of archives reads an archive's directory once and gives it to the importer of each package in it:
# one dictionary. PySpark's worker calls `importlib.invalidate_caches()` when its first task begins, as the folder of
# the program's files was added to the path. Then each importer reads the directory again, and keeps what it read, while
# the common one is replaced each time: memory for as many directories as packages, which a fork shares with no one.
# (It takes some 15 MiB of a worker that has 65, and 70 ms.) Seen:
#
#   before: more than 10 importers of the archive, 1 directory
#   in a worker: more than 10 importers of the archive, as many directories as importers
#
# Needs python3 (3.11 or 3.12) and Java 17. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyspark==4.3.0
cd "$work"
cat > importers.py <<'END'
import sys
import zipimport


def directories():
    found = [
        one
        for one in sys.path_importer_cache.values()
        if isinstance(one, zipimport.zipimporter) and one.archive.endswith("pyspark.zip")
    ]
    return len(found), len({id(vars(one)["_files"]) for one in found})
END
cat > before.py <<'END'
import importlib

from importers import directories

importlib.import_module("pyspark.worker")
importers, found = directories()
assert importers > 10, importers
print(f"before: more than 10 importers of the archive, {found} directory")
END
cat > look.py <<'END'
from pyspark import SparkConf, SparkContext

conf = SparkConf().setMaster("local[1]").set("spark.ui.enabled", "false").set("spark.driver.host", "127.0.0.1")
spark = SparkContext(conf=conf, pyFiles=["importers.py"])
spark.setLogLevel("OFF")


def count(_):
    from importers import directories

    yield directories()


((importers, found),) = spark.parallelize([0], 1).mapPartitions(count).collect()
assert importers > 10, importers
assert found == importers, (importers, found)
print("in a worker: more than 10 importers of the archive, as many directories as importers")
END
lib=$(echo "$work"/venv/lib/python3*/site-packages/pyspark/python/lib)
{
    PYTHONPATH="$lib/pyspark.zip:$(echo "$lib"/py4j-*-src.zip):$work" "$work/venv/bin/python" before.py
    PYSPARK_PYTHON="$work/venv/bin/python" "$work/venv/bin/python" look.py
} 2> log | tee seen || { tail -n 20 log; exit 1; }
sed -n 's/^#   //p' "$this" > expected
diff expected seen
