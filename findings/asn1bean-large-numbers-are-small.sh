#!/bin/sh
# asn1bean 1.14.0 (Maven, com.beanit, ASN.1 for Java): 10^54 is read as 8.6e-24, 10^300 as 5.6e-9 and 10^-300 as 180
# million, also where the library wrote them; 85 times 8 is 170.
#
# A binary real has a first byte with the sign, the base (2, 8 or 16), a factor F and the exponent's length, then the
# exponent in two's complement, then the number (X.690, 8.5.7). The library writes an exponent of two bytes as it
# should, and reads its second byte as if that had a sign of its own, so that the first one is lost from 80 on; base 8
# or 16 and F it does not look at. Nothing is raised. asn1tools 0.169.0 (PyPI) reads the same bytes, of base 2. Seen
# (number, bytes, asn1bean, asn1tools):
#
#   21.5: 090380ff2b, 21.5, 21.5
#   6.62607015e-34: 090a81ff5d1b860bde023111, 6.62607015E-34, 6.62607015e-34
#   1e53: 0909807d085a36366eb71f, 1.0E53, 1e+53
#   1e54: 090a8100800a70c3c40a64e7, 8.636168555094445E-24, 1e+54
#   1e300: 090a8103b205f90f22001d67, 5.562684646268004E-9, 1e+300
#   1e-300: 090a81fbe7156e1fc2f8f359, 1.797693134862316E8, 1e-300
#   85 * 8: 0903900155, 170.0
#   85 * 16: 0903a00155, 170.0
#   85 * 2 * 2: 0903840155, 170.0
#
# Needs python3, Java 17 and Maven. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q asn1tools==0.169.0
cd "$work"
cat > pom.xml <<'END'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId><artifactId>look</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>com.beanit</groupId><artifactId>asn1bean</artifactId><version>1.14.0</version>
  </dependency></dependencies>
</project>
END
mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib > log 2>&1 || { tail -n 20 log; exit 1; }
cat > Look.java <<'END'
import com.beanit.asn1bean.ber.ReverseByteArrayOutputStream;
import com.beanit.asn1bean.ber.types.BerReal;
import java.io.ByteArrayInputStream;
import java.util.HexFormat;

public class Look {
    static double read(byte[] data) throws Exception {
        BerReal real = new BerReal();
        real.decode(new ByteArrayInputStream(data), true);
        return real.value;
    }

    public static void main(String[] arguments) throws Exception {
        for (String argument : arguments) {
            byte[] data;
            if (argument.startsWith("09")) {
                data = HexFormat.of().parseHex(argument);
            } else {
                ReverseByteArrayOutputStream out = new ReverseByteArrayOutputStream(64, true);
                new BerReal(Double.parseDouble(argument)).encode(out, true);
                data = out.getArray();
            }
            System.out.println(HexFormat.of().formatHex(data) + " " + read(data));
        }
    }
}
END
cat > look.py <<'END'
import subprocess

import asn1tools

SPECIFICATION = asn1tools.compile_string("M DEFINITIONS ::= BEGIN R ::= REAL END", "ber")
NUMBERS = ["21.5", "6.62607015e-34", "1e53", "1e54", "1e300", "1e-300"]
FORMS = {"0903900155": "85 * 8", "0903a00155": "85 * 16", "0903840155": "85 * 2 * 2"}
command = ["java", "-cp", "lib/*", "Look.java", *NUMBERS, *FORMS]
lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
for number, line in zip([*NUMBERS, *FORMS], lines, strict=True):
    data, read = line.split()
    other = "" if number in FORMS else f", {SPECIFICATION.decode('R', bytes.fromhex(data))}"
    print(f"{FORMS.get(number, number)}: {data}, {read}{other}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
