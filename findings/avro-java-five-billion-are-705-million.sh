#!/bin/sh
# avro 1.11.4 (Maven, org.apache.avro), and jackson-dataformat-avro 2.18.2 with it: a count of 5,000,000,000 in a field
# that is an int is written as 705,032,704, a number of 18446744073709551621 in a long as 5, and 3.5 in an int as 3.
#
# An int has 32 bits and a sign, a long 64 (Avro 1.11, "Primitive Types"). Both writers take intValue() and longValue() of
# whatever number a row has, which cut; a row that comes from JSON has it in any type. Where the field may be null Avro
# raises an error, and Jackson cuts. Avro's own GenericData.validate says of such a row that it is not one of the schema,
# and Jackson raises an error when it reads such a JSON number into an int. Nothing else is raised. Seen (Avro reads):
#
#   "int", 5000000000: valid false, Avro 705032704, Jackson 705032704
#   "int", 3.5: valid false, Avro 3, Jackson 3
#   "long", 18446744073709551621: valid false, Avro 5, Jackson 5
#   "long", 5000000000: valid true, Avro 5000000000, Jackson 5000000000
#   ["null","int"], 5000000000: valid false, Avro UnresolvedUnionException, Jackson 705032704
#   Jackson, JSON 5000000000 into an int: InputCoercionException
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
    <dependency>
      <groupId>com.fasterxml.jackson.dataformat</groupId>
      <artifactId>jackson-dataformat-avro</artifactId><version>2.18.2</version>
    </dependency>
    <dependency>
      <groupId>org.apache.avro</groupId><artifactId>avro</artifactId><version>1.11.4</version>
    </dependency>
  </dependencies>
</project>
END
mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib > log 2>&1 || { tail -n 20 log; exit 1; }
cat > Look.java <<'END'
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.dataformat.avro.AvroMapper;
import java.io.ByteArrayOutputStream;
import java.util.concurrent.Callable;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;

public class Look {
    static String rowOf(String type) {
        return "{\"type\":\"record\",\"name\":\"Row\",\"fields\":[{\"name\":\"n\",\"type\":" + type + "}]}";
    }

    static Object read(Schema schema, byte[] data) throws Exception {
        var decoder = DecoderFactory.get().binaryDecoder(data, null);
        return new GenericDatumReader<GenericRecord>(schema).read(null, decoder).get("n");
    }

    static byte[] byAvro(Schema schema, GenericRecord row) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(out, null);
        new GenericDatumWriter<GenericRecord>(schema).write(row, encoder);
        encoder.flush();
        return out.toByteArray();
    }

    static Object orError(Callable<Object> work) {
        try {
            return work.call();
        } catch (Exception error) {
            return error.getClass().getSimpleName();
        }
    }

    static void look(String type, String number) throws Exception {
        JsonNode row = new ObjectMapper().readTree("{\"n\":" + number + "}");
        Schema schema = new Schema.Parser().parse(rowOf(type));
        AvroMapper mapper = new AvroMapper();
        byte[] data = mapper.writer(mapper.schemaFrom(rowOf(type))).writeValueAsBytes(row);
        GenericRecord own = new GenericData.Record(schema);
        own.put("n", row.get("n").numberValue());
        Object found = orError(() -> read(schema, byAvro(schema, own)));
        System.out.print(type + ", " + number + ": valid " + GenericData.get().validate(schema, own));
        System.out.println(", Avro " + found + ", Jackson " + read(schema, data));
    }

    public static void main(String[] arguments) throws Exception {
        look("\"int\"", "5000000000");
        look("\"int\"", "3.5");
        look("\"long\"", "18446744073709551621");
        look("\"long\"", "5000000000");
        look("[\"null\",\"int\"]", "5000000000");
        Object own = orError(() -> {
            var parser = new ObjectMapper().createParser("5000000000");
            parser.nextToken();
            return parser.getIntValue();
        });
        System.out.println("Jackson, JSON 5000000000 into an int: " + own);
    }
}
END
java -cp 'lib/*' Look.java 2> log | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
