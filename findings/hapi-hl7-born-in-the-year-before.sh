#!/bin/sh
# HAPI 2.5.1 (Maven, ca.uhn.hapi, HL7 version 2, the messages of hospitals): who was born in 1950 was born on 30
# November 1949, and November 1950 is 31 October.
#
# A time may end after the year or the month, which then says how exact it is (HL7 2.5, 2.A.77, "TS", and 2.A.22,
# "DTM"); of a birth often no more is known. getValueAsDate and getValueAsCalendar, the library's own way to a Java
# date, set what is missing to 0, where a month begins with 1 and a day with 1: the day before the first of the month
# before the first. hapi's parser and validation take the message, and getYear() is 1950. Nothing is raised. hl7apy
# 1.3.5 for Python reads the same message. Seen (the field; as a date by HAPI; by hl7apy):
#
#   1950: HAPI 1949-11-30, year 1950; hl7apy 1950-01-01
#   195011: HAPI 1950-10-31, year 1950; hl7apy 1950-11-01
#   19501130: HAPI 1950-11-30, year 1950; hl7apy 1950-11-30
#   195011301230: HAPI 1950-11-30, year 1950; hl7apy 1950-11-30
#
# Needs python3, Java 17 and Maven. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q hl7apy==1.3.5
cd "$work"
cat > pom.xml <<'END'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId><artifactId>look</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>ca.uhn.hapi</groupId><artifactId>hapi-structures-v25</artifactId><version>2.5.1</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
END
mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib > log 2>&1 || { tail -n 20 log; exit 1; }
cat > Look.java <<'END'
import ca.uhn.hl7v2.DefaultHapiContext;
import ca.uhn.hl7v2.HapiContext;
import ca.uhn.hl7v2.model.v25.datatype.DTM;
import ca.uhn.hl7v2.model.v25.message.ADT_A01;
import java.time.ZoneOffset;
import java.util.TimeZone;

public class Look {
    public static void main(String[] births) throws Exception {
        TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
        try (HapiContext context = new DefaultHapiContext()) {
            for (String birth : births) {
                String text = "MSH|^~\\&|A|B|C|D|20261130||ADT^A01^ADT_A01|1|P|2.5\rEVN||20261130\r"
                    + "PID|1||1||DOE^J||" + birth + "\rPV1|1|I\r";
                ADT_A01 message = (ADT_A01) context.getPipeParser().parse(text);
                DTM time = message.getPID().getDateTimeOfBirth().getTime();
                System.out.println(time.getValueAsDate().toInstant().atOffset(ZoneOffset.UTC).toLocalDate()
                    + ", year " + time.getYear());
            }
        }
    }
}
END
cat > look.py <<'END'
import subprocess

from hl7apy.utils import get_date_info, get_datetime_info

BIRTHS = ("1950", "195011", "19501130", "195011301230")
command = ["java", "-cp", "lib/*", "Look.java", *BIRTHS]
lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
for birth, line in zip(BIRTHS, lines, strict=True):
    known = (get_datetime_info if len(birth) > 8 else get_date_info)(birth)[0]
    print(f"{birth}: HAPI {line}; hl7apy {known:%Y-%m-%d}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
