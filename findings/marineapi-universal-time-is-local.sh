#!/bin/sh
# marineapi 0.12.0 (Maven, net.sf.marineapi, NMEA 0183): a ZDA sentence's universal time gets the ship's zone behind it,
# so that 16:00:12.71 UTC is 16:00:12-05:30 as text, five and a half hours later; the fraction of its second is gone.
#
# ZDA has the time in UTC and then, for whoever wants local time, the zone's hours and minutes (NMEA 0183, "ZDA").
# toISO8601 puts one behind the other; toDate of the same sentence takes the time as UTC. Nothing is raised. Seen:
#
#   GPZDA,160012.71,11,03,2026,00,00: 2026-03-11T16:00:12+00:00, toDate 2026-03-11T16:00:12.710Z
#   GPZDA,160012.71,11,03,2026,-05,30: 2026-03-11T16:00:12-05:30, toDate 2026-03-11T16:00:12.710Z
#   GPZDA,160012.71,11,03,2026,09,00: 2026-03-11T16:00:12+09:00, toDate 2026-03-11T16:00:12.710Z
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
    <groupId>net.sf.marineapi</groupId><artifactId>marineapi</artifactId><version>0.12.0</version>
  </dependency></dependencies>
</project>
END
mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib > log 2>&1 || { tail -n 20 log; exit 1; }
cat > Look.java <<'END'
import java.util.TimeZone;
import net.sf.marineapi.nmea.parser.SentenceFactory;
import net.sf.marineapi.nmea.sentence.ZDASentence;

public class Look {
    static final SentenceFactory SENTENCES = SentenceFactory.getInstance();

    static String checked(String body) {
        int sum = 0;
        for (char letter : body.toCharArray()) sum ^= letter;
        return "$" + body + String.format("*%02X", sum);
    }

    public static void main(String[] arguments) throws Exception {
        TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
        for (String zone : new String[] {"00,00", "-05,30", "09,00"}) {
            String body = "GPZDA,160012.71,11,03,2026," + zone;
            ZDASentence sentence = (ZDASentence) SENTENCES.createParser(checked(body));
            String text = sentence.getDate().toISO8601(sentence.getTime());
            System.out.println(body + ": " + text + ", toDate " + sentence.toDate().toInstant());
        }
    }
}
END
java -cp 'lib/*' Look.java | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
