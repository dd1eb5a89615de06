"""What programs share that read the same records in several ways, each in a process of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from confluent_kafka import Producer

from benchmarks.programs._program import tell
from tests.services.jars import jars

BOUND_S = 400.0
_PEER = Path(__file__).parents[1] / "kafka_peer.xml"
_PEER_JARS = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2")


def peer_jars():
    """Return the files that Spark's own Kafka source needs, separated by commas."""
    found = sorted(jars(_PEER).iterdir())
    return ",".join(str(jar) for jar in found if jar.name.startswith(_PEER_JARS))


def fast_producer(broker):
    """Return a producer that fills a topic fast."""
    return Producer(
        {
            "bootstrap.servers": broker.address,
            "linger.ms": 50,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 500_000,
        }
    )


def told_by(module, options, parent):
    """Run a program in a folder of its own; return what it tells last."""
    folder = tempfile.mkdtemp(dir=parent)
    given = json.dumps({**options, "folder": folder})
    command = [sys.executable, "-m", module, given]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S)
        assert ended.returncode == 0, ended.stderr[-3000:]
        return json.loads(ended.stdout.splitlines()[-1])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def tell_speeds(speeds, quotients, words):
    """Tell the speed of each way, named by its two parts and `words`, and the quotients of some."""
    figures = {
        name: speeds[one] / speeds[other]
        for name, (one, other) in quotients.items()
        if one in speeds and other in speeds
    }
    notes = {words.format(*way): float(speed) for way, speed in speeds.items()}
    tell({"figures": figures, "notes": notes})
