#!/bin/sh
# A static member (group.instance.id) that comes back never reads partitions which its topic got while
# it was away, though it is alone in its group. So with kafka-python 3.0.12 and confluent-kafka 2.16.1
# (librdkafka); broker: Kafka 4.1.0.
#
# A topic of one partition; the member reads, is closed (a static one does not leave) and the topic
# gets a second partition with 100 records. Metadata are asked for each second. The member that comes
# back is given what it had. A member that was not away reads the second partition.
# Seen, 90 s after the partition was made:
#
#   kafka-python 3.0.12: away [0], not away [0, 1]
#   confluent-kafka: away [0], not away [0, 1]
#
# The cause: the broker answers a static member's join with the assignment that it had and does not
# say that it is the leader, so that nobody watches the topic for the group. Java's client is told
# (KIP-814). A second join of the same member changes it.
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
"$work/venv/bin/pip" install -q kafka-python==3.0.12 confluent-kafka==2.16.1
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
import confluent_kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, __version__
from kafka.admin import NewPartitions, NewTopic

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

def kafka_python(topic, instance):
    return KafkaConsumer(
        topic, bootstrap_servers=address, group_id=f"g-{instance}", group_instance_id=instance,
        auto_offset_reset="earliest", metadata_max_age_ms=1000,
    )


def librdkafka(topic, instance):
    consumer = confluent_kafka.Consumer({
        "bootstrap.servers": address, "group.id": f"g-{instance}", "group.instance.id": instance,
        "auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 1000,
    })
    consumer.subscribe([topic])
    return consumer


def seen(consumer, seconds, wanted):
    found, end = set(), time.monotonic() + seconds
    while time.monotonic() < end and found != wanted:
        if isinstance(consumer, KafkaConsumer):
            found |= {each.partition for each in consumer.poll(200)}
        else:
            found |= {each.partition() for each in consumer.consume(100, 0.2) if not each.error()}
    return found


def send(topic, partition):
    producer = KafkaProducer(bootstrap_servers=address)
    for number in range(100):
        producer.send(topic, b"%d" % number, partition=partition)
    producer.flush()
    producer.close()


results = []
for name, make in ((f"kafka-python {__version__}", kafka_python), ("confluent-kafka", librdkafka)):
    read = {}
    for how in ("away", "not away"):
        topic = f"t-{uuid.uuid4().hex[:6]}"
        with KafkaAdminClient(bootstrap_servers=address) as admin:
            admin.create_topics([NewTopic(topic, 1, 1)])
            admin.wait_for_topics([topic])
            send(topic, 0)
            consumer = make(topic, topic)
            assert seen(consumer, 60, {0}) == {0}
            if how == "away":
                consumer.close()
            admin.create_partitions({topic: NewPartitions(2)})
        send(topic, 0)
        send(topic, 1)
        if how == "away":
            consumer = make(topic, topic)
        read[how] = sorted(seen(consumer, 90, {0, 1}))
        consumer.close()
    print(f"{name}: away {read['away']}, not away {read['not away']}")
    results.append(read == {"away": [0], "not away": [0, 1]})
sys.exit(0 if all(results) else 1)
END
"$work/venv/bin/python" -W ignore "$work/show.py" "127.0.0.1:$port"
