#!/bin/sh
# ublox 0.10.0 (crates.io, u-blox GNSS receivers): the root of an orbit's axis, 5153.6, is 5.4e-10, its eccentricity
# 1.3e-25 instead of 0.008, and its time of 345,600 s is 432 million; an oscillator that is 1.5 ppb off is 0.0000077
# off.
#
# Scales of orbits and clocks are powers of two, as 2^-19 (u-blox 8/M8 interface description, UBX-MGA-GPS-EPH,
# UBX-TIM-TOS). The library has 2e-19 in their place, in the messages of MGA with orbits, clocks and the ionosphere.
# Nothing is raised. pyubx2 1.4.0 (PyPI) wrote the messages and reads them. Seen (pyubx2, ublox):
#
#   sqrtA: 5153.625, 5.40397e-10
#   e: 0.0078125, 1.34218e-25
#   toe: 345600, 4.32e+08
#   af0: 0.000244140625, 1.04858e-25
#   intOscOffset: 1.5, 7.68e-06
#
# Needs python3 and cargo (1.95 was there). Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyubx2==1.4.0
cd "$work"
mkdir src
cat > Cargo.toml <<'END'
[package]
name = "look"
version = "0.1.0"
edition = "2021"

[profile.dev]
debug = 0

[dependencies]
ublox = "=0.10.0"
END
cat > src/main.rs <<'END'
use ublox::proto23::PacketRef;
use ublox::{Parser, UbxPacket};

fn main() {
    for argument in std::env::args().skip(1) {
        let bytes: Vec<u8> = (0..argument.len() / 2)
            .map(|place| u8::from_str_radix(&argument[place * 2..place * 2 + 2], 16).unwrap())
            .collect();
        let mut parser = Parser::default();
        let mut packets = parser.consume_ubx(&bytes);
        match packets.next() {
            Some(Ok(UbxPacket::Proto23(PacketRef::MgaGpsEph(orbit)))) => {
                println!("{:e} {:e} {:e} {:e}", orbit.sqrt_a(), orbit.e(), orbit.toe(), orbit.af0());
            }
            Some(Ok(UbxPacket::Proto23(PacketRef::TimTos(clock)))) => println!("{:e}", clock.int_osc_offset()),
            _ => panic!("another packet"),
        }
    }
}
END
cargo build -q 2> log || { tail -n 20 log; exit 1; }
cat > look.py <<'END'
import subprocess

from pyubx2 import GET, SET, UBXMessage, UBXReader

NAMES = ("sqrtA", "e", "toe", "af0")
orbit = UBXMessage("MGA", "MGA-GPS-EPH", SET, type=1, sqrtA=5153.625, e=0.0078125, toe=345600, af0=2.0**-12).serialize()
clock = UBXMessage("TIM", "TIM-TOS", GET, intOscOffset=1.5).serialize()
command = ["target/debug/look", orbit.hex(), clock.hex()]
of_orbit, of_clock = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
other = UBXReader.parse(orbit, msgmode=SET)
for name, found in zip(NAMES, of_orbit.split(), strict=True):
    print(f"{name}: {getattr(other, name)}, {float(found):.6g}")
print(f"intOscOffset: {UBXReader.parse(clock).intOscOffset}, {float(of_clock):.6g}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
