#!/bin/sh
# asn1tools 0.169.0 and pyasn1 0.6.5: a GeneralizedTime with a fraction of a minute or an hour has a fraction of a
# second; and asn1tools sends a time with a fraction of its second as one with a fraction of its minute, whenever
# the second is 0.
#
# The fraction is one of the last part that is there (X.680, "Generalized time"; ISO 8601): 1200.5 is 12:00:30 and
# 12.5 is half past twelve. In BER, JER and XER asn1tools leaves seconds out if they are 0, and puts the fraction
# behind the minutes. It reads that back as it was, and so does pyasn1, so that the two agree on what is wrong;
# a reader that keeps to X.680 has a time up to a minute later. Seen (what it means, what each library reads; what
# was given to asn1tools, what it wrote, and what that means):
#
#   20240701120000.5Z, 12:00:00.5: asn1tools 12:00:00.500000, pyasn1 12:00:00.500000
#   202407011200.5Z, 12:00:30: asn1tools 12:00:00.500000, pyasn1 12:00:00.500000
#   2024070112.5Z, 12:30:00: asn1tools 01:02:00.500000, pyasn1 12:00:00.500000
#   12:00:01.750000 in BER: 20240701120001.75Z
#   12:00:00.750000 in BER: 202407011200.75Z, 12:00:45
#   12:00:00.750000 in JER: 202407011200.75Z, 12:00:45
#   12:00:00.750000 in DER: 20240701120000.75Z
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q asn1tools==0.169.0 pyasn1==0.6.5
cd "$work"
cat > look.py <<'END'
import datetime
import re

import asn1tools
from pyasn1.codec.ber import decoder

TEXT = "M DEFINITIONS ::= BEGIN T ::= GeneralizedTime END"
TAG = 0x18
codecs = {rules: asn1tools.compile_string(TEXT, rules.lower()) for rules in ("BER", "JER", "DER")}
for text, means in (
    ("20240701120000.5Z", "12:00:00.5"),
    ("202407011200.5Z", "12:00:30"),
    ("2024070112.5Z", "12:30:00"),
):
    data = bytes([TAG, len(text)]) + text.encode()
    one, other = codecs["BER"].decode("T", data), decoder.decode(data)[0].asDateTime
    print(f"{text}, {means}: asn1tools {one.time()}, pyasn1 {other.time()}")
for second, rules in ((1, "BER"), (0, "BER"), (0, "JER"), (0, "DER")):
    at = datetime.datetime(2024, 7, 1, 12, 0, second, 750_000, tzinfo=datetime.timezone.utc)
    written = re.search(rb"2024.*Z", codecs[rules].encode("T", at))[0].decode()
    digits, fraction = written.rstrip("Z").split(".")
    means = ""
    if len(digits) == len("202407011200"):
        minutes = datetime.timedelta(minutes=float(f"0.{fraction}"))
        means = f", {datetime.datetime.strptime(digits, '%Y%m%d%H%M') + minutes:%H:%M:%S}"
    print(f"{at.time()} in {rules}: {written}{means}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
