#!/bin/sh
# Moquette 0.17 (Maven, io.moquette, an MQTT broker for Java programs): a kept message that a new subscriber is sent
# with quality of service 1 or 2 has no retain flag, as if it had just been published; and "#" has the topics that begin
# with a "$", too.
#
# What is sent because a subscription is new has the flag set, what matches one that is there has not (MQTT 3.1.1,
# MQTT-3.3.1-8 and -9); by it a subscriber knows a state of an hour ago from an event. With quality 0 the flag is set. A
# filter that begins with a wildcard does not match a topic that begins with "$" (MQTT-4.7.2-1). Nothing is raised.
# paho-mqtt 2.1.0 is the client. Seen:
#
#   new subscription, quality 0: retain True
#   new subscription, quality 1: retain False
#   new subscription, quality 2: retain False
#   published while subscribed: retain False
#   subscribed to #: kept/state, $x/y, x/y
#
# Needs python3, Java 17 and Maven. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q paho-mqtt==2.1.0
cd "$work"
cat > pom.xml <<'END'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId><artifactId>look</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>io.moquette</groupId><artifactId>moquette-broker</artifactId><version>0.17</version>
  </dependency></dependencies>
</project>
END
mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib > log 2>&1 || { tail -n 20 log; exit 1; }
cat > Broker.java <<'END'
import io.moquette.broker.Server;
import io.moquette.broker.config.MemoryConfig;
import java.util.Properties;

public class Broker {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.setProperty("host", "127.0.0.1");
        settings.setProperty("port", arguments[0]);
        settings.setProperty("allow_anonymous", "true");
        settings.setProperty("telemetry_enabled", "false");
        settings.setProperty("data_path", arguments[1]);
        Server server = new Server();
        server.startServer(new MemoryConfig(settings));
        System.out.println("up");
        System.in.read();
        server.stopServer();
    }
}
END
cat > look.py <<'END'
import queue
import socket
import subprocess

import paho.mqtt.client as mqtt

WAIT_S = 60
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]


class Client(mqtt.Client):
    def __init__(self):
        super().__init__(mqtt.CallbackAPIVersion.VERSION2)
        self.messages, self.answers = queue.Queue(), queue.Queue()
        self.on_message = lambda _client, _data, message: self.messages.put(message)
        self.on_connect = self.on_subscribe = lambda *_: self.answers.put(None)
        self.connect("127.0.0.1", port)
        self.loop_start()
        self.answers.get(timeout=WAIT_S)

    def listen(self, topics, quality):
        self.subscribe(topics, quality)
        self.answers.get(timeout=WAIT_S)
        return self

    def tell(self, topic, retain=False):
        self.publish(topic, b"on", 1, retain).wait_for_publish(WAIT_S)


command = ["java", "-cp", "lib/*", "Broker.java", str(port), "."]
with open("log", "w") as log, subprocess.Popen(command, stdin=-1, stdout=-1, stderr=log, text=True) as broker:
    try:
        while broker.stdout.readline().strip() != "up":
            assert broker.poll() is None
        first = Client()
        first.tell("kept/state", retain=True)
        for quality in range(3):
            message = Client().listen("kept/#", quality).messages.get(timeout=WAIT_S)
            print(f"new subscription, quality {quality}: retain {message.retain}")
        second = Client().listen("events/#", 1)
        first.tell("events/1", retain=True)
        print("published while subscribed: retain", second.messages.get(timeout=WAIT_S).retain)
        first.publish("events/1", b"", 0, True).wait_for_publish(WAIT_S)
        third = Client().listen("#", 0)
        topics = []
        for topic in ("$x/y", "x/y"):
            first.tell(topic)
        while not topics or topics[-1] != "x/y":
            topics.append(third.messages.get(timeout=WAIT_S).topic)
        print("subscribed to #:", ", ".join(topic for topic in topics if not topic.startswith("events")))
    finally:
        broker.stdin.close()
        broker.wait(WAIT_S)
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
