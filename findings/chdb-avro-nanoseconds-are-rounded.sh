#!/bin/sh
# chdb 4.4.0 (ClickHouse 26.9.2.1) writes a time with nanoseconds into Avro with one digit more than the schema
# says, and Avro's own library and fastavro round that digit away; a time beyond January 2038 is negative.
#
# A DateTime64(9) becomes a decimal of precision 18 and scale 9. The seconds since 2001 have ten digits before
# the point, so 19 are needed; avro 1.12.2 and fastavro 1.13.1 read a decimal with its precision, so that two
# times which differ become equal, and the order of events is lost, without an error. ClickHouse itself and
# polars 2.1.0, as text, give all digits. A DateTime, which ends in 2106, becomes an int, which ends in 2038, and
# ClickHouse reads back what is not its own time, either. Seen:
#
#   nanoseconds: decimal(18, 9)
#   00:00:00.123456787: fastavro 1704067200.12345679, avro 1704067200.12345679, polars 1704067200.123456787, chdb 1704067200.123456787
#   00:00:00.123456789: fastavro 1704067200.12345679, avro 1704067200.12345679, polars 1704067200.123456789, chdb 1704067200.123456789
#   DateTime of 2040: int, fastavro -2085978496, chdb -2085978496
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q chdb==4.4.0 chdb-core==26.9.0 fastavro==1.13.1 avro==1.12.2 polars==2.1.0
cd "$work"
cat > look.py <<'END'
import avro.datafile
import avro.io
import chdb
import fastavro
import polars


def written(value):
    """Write the value by ClickHouse; return its type in Avro and the value by each reader."""
    chdb.query(
        f"SELECT {value} AS v INTO OUTFILE 'v.avro' TRUNCATE FORMAT Avro"
        " SETTINGS output_format_avro_codec = 'null'"
    )
    with open("v.avro", "rb") as file:
        reader = fastavro.reader(file)
        values = {"fastavro": next(reader)["v"]}
        kind = reader.writer_schema["fields"][0]["type"]
    with avro.datafile.DataFileReader(open("v.avro", "rb"), avro.io.DatumReader()) as reader:
        values["avro"] = next(reader)["v"]
    values["polars"] = polars.read_avro("v.avro")["v"].cast(polars.String)[0]
    values["chdb"] = str(chdb.query("SELECT v FROM file('v.avro')", "TSV")).strip()
    return kind, {name: str(value) for name, value in values.items()}


for digits in ("123456787", "123456789"):
    kind, seen = written(f"toDateTime64('2024-01-01 00:00:00.{digits}', 9, 'UTC')")
    if digits == "123456787":
        print(f"nanoseconds: {kind['logicalType']}({kind['precision']}, {kind['scale']})")
    print(f"00:00:00.{digits}:", ", ".join(f"{name} {text}" for name, text in seen.items()))
kind, seen = written("toDateTime('2040-01-01 00:00:00', 'UTC')")
print(f"DateTime of 2040: {kind}, fastavro {seen['fastavro']}, chdb {seen['chdb']}")
END
timeout 120 "$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
