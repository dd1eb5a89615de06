#!/bin/sh
# pathway 0.33.0: the average of six times in nanoseconds is 43 years before 1970, and that of two large
# numbers which are equal is negative.
#
# Its integers have 64 bits, and `reducers.sum` wraps; `reducers.avg`, whose result is a float, divides what
# has wrapped. Six times of these years, as ints, which is how Kafka's and OpenTelemetry's records have them,
# are enough, so the mean of a window is right while few records come, and negative when more do. No error is
# raised; `min` is right. Seen (each row 1704067200000000000, or 2**62):
#
#   5 times: sum 8520336000000000000, avg 1.704e+18, min 1704067200000000000
#   6 times: sum -8222340873709551616, avg -1.370e+18, min 1704067200000000000
#   11 times: sum 297995126290448384, avg 2.709e+16, min 1704067200000000000
#   2 ids: sum -9223372036854775808, avg -4.612e+18, min 4611686018427387904
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pathway==0.33.0 pandas==3.1.1
cd "$work"
cat > look.py <<'END'
import pathway

FIRST = 1_704_067_200_000_000_000


def counted(name, rows):
    table = pathway.debug.table_from_rows(pathway.schema_from_types(at=int), rows)
    result = table.reduce(
        sum=pathway.reducers.sum(table.at),
        avg=pathway.reducers.avg(table.at),
        min=pathway.reducers.min(table.at),
    )
    (row,) = pathway.debug.table_to_pandas(result).to_dict("records")
    print(f"{name}: sum {row['sum']}, avg {row['avg']:.3e}, min {row['min']}")


for count in (5, 6, 11):
    counted(f"{count} times", [(FIRST,)] * count)
counted("2 ids", [(2**62,)] * 2)
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
