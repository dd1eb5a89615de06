#!/bin/sh
# logfmt 0.4, the parser of PyPI for the lines that Go's logfmt, logrus and Heroku write, gives True in
# place of a value with any escape but that of a quote, and ends there: what follows in the line is
# lost.
#
# A message of two lines, a path of Windows or a tab is enough, and a reader of records does not see it:
# True is what the parser gives for a flag. Seen:
#
#   level=info msg="it works": {'level': 'info', 'msg': 'it works'}
#   msg="a \"b\" c" n=1: {'msg': 'a "b" c', 'n': '1'}
#   level=error msg="first\nsecond" n=1: {'level': 'error', 'msg': True}
#   path="C:\\logs" n=1: {'path': True}
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q logfmt==0.4
cd "$work"
cat > look.py <<'END'
import logfmt

for line in (
    'level=info msg="it works"',
    r'msg="a \"b\" c" n=1',
    r'level=error msg="first\nsecond" n=1',
    r'path="C:\\logs" n=1',
):
    print(f"{line}: {next(iter(logfmt.parse([line])))}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
