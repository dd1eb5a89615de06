#!/bin/sh
# pycef 1.11 leaves the escapes of the Common Event Format as they are, and takes an escaped bar in the
# header for the header's end: the name is empty, the severity is away, and the rest of the header is
# part of the name of the first extension.
#
# ArcSight's guide to the format has \| in the header, \= and \n in the extension, and \\ in both. A path
# of Windows has two backslashes then, a message no line end, and rules that look at the severity pass
# over such events. Seen:
#
#   name: None, severity: None, first extension: 'alert|High|msg'
#   formula: 'a\\=b', path: 'C:\\\\logs', message: 'one\\ntwo'
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pycef==1.11
cd "$work"
cat > look.py <<'END'
import logging

import pycef

logging.disable(logging.CRITICAL)
event = pycef.parse(r"CEF:0|vendor|product|1.0|100|Drop \| alert|High|msg=x act=drop")
known = {"Name", "DeviceName", "Severity", "DeviceSeverity", "CEFVersion"}
rest = [name for name in event if name not in known and not name.startswith("Device")]
first, severity = rest[0], event.get("Severity")
print(f"name: {event.get('Name') or None}, severity: {severity}, first extension: {first!r}")
event = pycef.parse(r"CEF:0|vendor|product|1.0|100|alert|5|cs1=a\=b filePath=C:\\logs msg=one\ntwo")
print(f"formula: {event['cs1']!r}, path: {event['filePath']!r}, message: {event['msg']!r}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
