#!/bin/sh
# asterix 0.4.0 (crates.io, radars of air traffic control): a radar of Cape Town, 46 metres high, stands at 326.05
# degrees and at a height of 11776; an aircraft a little below zero is at flight level 4095.
#
# The position of a radar is a height of 16 bits and two angles of 24 with their signs, the high byte first (EUROCONTROL
# category 034, I034/120); a flight level is in quarters with a sign (category 048, I048/090). The library reads the
# height from its low byte, the rest without a sign, and cuts the quarters. Nothing is raised. asterix_decoder 0.7.11
# for Python reads the same bytes. Seen (asterix; asterix_decoder):
#
#   radar at -33.95, 18.6, height 46: 326.05, 18.60, 11776; -33.95, 18.60, 46
#   flight level -0.75: 4095; -0.75
#   flight level 300.75: 300; 300.75
#
# Needs python3 and cargo (1.95 was there). Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q asterix_decoder==0.7.11
cd "$work"
mkdir src
cat > Cargo.toml <<'END'
[package]
name = "look"
version = "0.1.0"
edition = "2021"

[dependencies]
asterix = "=0.4.0"
deku = "=0.16.0"
END
cat > src/main.rs <<'END'
use asterix::{AsterixMessage, AsterixPacket};
use deku::prelude::*;

fn main() {
    for text in std::env::args().skip(1) {
        let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        let data: Vec<u8> = (0..text.len()).step_by(2).map(byte).collect();
        let (_, packet) = AsterixPacket::from_bytes((&data, 0)).unwrap();
        match &packet.messages[0] {
            AsterixMessage::Cat34(message) => {
                let place = message.three_d_position_of_data_source.as_ref().unwrap();
                let (latitude, longitude) = (place.latitude_in_wgs_84, place.longitude_in_wgs_84);
                println!("{latitude:.2}, {longitude:.2}, {}", place.height_of_wgs_84);
            }
            AsterixMessage::Cat48(message) => println!("{message:?}"),
        }
    }
}
END
cargo build -q 2> log || { tail -n 20 log; exit 1; }
cat > look.py <<'END'
import re
import subprocess

import asterix


def block(category, *parts):
    body = b"".join(parts)
    return bytes([category]) + (len(body) + 3).to_bytes(2, "big") + body


def angle(degrees):
    return round(degrees / 180 * 2**23).to_bytes(3, "big", signed=True)


def level(quarters):
    return block(48, bytes([0b10000100, 1, 2]), (quarters & 0x3FFF).to_bytes(2, "big"))


SOURCE = bytes([1, 2])
radar = block(34, bytes([0b11000001, 0b00010000]), SOURCE, bytes([1, 0, 46]), angle(-33.95), angle(18.6))
blocks = [radar, level(-3), level(1203)]
command = ["target/debug/look", *(block.hex() for block in blocks)]
lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
place = {name: value["val"] for name, value in asterix.parse(radar)[0]["I120"].items()}
known = f"{place['LAT']:.2f}, {place['Lon']:.2f}, {place['Height']:.0f}"
print(f"radar at -33.95, 18.6, height 46: {lines[0]}; {known}")
for data, line in zip(blocks[1:], lines[1:], strict=True):
    (found,) = re.findall(r"flight_level: (\d+)", line)
    known = asterix.parse(data)[0]["I090"]["FL"]["val"]
    print(f"flight level {known}: {found}; {known}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
