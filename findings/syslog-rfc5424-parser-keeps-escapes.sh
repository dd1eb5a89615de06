#!/bin/sh
# syslog-rfc5424-parser 0.3.2 leaves in what it gives what RFC 5424 puts around it: the backslashes of
# values, the byte order mark of the message, and the dash of some fields that have no value, but not
# of others.
#
# In values of structured data `"`, `\` and `]` are written with a backslash before them (6.3.3); the
# parser gives the backslashes as part of the value. A message of UTF-8 begins with the mark (6.4),
# and so does what the parser gives. Of fields without a value (6: a dash) host, application and time
# are "-", process and message id None. Of a name that an element has twice, which is allowed, the
# first value is gone. Seen:
#
#   value: say \"hi\" to C:\\x and [1\]
#   message begins with the mark: True
#   hostname '-', appname '-', timestamp '-', procid None, msgid None
#   ip twice: 10.0.0.2
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q syslog-rfc5424-parser==0.3.2
cd "$work"
cat > look.py <<'END'
from syslog_rfc5424_parser import SyslogMessage

MARK = "\ufeff"
line = r'<34>1 2003-10-11T22:14:15.003Z host app 1 id [a@1 k="say \"hi\" to C:\\x and [1\]"] '
found = SyslogMessage.parse(line + MARK + "text").as_dict()
print("value:", found["sd"]["a@1"]["k"])
print("message begins with the mark:", found["msg"].startswith(MARK))
found = SyslogMessage.parse("<34>1 - - - - - -").as_dict()
names = ("hostname", "appname", "timestamp", "procid", "msgid")
print(", ".join(f"{name} {found[name] and str(found[name])!r}" for name in names))
line = '<34>1 2003-10-11T22:14:15.003Z host app 1 id [origin ip="10.0.0.1" ip="10.0.0.2"]'
print("ip twice:", SyslogMessage.parse(line).as_dict()["sd"]["origin"]["ip"])
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
