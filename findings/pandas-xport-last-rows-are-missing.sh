#!/bin/sh
# pandas 3.1.1, read_sas of a SAS transport file: the last row is missing if texts near the end have eight blanks in a row,
# as names in a column of 16 characters do; of ten such rows two are missing.
#
# A file has records of 80 bytes, and blanks fill the last one (SAS, "The Record Layout of a Data Set in SAS Transport
# (XPORT) Format", TS-140); a text is filled with blanks as well. pandas counts all groups of eight blanks in the last 80
# bytes as filling, those inside of rows, too, and divides what is left of the file by the length of a row. pyreadstat
# 1.3.7, which wrote the files, reads each row. Nothing is raised. Seen (rows written; what each reads):
#
#   10 numbers: pandas 10, pyreadstat 10
#   10 numbers with names of 16 letters: pandas 10, pyreadstat 10
#   10 numbers with names of 5 letters in 16: pandas 8, pyreadstat 10
#   3 numbers with names of 5 letters in 16: pandas 2, pyreadstat 3
#   read by pandas: 1.0 north, 2.0 south
#
# Needs Python 3.11. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pandas==3.1.1 pyreadstat==1.3.7
cd "$work"
cat > look.py <<'END'
import pandas
import pyreadstat


def look(name, count, places):
    columns = {"CELSIUS": [float(number) for number in range(1, count + 1)]}
    if places:
        columns["PLACE"] = [places[number % 3].ljust(16) for number in range(count)]
    pyreadstat.write_xport(pandas.DataFrame(columns), "data.xpt", file_format_version=5)
    frame = pandas.read_sas("data.xpt", format="xport", encoding="ascii")
    other, _ = pyreadstat.read_xport("data.xpt")
    assert list(other["CELSIUS"]) == columns["CELSIUS"]
    print(f"{count} numbers{name}: pandas {len(frame)}, pyreadstat {len(other)}")
    return frame


look("", 10, [])
look(" with names of 16 letters", 10, ["northern station", "southern station", "inlet of station"])
names = ["north", "south", "inlet"]
look(" with names of 5 letters in 16", 10, names)
frame = look(" with names of 5 letters in 16", 3, names)
print("read by pandas:", ", ".join(f"{row.CELSIUS} {row.PLACE.strip()}" for row in frame.itertuples()))
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
