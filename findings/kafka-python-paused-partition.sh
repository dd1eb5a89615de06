#!/bin/sh
# kafka-python 3.0.12 (broker: Kafka 4.1.0) never gives a partition again that was paused while some
# of its fetched records waited inside the client, if another partition was read before `resume`.
#
# Two partitions with 2,000 records each, max_poll_records=100. One poll gives 100 records of the
# first; it is paused, the other one is read, the first is resumed. From then on no poll gives a
# record of the first: not after resume, and not after seek to 0. No error is raised, `paused()` is
# empty, and `position()` stays at 100. Seen:
#
#   kafka-python 3.0.12: the other got 2000 of 2000, the resumed one 100 of 2000
#   after seek: the resumed one still has 100; position 0, paused set()
#
# The cause is in kafka/consumer/fetcher.py: what waits for a paused partition goes back to its place
# only while `_next_partition_records is None`, but a drained one of another partition stays there;
# and a partition of which something waits is left out of fetches.
#
# Needs python3, Java 17 and Maven. Ends with 0 while it is so, with another number when it changes.
set -eu
work=$(mktemp -d)
broker=
end() {
    if [ -n "$broker" ]; then kill -9 "$broker" 2>/dev/null || true; fi
    rm -rf "$work"
}
trap end EXIT
trap 'exit 2' INT TERM

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q kafka-python==3.0.12
cat > "$work/pom.xml" <<'END'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId><artifactId>broker</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.1.0</version>
  </dependency></dependencies>
</project>
END
mvn -B -q -f "$work/pom.xml" \
    org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    -DoutputDirectory="$work/jars"
ports=$(python3 -c '
import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(each.getsockname()[1] for each in held))')
port=${ports% *}
controller=${ports#* }
cat > "$work/server.properties" <<END
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAINTEXT://127.0.0.1:$port
controller.listener.names=CONTROLLER
log.dirs=$work/data
offsets.topic.replication.factor=1
END
java -cp "$work/jars/*" kafka.tools.StorageTool format -t AAAAAAAAAAAAAAAAAAAAAQ \
    -c "$work/server.properties" > "$work/format.log" 2>&1
java -Xmx384m -cp "$work/jars/*" kafka.Kafka "$work/server.properties" > "$work/server.log" 2>&1 &
broker=$!
cat > "$work/show.py" <<'END'
import sys, time, uuid
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, __version__
from kafka.admin import NewTopic

address = sys.argv[1]
end = time.monotonic() + 60
while True:
    try:
        KafkaAdminClient(bootstrap_servers=address, bootstrap_timeout_ms=2000).close()
        break
    except Exception:
        if time.monotonic() > end:
            raise
        time.sleep(0.2)
topic = f"paused-{uuid.uuid4().hex[:6]}"
with KafkaAdminClient(bootstrap_servers=address) as admin:
    admin.create_topics([NewTopic(topic, 2, 1)])
    admin.wait_for_topics([topic])
producer = KafkaProducer(bootstrap_servers=address, linger_ms=20)
for number in range(4000):
    producer.send(topic, b"%d" % number, partition=number % 2)
producer.flush()
producer.close()
consumer = KafkaConsumer(
    bootstrap_servers=address, auto_offset_reset="earliest", enable_auto_commit=False, max_poll_records=100
)
both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
consumer.assign(both)
got = {each: 0 for each in both}


def poll():
    for partition, records in consumer.poll(200).items():
        got[partition] += len(records)


while not any(got.values()):
    poll()
first = next(each for each in both if got[each])
(other,) = set(both) - {first}
consumer.pause(first)  # 1,900 of its records wait inside the client
while not got[other]:
    poll()
consumer.resume(first)
before = got[first]
end = time.monotonic() + 15
while time.monotonic() < end:
    poll()
print(f"kafka-python {__version__}: the other got {got[other]} of 2000, the resumed one {got[first]} of 2000")
consumer.seek(first, 0)
end = time.monotonic() + 5
while time.monotonic() < end:
    poll()
print(
    f"after seek: the resumed one still has {got[first]}; position {consumer.position(first)}, "
    f"paused {consumer.paused()}"
)
consumer.close(autocommit=False)
sys.exit(0 if (got[other], got[first]) == (2000, before) else 1)
END
"$work/venv/bin/python" -W ignore "$work/show.py" "127.0.0.1:$port"
