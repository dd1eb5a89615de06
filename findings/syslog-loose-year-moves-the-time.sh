#!/bin/sh
# syslog_loose 0.23.0 (crates.io, the parser of syslog in Vector): a time that has its year, as Cisco's devices send it,
# is moved by the zone that the reader is given; without the year it is right. And two messages are equal when one of
# them has more parameters than the other.
#
# `tz` is the zone of a sender that states none. Of "Nov 30 12:00:00" and +02:00 it makes 12:00 there; of "Nov 30 2026
# 12:00:00" it makes 12:00 UTC, told as 14:00+02:00, so that the log of one device is hours off its neighbour's. A
# backslash before another character than a quote, a bracket or a backslash is itself (RFC 5424, 6.3.3); before an n it
# is made a line's end. Elements are compared as far as the shorter goes. Nothing is raised. Seen (zone of the reader;
# time):
#
#   Nov 30 12:00:00, +02:00: 2026-11-30T12:00:00+02:00
#   Nov 30 2026 12:00:00, +02:00: 2026-11-30T14:00:00+02:00
#   Nov 30 12:00:00, -05:00: 2026-11-30T12:00:00-05:00
#   Nov 30 2026 12:00:00, -05:00: 2026-11-30T07:00:00-05:00
#   dir="C:\new": C:(end of line)ew
#   [a x="1"] and [a x="1" y="2"] are equal: true
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
chrono = "0.4"
syslog_loose = "=0.23.0"
END
cat > src/main.rs <<'END'
use chrono::FixedOffset;
use syslog_loose::{parse_message, parse_message_with_year_tz, Message, Variant};

fn element(parameters: &str) -> String {
    format!("<13>1 2026-11-30T12:00:00Z host app - - [a {parameters}] text")
}

fn parse(line: &str) -> Message<&str> {
    parse_message(line, Variant::RFC5424)
}

fn main() {
    for hours in [2, -5] {
        for time in ["Nov 30 12:00:00", "Nov 30 2026 12:00:00"] {
            let line = format!("<13>{time} host app: text");
            let zone = FixedOffset::east_opt(hours * 3600);
            let message = parse_message_with_year_tz(&line, |_| 2026, zone, Variant::RFC3164);
            println!("{time}, {hours:+03}:00: {}", message.timestamp.unwrap().to_rfc3339());
        }
    }
    let line = element(r#"dir="C:\new""#);
    let message = parse(&line);
    let (_, value) = message.structured_data[0].params().next().unwrap();
    println!(r#"dir="C:\new": {}"#, value.replace('\n', "(end of line)"));
    let (one, two) = (element(r#"x="1""#), element(r#"x="1" y="2""#));
    println!(r#"[a x="1"] and [a x="1" y="2"] are equal: {}"#, parse(&one) == parse(&two));
}
END
cargo run -q > seen 2> log || { tail -n 20 log; exit 1; }
cat seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
