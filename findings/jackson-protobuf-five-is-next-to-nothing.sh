#!/bin/sh
# Jackson 2.23.0 (Maven, jackson-dataformat-protobuf): a whole number in a double is written as its bits, 5 as 2.5E-323;
# -1 in an int64 is 4294967295 where it comes as a Java int, and one in an int32 cannot be read where it came as a long.
#
# A double is eight bytes of IEEE 754, a negative int32 or int64 a varint of ten bytes (protobuf, "Encoding"). What is
# in a Map or in JSON has the type of its value and not that of the field: 5, 5.0 and 5L are one amount. The library
# writes each as it comes, and allows five bytes for an int32, so that it refuses those of others, too. Seen (the value;
# its bytes; as they are read):
#
#   double of Double 5.0: 090000000000001440, 5.0
#   double of Integer 5: 090500000000000000, 2.5E-323
#   double of Long 5: 090500000000000000, 2.5E-323
#   double of BigInteger 18446744073709551615: 09ffffffffffffffff, NaN
#   int64 of Long -1: 08ffffffffffffffffff01, -1
#   int64 of Integer -1: 08ffffffff0f, 4294967295
#   int32 of Integer -1: 08ffffffff0f, -1
#   int32 of Long -1: 08ffffffffffffffffff01, Too long tag VInt: fifth byte 0xff
#   sint64 of Integer -1: 0801, -1
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
    <groupId>com.fasterxml.jackson.dataformat</groupId>
    <artifactId>jackson-dataformat-protobuf</artifactId><version>2.23.0</version>
  </dependency></dependencies>
</project>
END
mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib > log 2>&1 || { tail -n 20 log; exit 1; }
cat > Look.java <<'END'
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.dataformat.protobuf.ProtobufMapper;
import com.fasterxml.jackson.dataformat.protobuf.schema.ProtobufSchema;
import com.fasterxml.jackson.dataformat.protobuf.schema.ProtobufSchemaLoader;
import java.math.BigInteger;
import java.util.HexFormat;
import java.util.Map;

public class Look {
    static void look(String type, Object value) throws Exception {
        ProtobufMapper mapper = new ProtobufMapper();
        ProtobufSchema schema = ProtobufSchemaLoader.std.parse("message Record { optional " + type + " x = 1; }");
        byte[] data = mapper.writer(schema).writeValueAsBytes(Map.of("x", value));
        Object read;
        try {
            read = mapper.readerFor(Map.class).with(schema).<Map<String, Object>>readValue(data).get("x");
        } catch (JsonProcessingException error) {
            read = error.getOriginalMessage();
        }
        System.out.println(type + " of " + value.getClass().getSimpleName() + " " + value + ": " + HexFormat.of().formatHex(data) + ", " + read);
    }

    public static void main(String[] arguments) throws Exception {
        look("double", 5.0);
        look("double", 5);
        look("double", 5L);
        look("double", new BigInteger("18446744073709551615"));
        look("int64", -1L);
        look("int64", -1);
        look("int32", -1);
        look("int32", -1L);
        look("sint64", -1);
    }
}
END
java -cp 'lib/*' Look.java 2> log | tee seen || { tail -n 20 log; exit 1; }
sed -n 's/^#   //p' "$this" > expected
diff expected seen
