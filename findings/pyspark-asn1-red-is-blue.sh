#!/bin/sh
# pyspark-asn1 0.5.1 (PyPI, ASN.1 as a source of Spark) with PySpark 4.3.0: of a packed file red is read as blue, the
# two members of a set change places, records with texts or additions are left out, and a reading that has its default
# is null.
#
# In packed encodings an enumeration counts its values in the order of their numbers, a set has its members in the order
# of their tags, a text of IA5 has seven bits a character, and additions follow with a length each (X.691, 14, 21, 30
# and 19); a default that is left out is the value (X.680, 25). The library takes the order of the text for the first
# two and bytes for the third; what it cannot read it leaves out, and the file ends well. An integer of 64 bits has the
# other sign in BER, too. Nothing is raised. asn1tools 0.169.0 (PyPI) wrote the files and reads them. Seen (encoding,
# type: as asn1tools reads it; rows of Spark):
#
#   ber SEQUENCE { a ENUMERATED { red(5), green(1), blue(3) } }: {'a': 'red'}, {'a': 'green'}, {'a': 'blue'}; Spark {'a': 'red'}, {'a': 'green'}, {'a': 'blue'}
#   ber SET { b [1] INTEGER (0..7), a [0] INTEGER (0..7) }: {'a': 1, 'b': 6}; Spark {'b': 6, 'a': 1}
#   ber SEQUENCE { a BOOLEAN, t IA5String }: {'a': True, 't': '12 V'}, {'a': False, 't': '13 V'}; Spark {'a': True, 't': '12 V'}, {'a': False, 't': '13 V'}
#   ber SEQUENCE { a BOOLEAN, ..., b BOOLEAN }: {'a': True, 'b': True}, {'a': False, 'b': False}; Spark {'a': True, 'b': True}, {'a': False, 'b': False}
#   ber SEQUENCE { a INTEGER DEFAULT 7 }: {'a': 7}, {'a': 8}; Spark {'a': None}, {'a': 8}
#   ber SEQUENCE { a INTEGER }: {'a': 9223372036854775807}, {'a': 9223372036854775808}; Spark {'a': 9223372036854775807}, {'a': -9223372036854775808}
#   uper SEQUENCE { a ENUMERATED { red(5), green(1), blue(3) } }: {'a': 'red'}, {'a': 'green'}, {'a': 'blue'}; Spark {'a': 'blue'}, {'a': 'red'}, {'a': 'green'}
#   uper SET { b [1] INTEGER (0..7), a [0] INTEGER (0..7) }: {'a': 1, 'b': 6}; Spark {'b': 1, 'a': 6}
#   uper SEQUENCE { a BOOLEAN, t IA5String }: {'a': True, 't': '12 V'}, {'a': False, 't': '13 V'}; Spark no row
#   uper SEQUENCE { a BOOLEAN, ..., b BOOLEAN }: {'a': True, 'b': True}, {'a': False, 'b': False}; Spark no row
#   uper SEQUENCE { a INTEGER DEFAULT 7 }: {'a': 7}, {'a': 8}; Spark {'a': None}, {'a': 8}
#   uper SEQUENCE { a INTEGER }: {'a': 9223372036854775807}, {'a': 9223372036854775808}; Spark {'a': 9223372036854775807}, {'a': -9223372036854775808}
#
# Needs python3 and Java 17. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyspark==4.3.0 pyspark-asn1==0.5.1 asn1tools==0.169.0
cd "$work"
cat > look.py <<'END'
import pathlib

import asn1tools
import pyspark_asn1
from pyspark.sql import SparkSession

JAR = str(pathlib.Path(pyspark_asn1.__file__).parent / "spark-asn1-assembly.jar")
NAMES = {"uper": "per-unaligned", "ber": "ber"}
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars", JAR)
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")


def look(codec, kind, *values):
    text = f"M DEFINITIONS AUTOMATIC TAGS ::= BEGIN R ::= {kind} END"
    pathlib.Path("schema.asn1").write_text(text)
    specification = asn1tools.compile_string(text, codec)
    written = [specification.encode("R", value) for value in values]
    back = [specification.decode("R", data) for data in written]
    reader = spark.read.format("asn1").option("asn1.schema", "schema.asn1").option("asn1.type", "R")
    if codec == "ber":
        pathlib.Path("data").write_bytes(b"".join(written))
    else:
        pathlib.Path("data").write_text("".join(data.hex() + "\n" for data in written))
        reader = reader.option("asn1.per.framing", "hex-lines")
    rows = [row.asDict() for row in reader.option("asn1.encoding", NAMES[codec]).load("data").collect()]
    print(f"{codec} {kind}: {', '.join(map(str, back))}; Spark {', '.join(map(str, rows)) or 'no row'}")


for codec in ("ber", "uper"):
    look(codec, "SEQUENCE { a ENUMERATED { red(5), green(1), blue(3) } }", {"a": "red"}, {"a": "green"}, {"a": "blue"})
    look(codec, "SET { b [1] INTEGER (0..7), a [0] INTEGER (0..7) }", {"a": 1, "b": 6})
    look(codec, "SEQUENCE { a BOOLEAN, t IA5String }", {"a": True, "t": "12 V"}, {"a": False, "t": "13 V"})
    look(codec, "SEQUENCE { a BOOLEAN, ..., b BOOLEAN }", {"a": True, "b": True}, {"a": False, "b": False})
    look(codec, "SEQUENCE { a INTEGER DEFAULT 7 }", {"a": 7}, {"a": 8})
    look(codec, "SEQUENCE { a INTEGER }", {"a": 2**63 - 1}, {"a": 2**63})
END
"$work/venv/bin/python" look.py 2> log | tee seen || { tail -n 20 log; exit 1; }
sed -n 's/^#   //p' "$this" > expected
diff expected seen
