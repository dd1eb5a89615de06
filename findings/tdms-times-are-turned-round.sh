#!/bin/sh
# tdms 0.3.0 (crates.io, LabVIEW's files): of a time the fraction of its second comes out as the seconds, and the
# seconds as the fraction; and a channel of booleans begins with the file's own header and ends with the file.
#
# A time is 64 bits of fraction and then 64 bits of seconds since 1904 where the file is little-endian, as LabVIEW
# writes it, and the other way round where it is big-endian (NI, "TDMS file format internal structure",
# tdsTypeTimeStamp). The library takes the seconds first always. Numbers are read from where their channel stands;
# booleans from the first byte of the segment, each byte that is not 0 being true. Nothing is raised. npTDMS
# 1.13.0 wrote the files and reads them. Seen (what the file has; what tdms has):
#
#   2026-11-30 12:00:00.5: seconds -9223372036854775808, fraction 3878884800
#   2026-11-30 12:00:01.25: seconds 4611686018427387904, fraction 3878884801
#   booleans, 3 of them, 2 true: 114 of them, 54 true
#   the integers 1, -2, 3: 1, -2, 3
#
# Needs python3 and cargo (1.95 was there). Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q nptdms==1.13.0 numpy==2.4.6
cd "$work"
mkdir src
cat > Cargo.toml <<'END'
[package]
name = "look"
version = "0.1.0"
edition = "2021"

[dependencies]
tdms = "=0.3.0"
END
cat > src/main.rs <<'END'
use std::path::Path;
use tdms::data_type::TdmsDataType;
use tdms::TDMSFile;

fn main() {
    let file = TDMSFile::from_path(Path::new("file.tdms")).unwrap();
    for (_, channel) in file.channels("group") {
        match channel.data_type {
            TdmsDataType::TimeStamp(_) => {
                for time in file.channel_data_timestamp(channel).unwrap() {
                    println!("seconds {}, fraction {}", time.0, time.1);
                }
            }
            TdmsDataType::Boolean(_) => {
                let values: Vec<bool> = file.channel_data_bool(channel).unwrap().collect();
                println!("{} of them, {} true", values.len(), values.iter().filter(|&&value| value).count());
            }
            _ => {
                let values = file.channel_data_i32(channel).unwrap().map(|value| value.to_string());
                println!("{}", values.collect::<Vec<_>>().join(", "));
            }
        }
    }
}
END
cargo build -q 2> log || { tail -n 20 log; exit 1; }
cat > look.py <<'END'
import subprocess

import numpy
from nptdms import ChannelObject, TdmsFile, TdmsWriter

TIMES = ["2026-11-30T12:00:00.5", "2026-11-30T12:00:01.25"]


def ask(values):
    with TdmsWriter("file.tdms") as writer:
        writer.write_segment([ChannelObject("group", "channel", values)])
    assert (TdmsFile.read("file.tdms")["group"]["channel"][:] == values).all()
    return subprocess.run("target/debug/look", check=True, capture_output=True, text=True).stdout.splitlines()


for time, found in zip(TIMES, ask(numpy.array(TIMES, "datetime64[us]")), strict=True):
    print(f"{time.replace('T', ' ')}: {found}")
(found,) = ask(numpy.array([True, False, True]))
print(f"booleans, 3 of them, 2 true: {found}")
(found,) = ask(numpy.array([1, -2, 3], "int32"))
print(f"the integers 1, -2, 3: {found}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
