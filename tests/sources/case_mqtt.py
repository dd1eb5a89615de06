"""`MqttReceiver` on a mosquitto whose session is there before the receiver."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal

from penstock.sources.mqtt import MqttReceiver
from tests.bounds import HANG_S
from tests.services.mosquitto import Mosquitto
from tests.sources.cases import SECRET, Source, SourceCase

MOST = 10
NAME = "penstock-test"


class MqttSource(Source):
    def __init__(self, broker: Mosquitto, qos: int, version: str) -> None:
        self._broker = broker
        self._qos = qos
        self._version = version
        self.port = broker.port

    def receiver(self, port: int, secret: str = SECRET) -> object:
        return MqttReceiver(
            f"mqtt://127.0.0.1:{port}",
            "records/#",
            client_id=NAME,
            qos=self._qos,
            version=self._version,
            username="user",
            password=secret,
            keep_alive_s=2,
            max_unacknowledged=MOST,
        )

    def send(self, payloads: Sequence[bytes]) -> None:
        self._broker.publish("records/all", *payloads, qos=self._qos)

    def kill(self) -> None:
        # A kill of the broker takes it back to what it has saved, and it gives again what it had
        # been told of since.
        end_s = time.monotonic() + HANG_S
        while self._broker.unacknowledged(NAME) and time.monotonic() < end_s:
            time.sleep(0.01)
        self._broker.save()
        self._broker.kill()

    def start(self) -> None:
        self._broker.start()

    def unacknowledged(self) -> int:
        return self._broker.unacknowledged(NAME)


def _opened(qos: int, version: str) -> Callable[[Path], AbstractContextManager[Source]]:
    @contextlib.contextmanager
    def opened(folder: Path) -> Iterator[Source]:
        with Mosquitto(folder, *Mosquitto.KEEPS, secret=SECRET) as broker:
            broker.make_session(NAME, "records/#", qos, version)
            yield MqttSource(broker, qos, version)

    return opened


def _case(version: str, qos: int, claim: Literal["at least once", "exactly once"]) -> SourceCase:
    return SourceCase(
        f"mqtt-{version}-qos-{qos}",
        _opened(qos, version),
        claim,
        refusal="refuses the connection: Not authorized",
        most_unacknowledged=MOST if version == "5" else None,
        notices_stalls=True,
    )


CASES = [
    _case("5", 1, "at least once"),
    _case("5", 2, "exactly once"),
    _case("3.1.1", 1, "at least once"),
    _case("3.1.1", 2, "exactly once"),
]
