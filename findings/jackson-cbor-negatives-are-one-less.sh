#!/bin/sh
# Jackson 2.23.0 (Maven, jackson-dataformat-cbor): a negative BigInteger, be it -5, is one less for all others, and
# theirs are one more for it; an amount of many digits in a BigDecimal is a cent less. It reads what it wrote as it was.
#
# A negative big number is the bytes of n for -1 - n (RFC 8949, 3.4.3). Jackson writes and reads the bytes of the
# magnitude unless two features are set that are off in 2.23, CBORGenerator's
# ENCODE_USING_STANDARD_NEGATIVE_BIGINT_ENCODING and CBORParser's DECODE_USING_STANDARD_NEGATIVE_BIGINT_ENCODING.
# Nothing is raised. cbor2 6.3.0 for Python reads the same bytes. Seen (the number; its bytes by Jackson; what each
# reads):
#
#   5: c24105, Jackson 5, cbor2 5
#   -5: c34105, Jackson -5, cbor2 -6
#   18446744073709551616: c249010000000000000000, Jackson 18446744073709551616, cbor2 18446744073709551616
#   -18446744073709551616: c349010000000000000000, Jackson -18446744073709551616, cbor2 -18446744073709551617
#   -123456789012345678901.25: c48221c34a029d42b64e76714244cd, Jackson -123456789012345678901.25, cbor2 -123456789012345678901.26
#   -18446744073709551617 of others: c349010000000000000000, Jackson -18446744073709551616, cbor2 -18446744073709551617
#
# Needs python3, Java 17 and Maven. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q cbor2==6.3.0
cd "$work"
cat > pom.xml <<'END'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId><artifactId>look</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>com.fasterxml.jackson.dataformat</groupId>
    <artifactId>jackson-dataformat-cbor</artifactId><version>2.23.0</version>
  </dependency></dependencies>
</project>
END
mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib > log 2>&1 || { tail -n 20 log; exit 1; }
cat > Look.java <<'END'
import com.fasterxml.jackson.dataformat.cbor.databind.CBORMapper;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.HexFormat;

public class Look {
    public static void main(String[] arguments) throws Exception {
        CBORMapper mapper = new CBORMapper();
        for (String text : new String[] {"5", "-5", "18446744073709551616", "-18446744073709551616"}) {
            BigInteger number = new BigInteger(text);
            byte[] data = mapper.writeValueAsBytes(number);
            System.out.println(text + "|" + HexFormat.of().formatHex(data) + "|" + mapper.readValue(data, BigInteger.class));
        }
        byte[] data = mapper.writeValueAsBytes(new BigDecimal("-123456789012345678901.25"));
        System.out.println("-123456789012345678901.25|" + HexFormat.of().formatHex(data) + "|"
            + mapper.readValue(data, BigDecimal.class));
        System.out.println("-18446744073709551617 of others|c349010000000000000000|"
            + mapper.readValue(HexFormat.of().parseHex("c349010000000000000000"), BigInteger.class));
    }
}
END
cat > look.py <<'END'
import sys

import cbor2

for line in sys.stdin:
    name, data, found = line.strip().split("|")
    print(f"{name}: {data}, Jackson {found}, cbor2 {cbor2.loads(bytes.fromhex(data))}")
END
java -cp 'lib/*' Look.java > written
"$work/venv/bin/python" look.py < written | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
