#!/bin/sh
# rustyfix 0.7.4 (crates.io, FIX): a zone of -05, that of New York, is +05:00 as chrono's offset, so that a trade's time is
# ten hours away; zones east of Greenwich are right, and so is the library's own number of seconds.
#
# A zone is Z, or + or - with hours and minutes, where - is west of Greenwich (FIX 5.0 SP2, data type "TZTimeOnly", and ISO
# 8601). to_chrono_offset, which reads zones for chrono, takes the size of the offset without its sign. Nothing is raised.
# Seen (text, seconds, chrono's offset):
#
#   Z: 0, +00:00
#   +02: 7200, +02:00
#   -05: -18000, +05:00
#   +05:30: 19800, +05:30
#   -03:30: -12600, +03:30
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
rustyfix = { version = "=0.7.4", default-features = false, features = ["utils-chrono"] }
smallvec = { version = "=1.16.6", features = ["const_generics"] }
END
cat > src/main.rs <<'END'
use rustyfix::field_types::Tz;
use rustyfix::FieldType;

fn main() {
    for text in ["Z", "+02", "-05", "+05:30", "-03:30"] {
        let zone = Tz::deserialize(text.as_bytes()).unwrap();
        println!("{text}: {}, {}", zone.offset_as_secs(), zone.to_chrono_offset());
    }
}
END
cargo build -q 2> log || { tail -n 20 log; exit 1; }
target/debug/look | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
