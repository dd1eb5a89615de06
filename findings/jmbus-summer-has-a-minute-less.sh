#!/bin/sh
# jmbus 3.3.0 (Maven, org.openmuc, meters by M-Bus): a meter's 12:30 of summer time is 12:29, in Berlin 13:29; the same
# telegram read twice has two times; no date is 31 March 2128; and a number of variable length is a text.
#
# A time of type F has minutes, and a bit that says that summer time is on; a date of type G with all bits set is none;
# a length from C0 to EF is that of a number (EN 13757-3, "Type F", "Type G" and "LVAR"). The library sets Java's
# DST_OFFSET to 1, a millisecond for it and not an hour, which takes summer's hour away in a zone that has one; what is
# less than a minute stays as the computer's clock has it. Nothing is raised. Seen:
#
#   UTC, 2026-06-30 12:30: 2026-06-30 12:30
#   UTC, 2026-06-30 12:30, summer time: 2026-06-30 12:29
#   Europe/Berlin, 2026-06-30 12:30: 2026-06-30 12:30
#   Europe/Berlin, 2026-06-30 12:30, summer time: 2026-06-30 13:29
#   one telegram read twice: the same time false
#   no date, ffff: 2128-03-31
#   e2, two bytes with 291: String
#
# Needs Java 17 and Maven. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
cat > pom.xml <<'END'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId><artifactId>look</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>org.openmuc</groupId><artifactId>jmbus</artifactId><version>3.3.0</version>
  </dependency></dependencies>
</project>
END
mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib > log 2>&1 || { tail -n 20 log; exit 1; }
cat > Look.java <<'END'
import java.text.SimpleDateFormat;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.TimeZone;
import org.openmuc.jmbus.VariableDataStructure;

public class Look {
    static final String HEAD = "72" + "78563412" + "2423" + "28" + "04" + "01" + "00" + "0000";

    static Object read(String record) throws Exception {
        byte[] data = HexFormat.of().parseHex(HEAD + record);
        VariableDataStructure telegram = new VariableDataStructure(data, 0, data.length, null, new HashMap<>());
        telegram.decode();
        return telegram.getDataRecords().get(0).getDataValue();
    }

    public static void main(String[] arguments) throws Exception {
        for (String zone : new String[] {"UTC", "Europe/Berlin"}) {
            TimeZone.setDefault(TimeZone.getTimeZone(zone));
            SimpleDateFormat format = new SimpleDateFormat("yyyy-MM-dd HH:mm");
            System.out.println(zone + ", 2026-06-30 12:30: " + format.format(read("046d1e0c5e36")));
            System.out.println(zone + ", 2026-06-30 12:30, summer time: " + format.format(read("046d1e8c5e36")));
        }
        boolean same = true;
        for (int i = 0; i < 5; i++) {
            Object first = read("046d1e0c5e36");
            Thread.sleep(7);
            same &= first.equals(read("046d1e0c5e36"));
        }
        System.out.println("one telegram read twice: the same time " + same);
        System.out.println("no date, ffff: " + new SimpleDateFormat("yyyy-MM-dd").format(read("026cffff")));
        System.out.println("e2, two bytes with 291: " + read("0d06e22301").getClass().getSimpleName());
    }
}
END
java -cp 'lib/*' Look.java | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
