#!/bin/sh
# edfplus 0.1.0 (crates.io, EDF+, the recordings of sleep and heart laboratories): of two events at one time the second
# is left out, and so is every event before the start, with all that follow in its part of the file.
#
# An annotation has a time with its sign, + or -, and any number of texts: "+180 Lights off, Close door" is the
# specification's own example, and the text that stands behind a part's own time is one, too (EDF+ specification,
# 2.2.2 and 2.2.4). The library looks for a plus after each text, and gives up the part at what it does not
# understand. A time of -0.065 s is allowed there, for what came just before. Nothing is raised. pyEDFlib 0.1.42 reads
# all. Seen (the part's annotations, with 0x14 as |, 0x15 as ~ and 0x00 as a blank):
#
#   +0|| +0.5~1.5|Lights off|Close door|: edfplus 0.5 Lights off; pyEDFlib 0.5 Lights off, 0.5 Close door
#   +0|| -0.065|before| +0.2|after|: edfplus nothing; pyEDFlib -0.065 before, 0.2 after
#   +0||first| +0.3|second|: edfplus nothing; pyEDFlib 0 first, 0.3 second
#   +0|| +0.3|second|: edfplus 0.3 second; pyEDFlib 0.3 second
#
# Needs python3 and cargo (1.95 was there). Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyEDFlib==0.1.42
cd "$work"
mkdir src
cat > Cargo.toml <<'END'
[package]
name = "look"
version = "0.1.0"
edition = "2021"

[dependencies]
edfplus = "=0.1.0"
END
cat > src/main.rs <<'END'
use edfplus::EdfReader;

fn main() {
    let reader = EdfReader::open("file.edf").unwrap();
    for event in reader.annotations() {
        println!("{} {}", event.onset as f64 / 1e7, event.description);
    }
}
END
cargo build -q 2> log || { tail -n 20 log; exit 1; }
cat > look.py <<'END'
import subprocess

import pyedflib

PARTS = (
    "+0|| +0.5~1.5|Lights off|Close door|",
    "+0|| -0.065|before| +0.2|after|",
    "+0||first| +0.3|second|",
    "+0|| +0.3|second|",
)
SIZE = 80


def write(part):
    """Write a file of one second, which has a signal of four samples and this part of annotations."""
    texts = [("0", 8), ("X X X X", 80), ("Startdate 30-NOV-2026 X X X", 80), ("30.11.26", 8), ("12.00.00", 8)]
    texts += [("768", 8), ("EDF+C", 44), ("1", 8), ("1", 8), ("2", 4)]
    texts += [("x", 16), ("EDF Annotations", 16), ("", 160), ("uV", 8), ("", 8), ("-100", 8), ("-1", 8), ("100", 8)]
    texts += [("1", 8), ("-32768", 8), ("-32768", 8), ("32767", 8), ("32767", 8), ("", 160), ("4", 8)]
    texts += [(str(SIZE // 2), 8), ("", 64)]
    head = "".join(text.ljust(width) for text, width in texts)
    data = part
    for shown, byte in (("|", "\x14"), ("~", "\x15"), (" -", "\0-"), (" +", "\0+")):
        data = data.replace(shown, byte)
    with open("file.edf", "wb") as file:
        file.write(head.encode() + bytes(8) + data.encode().ljust(SIZE, b"\0"))


for part in PARTS:
    write(part)
    found = subprocess.run("target/debug/look", check=True, capture_output=True, text=True).stdout.splitlines()
    with pyedflib.EdfReader("file.edf") as reader:
        times, _, texts = reader.readAnnotations()
    known = [f"{time:g} {text}" for time, text in zip(times, texts, strict=True)]
    print(f"{part}: edfplus {', '.join(found) or 'nothing'}; pyEDFlib {', '.join(known)}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
