#!/bin/sh
# confluent-kafka 2.16.1 (broker: Kafka 4.1.0): a message without a value, as a tombstone is, is false, and so is
# one whose value is empty; who asks `if message` after a poll passes over both, and they count as read.
#
# `poll` gives None when nothing came, so that this is what one asks. But a message has a length, that of its
# value, and what has the length 0 is false in Python: the key that was deleted stays in whatever is built
# from the topic, `while message := consumer.poll(1)` ends at the first deletion, and the position is behind it,
# so that it does not come again. The client's own examples ask `is None`; why is not said. Records of
# kafka-python 3.0.12 and aiokafka 0.14.0 are true, whatever they have. Seen, of set, deleted, empty, set:
#
#   confluent-kafka, if message: offsets 0, 3, position 4
#   confluent-kafka, is not None: offsets 0, 1, 2, 3, position 4
#   confluent-kafka, while message := poll: offsets 0, position 2
#   kafka-python, if record: offsets 0, 1, 2, 3
#   aiokafka, if record: offsets 0, 1, 2, 3
#
# Needs python3, Java 17 and Maven. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
broker=
end() {
    if [ -n "$broker" ]; then kill -9 "$broker" 2>/dev/null || true; fi
    rm -rf "$work"
}
trap end EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q confluent-kafka==2.16.1 kafka-python==3.0.12 aiokafka==0.14.0
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
cd "$work"
ports=$(python3 -c '
import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(each.getsockname()[1] for each in held))')
port=${ports% *}
controller=${ports#* }
cat > server.properties <<END
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
    -c server.properties > format.log 2>&1
java -Xmx384m -cp "$work/jars/*" kafka.Kafka server.properties > server.log 2>&1 &
broker=$!
cat > look.py <<'END'
import asyncio
import sys
import time

import aiokafka
import confluent_kafka
import kafka
import kafka.admin

ADDRESS = sys.argv[1]
TOPIC = "names"
VALUES = b"set", None, b"", b"set"


def client(end=time.monotonic() + 60):
    while True:
        try:
            return kafka.KafkaAdminClient(bootstrap_servers=ADDRESS, bootstrap_timeout_ms=2000)
        except Exception:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def consumer():
    made = confluent_kafka.Consumer(
        {"bootstrap.servers": ADDRESS, "group.id": "never-committed", "enable.auto.commit": False}
    )
    made.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
    return made


def tell(name, offsets, made=None):
    line = f"{name}: offsets {', '.join(map(str, offsets))}"
    if made is not None:
        (place,) = made.position([confluent_kafka.TopicPartition(TOPIC, 0)])
        line += f", position {place.offset}"
        made.close()
    print(line)


def until(made, taken):
    """The offsets that `taken` is true of, when the position is behind all messages."""
    offsets, end = [], time.monotonic() + 60
    while time.monotonic() < end:
        message = made.poll(1)
        if taken(message):
            offsets.append(message.offset())
        (place,) = made.position([confluent_kafka.TopicPartition(TOPIC, 0)])
        if place.offset == len(VALUES):
            break
    return offsets


async def by_aiokafka():
    made = aiokafka.AIOKafkaConsumer(bootstrap_servers=ADDRESS)
    await made.start()
    made.assign([aiokafka.TopicPartition(TOPIC, 0)])
    await made.seek_to_beginning()
    offsets = [record.offset for record in [await made.getone() for _ in VALUES] if record]
    await made.stop()
    return offsets


with client() as admin:
    admin.create_topics([kafka.admin.NewTopic(TOPIC, 1, 1)])
    admin.wait_for_topics([TOPIC])
producer = confluent_kafka.Producer({"bootstrap.servers": ADDRESS})
for value in VALUES:
    producer.produce(TOPIC, value, key=b"name", partition=0)
producer.flush()

made = consumer()
tell("confluent-kafka, if message", until(made, lambda message: message), made)
made = consumer()
tell("confluent-kafka, is not None", until(made, lambda message: message is not None), made)
made = consumer()
offsets = []
while message := made.poll(30):
    offsets.append(message.offset())
tell("confluent-kafka, while message := poll", offsets, made)
records = kafka.KafkaConsumer(bootstrap_servers=ADDRESS)
records.assign([kafka.TopicPartition(TOPIC, 0)])
records.seek_to_beginning()
tell("kafka-python, if record", [each.offset for each in [next(records) for _ in VALUES] if each])
records.close()
tell("aiokafka, if record", asyncio.run(by_aiokafka()))
END
"$work/venv/bin/python" -W ignore look.py "127.0.0.1:$port" | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
