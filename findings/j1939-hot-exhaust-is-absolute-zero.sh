#!/bin/sh
# j1939 0.3.0 (crates.io): an exhaust gas of 800 degrees is -273, as is each of 751 and more; a coolant of 150 degrees
# is one of 127, and so is a broken sensor; a battery of 13.85 V has 13, and what is not known is shown as 0.
#
# A temperature of two bytes is a count without a sign, 0.03125 degrees each from -273 on, one of a byte ends at 210, FE
# says that the sensor has failed (SAE J1939-71). The library takes the two bytes for a number with a sign, puts the
# byte into one with a sign, and has whole numbers for what has parts. Nothing is raised. Seen (sent, read):
#
#   exhaust 20 (9376): Some(20), written 9376
#   exhaust 751 (32768): Some(-273), written 0
#   exhaust 800 (34336): Some(-273), written 0
#   exhaust 1000 (40736): Some(-273), written 0
#   coolant 90: Some(90), Engine coolant temperature: 90°C
#   coolant 127: Some(127), Engine coolant temperature: 127°C
#   coolant 150: Some(127), Engine coolant temperature: 127°C
#   coolant failed: Some(127), Engine coolant temperature: 127°C
#   coolant not known: None, Engine coolant temperature: 0°C
#   battery 12: Some(12)
#   battery 13.85: Some(13)
#
# Needs cargo (1.95 was there). Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
mkdir src
cat > Cargo.toml <<'END'
[package]
name = "look"
version = "0.1.0"
edition = "2021"

[dependencies]
j1939 = { version = "=0.3.0", default-features = false }
END
cat > src/main.rs <<'END'
use j1939::spn::{EngineTemperature1Message, InletExhaustConditions1Message, VehicleElectricalPowerMessage};

fn main() {
    for degrees in [20.0, 751.0, 800.0, 1000.0] {
        let sent = ((degrees + 273.0) / 0.03125) as u16;
        let [low, high] = sent.to_le_bytes();
        let read = InletExhaustConditions1Message::from_pdu(&[0xff, 0xff, 0xff, 0xff, 0xff, low, high, 0xff]);
        let written = read.to_pdu();
        println!("exhaust {degrees} ({sent}): {:?}, written {}", read.exhaust_gas_temperature,
            u16::from_le_bytes([written[5], written[6]]));
    }
    for (name, sent) in [("90", 130), ("127", 167), ("150", 190), ("failed", 0xfe), ("not known", 0xff)] {
        let read = EngineTemperature1Message::from_pdu(&[sent, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        let text = read.to_string();
        println!("coolant {name}: {:?}, {}", read.engine_coolant_temperature, text.split(';').next().unwrap());
    }
    for volts in [12.0, 13.85] {
        let [low, high] = ((volts * 20.0) as u16).to_le_bytes();
        let read = VehicleElectricalPowerMessage::from_pdu(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, low, high]);
        println!("battery {volts}: {:?}", read.battery_potential);
    }
}
END
cargo build -q 2> log || { tail -n 20 log; exit 1; }
target/debug/look | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
