#!/bin/sh
# cayenne_lpp 0.4.0 (crates.io, payloads of LoRaWAN): a turn to one side, of -1 degree a second, is written as none and
# read as one of 654.36 to the other; and of many values a hundredth is missing, by it and by pycayennelpp 2.4.0, of
# each of others: 0.29 is sent as 0.28 by the latter.
#
# A gyrometer's three numbers are hundredths of a degree per second with a sign (myDevices, "Cayenne Low Power Payload",
# data types); the library casts to a number without one, for which a negative number is 0. Both multiply a value and
# cut it, one in single precision and the other in double, so that what lies a little below a whole number loses one.
# Nothing is raised. Seen:
#
#   gyrometer -1, 0.5, 2: cayenne_lpp wrote 0.0, 0.5, 2.0; pycayennelpp -1.0, 0.5, 2.0
#   of pycayennelpp ff9c003200c8: cayenne_lpp read 654.36, 0.5, 2.0; pycayennelpp -1.0, 0.5, 2.0
#   analog input 0.29: cayenne_lpp wrote 0.29, pycayennelpp 0.28
#   of 0.00 to 99.99 lose a hundredth: cayenne_lpp 569 of 10000, pycayennelpp 573 of 10000
#
# Needs python3 and cargo (1.95 was there). Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pycayennelpp==2.4.0
cd "$work"
mkdir src
cat > Cargo.toml <<'END'
[package]
name = "look"
version = "0.1.0"
edition = "2021"

[dependencies]
cayenne_lpp = "=0.4.0"
END
cat > src/main.rs <<'END'
use cayenne_lpp::CayenneLPP;

fn analog(hundredths: u32) -> Vec<u8> {
    let value = format!("{}", f64::from(hundredths) / 100.0).parse().unwrap();
    let mut buffer = [0; 4];
    let mut lpp = CayenneLPP::new(&mut buffer);
    lpp.add_analog_input(1, value).unwrap();
    lpp.payload_slice().to_vec()
}

fn hex(data: &[u8]) -> String {
    data.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn main() {
    let mut buffer = [0; 8];
    let mut lpp = CayenneLPP::new(&mut buffer);
    lpp.add_gyrometer(1, -1.0, 0.5, 2.0).unwrap();
    println!("{}", hex(lpp.payload_slice()));
    buffer.copy_from_slice(&[1, 134, 0xff, 0x9c, 0, 50, 0, 200]);
    for scalar in CayenneLPP::new(&mut buffer).into_infailable_iter() {
        println!("{:?}", scalar.value);
    }
    println!("{}", hex(&analog(29)));
    let short = |n: &u32| analog(*n)[2..] != ((*n as i16).to_be_bytes());
    println!("{}", (0..10_000).filter(short).count());
}
END
cargo build -q 2> log || { tail -n 20 log; exit 1; }
cat > look.py <<'END'
import re
import subprocess

from cayennelpp import LppFrame


def read(data):
    return ", ".join(map(str, LppFrame.from_bytes(data).data[0].value))


lines = subprocess.run("target/debug/look", check=True, stdout=-1, text=True).stdout.splitlines()
gyro, analog = LppFrame(), LppFrame()
gyro.add_gyrometer(1, -1, 0.5, 2)
analog.add_analog_input(1, 0.29)
data = bytes(gyro)
print(f"gyrometer -1, 0.5, 2: cayenne_lpp wrote {read(bytes.fromhex(lines[0]))}; pycayennelpp {read(data)}")
found = ", ".join(re.findall(r"[-\d.]+", lines[1]))
print(f"of pycayennelpp {data[2:].hex()}: cayenne_lpp read {found}; pycayennelpp {read(data)}")
print(f"analog input 0.29: cayenne_lpp wrote {read(bytes.fromhex(lines[2]))}, pycayennelpp {read(bytes(analog))}")
lost = 0
for hundredths in range(10_000):
    frame = LppFrame()
    frame.add_analog_input(1, hundredths / 100)
    lost += bytes(frame)[2:] != hundredths.to_bytes(2, "big")
print(f"of 0.00 to 99.99 lose a hundredth: cayenne_lpp {lines[3]} of 10000, pycayennelpp {lost} of 10000")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
