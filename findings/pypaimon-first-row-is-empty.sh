#!/bin/sh
# pypaimon 2.1.0 (Apache Paimon's own library for Python): what it writes into a table with the merge engine
# first-row, or with deletion vectors, it does not read back; the table is empty.
#
# New files of such tables are shown once they have been compacted. Paimon's writers in Java compact while they
# write; the library for Python has no compaction, so a job that writes and one that reads, both in Python,
# see nothing until another program compacts the table. Writing, committing and reading tell no error, and
# the same rows in a table of the engine deduplicate are there at once. Seen, of the rows 1: 10 and 2: 20 and
# then 1: 11 (files in the table, and what is read):
#
#   merge-engine deduplicate: 2 files, 1: 11, 2: 20
#   merge-engine first-row: 2 files, nothing
#   deletion-vectors.enabled true: 2 files, nothing
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pypaimon==2.1.0 pyarrow==19.0.1
cd "$work"
cat > look.py <<'END'
import logging
import pathlib
import warnings

import pyarrow
from pypaimon import CatalogFactory, Schema

logging.disable()
warnings.simplefilter("ignore")
FIELDS = pyarrow.schema(
    [pyarrow.field("sensor", pyarrow.int64(), nullable=False), ("value", pyarrow.int64())]
)
catalog = CatalogFactory.create({"warehouse": str(pathlib.Path.cwd())})
catalog.create_database("n", True)


def write(table, *rows):
    builder = table.new_batch_write_builder()
    writer, commit = builder.new_write(), builder.new_commit()
    sensors, values = zip(*rows)
    writer.write_arrow(pyarrow.table([list(sensors), list(values)], schema=FIELDS))
    commit.commit(writer.prepare_commit())
    writer.close()
    commit.close()


def read(table):
    builder = table.new_read_builder()
    rows = builder.new_read().to_arrow(builder.new_scan().plan().splits()).to_pylist()
    return ", ".join(sorted(f"{row['sensor']}: {row['value']}" for row in rows)) or "nothing"


for number, options in enumerate(
    (
        {"merge-engine": "deduplicate"},
        {"merge-engine": "first-row"},
        {"deletion-vectors.enabled": "true"},
    )
):
    name = f"n.t{number}"
    schema = Schema.from_pyarrow_schema(
        FIELDS, primary_keys=["sensor"], options={"bucket": "1", **options}
    )
    catalog.create_table(name, schema, False)
    table = catalog.get_table(name)
    write(table, (1, 10), (2, 20))
    write(table, (1, 11))
    files = len(list(pathlib.Path(f"n.db/t{number}").rglob("data-*.parquet")))
    ((key, setting),) = options.items()
    print(f"{key} {setting}: {files} files, {read(table)}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
