#!/bin/sh
# knx-pico 0.3.0 (crates.io, KNX, the bus of buildings): a room of 15 degrees is one of -5.48, and a frost of -30
# degrees is 10.96; of the numbers of two bytes those from 10.24 to 20.47 are 20.48 too low, and so on for each
# exponent.
#
# The value has its sign in the highest bit of its two bytes, then four bits of exponent and eleven of mantissa, which
# are in two's complement with the sign (KNX 03_07_02, 3.10, "DPT 9"). The library takes the highest bit of the eleven
# for the sign and does not look at the other one. What it writes itself stays below 10.24 for each exponent, so that it
# reads that as it was, and others read its negative numbers as positive ones. Nothing is raised. xknx 4.0.0 wrote the
# values and reads them. Seen (temperatures as they are sent; then as the library sends them, read by xknx):
#
#   5: 01f4, knx-pico 5.00; of knx-pico 01f4, read 5.00
#   15: 05dc, knx-pico -5.48; of knx-pico 0aee, read 15.00
#   20: 07d0, knx-pico -0.48; of knx-pico 0be8, read 20.00
#   21.5: 0c33, knx-pico -19.46; of knx-pico 121a, read 21.52
#   -5: 860c, knx-pico -5.00; of knx-pico 060c, read 15.48
#   -30: 8a24, knx-pico 10.96; of knx-pico 1512, read 51.92
#
# Needs python3 (3.11 or later) and cargo (1.95 was there). Ends with 0 while it is so, with another number when it
# changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q xknx==4.0.0
cd "$work"
mkdir src
cat > Cargo.toml <<'END'
[package]
name = "look"
version = "0.1.0"
edition = "2021"

[dependencies]
knx-pico = "=0.3.0"
END
cat > src/main.rs <<'END'
use knx_pico::dpt::{Dpt9, DptEncode};

fn main() {
    for argument in std::env::args().skip(1) {
        let (value, data) = argument.split_once(':').unwrap();
        let data = u16::from_str_radix(data, 16).unwrap().to_be_bytes();
        let mut written = [0; 2];
        Dpt9::Temperature.encode(value.parse().unwrap(), &mut written).unwrap();
        let found = Dpt9::Temperature.decode_from_bytes(&data).unwrap();
        println!("{found:.2} {:04x}", u16::from_be_bytes(written));
    }
}
END
cargo build -q 2> log || { tail -n 20 log; exit 1; }
cat > look.py <<'END'
import subprocess

from xknx.dpt import DPTArray, DPTTemperature

VALUES = (5, 15, 20, 21.5, -5, -30)
sent = [bytes(DPTTemperature.to_knx(value).value).hex() for value in VALUES]
arguments = [f"{value}:{data}" for value, data in zip(VALUES, sent, strict=True)]
lines = subprocess.run(["target/debug/look", *arguments], check=True, capture_output=True, text=True).stdout.splitlines()
for value, data, line in zip(VALUES, sent, lines, strict=True):
    found, written = line.split()
    read = DPTTemperature.from_knx(DPTArray(tuple(bytes.fromhex(written))))
    print(f"{value}: {data}, knx-pico {found}; of knx-pico {written}, read {read:.2f}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
