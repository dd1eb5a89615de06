#!/bin/sh
# crc32c 2.9.post0 in a Python worker of PySpark 4.3.0: the first import of this small C extension reads the directory
# of Spark's own Java archive, and keeps an object for each of its files for as long as the worker lives.
#
# The package asks `importlib.metadata` for its own version when it is imported. That looks into every entry of
# `sys.path`, and a worker has three archives there: PySpark, Py4J, and the jar of Spark's core, with classes only. Of
# each a `zipfile.ZipFile` is opened to look for packages' metadata in it, and the finder keeps it in a cache. Reading
# the version in one's own program first helps a worker nothing: it has a cache of its own. Seen in a task:
#
#   before the import: 0 ZipInfo objects
#   behind it more than 7000, of which more than 5000 are files of a jar
#
# Needs python3 (3.11 or 3.12) and Java 17. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyspark==4.3.0 crc32c==2.9.post0
cd "$work"
cat > look.py <<'END'
from pyspark import SparkConf, SparkContext

conf = SparkConf().setMaster("local[1]").set("spark.ui.enabled", "false").set("spark.driver.host", "127.0.0.1")
spark = SparkContext(conf=conf)
spark.setLogLevel("OFF")


def count(_):
    import gc
    import zipfile

    def kept():
        found = [one for one in gc.get_objects() if isinstance(one, zipfile.ZipInfo)]
        return len(found), sum(one.filename.endswith(".class") for one in found)

    before = kept()
    import crc32c

    assert crc32c.crc32c(b"123456789") == 0xE3069283
    yield before, kept()


(first,) = spark.parallelize([0], 1).mapPartitions(count).collect()
print(f"before the import: {first[0][0]} ZipInfo objects")
assert first[1][0] > 7000 and first[1][1] > 5000, first
print("behind it more than 7000, of which more than 5000 are files of a jar")
END
PYSPARK_PYTHON="$work/venv/bin/python" "$work/venv/bin/python" look.py 2> log | tee seen || { tail -n 20 log; exit 1; }
sed -n 's/^#   //p' "$this" > expected
diff expected seen
