#!/bin/sh
# zat 0.4.9 reads a field that Zeek left unset as a value: False, 0 and a duration of 0, which Zeek writes
# otherwise, and which no reader can tell from it any more.
#
# A log of Zeek says in its head how an unset field looks (#unset_field), and an empty one. A connection
# that nobody could say of whether it was local (`local_orig` unset, as it is where no networks are
# configured) is one that was not; one without an answer has a duration of 0 and no bytes, and so a mean
# of durations is wrong. Text stays "-", sets stay text, and \x09 stays four characters. Seen:
#
#   was written T, 1.500000, 42: local_orig True, duration 1.5 s, orig_bytes 42
#   was written F, 0.000000, 0: local_orig False, duration 0.0 s, orig_bytes 0
#   was written -, -, -: local_orig False, duration 0.0 s, orig_bytes 0
#   service '-', tunnel_parents 'C1,C2', of nobody '(empty)', history 'a\\x09b'
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q zat==0.4.9
cd "$work"
cat > look.py <<'END'
import contextlib
import io

from zat.zeek_log_reader import ZeekLogReader

HEAD = r"""#separator \x09
#set_separator	,
#empty_field	(empty)
#unset_field	-
#path	conn
#fields	ts	service	duration	orig_bytes	local_orig	tunnel_parents	history
#types	time	string	interval	count	bool	set[string]	string
"""
ROWS = (
    ("dns", "1.500000", "42", "T", "C1,C2", "a"),
    ("dns", "0.000000", "0", "F", "(empty)", r"a\x09b"),
    ("-", "-", "-", "-", "C1,C2", r"a\x09b"),
)
with open("conn.log", "w") as file:
    file.write(HEAD)
    for row in ROWS:
        file.write("\t".join(("1700000000.000000", *row)) + "\n")
with contextlib.redirect_stdout(io.StringIO()):
    found = list(ZeekLogReader("conn.log").readrows())
for (_, duration, size, local, *_), row in zip(ROWS, found, strict=True):
    print(
        f"was written {local}, {duration}, {size}: local_orig {row['local_orig']}, "
        f"duration {row['duration'].total_seconds()} s, orig_bytes {row['orig_bytes']}"
    )
last = found[2]
print(
    f"service {last['service']!r}, tunnel_parents {last['tunnel_parents']!r}, "
    f"of nobody {found[1]['tunnel_parents']!r}, history {last['history']!r}"
)
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
