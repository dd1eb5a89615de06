#!/bin/sh
# sp3 1.4.1 (crates.io, orbits of GNSS satellites): a satellite of 2.5 km/s moves 20 cm/s, in another direction; one
# whose velocity has a component of 0 has none; a clock that is not known is a second off.
#
# A line V has the velocity in tenths of a metre a second, x, y and z; a clock that is bad or absent is 999999.999999
# (SP3-d, "The position and clock record"). The library multiplies by 0.0001 twice, takes y for x, and looks for 999999.
# a column too early. Nothing is raised. Seen (as written; as read, km and km/s, clock in microseconds):
#
#   PG01  13000.000000 -21000.000000   9000.000000    100.000000
#   VG01  25000.000000 -20000.000000   3000.000000      0.500000
#   PG02  13000.000000 -21000.000000   9000.000000 999999.999999
#   VG02  25000.000000      0.000000   3000.000000 999999.999999
#   PG03  13000.000000 -21000.000000   9000.000000     -1.500000
#   VG03  -1000.000000  32000.000000   3000.000000 999999.999999
#   G01: Some((-0.0002, -0.0002, 3e-5)), clock Some(100.0)
#   G02: None, clock Some(999999.999999)
#   G03: Some((0.00032, 0.00032, 3e-5)), clock Some(-1.5)
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

[profile.dev]
debug = 0

[dependencies]
sp3 = { version = "=1.4.1", default-features = false }
END
cat > orbit.sp3 <<'END'
#cV2026 11 30  0  0  0.00000000       1 ORBIT IGS20 FIT  TST
## 2447  86400.00000000   900.00000000 61374 0.0000000000000
+    3   G01G02G03  0  0  0  0  0  0  0  0  0  0  0  0  0  0
+          0  0  0  0  0  0  0  0  0  0  0  0  0  0  0  0  0
+          0  0  0  0  0  0  0  0  0  0  0  0  0  0  0  0  0
+          0  0  0  0  0  0  0  0  0  0  0  0  0  0  0  0  0
+          0  0  0  0  0  0  0  0  0  0  0  0  0  0  0  0  0
++         0  0  0  0  0  0  0  0  0  0  0  0  0  0  0  0  0
++         0  0  0  0  0  0  0  0  0  0  0  0  0  0  0  0  0
++         0  0  0  0  0  0  0  0  0  0  0  0  0  0  0  0  0
++         0  0  0  0  0  0  0  0  0  0  0  0  0  0  0  0  0
++         0  0  0  0  0  0  0  0  0  0  0  0  0  0  0  0  0
%c G  cc GPS ccc cccc cccc cccc cccc ccccc ccccc ccccc ccccc
%c cc cc ccc ccc cccc cccc cccc cccc ccccc ccccc ccccc ccccc
%f  1.2500000  1.025000000  0.00000000000  0.000000000000000
%f  0.0000000  0.000000000  0.00000000000  0.000000000000000
%i    0    0    0    0      0      0      0      0         0
%i    0    0    0    0      0      0      0      0         0
/* TEST
*  2026 11 30  0  0  0.00000000
PG01  13000.000000 -21000.000000   9000.000000    100.000000
VG01  25000.000000 -20000.000000   3000.000000      0.500000
PG02  13000.000000 -21000.000000   9000.000000 999999.999999
VG02  25000.000000      0.000000   3000.000000 999999.999999
PG03  13000.000000 -21000.000000   9000.000000     -1.500000
VG03  -1000.000000  32000.000000   3000.000000 999999.999999
EOF
END
cat > src/main.rs <<'END'
use sp3::prelude::SP3;

fn main() {
    let orbits = SP3::from_file("orbit.sp3").unwrap();
    for (key, entry) in &orbits.data {
        println!("{}: {:?}, clock {:?}", key.sv, entry.velocity_km_s, entry.clock_us);
    }
}
END
cargo build -q 2> log || { tail -n 20 log; exit 1; }
grep "^[PV]" orbit.sp3 > seen
target/debug/look | tee -a seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
