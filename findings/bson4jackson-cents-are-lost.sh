#!/bin/sh
# bson4jackson 2.15.1 (Maven, de.undercouch, BSON for Jackson): an amount of 12345678901234567.89 that is a BigDecimal is
# 12345678901234568 when it is read again, and 0.10 is 0.1; a whole number of 20 digits is a text.
#
# BSON has decimals of 34 digits with their zeros (BSON 1.1, type 0x13), which the library reads; it writes a BigDecimal as
# a double, whatever the double has of it, and a BigInteger beyond 64 bits as a string, so that a number that is compared
# with it is of another type. Nothing is raised. MongoDB's own bson 5.2.1 writes the same amounts as decimals, and reads
# what the library wrote. Seen:
#
#   12345678901234567.89: read again 12345678901234568, in the document DOUBLE; by bson 12345678901234567.89, DECIMAL128
#   0.10: read again 0.1, in the document DOUBLE; by bson 0.10, DECIMAL128
#   0.5: read again 0.5, in the document DOUBLE; by bson 0.5, DECIMAL128
#   18446744073709551616: in the document STRING
#   5000000000: in the document INT64
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
  <dependencies>
    <dependency><groupId>de.undercouch</groupId><artifactId>bson4jackson</artifactId><version>2.15.1</version></dependency>
    <dependency><groupId>org.mongodb</groupId><artifactId>bson</artifactId><version>5.2.1</version></dependency>
  </dependencies>
</project>
END
mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib > log 2>&1 || { tail -n 20 log; exit 1; }
cat > Look.java <<'END'
import com.fasterxml.jackson.databind.ObjectMapper;
import de.undercouch.bson4jackson.BsonFactory;
import java.math.BigDecimal;
import java.math.BigInteger;
import org.bson.BsonDocument;
import org.bson.Document;
import org.bson.RawBsonDocument;
import org.bson.types.Decimal128;

public class Look {
    public record Amount(BigDecimal value) {}

    public record Count(BigInteger value) {}

    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper(new BsonFactory());
        for (String text : new String[] {"12345678901234567.89", "0.10", "0.5"}) {
            byte[] data = mapper.writeValueAsBytes(new Amount(new BigDecimal(text)));
            BigDecimal again = mapper.readValue(data, Amount.class).value();
            var kind = new RawBsonDocument(data).get("value").getBsonType();
            BsonDocument other = new Document("value", new BigDecimal(text)).toBsonDocument();
            Decimal128 own = other.getDecimal128("value").getValue();
            System.out.print(text + ": read again " + again.toPlainString() + ", in the document " + kind);
            System.out.println("; by bson " + own + ", " + other.get("value").getBsonType());
        }
        for (String text : new String[] {"18446744073709551616", "5000000000"}) {
            byte[] data = mapper.writeValueAsBytes(new Count(new BigInteger(text)));
            System.out.println(text + ": in the document " + new RawBsonDocument(data).get("value").getBsonType());
        }
    }
}
END
java -cp 'lib/*' Look.java 2> log | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
