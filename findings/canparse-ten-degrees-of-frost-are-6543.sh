#!/bin/sh
# canparse 0.1.4 (crates.io, CAN signals by DBC): a temperature of -10 degrees is 6,543.6, a torque of -10 % is 246 %; and
# 4660 in Motorola's byte order is 14847.
#
# A signal's "-" says that its number is in two's complement, its "0" that its first bit is the highest one, in a byte
# whose bits are counted from the lowest (DBC file format, "Signal Definitions"). The library reads the "-" and keeps it,
# but does not look at it when it decodes; with "0" it turns the order of all eight bytes and takes the first bit for the
# lowest one. Nothing is raised. cantools 45.1.0 (PyPI) reads the same file and frame. Seen:
#
#   0|16@1- (0.1,0): canparse 6543.6, cantools -10
#   16|8@1- (1,0): canparse 246, cantools -10
#   24|16@1+ (0.125,0): canparse 1000, cantools 1000
#   47|16@0+ (1,0): canparse 14847, cantools 4660
#   56|8@1+ (1,-125): canparse 0, cantools 0
#
# Needs python3 (3.11 or later) and cargo (1.95 was there). Ends with 0 while it is so, with another number when it
# changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q cantools==45.1.0
cd "$work"
mkdir src
cat > engine.dbc <<'END'
VERSION ""

NS_ :

BS_:

BU_: ECU

BO_ 2364540158 Engine: 8 ECU
 SG_ Temperature : 0|16@1- (0.1,0) [-3276.8|3276.7] "degC" ECU
 SG_ Torque : 16|8@1- (1,0) [-128|127] "%" ECU
 SG_ Speed : 24|16@1+ (0.125,0) [0|8191] "rpm" ECU
 SG_ Count : 47|16@0+ (1,0) [0|65535] "" ECU
 SG_ Demand : 56|8@1+ (1,-125) [-125|125] "%" ECU
END
cat > Cargo.toml <<'END'
[package]
name = "look"
version = "0.1.0"
edition = "2021"

[dependencies]
canparse = "=0.1.4"
END
cat > src/main.rs <<'END'
use canparse::pgn::{ParseMessage, PgnLibrary};

fn main() {
    let library = PgnLibrary::from_dbc_file("engine.dbc").unwrap();
    let mut arguments = std::env::args().skip(1);
    let sent = u64::from_str_radix(&arguments.next().unwrap(), 16).unwrap();
    for name in arguments {
        let value: f32 = library.get_spn(&name).unwrap().parse_message(&sent.to_be_bytes()).unwrap();
        println!("{value}");
    }
}
END
cargo build -q 2> log || { tail -n 20 log; exit 1; }
cat > look.py <<'END'
import pathlib
import subprocess

import cantools

SENT = "9cfff6401f12347d"

[message] = cantools.database.load_file("engine.dbc").messages
other = message.decode(bytes.fromhex(SENT))
lines = [line.split() for line in pathlib.Path("engine.dbc").read_text().splitlines() if line.startswith(" SG_")]
names = [words[1] for words in lines]
found = subprocess.run(["target/debug/look", SENT, *names], check=True, capture_output=True, text=True).stdout.split()
for words, name, value in zip(lines, names, found, strict=True):
    print(f"{words[3]} {words[4]}: canparse {value}, cantools {other[name]:g}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
