#!/bin/sh
# fastparquet 2026.9.0: lists and maps with text are None, each of them, in a file whose text is not in
# dictionary pages; and bytes of a fixed length lose the zeros at their end.
#
# A writer gives up its dictionary when that grows too large, so that a column of many different texts has plain
# pages from there on; a test with few of them sees nothing. Of a list or map the whole value is gone, without an
# error, though numbers come; of maps with one number each the keys come in their place. Fixed bytes are made
# numpy's S, which knows no zero at the end: a key, a hash or a UUID is then shorter than its column says, in one of
# 256 rows, and two values are one. pyarrow 26.0.1, which wrote the files, reads all as it was. Seen:
#
#   list of text, dictionary: [['a', 'b'], ['c'], []]
#   list of text, plain: [None, None, None]
#   list of numbers, plain: [[1, 2], [3], []]
#   map of text, dictionary: [{'a': 'x', 'b': 'y'}, {'c': 'z'}]
#   map of text, plain: [None, None]
#   map of numbers, plain, one key each: ['a', 'b']
#   list of 200,000 different texts, by the writer's own choice: 51,264 of 200,000 are not None
#   fixed bytes: [b'ab', b'a', b'']
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q fastparquet==2026.9.0 pyarrow==26.0.1 pandas==3.1.1
cd "$work"
cat > look.py <<'END'
import fastparquet
import numpy
import pyarrow
import pyarrow.parquet


def plain(value):
    """Numbers of Python in place of numpy's."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {plain(key): plain(each) for key, each in value.items()}
    return value.item() if isinstance(value, numpy.generic) else value


def read(values, kind, **options):
    rows = pyarrow.table({"x": pyarrow.array(values, kind)})
    pyarrow.parquet.write_table(rows, "rows.parquet", **options)
    assert pyarrow.parquet.read_table("rows.parquet").equals(rows)
    return plain(fastparquet.ParquetFile("rows.parquet").to_pandas()["x"].tolist())


TEXTS = pyarrow.list_(pyarrow.string())
MAP = pyarrow.map_(pyarrow.string(), pyarrow.string())
NUMBERS = pyarrow.map_(pyarrow.string(), pyarrow.int64())
some = [["a", "b"], ["c"], []]
maps = [[("a", "x"), ("b", "y")], [("c", "z")]]
print("list of text, dictionary:", read(some, TEXTS))
print("list of text, plain:", read(some, TEXTS, use_dictionary=False))
numbers = [[1, 2], [3], []]
print(
    "list of numbers, plain:",
    read(numbers, pyarrow.list_(pyarrow.int64()), use_dictionary=False),
)
print("map of text, dictionary:", read(maps, MAP))
print("map of text, plain:", read(maps, MAP, use_dictionary=False))
print(
    "map of numbers, plain, one key each:",
    read([[("a", 1)], [("b", 2)]], NUMBERS, use_dictionary=False),
)
found = read([[f"text number {number}"] for number in range(200_000)], TEXTS)
print(
    "list of 200,000 different texts, by the writer's own choice:",
    f"{sum(each is not None for each in found):,} of 200,000 are not None",
)
print("fixed bytes:", read([b"ab", b"a\0", b"\0\0"], pyarrow.binary(2)))
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
