#!/bin/sh
# pyilpp 0.1.0 (PyPI, a parser of InfluxDB's line protocol): the folder C:\logs is C:logs, a text loses the blanks it
# begins with, and a tag whose value begins with an underscore ends the reading: it and all lines after it are left out.
#
# A backslash escapes what the place it stands in has to escape, in a text " and \, in a tag a comma, an equals sign and
# a blank; before anything else it is itself. An underscore may not begin the names of measurements, tags and fields; a
# value may (InfluxDB's reference of the line protocol, "Special characters" and "Naming restrictions"). Nothing is raised.
# Seen, beside line-protocol-parser 2.0.1, which takes one line at a time (what each reads as fields and tags):
#
#   log,host=a text="C:\\logs" 1: C:\logs a; C:\logs a
#   log,host=a text="C:\logs" 1: C:logs a; C:\logs a
#   log,host=a text="\d+ rows" 1: d+ rows a; \d+ rows a
#   log,host=C:\logs text="on" 1: on C:logs; on C:\logs
#   log,host=a text="  on" 1: 'on' a; '  on' a
#   three lines, the second with host=_a: 1; 3
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyilpp==0.1.0 line-protocol-parser==2.0.1
cd "$work"
cat > look.py <<'END'
import line_protocol_parser
import pyilpp


def shown(record):
    text = record["fields"]["text"]
    text = text if text.strip() == text and "  on" not in line else repr(text)
    return f"{text} {record['tags']['host']}"


for line in (
    'log,host=a text="C:\\\\logs" 1',
    'log,host=a text="C:\\logs" 1',
    'log,host=a text="\\d+ rows" 1',
    'log,host=C:\\logs text="on" 1',
    'log,host=a text="  on" 1',
):
    (one,) = pyilpp.parse(line)
    print(f"{line}: {shown(one)}; {shown(line_protocol_parser.parse_line(line))}")
lines = [f'log,host={host} text="on" 1' for host in ("a", "_a", "b")]
others = [line_protocol_parser.parse_line(line) for line in lines]
print(f"three lines, the second with host=_a: {len(pyilpp.parse(chr(10).join(lines)))}; {len(others)}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
