#!/bin/sh
# orc-rust 0.9.0 (crates.io, ORC): of a thousand amounts from 5.00 to 14.99 none is above 9, none is below 10 and none
# is 12.34, when the reader is given the condition; and a number beside a NaN is not unequal to another.
#
# A condition leaves out the parts of a file whose lowest and highest value cannot meet it. Those of a decimal stand in
# the file as text, and the library compares them as text: "14.99" comes before "5", so that the range of this part is
# empty for it. For a double the highest value of 1.0 and NaN is 1.0, and "is not 1.0" leaves out the part with the NaN.
# Without a condition all rows are read. Nothing is raised. pyarrow 26.0.1 wrote the files. Seen (how many rows are
# read; how many meet the condition):
#
#   amount > 9: 0, of 599
#   amount < 10: 0, of 500
#   amount = 12.34: 0, of 1
#   amount > 1: 1000, of 1000
#   amount of 15.00 to 24.99 > 20: 1000, of 499
#   1.0 and NaN != 1.0: 0, of 1
#
# Needs python3 and cargo (1.95 was there). Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyarrow==26.0.1
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
orc-rust = { version = "=0.9.0", default-features = false }
END
cat > src/main.rs <<'END'
use orc_rust::{ArrowReaderBuilder, ComparisonOp, Predicate, PredicateValue};
use std::fs::File;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let comparison = match arguments[1].as_str() {
        ">" => ComparisonOp::GreaterThan,
        "<" => ComparisonOp::LessThan,
        "!=" => ComparisonOp::NotEqual,
        _ => ComparisonOp::Equal,
    };
    let value = match arguments[2].as_str() {
        "decimal" => PredicateValue::Utf8(Some(arguments[3].clone())),
        _ => PredicateValue::Float64(Some(arguments[3].parse().unwrap())),
    };
    let condition = Predicate::comparison("x", comparison, value);
    let reader = ArrowReaderBuilder::try_new(File::open("file.orc").unwrap()).unwrap().with_predicate(condition).build();
    println!("{}", reader.map(|batch| batch.unwrap().num_rows()).sum::<usize>());
}
END
cargo build -q 2> log || { tail -n 20 log; exit 1; }
cat > look.py <<'END'
import operator
import subprocess
from decimal import Decimal

import pyarrow
import pyarrow.orc

MEETS = {">": operator.gt, "<": operator.lt, "=": operator.eq, "!=": operator.ne}


def ask(name, kind, values, comparison, other):
    pyarrow.orc.write_table(pyarrow.table({"x": pyarrow.array(values, kind)}), "file.orc")
    command = ["target/debug/look", comparison, "double" if kind == "double" else "decimal", str(other)]
    found = int(subprocess.run(command, check=True, stdout=-1).stdout)
    known = sum(MEETS[comparison](value, other) for value in values)
    print(f"{name} {comparison} {other}: {found}, of {known}")


AMOUNT = pyarrow.decimal128(10, 2)
amounts = [Decimal(cents) / 100 for cents in range(500, 1500)]
for comparison, other in ((">", "9"), ("<", "10"), ("=", "12.34"), (">", "1")):
    ask("amount", AMOUNT, amounts, comparison, Decimal(other))
ask("amount of 15.00 to 24.99", AMOUNT, [amount + 10 for amount in amounts], ">", Decimal(20))
ask("1.0 and NaN", "double", [1.0, float("nan")], "!=", 1.0)
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
