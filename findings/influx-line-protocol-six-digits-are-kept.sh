#!/bin/sh
# influx-line-protocol 0.1.5 (PyPI, a writer of InfluxDB's line protocol): a meter's 1234567.89 kWh are 1234570, a longitude
# of 139.691706 is 139.692, a value that is not there is one that the database refuses, and a backslash in a tag is two.
#
# A float is one of 64 bits (InfluxDB's reference of the line protocol, "Data types and format"), which takes up to 17
# digits to write; the library writes six, as printf's %g does. The protocol has no "nan" (there). In a tag commas, equals
# signs and blanks are escaped ("Special characters"), a backslash is not: line-protocol-parser 2.0.1 reads two. Nothing
# is raised. Seen (what was given; what is written; what the parser reads from it):
#
#   longitude 139.691706: longitude=139.692, 139.692
#   energy 1234567.89: energy=1.23457e+06, 1234570.0
#   seconds 1764561600.25: seconds=1.76456e+09, 1764560000.0
#   count 1234567: count=1234567i, 1234567
#   missing nan: missing=nan, refused
#   tag C:\logs: folder=C:\\logs, C:\\logs
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q influx-line-protocol==0.1.5 line-protocol-parser==2.0.1
cd "$work"
cat > look.py <<'END'
from influx_line_protocol import Metric
from line_protocol_parser import LineFormatError, parse_line


def read(metric):
    metric.with_timestamp(1764561600000000000)
    try:
        return parse_line(str(metric))
    except LineFormatError:
        return None


for name, value in (
    ("longitude", 139.691706),
    ("energy", 1234567.89),
    ("seconds", 1764561600.25),
    ("count", 1234567),
    ("missing", float("nan")),
):
    metric = Metric("meter")
    metric.add_value(name, value)
    found = read(metric)
    got = found["fields"][name] if found else "refused"
    print(f"{name} {value}: {str(metric).split()[1]}, {got}")
metric = Metric("meter")
metric.add_tag("folder", "C:\\logs")
metric.add_value("count", 1)
tag = str(metric).split()[0].split(",")[1]
print(f"tag C:\\logs: {tag}, {read(metric)['tags']['folder']}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
