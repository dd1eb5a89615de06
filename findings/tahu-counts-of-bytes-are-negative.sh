#!/bin/sh
# Eclipse Tahu 1.0.12 (Maven, org.eclipse.tahu, Sparkplug B): 200 in an array of unsigned bytes is -56 once it is read,
# though the library wrote it and has a wider type for it; alone 200 is 200, and arrays of the wider unsigned numbers
# are right.
#
# A UInt8Array is bytes without a sign (Sparkplug 3.0.0, "Data Types"). The library takes Short for each of them, as it
# does for a single UInt8, so that 0 to 255 fit, and fills them from Java's byte, which has a sign. Nothing is raised.
# Seen (what was written, its bytes, what is read):
#
#   UInt8 200: 200
#   UInt8Array [200, 5]: c805, [-56, 5] of Short
#   UInt16Array [60000, 5]: 60ea0500, [60000, 5] of Integer
#   UInt32Array [4000000000, 5]: 00286bee05000000, [4000000000, 5] of Long
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
    <groupId>org.eclipse.tahu</groupId><artifactId>tahu-core</artifactId><version>1.0.12</version>
  </dependency></dependencies>
</project>
END
mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib > log 2>&1 || { tail -n 20 log; exit 1; }
cat > Look.java <<'END'
import java.util.Arrays;
import java.util.Date;
import java.util.HexFormat;
import org.eclipse.tahu.message.SparkplugBPayloadDecoder;
import org.eclipse.tahu.message.SparkplugBPayloadEncoder;
import org.eclipse.tahu.message.model.Metric;
import org.eclipse.tahu.message.model.MetricDataType;
import org.eclipse.tahu.message.model.SparkplugBPayload;
import org.eclipse.tahu.protobuf.SparkplugBProto;

public class Look {
    static void look(MetricDataType type, Object value) throws Exception {
        Metric metric = new Metric.MetricBuilder("count", type, value).timestamp(new Date(0)).createMetric();
        SparkplugBPayload payload = new SparkplugBPayload.SparkplugBPayloadBuilder().addMetric(metric).createPayload();
        byte[] data = new SparkplugBPayloadEncoder().getBytes(payload, false);
        Object read = new SparkplugBPayloadDecoder().buildFromByteArray(data, null).getMetrics().get(0).getValue();
        if (value instanceof Object[] values) {
            Object[] found = (Object[]) read;
            byte[] bytes = SparkplugBProto.Payload.parseFrom(data).getMetrics(0).getBytesValue().toByteArray();
            System.out.println(type + " " + Arrays.toString(values) + ": " + HexFormat.of().formatHex(bytes) + ", "
                + Arrays.toString(found) + " of " + found.getClass().getComponentType().getSimpleName());
        } else {
            System.out.println(type + " " + value + ": " + read);
        }
    }

    public static void main(String[] arguments) throws Exception {
        look(MetricDataType.UInt8, (short) 200);
        look(MetricDataType.UInt8Array, new Short[] {200, 5});
        look(MetricDataType.UInt16Array, new Integer[] {60000, 5});
        look(MetricDataType.UInt32Array, new Long[] {4000000000L, 5L});
    }
}
END
java -Dlogback.statusListenerClass=ch.qos.logback.core.status.NopStatusListener -cp 'lib/*' Look.java 2> log | grep '^U' > seen ||
    { tail -n 20 log; exit 1; }
cat seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
