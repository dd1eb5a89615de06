#!/bin/sh
# nmea-parser 0.11.0 (crates.io, NMEA and AIS): in the reports that satellites receive (AIS type 27) a ship's speed and
# course are bits of its latitude; in all others a ship turns 31.6 times as fast as it does; and each ship arrives in
# 2000 or 2001.
#
# Type 27 has the latitude from bit 62, the speed from bit 79 and the course from bit 85 (ITU-R M.1371-5, annex 8,
# 3.25): the library takes all three from bit 62, the course with one digit behind the point. The rate of turn is sent
# as 4.733 times the root of degrees a minute (3.3.1); here it is multiplied by 708/126 before it is squared, up
# to 22,400 degrees a minute. A time of arrival has no year, and is given the next one after the first of January 2000.
# Nothing is raised. pyais 3.3.1 reads what was sent. Seen (speed and course of one ship at 10 N, then at 10.1 N):
#
#   type 27: 16 knots, course 85: nmea-parser 2 and 600, pyais 16 and 85
#   type 27: 16 knots, course 85: nmea-parser 2 and 606, pyais 16 and 85
#   turns at 10 degrees a minute: nmea-parser 317.1, pyais 10.0
#   turns at 708 degrees a minute: nmea-parser 22376.6, pyais 709.0
#   arrives on 11-30 at 12:00: nmea-parser 2000-11-30 12:00, pyais 11-30 12:00
#
# Needs python3 and cargo (1.95 was there). Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyais==3.3.1
cd "$work"
mkdir src
cat > Cargo.toml <<'END'
[package]
name = "look"
version = "0.1.0"
edition = "2021"

[dependencies]
nmea-parser = "=0.11.0"
END
cat > src/main.rs <<'END'
use nmea_parser::{NmeaParser, ParsedMessage};

fn main() {
    let mut parser = NmeaParser::new();
    for line in std::env::args().skip(1) {
        match parser.parse_sentence(&line).unwrap() {
            ParsedMessage::VesselDynamicData(ship) => match ship.rot {
                Some(rate) => println!("{rate:.1}"),
                None => println!("{} and {:.0}", ship.sog_knots.unwrap(), ship.cog.unwrap()),
            },
            ParsedMessage::VesselStaticData(ship) => println!("{}", ship.eta.unwrap().format("%Y-%m-%d %H:%M")),
            _ => {}
        }
    }
}
END
cargo build -q 2> log || { tail -n 20 log; exit 1; }
cat > look.py <<'END'
import subprocess

from pyais import decode, encode_dict

SHIP = {"mmsi": 244660000, "lon": 5.0}


def ask(message):
    lines = encode_dict(message, talker_id="AI")
    command = ["target/debug/look", *lines]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip(), decode(*lines)


for latitude in (10.0, 10.1):
    found, sent = ask(SHIP | {"msg_type": 27, "lat": latitude, "speed": 16, "course": 85})
    print(f"type 27: 16 knots, course 85: nmea-parser {found}, pyais {sent.speed:g} and {sent.course:g}")
for turn in (10, 708):
    found, sent = ask(SHIP | {"msg_type": 1, "lat": 10.0, "turn": turn})
    print(f"turns at {turn} degrees a minute: nmea-parser {found}, pyais {sent.turn:.1f}")
found, sent = ask({"mmsi": 244660000, "msg_type": 5, "month": 11, "day": 30, "hour": 12, "minute": 0})
known = f"{sent.month}-{sent.day} {sent.hour}:{sent.minute:02}"
print(f"arrives on 11-30 at 12:00: nmea-parser {found}, pyais {known}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
