#!/bin/sh
# fastavro 1.13.1 writes a number that has outgrown Avro's `int` (32 bits) without a word, and reads it
# back as it was; Avro's own library for Java (1.12.0) reads another number from the same file, also
# without a word.
#
# A counter of type "int" goes beyond 2,147,483,647. The program that writes, and one that checks what
# was written in Python, see nothing; what Spark or any other JVM reads is the number's lowest bits,
# after the encoding that folds the sign in: 0, or any other number. Avro's library for Python (1.12.2)
# refuses to write it, and so does fastavro with `validator=True`. Seen:
#
#   2147483647: Python [2147483647], Java {"n": 2147483647}
#   2147483648: Python [2147483648], Java {"n": 0}
#   3000000000: Python [3000000000], Java {"n": 852516352}
#   -2147483649: Python [-2147483649], Java {"n": -1}
#   avro 1.12.2: AvroTypeException
#   fastavro with validator=True: ValidationError
#
# Needs python3, Java 17 and Maven. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q fastavro==1.13.1 avro==1.12.2
cd "$work"
cat > pom.xml <<'END'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId><artifactId>avro</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>org.apache.avro</groupId><artifactId>avro</artifactId><version>1.12.0</version>
  </dependency></dependencies>
</project>
END
mvn -B -q org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    -DoutputDirectory=jars > maven.log || { cat maven.log; exit 2; }
cat > Read.java <<'END'
import java.io.File;
import org.apache.avro.file.DataFileReader;
import org.apache.avro.generic.*;

class Read {
    public static void main(String[] files) throws Exception {
        for (String file : files) {
            try (var reader = new DataFileReader<GenericRecord>(
                    new File(file), new GenericDatumReader<>())) {
                System.out.println(reader.next());
            }
        }
    }
}
END
cat > look.py <<'END'
import io
import json
import subprocess

import avro.errors
import avro.io
import avro.schema
import fastavro
from fastavro.validation import ValidationError

schema = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}]}
numbers = (2**31 - 1, 2**31, 3_000_000_000, -(2**31) - 1)
found = []
for number in numbers:
    with open(f"{number}.avro", "wb") as file:
        fastavro.writer(file, schema, [{"n": number}])
    with open(f"{number}.avro", "rb") as file:
        found.append([record["n"] for record in fastavro.reader(file)])
java = ["java", "-cp", "jars/*", "Read.java", *(f"{number}.avro" for number in numbers)]
told = subprocess.run(java, capture_output=True, text=True, check=True).stdout.splitlines()
for number, python, line in zip(numbers, found, told, strict=True):
    print(f"{number}: Python {python}, Java {line}")
writer = avro.io.DatumWriter(avro.schema.parse(json.dumps(schema)))
try:
    writer.write({"n": 2**31}, avro.io.BinaryEncoder(io.BytesIO()))
except avro.errors.AvroTypeException as error:
    print(f"avro 1.12.2: {type(error).__name__}")
try:
    fastavro.writer(io.BytesIO(), schema, [{"n": 2**31}], validator=True)
except ValidationError as error:
    print(f"fastavro with validator=True: {type(error).__name__}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
