#!/bin/sh
# newsmile 1.1 (PyPI, Smile, the binary JSON of Elasticsearch's clients): a number of single precision comes out as next
# to nothing, and a negative integer beyond 64 bits as another, positive one.
#
# A float is five bytes of seven bits, the highest first, as a double is ten (Smile format specification, "Simple
# literals, numbers"); the library reads the double so and the float from its end. A big integer is in two's complement,
# and is read as if it had no sign. Nothing is raised. Jackson 2.18.2, from which the format comes, wrote the values and
# reads each back as it was. Seen:
#
#   1.5 as float: newsmile 2.2604345528023624e-41
#   20.25 as float: newsmile 1.860083581544762e-40
#   1.5 as double: newsmile 1.5
#   12345678901234567890: newsmile 12345678901234567890
#   -12345678901234567890: newsmile 4710020803968410645806
#
# Needs python3, Java 17 and Maven. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q newsmile==1.1
cd "$work"
cat > pom.xml <<'END'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId><artifactId>look</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>com.fasterxml.jackson.dataformat</groupId>
    <artifactId>jackson-dataformat-smile</artifactId><version>2.18.2</version>
  </dependency></dependencies>
</project>
END
mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib > log 2>&1 || { tail -n 20 log; exit 1; }
cat > Look.java <<'END'
import com.fasterxml.jackson.dataformat.smile.databind.SmileMapper;
import java.math.BigInteger;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;

public class Look {
    public static void main(String[] args) throws Exception {
        BigInteger large = new BigInteger("12345678901234567890");
        Map<String, Object> values = new LinkedHashMap<>();
        values.put("1.5 as float", 1.5f);
        values.put("20.25 as float", 20.25f);
        values.put("1.5 as double", 1.5);
        values.put(large.toString(), large);
        values.put(large.negate().toString(), large.negate());
        SmileMapper mapper = new SmileMapper();
        for (Map.Entry<String, Object> entry : values.entrySet()) {
            byte[] data = mapper.writeValueAsBytes(Map.of("value", entry.getValue()));
            Object read = mapper.readTree(data).get("value").asText();
            if (!read.equals(entry.getValue().toString())) throw new AssertionError(read);
            System.out.println(entry.getKey() + "|" + HexFormat.of().formatHex(data));
        }
    }
}
END
cat > look.py <<'END'
import sys

from newsmile.decoder import SmileDecoder

for line in sys.stdin:
    name, data = line.strip().split("|")
    print(f"{name}: newsmile {SmileDecoder().decode(bytes.fromhex(data))['value']}")
END
java -cp 'lib/*' Look.java > written
"$work/venv/bin/python" look.py < written | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
